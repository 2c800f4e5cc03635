//! The catalog over a store on disk.

use std::path::Path;

use waybill_protocol::remoting::{CustomizedRetryPolicy, ExponentialRetryPolicy};

use super::*;
use crate::store::Options;

fn topic(name: &str, queues: i32) -> TopicConfig {
    TopicConfig { topic_name: name.into(), read_queue_nums: queues, write_queue_nums: queues, ..TopicConfig::default() }
}

fn group(name: &str) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: name.into(), ..SubscriptionGroupConfig::default() }
}

fn open(dir: &Path) -> (Store, Catalog) {
    let store = Store::open(Options::new(dir)).unwrap();
    let catalog = Catalog::load(&store).unwrap();
    (store, catalog)
}

/// Makes changes and waits until they are durable.
fn change<T>(store: &Store, catalog: &Catalog, f: impl FnOnce(&mut Writer<'_>, &mut Batch) -> T) -> T {
    let mut batch = Batch::new();
    let mut writer = catalog.writer();
    let answer = f(&mut writer, &mut batch);
    let commit = store.submit(batch);
    drop(writer);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(commit).unwrap();
    answer
}

fn topics_and_groups(catalog: &Catalog) -> (Vec<TopicInfo>, Vec<GroupInfo>) {
    (
        catalog.topics().iter().map(|info| info.as_ref().clone()).collect(),
        catalog.groups().iter().map(|info| info.as_ref().clone()).collect(),
    )
}

#[test]
fn a_group_has_only_attributes_that_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let (store, catalog) = open(dir.path());
    let with = |key: &str, value: &str| {
        let mut workers = group("workers");
        workers.attributes.insert(key.into(), value.into());
        change(&store, &catalog, |w, b| w.put_group(workers, 7, b).map(|info| info.config.attributes.clone()))
    };
    for (key, value) in [("waybill.renew", "no"), ("waybill.invisible.time", "1"), ("waybill.renw", "true")] {
        let refused = with(key, value).unwrap_err();
        assert!(matches!(&refused, BrokerError::InvalidParameter(why) if why.contains(key)), "{refused}");
    }
    assert!(catalog.group("workers").is_none());
    for (key, value) in [("waybill.renew", "false"), ("waybill.batch.max", "7"), ("upstreams.own", "anything")] {
        assert_eq!(with(key, value).unwrap()[key], value);
    }
}

#[test]
fn what_was_put_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let before = {
        let (store, catalog) = open(dir.path());
        let mut orders = topic("orders", 8);
        orders.attributes.insert(MESSAGE_TYPE.into(), "FIFO".into());
        let mut workers = group("workers");
        workers.consume_message_orderly = true;
        change(&store, &catalog, |w, b| w.put_topic(orders, 5, b).unwrap());
        change(&store, &catalog, |w, b| w.put_topic(topic("%DLQ%workers", 1), 6, b).unwrap());
        change(&store, &catalog, |w, b| w.put_group(workers, 7, b).unwrap());
        change(&store, &catalog, |w, b| w.put_topic(topic("gone", 1), 8, b).unwrap());
        assert_eq!(change(&store, &catalog, |w, b| w.delete_topic("gone", b)).unwrap().config.topic_name, "gone");
        store.close().unwrap();
        topics_and_groups(&catalog)
    };
    let (_store, catalog) = open(dir.path());
    assert_eq!(topics_and_groups(&catalog), before);
    assert_eq!(
        before.0.iter().map(|t| (t.config.topic_name.as_str(), t.created_ms)).collect::<Vec<_>>(),
        [("%DLQ%workers", 6), ("orders", 5)]
    );
    assert!(catalog.group("workers").unwrap().config.consume_message_orderly);
    assert_eq!(message_type(&catalog.topic("orders").unwrap().config), "FIFO");
    assert!(catalog.topic("gone").is_none() && catalog.group("orders").is_none());
}

