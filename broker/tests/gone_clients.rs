//! A client dies together with its sidecar: what it held comes back after `clientGoneAfter`, not after its leases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Rig, got};
use waybill_protocol::remoting::codes::{own, response};
use waybill_protocol::remoting::{Command, PopMessageRequestHeader, VouchAnswer, VouchBody};

const LEASE_MS: i64 = 900_000;

async fn held_by(rig: &Rig, client: Option<&str>, count: i32) -> Vec<support::Got> {
    let header =
        PopMessageRequestHeader { client_id: client.map(str::to_owned), ..rig.pop_command("g", "t", count, LEASE_MS) };
    got(&rig.pop_raw(header).await)
}

async fn rig_with(count: usize) -> Rig {
    let rig = Rig::with(|config| config.client_gone_after = 30_000);
    rig.topic("t", 1).await;
    rig.group("g").await;
    for n in 0..count {
        rig.send("t", &format!("m{n}")).await;
    }
    rig
}

async fn vouch(rig: &Rig, sidecar: &str, alive: &[&str], gone: &[&str]) -> VouchAnswer {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let body = VouchBody { sidecar_id: sidecar.into(), alive: owned(alive), gone: owned(gone), left: Vec::new() };
    rig.ok(Command::request(own::VOUCH_FOR_CLIENTS).with_json(&body)).await.json().unwrap()
}

/// Lets the time pass as a running broker would see it pass; how many leases were given back.
async fn pass(rig: &Rig, seconds: i64) -> u64 {
    let mut released = 0;
    for _ in 0..seconds {
        rig.clock.advance(1_000);
        released += rig.broker.release_gone_clients().await.unwrap();
    }
    released
}

#[tokio::test]
async fn what_a_client_held_is_given_back_in_one_record_when_nobody_vouches_for_it() {
    let rig = rig_with(6).await;
    let dead = held_by(&rig, Some("dead"), 3).await;
    let alive = held_by(&rig, Some("alive"), 2).await;
    let stranger = held_by(&rig, None, 1).await;
    assert_eq!((dead.len(), alive.len(), stranger.len()), (3, 2, 1));
    vouch(&rig, "sidecar-1", &["dead", "alive"], &[]).await;
    assert_eq!(pass(&rig, 15).await, 0);
    assert_eq!(vouch(&rig, "sidecar-2", &["alive"], &[]).await.client_gone_after, 30_000);
    assert_eq!(pass(&rig, 14).await, 0, "not before its time");
    let before = rig.broker.core().store().stats();
    assert_eq!(pass(&rig, 1).await, 3);
    let after = rig.broker.core().store().stats();
    assert_eq!((after.records - before.records, after.syncs - before.syncs), (1, 1));
    let again = rig.pop("g", "t", 32, LEASE_MS).await;
    assert_eq!(
        again.iter().map(|got| (got.id(), got.attempt())).collect::<Vec<_>>(),
        [("m0".to_owned(), 2), ("m1".to_owned(), 2), ("m2".to_owned(), 2)]
    );
    assert_eq!(rig.ack("g", "t", &alive[0].handle).await, response::SUCCESS);
    assert_eq!(rig.ack("g", "t", &stranger[0].handle).await, response::SUCCESS);
    assert_eq!(rig.ack("g", "t", &dead[0].handle).await, response::NO_MESSAGE, "it is another delivery now");
    assert_eq!(pass(&rig, 16).await, 1, "then what `alive` kept");
    assert_eq!(pass(&rig, 14).await, 3, "and then what the new holder kept");
}

#[tokio::test]
async fn a_client_that_was_taken_for_dead_can_still_acknowledge_until_the_next_delivery() {
    let rig = rig_with(1).await;
    let got = held_by(&rig, Some("slow"), 1).await;
    assert_eq!(pass(&rig, 30).await, 1);
    assert_eq!(rig.ack("g", "t", &got[0].handle).await, response::SUCCESS);
    assert!(rig.pop("g", "t", 1, LEASE_MS).await.is_empty());
}

#[tokio::test]
async fn who_moves_to_another_sidecar_is_not_gone() {
    let rig = rig_with(1).await;
    held_by(&rig, Some("c"), 1).await;
    vouch(&rig, "old", &["c", "other"], &[]).await;
    assert!(vouch(&rig, "old", &[], &["other", "unheard-of"]).await.elsewhere.is_empty());
    vouch(&rig, "new", &["c"], &[]).await;
    assert_eq!(vouch(&rig, "old", &[], &["c"]).await.elsewhere, ["c"]);
    for _ in 0..6 {
        assert_eq!(pass(&rig, 20).await, 0);
        vouch(&rig, "new", &["c"], &[]).await;
    }
    assert!(vouch(&rig, "new", &[], &["c"]).await.elsewhere.is_empty());
    assert_eq!(pass(&rig, 30).await, 1);
}

