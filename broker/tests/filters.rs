//! Filters through the requests of a real broker. Case C27.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Got, Rig};
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{Command, PopMessageRequestHeader, SUBSCRIBED_TOPICS, SendMessageRequestHeader};

async fn rig() -> Rig {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig
}

async fn send_with(rig: &Rig, id: &str, pairs: &[(&str, &str)]) {
    let plain = Rig::send_command("t", id, None, id);
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    for (name, value) in pairs {
        properties::set(header.properties.as_mut().unwrap(), name, value);
    }
    rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body)).await;
}

fn asked(rig: &Rig, group: &str, client: &str, kind: &str, expression: &str) -> PopMessageRequestHeader {
    PopMessageRequestHeader {
        exp_type: Some(kind.into()),
        exp: Some(expression.into()),
        client_id: Some(client.into()),
        ..rig.pop_command(group, "t", 32, 60_000)
    }
}

async fn found(rig: &Rig, header: PopMessageRequestHeader) -> Vec<String> {
    let answer = rig.pop_raw(header).await;
    if answer.code == response::POLLING_TIMEOUT {
        return Vec::new();
    }
    rig.got(&answer).iter().map(Got::id).collect()
}

fn metrics(rig: &Rig) -> String {
    let mut text = String::new();
    let registry = rig.broker.metrics().registry();
    prometheus_client::encoding::text::encode(&mut text, &registry.lock()).unwrap();
    text
}

/// C27: odd names, values that look like something else, and conditions of every kind; each group sees exactly what it asked for, a
/// missing property is NULL, and what is left over is nobody's lag.
#[tokio::test]
async fn c27_odd_names_and_values() {
    let rig = rig().await;
    send_with(&rig, "1", &[("a/b/c", "x"), ("code", "007"), ("flag", "true"), ("n", "5")]).await;
    send_with(&rig, "2", &[("a/b/c", "y"), ("颜色", "红"), ("colour", "红"), ("flag", "yes"), ("n", "50")]).await;
    send_with(&rig, "3", &[("empty", ""), ("n", "five")]).await;
    let cases: [(&str, &[&str]); 12] = [
        ("colour = '红'", &["2"]),
        ("code = '007'", &["1"]),
        ("flag = TRUE", &["1"]),
        ("flag = 'true'", &["1"]),
        ("n BETWEEN 1 AND 10", &["1"]),
        ("n IN ('5', '50')", &["1", "2"]),
        ("n > 10", &["2"]),
        ("flag IS NULL", &["3"]),
        ("flag IS NOT NULL AND NOT n = 50", &["1"]),
        ("missing = 'x' OR missing <> 'x'", &[]),
        ("missing IS NULL", &["1", "2", "3"]),
        ("n < 10 OR flag = 'yes'", &["1", "2"]),
    ];
    for (at, (condition, wanted)) in cases.into_iter().enumerate() {
        let group = format!("g{at}");
        rig.group(&group).await;
        assert_eq!(found(&rig, asked(&rig, &group, "c", "SQL92", condition)).await, wanted, "{condition}");
    }
    for broken in ["a >>> 5", "a = ", "(a = 1", "a BETWEEN 1", "a IN ()", "'", "AND", "颜色 = '红'", "a/b/c = 'x'"] {
        let answer = rig.pop_raw(asked(&rig, "g", "c", "SQL92", broken)).await;
        assert_eq!(answer.code, response::SUBSCRIPTION_PARSE_FAILED, "{broken}");
    }
}

/// C27: two tags with one hash; only the exact one comes, and nothing of the other is left waiting.
#[tokio::test]
async fn c27_tags_with_equal_hashes() {
    let rig = rig().await;
    for (id, tag) in [("1", "AaAa"), ("2", "BBBB"), ("3", "AaBB"), ("4", "AaAa"), ("5", "aaaa")] {
        rig.send_tagged("t", id, tag).await;
    }
    let header = asked(&rig, "g", "c", "TAG", "AaAa");
    let got = rig.got(&rig.pop_raw(header.clone()).await);
    assert_eq!(got.iter().map(Got::id).collect::<Vec<_>>(), ["1", "4"]);
    for got in &got {
        assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
    }
    assert!(found(&rig, header).await.is_empty());
    assert!(metrics(&rig).contains("rocketmq_consumer_lag_messages{topic=\"t\",consumer_group=\"g\"} 0"));
}

/// Members that subscribe to different topics are shown, whichever of them they ask for, for as long as they do.
#[tokio::test]
async fn members_with_different_topics_are_reported() {
    let rig = rig().await;
    rig.topic("u", 1).await;
    rig.group("other").await;
    let ask = async |client: &str, topic: &str, subscribed: Option<&str>| {
        let header =
            PopMessageRequestHeader { client_id: Some(client.into()), ..rig.pop_command("g", topic, 32, 60_000) };
        let mut command = Command::request(request::POP_MESSAGE).with_header(&header);
        if let Some(topics) = subscribed {
            command.ext.set(SUBSCRIBED_TOPICS, topics);
        }
        assert_eq!(rig.call(command).await.code, response::POLLING_TIMEOUT);
    };
    let line = "waybill_consumer_differing_topics{consumer_group=\"g\"} 2";
    for (client, topic) in [("one", "t"), ("two", "t"), ("one", "u")] {
        ask(client, topic, Some("t,u")).await;
    }
    ask("three", "u", None).await;
    assert!(!metrics(&rig).contains("waybill_consumer_differing_topics{"), "the same, as far as it is known");
    ask("two", "t", Some("t")).await;
    assert!(metrics(&rig).contains(line), "{}", metrics(&rig));
    let counts = rig.broker.core().counts(Some("g"), None).unwrap();
    assert_eq!(counts[0].differing_topics, ["t,u", "t"], "as `waybill group describe` shows it");
    let others = rig.broker.core().counts(Some("other"), None).unwrap();
    assert_eq!(others[0].differing_topics, [""; 0]);
    rig.clock.advance(30_000);
    ask("one", "u", Some("t,u")).await;
    assert!(metrics(&rig).contains(line));
    rig.clock.advance(30_000);
    assert!(!metrics(&rig).contains("waybill_consumer_differing_topics{"), "the second asks no more");
}

/// C27: two members of a group with different filters are shown, for as long as both ask.
#[tokio::test]
async fn c27_members_with_different_filters_are_reported() {
    let rig = rig().await;
    let line = "waybill_consumer_differing_filters{topic=\"t\",consumer_group=\"g\"} 2";
    found(&rig, asked(&rig, "g", "one", "TAG", "A||B")).await;
    found(&rig, asked(&rig, "g", "two", "TAG", "B || A")).await;
    assert!(!metrics(&rig).contains("waybill_consumer_differing_filters{"), "they take the same");
    found(&rig, asked(&rig, "g", "two", "TAG", "A")).await;
    assert!(metrics(&rig).contains(line), "{}", metrics(&rig));
    let counts = rig.broker.core().counts(Some("g"), None).unwrap();
    assert_eq!(counts[0].topics[0].differing_filters, ["A||B", "A"], "as `waybill group describe` shows it");
    rig.clock.advance(30_000);
    found(&rig, asked(&rig, "g", "one", "TAG", "A||B")).await;
    assert!(metrics(&rig).contains(line));
    rig.clock.advance(30_000);
    assert!(!metrics(&rig).contains("waybill_consumer_differing_filters{"), "the second asks no more");
}
