//! Commit, rollback, and that the first of them holds.

use super::*;

#[tokio::test]
async fn a_half_is_seen_by_nobody_until_it_is_committed() {
    let rig = rig().await;
    let sent = send(&rig, half("m")).await;
    assert_eq!(sent.transaction_id.as_deref(), Some("m"));
    assert_eq!(delivered(&rig).await, [""; 0]);
    assert_eq!(metric(&rig, "rocketmq_half_messages{topic=\"t\"").as_deref(), Some("1"));
    let (answer, code) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        decide(&rig, &sent, COMMIT).await
    });
    assert_eq!(code, response::SUCCESS);
    let got = &rig.got(&answer)[0];
    let message = &got.message;
    assert_eq!((&message.body[..], message.topic.as_str()), (&b"m"[..], "t"));
    assert_eq!(message.sys_flag & sys_flag::TRANSACTION, COMMIT);
    for (name, value) in [("UNIQ_KEY", "m"), ("TRAN_MSG", "true"), ("PGROUP", "p"), ("colour", "blue"), ("TAGS", "tag")]
    {
        assert_eq!(properties::get(&message.properties, name), Some(value), "{name}");
    }
    assert_eq!(
        (message.queue_offset, message.physical_offset),
        (0, position(&sent)),
        "the body is where it was written"
    );
    assert_eq!(message.queue_id, sent.queue_id);
    assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
    assert_eq!(metric(&rig, "rocketmq_half_messages{topic=\"t\""), None);
    assert_eq!(metric(&rig, "rocketmq_commit_messages_total").as_deref(), Some("1"));
    assert_eq!(
        metric(&rig, "rocketmq_messages_in_total{topic=\"t\"").as_deref(),
        Some("1"),
        "counted once, at the commit"
    );
}

#[tokio::test]
async fn offsets_are_given_at_the_commit_and_tags_are_known() {
    let rig = rig().await;
    let to_first = |id: &str| {
        let command = half(id);
        let header =
            SendMessageRequestHeader { queue_id: 0, ..SendMessageRequestHeader::decode_v2(&command.ext).unwrap() };
        Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body)
    };
    let (a, b) = (send(&rig, to_first("a")).await, send(&rig, to_first("b")).await);
    for sent in [&b, &a] {
        assert_eq!(decide(&rig, sent, COMMIT).await, response::SUCCESS);
    }
    let mut wanted = rig.pop_command("g", "t", 32, 60_000);
    (wanted.exp_type, wanted.exp) = (Some("TAG".into()), Some("tag".into()));
    let answer = rig.pop_raw(wanted).await;
    let got: Vec<_> = rig.got(&answer).iter().map(|got| (got.id(), got.message.queue_offset)).collect();
    assert_eq!(got, [("b".to_owned(), 0), ("a".to_owned(), 1)]);
}

/// C25: two ends at once, both orders, the same again, with and without a restart between any two steps.
#[tokio::test]
async fn the_first_decision_holds_also_across_restarts() {
    for (first, second) in [(COMMIT, COMMIT), (COMMIT, ROLLBACK), (ROLLBACK, COMMIT), (ROLLBACK, ROLLBACK)] {
        for restarts in 0..8 {
            let mut rig = rig().await;
            let restart = |rig: Rig, step: u32| if restarts & (1 << step) != 0 { rig.reopen() } else { rig };
            let sent = send(&rig, half("m")).await;
            rig = restart(rig, 0);
            assert_eq!(decide(&rig, &sent, first).await, response::SUCCESS);
            rig = restart(rig, 1);
            let answer = rig.call(end(&sent, second)).await;
            let (code, word) = match first == second {
                true => (response::SUCCESS, ""),
                false if first == COMMIT => (response::ILLEGAL_OPERATION, "committed before"),
                false => (response::ILLEGAL_OPERATION, "rolled back before"),
            };
            assert_eq!(answer.code, code, "{first} {second} {restarts}");
            assert!(answer.remark.unwrap_or_default().contains(word));
            rig = restart(rig, 2);
            let wanted: &[&str] = if first == COMMIT { &["m"] } else { &[] };
            assert_eq!(delivered(&rig).await, wanted, "{first} {second} {restarts}");
            rig.clock.advance(3 * 60_000);
            assert_eq!(rig.broker.check_transactions().await.unwrap(), 0, "decided: nobody is asked");
        }
    }
}

