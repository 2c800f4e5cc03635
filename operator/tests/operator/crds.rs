//! The files in `crds/` are what the types say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use waybill_operator::api::Reason;
use waybill_operator::crds;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_definitions_in_crds_are_those_of_the_types() {
    let listed = std::fs::read_dir(root().join("crds")).expect("crds/");
    let there: BTreeMap<String, String> = listed
        .map(|entry| {
            let path = entry.expect("a file").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("text"))
        })
        .collect();
    let made: BTreeMap<String, String> = crds::files().expect("definitions").into_iter().collect();
    assert!(there == made, "`make docs` writes them again: {:?}, {:?}", there.keys(), made.keys());
}

#[test]
fn every_reason_has_its_place_in_the_documentation() {
    let page = std::fs::read_to_string(root().join("docs/operator-conditions.md")).expect("a page");
    let told: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let all: Vec<String> = Reason::ALL.iter().map(|reason| format!("{reason:?}")).collect();
    assert_eq!(told, all);
}
