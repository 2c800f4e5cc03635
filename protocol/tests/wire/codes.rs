//! The numbers against their table.

use serde_json::Value;
use waybill_protocol::remoting::codes::{canonical, client_error, own, request, response};

fn table() -> Value {
    serde_json::from_str(include_str!("../data/remoting-codes.json")).unwrap()
}

fn rows(table: &Value, section: &str) -> Vec<(String, i32)> {
    let rows = table[section].as_array().unwrap().iter();
    let mut rows: Vec<_> = rows
        .map(|r| (r["name"].as_str().unwrap().to_owned(), i32::try_from(r["code"].as_i64().unwrap()).unwrap()))
        .collect();
    rows.sort_by_key(|(_, code)| *code);
    rows
}

fn ours(all: &[(&str, i32)]) -> Vec<(String, i32)> {
    all.iter().map(|(name, code)| ((*name).to_owned(), *code)).collect()
}

#[test]
fn all_numbers_are_those_of_the_table() {
    let table = table();
    assert_eq!(ours(request::ALL), rows(&table, "request"));
    assert_eq!(ours(response::ALL), rows(&table, "response"));
    assert_eq!(ours(client_error::ALL), rows(&table, "client_error"));
    assert_eq!(request::POP_MESSAGE, 200_050);
    assert_eq!(response::SUCCESS, 0);
    assert_eq!(client_error::CONNECT_BROKER_EXCEPTION, 10_001);
}

#[test]
fn names_are_found_by_number() {
    assert_eq!(request::name(310), Some("SEND_MESSAGE_V2"));
    assert_eq!(request::name(-1), None);
    assert_eq!(response::name(208), Some("NO_MESSAGE"));
    assert_eq!(client_error::name(10_006), Some("REQUEST_TIMEOUT_EXCEPTION"));
}

#[test]
fn numbers_that_were_cut_are_restored() {
    let table = table();
    let mut restored = 0;
    for row in table["request"].as_array().unwrap() {
        let code = i32::try_from(row["code"].as_i64().unwrap()).unwrap();
        assert_eq!(canonical(code), code, "a real number stays");
        if let Some(cut) = row["binary_header_code"].as_i64() {
            let cut = i32::try_from(cut).unwrap();
            assert_eq!(cut, i32::from(code as i16));
            assert_eq!(canonical(cut), code);
            assert_eq!(request::name(cut), None, "{cut} would be ambiguous");
            restored += 1;
        } else {
            assert_eq!(i32::from(code as i16), code, "{code} does not fit 16 bits");
        }
    }
    assert_eq!(restored, 19);
    // Nothing else is changed.
    let changed = (-70_000..300_000).filter(|code| canonical(*code) != *code).count();
    assert_eq!(changed, 19 + own::ALL.len());
    for (name, code) in own::ALL {
        assert_eq!(canonical(i32::from(*code as i16)), *code, "{name}");
        assert_eq!(request::name(*code), None, "{name} is not upstream's");
    }
    for code in [i32::MIN, i32::MAX, i32::MIN + 3442, 3441, 3449] {
        assert_eq!(canonical(code), code);
    }
}
