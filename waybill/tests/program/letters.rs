//! `waybill message query`, `describe`, `redrive`; bodies that are no text; SQL92.

use serde_json::{Value, json};

use crate::support::{Dir, Standalone};

struct Shop {
    waybill: Standalone,
    _dir: Dir,
}

impl Shop {
    /// A topic of one queue, and a group that gives up after one attempt.
    fn open() -> Self {
        let dir = Dir::new();
        let waybill = Standalone::start(dir.path(), &[]);
        waybill.admin(&["topic", "create", "orders", "--queues", "1"]).ok();
        waybill.admin(&["group", "create", "billing", "--retry-max-times", "0"]).ok();
        Self { waybill, _dir: dir }
    }

    fn send(&self, more: &[&str]) -> String {
        let words = [&["message", "send", "--topic", "orders", "--output", "json"], more].concat();
        self.waybill.client(&words).json()["messageId"].as_str().expect("an id").to_owned()
    }

    fn receive(&self, topic: &str, more: &[&str]) -> Vec<Value> {
        let words = ["message", "receive", "--topic", topic, "--group", "billing", "--max", "32", "--output", "json"];
        self.waybill.client(&[&words, more].concat()).json().as_array().cloned().expect("a list")
    }

    fn json(&self, words: &[&str]) -> Value {
        self.waybill.admin(&[words, &["--output", "json"]].concat()).json()
    }

    /// Receives everything and lets it die.
    fn give_up(&self, count: usize) {
        assert_eq!(self.receive("orders", &[]).len(), count);
        self.waybill.admin(&["lease", "release", "--group", "billing"]).ok();
        assert!(self.receive("orders", &[]).is_empty(), "it has no attempts left");
    }
}

#[test]
fn messages_are_found_and_described() {
    let shop = Shop::open();
    let first = shop.send(&["--body", "one", "--key", "k1", "--key", "both", "--tag", "paid", "--property", "a=b"]);
    let second = shop.send(&["--body", "two", "--key", "both"]);
    let query = ["message", "query", "--topic", "orders"];
    let by_key = shop.json(&[&query[..], &["--key", "both", "--since", "1h"]].concat());
    assert_eq!((&by_key[0]["messageId"], &by_key[1]["messageId"]), (&json!(second), &json!(first)), "the newest first");
    let one = &by_key[1];
    assert_eq!((&one["body"], &one["tag"], &one["keys"]), (&json!("one"), &json!("paid"), &json!(["k1", "both"])));
    assert_eq!((&one["queueId"], &one["offset"], &one["properties"]["a"]), (&json!(0), &json!(0), &json!("b")));
    let by_id = shop.json(&[&query[..], &["--id", &first]].concat());
    assert_eq!((by_id.as_array().map(Vec::len), &by_id[0]["messageId"]), (Some(1), &json!(first)));
    assert_eq!(shop.json(&[&query[..], &["--key", "both", "--until", "1h"]].concat()), json!([]));
    assert_eq!(shop.json(&[&query[..], &["--key", "both", "--max", "1"]].concat()).as_array().map(Vec::len), Some(1));
    let text = shop.waybill.admin(&[&query[..], &["--key", "k1"]].concat()).ok().out;
    assert!(text.contains(&format!("message {first}\n  at       queue 0, offset 0\n")), "{text}");
    shop.waybill.admin(&query).fails(2, &["--id", "--key"]);

    let describe = ["message", "describe", "--topic", "orders", "--id", &first];
    let state = || shop.json(&describe)[0]["groups"][0]["state"].clone();
    assert_eq!(shop.json(&describe)[0]["groups"], json!([]));
    shop.receive("orders", &[]);
    assert_eq!(state(), "Inflight");
    let text = shop.waybill.admin(&describe).ok().out;
    assert!(text.contains("  at       topic orders, queue 0, offset 0") && text.contains("Inflight"), "{text}");
    shop.waybill.admin(&["lease", "release", "--group", "billing"]).ok();
    assert_eq!(state(), "Ready");
    assert!(shop.receive("orders", &[]).is_empty());
    assert_eq!(state(), "DLQ");
    shop.waybill
        .admin(&["message", "describe", "--topic", "orders", "--id", "absent"])
        .fails(1, &["no message absent is found in topic orders"]);
}

