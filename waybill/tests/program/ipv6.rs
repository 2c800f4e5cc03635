//! All of it by IPv6.

use serde_json::Value;

use crate::support::{Dir, Standalone};

const RECEIVE: [&str; 9] =
    ["message", "receive", "--topic", "orders", "--group", "billing", "--ack", "--output", "json"];

#[test]
fn by_an_address_of_ipv6_alone() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        println!("SKIPPED: this machine has no IPv6");
        return;
    }
    let dir = Dir::new();
    let waybill = Standalone::start_at("[::1]:0", dir.path());
    assert!(waybill.endpoint.starts_with("[::1]:") && waybill.broker.starts_with("[::1]:"), "{}", waybill.endpoint);
    waybill.admin(&["topic", "create", "orders"]).ok();
    let send = ["message", "send", "--topic", "orders", "--body", "six", "--output", "json"];
    let sent = waybill.client(&send).json();
    let id = sent["messageId"].as_str().expect("an id");

    let describe = |id: &str| -> Value {
        waybill.admin(&["message", "describe", "--id", id, "--topic", "orders", "--output", "json"]).json()
    };
    let described = describe(id)[0].clone();
    let place = described["offsetMessageId"].as_str().expect("an id");
    assert_eq!((place.len(), &place[..32]), (56, "00000000000000000000000000000001"), "{described}");
    assert_eq!(describe(place)[0]["messageId"], id, "it is found by its place, too");

    assert_eq!(waybill.client(&RECEIVE).json()[0]["body"], "six");
    assert_eq!(waybill.get("/readyz"), "ready\n");
    assert_eq!(waybill.stop(), Some(0));
}
