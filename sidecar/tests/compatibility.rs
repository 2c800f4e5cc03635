//! docs/compatibility.md is held against the answers that may be other than Apache's (`grpc_apache_answers.rs`).
#![allow(clippy::expect_used, reason = "tests say what they expect")]

use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../docs/compatibility.md");
const LIST: &str = include_str!("grpc_apache_answers.rs");

/// Question, code as clients call it, and reason of each row of `DIFFERENT`.
fn accepted() -> BTreeMap<String, (String, String)> {
    let (_, list) = LIST.split_once("const DIFFERENT").expect("the list");
    let (list, _) = list.split_once("];").expect("its end");
    let mut rows = BTreeMap::new();
    for row in list.split("(\"").skip(1) {
        let (question, rest) = row.split_once("\", Code::").expect("a question");
        let (code, rest) = rest.split_once(", \"").expect("a code");
        let mut name = String::new();
        for letter in code.chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        let reason = rest.split('"').next().unwrap_or_default();
        rows.insert(question.to_owned(), (name, reason.to_owned()));
    }
    rows
}

/// Question → Waybill's answer, of the first table.
fn shown() -> BTreeMap<String, String> {
    let (_, table) = PAGE.split_once("## Codes").expect("the first table");
    let (table, _) = table.split_once("\n## ").expect("its end");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|line| {
        let (question, rest) = line.split_once("` | ")?;
        Some((question.to_owned(), rest.split(" | ").nth(1)?.to_owned()))
    })
    .collect()
}

#[test]
fn the_page_lists_what_the_test_accepts() {
    let (accepted, shown) = (accepted(), shown());
    assert!(accepted.len() > 10 && shown.len() > 10, "{accepted:?} {shown:?}");
    for (question, (code, reason)) in &accepted {
        // What is only not built yet is on no list of differences on purpose.
        if reason.contains("come later") || reason.contains("comes later") {
            continue;
        }
        assert_eq!(shown.get(question), Some(code), "{question}");
    }
    for question in shown.keys() {
        assert!(accepted.contains_key(question), "{question} is no different");
    }
}