#[tokio::test]
async fn who_says_goodbye_keeps_its_leases() {
    let rig = rig_with(1).await;
    let got = held_by(&rig, Some("c"), 1).await;
    vouch(&rig, "s", &["c"], &[]).await;
    let body = VouchBody { sidecar_id: "s".into(), left: vec!["c".into()], ..VouchBody::default() };
    rig.ok(Command::request(own::VOUCH_FOR_CLIENTS).with_json(&body)).await;
    assert_eq!(pass(&rig, 600).await, 0);
    assert_eq!(rig.ack("g", "t", &got[0].handle).await, response::SUCCESS, "whoever has the handle now");
}

async fn says_goodbye(rig: &Rig, sidecar: &str, client: &str) {
    let body = VouchBody { sidecar_id: sidecar.into(), left: vec![client.into()], ..VouchBody::default() };
    rig.ok(Command::request(own::VOUCH_FOR_CLIENTS).with_json(&body)).await;
}

#[tokio::test]
async fn who_moved_and_then_says_goodbye_keeps_nothing() {
    let rig = rig_with(2).await;
    held_by(&rig, Some("c"), 1).await;
    vouch(&rig, "old", &["c"], &[]).await;
    vouch(&rig, "new", &["c"], &[]).await;
    held_by(&rig, Some("c"), 1).await;
    assert_eq!(vouch(&rig, "old", &[], &["c"]).await.elsewhere, ["c"]);
    says_goodbye(&rig, "new", "c").await;
    assert_eq!(pass(&rig, 1).await, 2, "the old sidecar would extend what it gave out for hours");
}

#[tokio::test]
async fn who_moved_and_is_then_gone_from_the_new_sidecar_too_keeps_nothing() {
    let rig = rig_with(1).await;
    held_by(&rig, Some("c"), 1).await;
    vouch(&rig, "old", &["c"], &[]).await;
    vouch(&rig, "new", &["c"], &[]).await;
    assert_eq!(vouch(&rig, "old", &[], &["c"]).await.elsewhere, ["c"]);
    assert!(vouch(&rig, "new", &[], &["c"]).await.elsewhere.is_empty());
    assert_eq!(pass(&rig, 1).await, 1);
}

#[tokio::test]
async fn a_goodbye_after_the_first_sidecar_died_or_the_broker_started_anew_keeps_nothing() {
    let rig = rig_with(2).await;
    held_by(&rig, Some("c"), 1).await;
    vouch(&rig, "dies", &["c"], &[]).await;
    vouch(&rig, "lives", &["c"], &[]).await;
    for _ in 0..4 {
        assert_eq!(pass(&rig, 10).await, 0);
        vouch(&rig, "lives", &["c"], &[]).await;
    }
    says_goodbye(&rig, "lives", "c").await;
    assert_eq!(pass(&rig, 1).await, 1);
    held_by(&rig, Some("d"), 1).await;
    vouch(&rig, "dies", &["d"], &[]).await;
    let rig = rig.reopen();
    vouch(&rig, "lives", &["d"], &[]).await;
    says_goodbye(&rig, "lives", "d").await;
    assert_eq!(pass(&rig, 1).await, 1);
}

#[tokio::test]
async fn a_restart_grants_everyone_the_full_time() {
    let rig = rig_with(2).await;
    held_by(&rig, Some("c"), 1).await;
    assert_eq!(pass(&rig, 29).await, 0);
    let rig = rig.reopen();
    assert_eq!(pass(&rig, 29).await, 0);
    assert_eq!(pass(&rig, 1).await, 1);
}

#[tokio::test]
async fn switched_off_it_gives_nothing_back_and_says_so() {
    let rig = Rig::with(|config| config.client_gone_after = 0);
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig.send("t", "m").await;
    held_by(&rig, Some("c"), 1).await;
    let body = VouchBody { sidecar_id: "s".into(), alive: vec!["c".into()], ..VouchBody::default() };
    let answer = rig.call(Command::request(own::VOUCH_FOR_CLIENTS).with_json(&body)).await;
    assert_eq!(answer.code, response::REQUEST_CODE_NOT_SUPPORTED);
    assert_eq!(pass(&rig, 120).await, 0);
}

#[tokio::test]
async fn a_request_out_of_bounds_is_refused() {
    let rig = rig_with(0).await;
    let many = VouchBody { sidecar_id: "s".into(), alive: vec!["c".into(); 10_001], ..VouchBody::default() };
    for body in [VouchBody::default(), many] {
        let answer = rig.call(Command::request(own::VOUCH_FOR_CLIENTS).with_json(&body)).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER);
    }
}