#[test]
fn a_number_is_never_given_out_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for round in 0..3 {
        let (store, catalog) = open(dir.path());
        ids.push(change(&store, &catalog, |w, b| w.put_topic(topic("t", 1), 0, b).unwrap()).id);
        ids.push(change(&store, &catalog, |w, b| w.put_group(group("g"), 0, b).unwrap()).id);
        if round == 1 {
            // Both in one batch, the newest number deleted: only the counter knows of it.
            change(&store, &catalog, |w, b| (w.delete_topic("t", b), w.delete_group("g", b)));
            ids.push(change(&store, &catalog, |w, b| w.put_topic(topic("t", 1), 0, b).unwrap()).id);
        }
        change(&store, &catalog, |w, b| (w.delete_topic("t", b), w.delete_group("g", b)));
        store.close().unwrap();
    }
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!((sorted.len(), sorted == ids), (7, true), "{ids:?}");
    assert!(ids[0] > 0, "0 stands for no topic and no group");
}

#[test]
fn a_change_keeps_number_and_age_and_the_same_again_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, catalog) = open(dir.path());
    let first = change(&store, &catalog, |w, b| w.put_topic(topic("t", 4), 10, b).unwrap());
    let more = change(&store, &catalog, |w, b| w.put_topic(topic("t", 6), 20, b).unwrap());
    assert_eq!((more.id, more.created_ms, more.config.read_queue_nums), (first.id, 10, 6));
    let mut batch = Batch::new();
    let same = catalog.writer().put_topic(topic("t", 6), 30, &mut batch).unwrap();
    assert!(batch.is_empty() && Arc::ptr_eq(&same, &more));

    let first = change(&store, &catalog, |w, b| w.put_group(group("g"), 10, b).unwrap());
    let changed = SubscriptionGroupConfig { retry_max_times: 2, ..group("g") };
    let second = change(&store, &catalog, |w, b| w.put_group(changed.clone(), 20, b).unwrap());
    assert_eq!((second.id, second.created_ms, second.config.retry_max_times), (first.id, 10, 2));
    let mut batch = Batch::new();
    let same = catalog.writer().put_group(changed, 30, &mut batch).unwrap();
    assert!(batch.is_empty() && Arc::ptr_eq(&same, &second));
}

#[test]
fn topics_out_of_range_are_refused_and_leave_no_trace() {
    let catalog = Catalog::new();
    let mut wide = topic("t", 1);
    wide.topic_filter_type = "x".repeat(ROW_BYTES_MAX);
    let mut odd = topic("t", 1);
    odd.attributes.insert("colour".into(), "red".into());
    let cases = [
        (topic("t", 0), "readQueueNums is 0"),
        (TopicConfig { write_queue_nums: 1025, ..topic("t", 1) }, "writeQueueNums is 1025"),
        (TopicConfig { write_queue_nums: 0, ..topic("t", 1) }, "writeQueueNums is 0"),
        (TopicConfig { perm: 16, ..topic("t", 1) }, "perm is 16"),
        (TopicConfig { perm: -1, ..topic("t", 1) }, "perm is -1"),
        (odd, "colour"),
        (wide, "limit 65536"),
    ];
    for (config, reason) in cases {
        let mut batch = Batch::new();
        let error = catalog.writer().put_topic(config, 0, &mut batch).unwrap_err();
        assert!(matches!(&error, BrokerError::InvalidParameter(text) if text.contains(reason)), "{error}");
        assert!(batch.is_empty() && catalog.topic("t").is_none());
    }
    for queues in [1, QUEUES_MAX] {
        catalog.writer().put_topic(topic("t", queues), 0, &mut Batch::new()).unwrap();
    }
}

#[test]
fn groups_out_of_range_are_refused_and_leave_no_trace() {
    let catalog = Catalog::new();
    let listed = |next: Vec<i64>| {
        let mut config = group("g");
        config.group_retry_policy.customized_retry_policy = Some(CustomizedRetryPolicy { next });
        config
    };
    let computed = |initial, max, multiplier| {
        let mut config = group("g");
        config.group_retry_policy.exponential_retry_policy = Some(ExponentialRetryPolicy { initial, max, multiplier });
        config
    };
    let cases = [
        (SubscriptionGroupConfig { retry_max_times: -1, ..group("g") }, "retryMaxTimes is -1"),
        (SubscriptionGroupConfig { consume_timeout_minute: 0, ..group("g") }, "consumeTimeoutMinute is 0"),
        (SubscriptionGroupConfig { retry_queue_nums: -1, ..group("g") }, "retryQueueNums is -1"),
        (listed(vec![]), "length, is 0"),
        (listed(vec![1; 65]), "length, is 65"),
        (listed(vec![1000, -1]), "next is -1"),
        (listed(vec![i64::MAX]), "next is 9223372036854775807"),
        (computed(-1, 5, 2), "initial is -1"),
        (computed(10, 9, 2), "max is 9"),
        (computed(10, i64::MAX, 2), "max is 9223372036854775807"),
        (computed(10, 20, 0), "multiplier is 0"),
    ];
    for (config, reason) in cases {
        let mut batch = Batch::new();
        let error = catalog.writer().put_group(config, 0, &mut batch).unwrap_err();
        assert!(matches!(&error, BrokerError::InvalidParameter(text) if text.contains(reason)), "{error}");
        assert!(batch.is_empty() && catalog.group("g").is_none());
    }
    for config in [group("a"), listed(vec![0, 1000]), computed(5_000, 7_200_000, 2)] {
        catalog.writer().put_group(config, 0, &mut Batch::new()).unwrap();
    }
}

