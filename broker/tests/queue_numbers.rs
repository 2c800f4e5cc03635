//! How many queues a topic has: taking queues away hides no message, and who decides when a send creates the topic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use support::{Got, Rig};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, CreateTopicRequestHeader, GetRouteInfoRequestHeader, GetTopicConfigRequestHeader, TopicConfig,
    TopicRouteData,
};

async fn set_queues(rig: &Rig, read: i32, write: i32) -> Result<(), String> {
    let header = CreateTopicRequestHeader { write_queue_nums: write, ..CreateTopicRequestHeader::new("t", read) };
    let answer = rig.call(Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&header)).await;
    match answer.code {
        response::SUCCESS => Ok(()),
        response::INVALID_PARAMETER => Err(answer.remark.unwrap_or_default()),
        code => panic!("{code}: {:?}", answer.remark),
    }
}

async fn queues(rig: &Rig, topic: &str) -> (i32, i32) {
    let header = GetTopicConfigRequestHeader { topic: topic.into(), ..Default::default() };
    let command = Command::request(request::GET_TOPIC_CONFIG).with_header(&header);
    let config: TopicConfig = rig.ok(command).await.json().unwrap();
    (config.read_queue_nums, config.write_queue_nums)
}

fn send_to(queue: i32, id: &str) -> Command {
    let mut command = Rig::send_command("t", id, None, "x");
    command.ext.set_number("e", queue);
    command
}

fn says(refusal: &Result<(), String>, words: &[&str]) {
    let refusal = refusal.as_ref().expect_err("it would hide messages");
    for word in words {
        assert!(refusal.contains(word), "{word:?} is missing: {refusal}");
    }
}

#[tokio::test]
async fn a_queue_that_holds_unread_messages_cannot_be_taken_away() {
    let rig = Rig::new();
    rig.topic("t", 4).await;
    rig.group("g").await;
    for (queue, id) in [(0, "a"), (3, "b"), (3, "c")] {
        rig.ok(send_to(queue, id)).await;
    }
    says(&set_queues(&rig, 1, 1).await, &["queue 3", "2 messages", "no consumer group", "writeQueueNums to 1 first"]);
    assert_eq!(queues(&rig, "t").await, (4, 4), "nothing was changed");
    assert_eq!(set_queues(&rig, 4, 1).await, Ok(()), "fewer queues to write to hide nothing");

    // Given out is not yet done, and that is known after a restart, too.
    let got = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(got.len(), 3);
    let rig = rig.reopen();
    says(&set_queues(&rig, 1, 1).await, &["queue 3", "2 messages", "group g", "2 of them given out"]);
    for message in got.iter().filter(|got| got.id() == "b") {
        rig.ack("g", "t", &message.handle).await;
    }
    says(&set_queues(&rig, 1, 1).await, &["queue 3", "1 messages", "group g"]);
    rig.clock.advance(60_000);
    says(&set_queues(&rig, 1, 1).await, &["queue 3", "1 messages", "group g"]);
    let again = rig.pop("g", "t", 32, 60_000).await;
    let mut ids: Vec<String> = again.iter().map(Got::id).collect();
    ids.sort();
    assert_eq!(ids, ["a", "c"], "nothing was hidden meanwhile");
    let last = again.iter().find(|got| got.id() == "c").unwrap();
    assert_eq!(rig.ack("g", "t", &last.handle).await, response::SUCCESS);
    assert_eq!(set_queues(&rig, 1, 1).await, Ok(()), "what is left is in queue 0");
    assert_eq!(queues(&rig, "t").await, (1, 1));
    assert_eq!(rig.call(send_to(3, "d")).await.code, response::INVALID_PARAMETER);
}

#[tokio::test]
async fn every_group_that_reads_the_topic_counts() {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group("fast").await;
    rig.group("slow").await;
    assert!(rig.pop("slow", "t", 1, 60_000).await.is_empty());
    rig.ok(send_to(1, "a")).await;
    let got = rig.pop("fast", "t", 1, 60_000).await;
    rig.ack("fast", "t", &got[0].handle).await;
    says(&set_queues(&rig, 1, 1).await, &["queue 1", "1 messages", "group slow", "0 of them given out"]);
    let got = rig.pop("slow", "t", 1, 60_000).await;
    rig.ack("slow", "t", &got[0].handle).await;
    assert_eq!(set_queues(&rig, 1, 1).await, Ok(()));
}

#[tokio::test]
async fn queues_that_are_written_to_go_on_being_read() {
    let rig = Rig::new();
    rig.topic("t", 4).await;
    says(&set_queues(&rig, 2, 4).await, &["writeQueueNums 4", "Lower writeQueueNums to 2 first"]);
    assert_eq!(set_queues(&rig, 2, 2).await, Ok(()), "empty queues can go");
    assert_eq!(set_queues(&rig, 8, 8).await, Ok(()));
    rig.ok(send_to(7, "a")).await;
}

/// Senders beside the change: all that was answered OK could be read before the queue went away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_send_slips_into_a_queue_that_goes_away() {
    let rig = Arc::new(Rig::with(|config| config.flush_disk_type = waybill_broker::FlushDiskType::Async));
    rig.group("g").await;
    for round in 0..100 {
        set_queues(&rig, 2, 2).await.unwrap();
        rig.pop("g", "t", 1, 60_000).await;
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let rig = Arc::clone(&rig);
                tokio::spawn(async move {
                    let mut stored = 0;
                    for n in 0..20 {
                        match rig.call(send_to(1, &format!("{round}-{sender}-{n}"))).await.code {
                            response::SUCCESS => stored += 1,
                            code => assert_eq!(code, response::INVALID_PARAMETER),
                        }
                    }
                    stored
                })
            })
            .collect();
        let mut done = 0;
        loop {
            for got in rig.pop("g", "t", 32, 60_000).await {
                assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
                done += 1;
            }
            if set_queues(&rig, 1, 1).await.is_ok() {
                break;
            }
        }
        let mut stored = 0;
        for sender in senders {
            stored += sender.await.unwrap();
        }
        assert_eq!(stored, done, "round {round}");
    }
}

#[tokio::test]
async fn a_topic_made_by_its_first_send_has_at_most_the_default_number_of_queues() {
    let rig = Rig::with(|config| config.auto_create_topic_enable = true);
    for (name, asked, expected) in [("four", 4, 4), ("many", 16, 8), ("all", 1024, 8), ("any", 0, 8), ("odd", -1, 8)] {
        let mut command = Rig::send_command(name, "m", None, "x");
        command.ext.set_number("d", asked);
        rig.ok(command).await;
        assert_eq!(queues(&rig, name).await, (expected, expected), "{name} asked for {asked}");
    }
    let header = GetRouteInfoRequestHeader { topic: "routed".into(), ..Default::default() };
    let route: TopicRouteData =
        rig.ok(Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&header)).await.json().unwrap();
    assert_eq!(route.queue_datas[0].read_queue_nums, 8);
}