#[tokio::test]
async fn many_decisions_at_once_are_one() {
    let rig = rig().await;
    for round in 0..20 {
        let id = format!("m{round:02}");
        let sent = send(&rig, half(&id)).await;
        let wishes: Vec<i32> = (0..8).map(|n| if (n + round) % 3 == 0 { ROLLBACK } else { COMMIT }).collect();
        let answers = futures::future::join_all(wishes.iter().map(|wish| decide(&rig, &sent, *wish))).await;
        let held: Vec<i32> = wishes
            .iter()
            .zip(&answers)
            .filter(|(_, code)| **code == response::SUCCESS)
            .map(|(wish, _)| *wish)
            .collect();
        assert!(
            !held.is_empty() && held.iter().all(|wish| *wish == held[0]),
            "one decision holds: {wishes:?} {answers:?}"
        );
        assert!(answers.iter().all(|code| [response::SUCCESS, response::ILLEGAL_OPERATION].contains(code)));
        let wanted: &[String] = if held[0] == COMMIT { &[id] } else { &[] };
        assert_eq!(delivered(&rig).await, wanted);
    }
}

#[tokio::test]
async fn what_is_not_known_yet_changes_nothing() {
    let rig = rig().await;
    let sent = send(&rig, half("m")).await;
    assert_eq!(decide(&rig, &sent, 0).await, response::SUCCESS);
    assert_eq!(decide(&rig, &sent, 4).await, response::INVALID_PARAMETER);
    assert_eq!(delivered(&rig).await, [""; 0]);
    assert_eq!(decide(&rig, &sent, COMMIT).await, response::SUCCESS);
    assert_eq!(delivered(&rig).await, ["m"]);
}

#[tokio::test]
async fn nobody_ends_what_is_not_his() {
    let rig = rig().await;
    let sent = send(&rig, half("m")).await;
    let normal = rig.send("t", "normal").await;
    assert_eq!(delivered(&rig).await, ["normal"]);
    let header: EndTransactionRequestHeader = end(&sent, COMMIT).header().unwrap();
    let place = |position: i64| EndTransactionRequestHeader {
        tran_state_table_offset: position,
        commit_log_offset: position,
        ..header.clone()
    };
    for forged in [
        EndTransactionRequestHeader { producer_group: "q".into(), ..header.clone() },
        EndTransactionRequestHeader { msg_id: "other".into(), ..header.clone() },
        EndTransactionRequestHeader { msg_id: String::new(), ..header.clone() },
        EndTransactionRequestHeader { tran_state_table_offset: 0, ..header.clone() },
        place(position(&normal)),
        place(position(&sent) + 1),
        place(-1),
        place(i64::MAX),
    ] {
        let answer = rig.call(Command::request(request::END_TRANSACTION).with_header(&forged)).await;
        assert_eq!(answer.code, response::QUERY_NOT_FOUND, "{forged:?} {:?}", answer.remark);
    }
    assert_eq!(delivered(&rig).await, [""; 0]);
    assert_eq!(decide(&rig, &sent, COMMIT).await, response::SUCCESS, "it is still open");
    assert_eq!(delivered(&rig).await, ["m"]);
}

