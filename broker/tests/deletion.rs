//! Deleting what is in use: nothing hangs, nothing of the deleted comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::Rig;
use waybill_broker::core::LeaseQuery;
use waybill_protocol::message::{properties, sys_flag};
use waybill_protocol::remoting::codes::{own_response, request, response};
use waybill_protocol::remoting::{
    Command, DeleteSubscriptionGroupRequestHeader, DeleteTopicRequestHeader, SendMessageRequestHeader,
    SubscriptionGroupConfig,
};

const ROUNDS: usize = 60;
/// Far more than all rounds need; a deadlock never ends.
const LIMIT: Duration = Duration::from_secs(60);

async fn one_attempt_only(rig: &Rig) {
    let group = SubscriptionGroupConfig { group_name: "g".into(), retry_max_times: 0, ..Default::default() };
    rig.group_with(group).await;
}

/// Pops whose messages go to the dead-letter topic, beside deletions of their topic and of their group.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deleting_topics_and_groups_beside_dead_letters_hangs_nothing() {
    let rig = Arc::new(Rig::new());
    let work = async {
        for round in 0..ROUNDS {
            rig.topic("t", 2).await;
            one_attempt_only(&rig).await;
            for n in 0..8 {
                rig.send("t", &format!("{round}-{n}")).await;
            }
            rig.pop("g", "t", 32, 1_000).await;
            rig.clock.advance(1_000);
            let pops: Vec<_> = (0..4)
                .map(|_| {
                    let rig = Arc::clone(&rig);
                    tokio::spawn(async move { rig.pop_raw(rig.pop_command("g", "t", 1, 1_000)).await.code })
                })
                .collect();
            let topic = DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None };
            let group = DeleteSubscriptionGroupRequestHeader { group_name: "g".into(), clean_offset: None };
            tokio::join!(
                rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&topic)),
                rig.ok(Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&group)),
            );
            for pop in pops {
                let code = pop.await.unwrap();
                let expected =
                    [response::POLLING_TIMEOUT, response::TOPIC_NOT_EXIST, response::SUBSCRIPTION_GROUP_NOT_EXIST];
                assert!(expected.contains(&code), "{code}");
            }
        }
    };
    tokio::time::timeout(LIMIT, work).await.expect("something hangs");
    let rig = Arc::into_inner(rig).unwrap().reopen();
    rig.topic("t", 2).await;
    one_attempt_only(&rig).await;
    rig.clock.advance(10_000);
    assert!(rig.pop("g", "t", 32, 1_000).await.is_empty(), "nothing of the deleted topics is there");
}

/// A message that is sent while its topic is deleted as an empty one: the one or the other, never both. Plain, delayed, or half of a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_sent_keeps_a_topic_that_is_to_go_only_if_it_is_empty() {
    let rig = Arc::new(Rig::new());
    let header = DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: Some(true) };
    let delete = Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&header);
    let (mut kept, mut went) = (0, 0);
    for round in 0..ROUNDS * 3 {
        rig.topic("t", 2).await;
        let mut header = SendMessageRequestHeader::decode_v2(&Rig::send_command("t", "m", None, "m").ext).unwrap();
        let raw = header.properties.as_mut().unwrap();
        match round % 3 {
            0 => {}
            1 => properties::set(raw, properties::TIMER_DELAY_SEC, "3600"),
            _half => {
                properties::set(raw, properties::TRAN_MSG, "true");
                header.sys_flag = sys_flag::TRANSACTION_PREPARED;
            }
        }
        let send = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body("m");
        let sending = tokio::spawn({
            let rig = Arc::clone(&rig);
            async move { rig.call(send).await.code }
        });
        let deleting = tokio::spawn({
            let (rig, delete) = (Arc::clone(&rig), delete.clone());
            async move { rig.call(delete).await.code }
        });
        match (sending.await.unwrap(), deleting.await.unwrap()) {
            (response::SUCCESS, own_response::TOPIC_NOT_EMPTY) => kept += 1,
            (response::TOPIC_NOT_EXIST, response::SUCCESS) => went += 1,
            both => panic!("round {round}: {both:?}"),
        }
        if rig.broker.core().catalog().topic("t").is_some() {
            assert_eq!(rig.call(delete.clone()).await.code, own_response::TOPIC_NOT_EMPTY, "it stays so");
            let topic = DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None };
            rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&topic)).await;
        }
    }
    assert_eq!(kept + went, ROUNDS * 3);
    assert_eq!(rig.call(delete).await.code, response::SUCCESS, "what is not there is empty");
}

/// A client that found nothing at first is known as the holder of what it gets later, also after a restart.
#[tokio::test]
async fn a_holder_is_remembered_from_its_first_empty_poll_on() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    assert!(rig.pop("g", "t", 1, 60_000).await.is_empty());
    assert!(rig.pop("g", "t", 1, 60_000).await.is_empty());
    rig.send("t", "m").await;
    assert_eq!(rig.pop("g", "t", 1, 60_000).await.len(), 1);
    let rig = rig.reopen();
    let leases =
        rig.broker.core().leases(&LeaseQuery { group: Some("g".into()), ..LeaseQuery::default() }, 10).unwrap();
    assert_eq!(leases.iter().map(|lease| lease.holder.as_str()).collect::<Vec<_>>(), ["client-1"]);
}

/// Names that come and go must not fill the memory.
#[tokio::test]
async fn what_is_deleted_leaves_no_metrics() {
    let rig = Rig::new();
    let page = || {
        let mut text = String::new();
        let registry = rig.broker.metrics().registry();
        prometheus_client::encoding::text::encode(&mut text, &registry.lock()).unwrap();
        text
    };
    for (topic, group) in [("first-topic", "kept-group"), ("kept-topic", "second-group")] {
        rig.topic(topic, 1).await;
        rig.group(group).await;
        rig.send(topic, "m").await;
        assert_eq!(rig.pop(group, topic, 1, 60_000).await.len(), 1);
        assert!(page().contains(topic) && page().contains(group));
    }
    let mut command = Command::request(request::DELETE_TOPIC_IN_BROKER);
    command.ext.set("topic", "first-topic");
    rig.ok(command).await;
    let mut command = Command::request(request::DELETE_SUBSCRIPTIONGROUP);
    command.ext.set("groupName", "second-group");
    rig.ok(command).await;
    let page = page();
    assert!(!page.contains("first-topic") && !page.contains("second-group"), "{page}");
    assert!(page.contains("kept-topic"));
}
