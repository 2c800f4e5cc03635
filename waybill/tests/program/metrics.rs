//! docs/metrics.md is held against the code, and against what a running program shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::{Dir, Standalone};

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// A line of the page.
#[derive(Debug)]
struct Row {
    kind: &'static str,
    labels: BTreeSet<&'static str>,
    meaning: &'static str,
}

/// The metrics of a section by the name in the `# TYPE` line.
fn section(title: &str) -> BTreeMap<&'static str, Row> {
    let sections = PAGE.split("\n## ");
    let text = sections.filter_map(|text| text.strip_prefix(title)).next().expect("the section is there");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, unit, meaning] = cells[..] else { panic!("five cells: {line}") };
        assert!(!unit.is_empty() && !meaning.is_empty(), "{line}");
        let name = name.trim_matches('`');
        let family = if kind == "counter" { name.strip_suffix("_total").expect(line) } else { name };
        (family, Row { kind, labels: labels.split(", ").filter(|label| !label.is_empty()).collect(), meaning })
    })
    .collect()
}

/// The string literals in a crate's sources that are names of metrics.
fn in_sources(name: &str, found: &mut BTreeSet<String>) {
    fn walk(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                let text = std::fs::read_to_string(&path).expect("a file");
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let names = code.split('"').filter(|word| {
                    ["waybill_", "rocketmq_", "process_"].iter().any(|prefix| word.starts_with(prefix))
                        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                });
                found.extend(names.map(str::to_owned));
            }
        }
    }
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), found);
}

#[test]
fn the_page_names_what_the_code_names() {
    for (title, name) in
        [("Every program", "ops"), ("Broker", "broker"), ("Sidecar", "sidecar"), ("Operator", "operator")]
    {
        let mut code = BTreeSet::new();
        in_sources(name, &mut code);
        assert!(code.len() > 5, "{name} has metrics: {code:?}");
        // The unit is added by the registry.
        let bare = |family: &str| match family.strip_suffix("_seconds") {
            Some(bare) if code.contains(bare) => bare.to_owned(),
            _ => family.to_owned(),
        };
        let page: BTreeSet<String> = section(title).into_keys().map(bare).collect();
        assert_eq!(page, code, "docs/metrics.md, {title}");
    }
}

#[test]
fn the_page_says_what_a_running_program_shows() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &["--flush", "async"]);
    waybill.client(&["message", "send", "--topic", "t", "--body", "b"]).ok();
    waybill.client(&["message", "receive", "--topic", "t", "--group", "g", "--ack"]).ok();
    let shown = waybill.get("/metrics");
    assert_eq!(waybill.stop(), Some(0));

    let sections = ["Every program", "Broker", "Sidecar"].map(section);
    let rows = |family: &str| sections.iter().filter_map(|section| section.get(family)).collect::<Vec<_>>();
    let (mut family, mut seen, mut labelled) = ("", 0, 0);
    for line in shown.lines() {
        if let Some(said) = line.strip_prefix("# TYPE ") {
            let kind;
            (family, kind) = said.split_once(' ').expect("a type");
            assert!(!rows(family).is_empty(), "{family} is not on the page");
            assert!(rows(family).iter().all(|row| row.kind == kind), "{said}: {:?}", rows(family));
            seen += 1;
        } else if let Some(said) = line.strip_prefix("# HELP ") {
            let (family, help) = said.split_once(' ').expect("a help");
            let help = help.trim_end_matches('.');
            let same = rows(family).iter().any(|row| row.meaning == help || family.starts_with("process_"));
            assert!(same, "{said}: {:?}", rows(family));
        } else if line.starts_with(family) {
            let labels = line.split_once('{').map_or("", |(_name, rest)| rest.split('}').next().unwrap_or_default());
            let labels = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _value)| name);
            let labels: BTreeSet<&str> = labels.filter(|name| !["part", "le"].contains(name)).collect();
            assert!(rows(family).iter().any(|row| row.labels == labels), "{line}: {:?}", rows(family));
            labelled += usize::from(!labels.is_empty());
        }
    }
    assert!(seen > 40 && labelled > 10, "{seen} families, {labelled} with labels:\n{shown}");
}