#[test]
fn dead_letters_go_back_one_some_or_all() {
    let shop = Shop::open();
    let ids: Vec<String> = (0..5).map(|n| shop.send(&["--body", &n.to_string()])).collect();
    shop.give_up(5);
    let letters = || shop.json(&["group", "describe", "billing"])["deadLetters"].clone();
    assert_eq!(letters(), 5);
    let redrive = ["message", "redrive", "--group", "billing"];
    let dry = shop.json(&[&redrive[..], &["--all", "--dry-run"]].concat());
    assert_eq!((&dry["moved"], letters()), (&json!(5), json!(5)));
    let one = shop.json(&[&redrive[..], &["--id", &ids[3]]].concat());
    assert_eq!((&one["moved"], &one["letters"][0]["messageId"]), (&json!(1), &json!(ids[3])));
    let again = shop.waybill.admin(&[&redrive[..], &["--id", &ids[3]]].concat());
    again.fails(1, &["1 of the ids is of no dead letter", "--dry-run"]);
    assert_eq!(shop.json(&[&redrive[..], &["--max", "2"]].concat())["moved"], 2);
    let rest = shop.waybill.admin(&[&redrive[..], &["--all"]].concat()).ok().out;
    assert!(rest.ends_with("2 dead letters of group billing went back\n"), "{rest}");
    assert_eq!(letters(), 0);
    let mut back: Vec<Value> = shop.receive("orders", &["--ack"]).iter().map(|m| m["messageId"].clone()).collect();
    back.sort_by_key(Value::to_string);
    assert_eq!(back, ids.iter().map(|id| json!(id)).collect::<Vec<_>>(), "each once, with its id");

    shop.send(&["--body", "last"]);
    shop.give_up(1);
    shop.waybill.admin(&["topic", "delete", "orders"]).ok();
    let stays = shop.waybill.admin(&[&redrive[..], &["--all"]].concat());
    assert!(stays.out.contains("stays: there is no topic orders any more"), "{}", stays.out);
    stays.fails(1, &["1 dead letter cannot go back"]);
    shop.waybill.admin(&redrive).fails(2, &["--all"]);
    shop.waybill.admin(&["message", "redrive", "--group", "absent", "--all"]).fails(1, &["waybill group list"]);
}

#[test]
fn bodies_that_are_no_text_are_told() {
    let shop = Shop::open();
    let path = shop._dir.path().join("bytes");
    std::fs::write(&path, b"a\xffb").expect("a file");
    shop.send(&["--file", &path.display().to_string()]);
    let words = ["message", "receive", "--topic", "orders", "--group", "other"];
    shop.waybill.admin(&["group", "create", "other"]).ok();
    let text = shop.waybill.client(&words).ok().out;
    assert!(text.contains("not UTF-8") && text.contains("bodyBase64"), "{text}");
    let received = shop.receive("orders", &["--ack"]);
    assert_eq!((&received[0]["body"], &received[0]["bodyBase64"]), (&json!("a\u{fffd}b"), &json!("Yf9i")));
}

#[test]
fn sql_filters_what_is_received() {
    let shop = Shop::open();
    for amount in ["50", "150"] {
        shop.send(&["--body", amount, "--property", &format!("amount={amount}"), "--property", "region=eu"]);
    }
    let received = shop.receive("orders", &["--ack", "--sql", "region = 'eu' AND amount > 100"]);
    assert_eq!(received.iter().map(|message| message["body"].clone()).collect::<Vec<_>>(), [json!("150")]);
    let words = ["message", "receive", "--topic", "orders", "--group", "billing", "--sql", "amount >"];
    shop.waybill.client(&words).fails(1, &["ILLEGAL_FILTER_EXPRESSION"]);
    shop.waybill.client(&[&words[..], &["--tags", "a"]].concat()).fails(2, &["--tags"]);
}
