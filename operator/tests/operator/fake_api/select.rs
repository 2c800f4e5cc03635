//! Selectors of lists and watches, as far as the operator uses them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Which objects are meant.
#[derive(Clone, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    /// Fields that must not have a value.
    not: Vec<(String, String)>,
}

#[derive(Clone)]
enum Requirement {
    Has(String),
    Is(String, Vec<String>),
}

impl Selector {
    pub(super) fn of(query: &BTreeMap<String, String>) -> Self {
        let text = |name: &str| query.get(name).map(|text| decoded(text)).unwrap_or_default();
        let fields = text("fieldSelector");
        let not = fields.split(',').filter(|field| !field.is_empty()).map(|field| {
            let (field, value) = field.split_once("!=").expect("only != is known");
            (format!("/{}", field.replace('.', "/")), value.to_owned())
        });
        Self { labels: requirements(&text("labelSelector")), not: not.collect() }
    }

    pub(super) fn takes(&self, object: &Value) -> bool {
        let label = |name: &str| object["metadata"]["labels"][name].as_str();
        let labels = self.labels.iter().all(|required| match required {
            Requirement::Has(name) => label(name).is_some(),
            Requirement::Is(name, values) => label(name).is_some_and(|is| values.iter().any(|value| value == is)),
        });
        labels && self.not.iter().all(|(field, value)| object.pointer(field).and_then(Value::as_str) != Some(value))
    }
}

fn requirements(text: &str) -> Vec<Requirement> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let inside = rest.find(" in (").filter(|at| rest.find(',').is_none_or(|comma| *at < comma));
        if let Some(at) = inside {
            let end = rest.find(')').expect("a closing bracket");
            let values = rest[at + 5..end].split(',').map(|value| value.trim().to_owned()).collect();
            all.push(Requirement::Is(rest[..at].to_owned(), values));
            rest = rest[end + 1..].trim_start_matches(',');
            continue;
        }
        let (one, others) = rest.split_once(',').unwrap_or((rest, ""));
        all.push(match one.split_once('=') {
            Some((name, value)) => Requirement::Is(name.to_owned(), vec![value.to_owned()]),
            None => Requirement::Has(one.to_owned()),
        });
        rest = others;
    }
    all
}

/// What a query says: percent signs, and plus signs for blanks.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                u8::from_str_radix(std::str::from_utf8(&digits).expect("digits"), 16).expect("a byte")
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).expect("text")
}