#[test]
fn numbers_that_are_used_up_are_said_to_be() {
    let catalog = Catalog::new();
    *catalog.writer.lock() = u32::MAX - 1;
    let last = catalog.writer().put_topic(topic("last", 1), 0, &mut Batch::new()).unwrap();
    assert_eq!(last.id, u32::MAX - 1);
    assert!(catalog.writer().put_topic(topic("more", 1), 0, &mut Batch::new()).is_err());
    assert!(catalog.writer().put_group(group("more"), 0, &mut Batch::new()).is_err());
    catalog.writer().put_topic(topic("last", 2), 0, &mut Batch::new()).unwrap();
}

#[test]
fn a_row_that_is_not_understood_is_named() {
    for (key, value) in
        [("t", "{}"), ("t", "not json"), ("t", r#"{"id":1,"createdMs":0,"config":{"topicName":"other"}}"#)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (store, catalog) = open(dir.path());
        change(&store, &catalog, |_, batch| batch.put(Keyspace::Topic, key.as_bytes(), value.as_bytes()));
        let error = Catalog::load(&store).unwrap_err();
        assert!(error.to_string().contains("row of \"t\""), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (store, catalog) = open(dir.path());
    change(&store, &catalog, |_, batch| batch.put(Keyspace::Meta, NEXT_ID, &[1, 2, 3]));
    assert!(Catalog::load(&store).unwrap_err().to_string().contains("next-id"));
}

#[test]
fn the_row_of_a_topic_has_this_form() {
    let dir = tempfile::tempdir().unwrap();
    let (store, catalog) = open(dir.path());
    change(&store, &catalog, |w, b| w.put_topic(topic("t", 4), 10, b).unwrap());
    let row = store.get(Keyspace::Topic, b"t").unwrap().unwrap();
    let row: serde_json::Value = serde_json::from_slice(&row).unwrap();
    assert_eq!((&row["id"], &row["createdMs"], &row["config"]["writeQueueNums"]), (&1.into(), &10.into(), &4.into()));
    assert_eq!(store.get(Keyspace::Meta, NEXT_ID).unwrap().unwrap().as_ref(), 2_u32.to_be_bytes());
}

#[test]
fn there_is_a_limit_but_never_for_dead_letters() {
    let catalog = Catalog::new();
    let topic_info = catalog.writer().put_topic(topic("t", 1), 0, &mut Batch::new()).unwrap();
    let group_info = catalog.writer().put_group(group("g"), 0, &mut Batch::new()).unwrap();
    catalog.topics.write().extend((1..TOPICS_MAX).map(|n| (format!("t{n}"), Arc::clone(&topic_info))));
    catalog.groups.write().extend((1..GROUPS_MAX).map(|n| (format!("g{n}"), Arc::clone(&group_info))));
    let refused = catalog.writer().put_topic(topic("more", 1), 0, &mut Batch::new()).unwrap_err();
    assert!(refused.to_string().contains("100000 topics"), "{refused}");
    let refused = catalog.writer().put_group(group("more"), 0, &mut Batch::new()).unwrap_err();
    assert!(refused.to_string().contains("100000 consumer groups"), "{refused}");
    catalog.writer().put_topic(topic("t", 2), 0, &mut Batch::new()).unwrap();
    catalog.writer().put_topic(topic("%DLQ%g", 1), 0, &mut Batch::new()).unwrap();
}