/// Whoever may not decide does not hear either what was decided, not even that it is done.
#[tokio::test]
async fn what_was_decided_is_told_to_its_owner_only() {
    let mut rig = rig().await;
    for decision in [COMMIT, ROLLBACK] {
        let sent = send(&rig, half("m")).await;
        assert_eq!(decide(&rig, &sent, decision).await, response::SUCCESS);
        for restarted in [false, true] {
            if restarted {
                rig = rig.reopen();
            }
            for again in [COMMIT, ROLLBACK] {
                let header: EndTransactionRequestHeader = end(&sent, again).header().unwrap();
                for forged in [
                    EndTransactionRequestHeader { producer_group: "q".into(), ..header.clone() },
                    EndTransactionRequestHeader { msg_id: "other".into(), ..header.clone() },
                    EndTransactionRequestHeader { msg_id: String::new(), ..header.clone() },
                ] {
                    let answer = rig.call(Command::request(request::END_TRANSACTION).with_header(&forged)).await;
                    assert_eq!(answer.code, response::QUERY_NOT_FOUND, "{forged:?} {:?}", answer.remark);
                }
                let wanted = if again == decision { response::SUCCESS } else { response::ILLEGAL_OPERATION };
                assert_eq!(decide(&rig, &sent, again).await, wanted);
            }
        }
    }
    assert_eq!(delivered(&rig).await, ["m"]);
}

#[tokio::test]
async fn what_cannot_be_a_half_is_refused_and_not_stored() {
    let rig = rig().await;
    for (name, value) in [(properties::DELAY, "3"), (properties::TIMER_DELIVER_MS, "1900000000000")] {
        assert_eq!(rig.call(half_with("late", name, value)).await.code, response::MESSAGE_ILLEGAL, "{name}");
    }
    let items = ["a", "b"].map(|id| waybill_protocol::message::BatchItem {
        flag: 0,
        body: id.into(),
        properties: format!("UNIQ_KEY\u{1}{id}\u{2}"),
    });
    let header =
        SendMessageRequestHeader { batch: Some(true), ..SendMessageRequestHeader::decode_v2(&half("m").ext).unwrap() };
    let body = waybill_protocol::message::encode_batch(&items).unwrap();
    let batch = Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(body);
    assert_eq!(rig.call(batch).await.code, response::MESSAGE_ILLEGAL);
    assert!(rig.broker.core().open_halves().is_empty());
}

/// Deleting and re-creating a topic never shows what was sent to the old one.
#[tokio::test]
async fn a_transaction_ends_with_its_topic() {
    let rig = rig().await;
    let (late, open) = (send(&rig, half("late")).await, send(&rig, half("open")).await);
    rig.ok({
        let mut delete = Command::request(request::DELETE_TOPIC_IN_BROKER);
        delete.ext.set("topic", "t");
        delete
    })
    .await;
    assert_eq!(decide(&rig, &late, COMMIT).await, response::TOPIC_NOT_EXIST);
    rig.topic("t", 2).await;
    assert_eq!(decide(&rig, &late, COMMIT).await, response::TOPIC_NOT_EXIST, "another topic of that name");
    rig.clock.advance(10_000);
    assert_eq!(rig.broker.check_transactions().await.unwrap(), 0);
    assert!(rig.broker.core().open_halves().is_empty());
    assert_eq!(decide(&rig, &open, COMMIT).await, response::ILLEGAL_OPERATION);
    assert_eq!(delivered(&rig).await, [""; 0]);
    assert_eq!(metric(&rig, "waybill_broker_transactions_given_up_total").as_deref(), Some("2"));
}

#[tokio::test]
async fn a_topic_may_have_fewer_queues_at_the_commit() {
    let rig = rig().await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let sent = send(&rig, half(&format!("m{n}"))).await;
        ids.push(sent);
    }
    assert!(ids.iter().any(|sent| sent.queue_id == 1));
    rig.topic("t", 1).await;
    for sent in &ids {
        assert_eq!(decide(&rig, sent, COMMIT).await, response::SUCCESS);
    }
    let got = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(
        got.iter().map(|got| (got.message.queue_id, got.message.queue_offset)).collect::<Vec<_>>(),
        [(0, 0), (0, 1), (0, 2), (0, 3)]
    );
    for got in got {
        assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS, "handles of a moved message hold");
    }
}
