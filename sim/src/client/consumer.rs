//! Receives messages, works on them, and acknowledges them, or does not.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use waybill_protocol::grpc::v2::{self, ClientType, Code, receive_message_response::Content};
use waybill_protocol::handle::ReceiptHandle;

use super::{Client, PATIENCE, code, duration, resource, settings};
use crate::audit::Place;
use crate::audit::client::Got;
use crate::broker::TOPIC;

/// How a consumer keeps its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The sidecar keeps them.
    Push,
    /// It keeps them itself.
    Simple,
}

/// Tries of an ack.
const ACK_TRIES: usize = 4;

/// Consumes until it is dropped, which is how a client is killed.
pub async fn consume(client: Client, kind: Kind, group: &'static str) {
    let consumer = Arc::new(Consumer { client, kind, group });
    let mut works = JoinSet::new();
    loop {
        if !consumer.serve(&mut works).await {
            consumer.client.sim.sleep(500).await;
        }
        consumer.client.move_on();
    }
}

struct Consumer {
    client: Client,
    kind: Kind,
    group: &'static str,
}

impl Consumer {
    /// Consumes through one sidecar until it fails (false) or it is time to go to another.
    async fn serve(self: &Arc<Self>, works: &mut JoinSet<()>) -> bool {
        let sim = &self.client.sim;
        let kind = match self.kind {
            Kind::Push => ClientType::PushConsumer,
            Kind::Simple => ClientType::SimpleConsumer,
        };
        let Some(_telemetry) = self.client.open(settings(self.group, TOPIC, kind)).await else { return false };
        let mut beats = JoinSet::new();
        beats.spawn(self.clone().heartbeats());
        let mut together: Vec<Got> = Vec::new();
        loop {
            let Some(messages) = self.receive().await else { return false };
            for (got, body) in &messages {
                sim.say(&self.client.id, format_args!("received {body} {}@{}", got.place, got.handle.pop_time));
                if self.kind == Kind::Push {
                    sim.audit().holds(&self.client.id, &self.client.sidecar(), got);
                }
            }
            let gots = messages.into_iter().map(|(got, _)| got);
            if self.kind == Kind::Simple && sim.dice().chance(300) {
                together.extend(gots);
                if together.len() > 2 {
                    works.spawn(self.clone().ack_together(std::mem::take(&mut together)));
                }
            } else {
                for got in gots {
                    works.spawn(self.clone().work(got));
                }
            }
            while works.try_join_next().is_some() {}
            if !sim.is_healed() && sim.dice().chance(60) {
                return true;
            }
        }
    }

    async fn heartbeats(self: Arc<Self>) {
        loop {
            self.client.sim.sleep(3_000).await;
            let request = v2::HeartbeatRequest { group: Some(resource(self.group)), client_type: 0 };
            let mut rpc = self.client.rpc();
            let _ = tokio::time::timeout(PATIENCE, rpc.heartbeat(self.client.request(request))).await;
        }
    }

    /// One receive; `None` if it failed.
    async fn receive(&self) -> Option<Vec<(Got, String)>> {
        let sim = &self.client.sim;
        let (batch, poll, invisible) = {
            let mut dice = sim.dice();
            (*dice.pick(&[1, 4, 16]), dice.within(1_000..=6_000), dice.within(2_000..=12_000))
        };
        let request = v2::ReceiveMessageRequest {
            group: Some(resource(self.group)),
            message_queue: Some(v2::MessageQueue { topic: Some(resource(TOPIC)), ..Default::default() }),
            batch_size: batch,
            invisible_duration: (self.kind == Kind::Simple).then(|| duration(invisible)),
            auto_renew: self.kind == Kind::Push,
            long_polling_timeout: Some(duration(poll)),
            ..Default::default()
        };
        let sidecar = self.client.sidecar();
        let (began, draining) = (sim.now(), sim.audit().is_draining(&sidecar));
        let mut rpc = self.client.rpc();
        let reading = async {
            let mut stream = rpc.receive_message(self.client.request(request)).await.ok()?.into_inner();
            let (mut messages, mut told) = (Vec::new(), Code::Ok);
            while let Some(element) = stream.message().await.ok()? {
                match element.content {
                    Some(Content::Message(message)) => messages.push(message),
                    Some(Content::Status(status)) => told = status.code(),
                    _ => {}
                }
            }
            (matches!(told, Code::Ok | Code::MessageNotFound | Code::TooManyRequests)).then_some(messages)
        };
        let patience = Duration::from_millis(poll.cast_unsigned()) + PATIENCE;
        let messages = tokio::time::timeout(patience, reading).await.ok()??;
        let messages: Vec<_> = messages.into_iter().filter_map(|message| self.read(message)).collect();
        for (got, _) in messages.iter().filter(|_| self.kind == Kind::Push) {
            sim.audit().promised(&self.client.id, &sidecar, began, got);
        }
        if draining && !messages.is_empty() {
            sim.audit().violation(format!("{sidecar} gave messages to {} although it drains", self.client.id));
        }
        Some(messages)
    }

    fn read(&self, message: v2::Message) -> Option<(Got, String)> {
        let system = message.system_properties?;
        let handle: ReceiptHandle = system.receipt_handle().parse().ok()?;
        let place = Place {
            broker: handle.broker_name.clone(),
            topic: TOPIC.to_owned(),
            queue: handle.queue_id,
            offset: handle.offset,
        };
        let body = String::from_utf8_lossy(&message.body).into_owned();
        Some((Got { group: self.group.to_owned(), place, handle }, body))
    }

    async fn work(self: Arc<Self>, mut got: Got) {
        let sim = &self.client.sim;
        let (work, way) = {
            let mut dice = sim.dice();
            let most = if sim.is_healed() { 500 } else { sim.plan.work_ms };
            (dice.within(0..=most), dice.within(0..=99))
        };
        if self.kind == Kind::Simple && way < 20 {
            // At once, by the duration it has: an extension that changes nothing, if nothing takes time.
            let same = got.handle.invisible_time;
            self.change(&mut got, same).await;
        }
        sim.sleep(work).await;
        match way {
            // Never happens once faults are over, so that everything is done in the end.
            0..12 if !sim.is_healed() => {
                sim.audit().lets_go(&self.client.id, &got);
                let wait = sim.dice().within(0..=3_000);
                self.change(&mut got, wait).await;
            }
            12..18 if !sim.is_healed() && self.kind == Kind::Simple => {}
            18..26 if self.kind == Kind::Simple => {
                let more = sim.dice().within(2_000..=9_000);
                self.change(&mut got, more).await;
                sim.sleep_within(0..=2_000).await;
                self.ack(got).await;
            }
            _ => self.ack(got).await,
        }
    }

    /// Messages of several receives with one ack: of some the lease may be over.
    async fn ack_together(self: Arc<Self>, gots: Vec<Got>) {
        let sim = &self.client.sim;
        sim.sleep_within(0..=2_000).await;
        let entries =
            gots.iter().map(|got| v2::AckMessageEntry { receipt_handle: got.handle.to_string(), ..Default::default() });
        let request = self.client.request(v2::AckMessageRequest {
            group: Some(resource(self.group)),
            topic: Some(resource(TOPIC)),
            entries: entries.collect(),
        });
        let mut rpc = self.client.rpc();
        let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, rpc.ack_message(request)).await else { return };
        let entries = answer.into_inner().entries;
        if !entries.is_empty() && entries.len() != gots.len() {
            sim.audit().violation(format!("{} results for {} entries of an ack", entries.len(), gots.len()));
        }
        for (got, entry) in gots.iter().zip(entries) {
            let code = code(entry.status.as_ref());
            sim.say(&self.client.id, format_args!("acked {}@{}: {code}", got.place, got.handle.pop_time));
            if entry.receipt_handle != got.handle.to_string() {
                sim.audit().violation(format!("the result for {} is one for {}", got.handle, entry.receipt_handle));
            }
            if code == i32::from(Code::Ok) {
                sim.audit().ack_told(&self.client.id, got);
            }
        }
    }

    async fn change(&self, got: &mut Got, invisible: i64) {
        let sim = &self.client.sim;
        let request = v2::ChangeInvisibleDurationRequest {
            group: Some(resource(self.group)),
            topic: Some(resource(TOPIC)),
            receipt_handle: got.handle.to_string(),
            invisible_duration: Some(duration(invisible)),
            ..Default::default()
        };
        let before = sim.audit().step();
        let mut rpc = self.client.rpc();
        let call = rpc.change_invisible_duration(self.client.request(request));
        let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, call).await else { return };
        let answer = answer.into_inner();
        let code = code(answer.status.as_ref());
        sim.say(&self.client.id, format_args!("changed {} by {invisible}: {code}", got.place));
        if code == i32::from(Code::Ok) {
            sim.audit().change_told(&self.client.id, got, before);
            if let Ok(handle) = answer.receipt_handle.parse() {
                got.handle = handle;
            }
        }
    }

    async fn ack(&self, got: Got) {
        let sim = &self.client.sim;
        let calm = sim.audit().lets_go(&self.client.id, &got);
        for _ in 0..ACK_TRIES {
            let began = sim.now();
            let sidecar = self.client.sidecar();
            let draining = sim.audit().is_draining(&sidecar);
            let entry = v2::AckMessageEntry { receipt_handle: got.handle.to_string(), ..Default::default() };
            let request = v2::AckMessageRequest {
                group: Some(resource(self.group)),
                topic: Some(resource(TOPIC)),
                entries: vec![entry],
            };
            let mut rpc = self.client.rpc();
            let call = rpc.ack_message(self.client.request(request));
            let code = match tokio::time::timeout(PATIENCE, call).await {
                Ok(Ok(answer)) => code(answer.get_ref().entries.first().and_then(|entry| entry.status.as_ref())),
                Ok(Err(_)) | Err(_) => 0,
            };
            sim.say(&self.client.id, format_args!("acked {}@{}: {code}", got.place, got.handle.pop_time));
            let calm = calm && !sim.audit().disturbed(began, &self.client.id, &self.client.sidecar(), &got);
            if code == i32::from(Code::Ok) {
                if draining {
                    sim.audit().note("acks_in_drain");
                }
                if calm {
                    sim.audit().acked_in_calm(&self.client.id, &sidecar, &got);
                }
                return sim.audit().ack_told(&self.client.id, &got);
            }
            if draining && calm && sim.audit().is_draining(&sidecar) {
                sim.audit()
                    .violation(format!("{sidecar} did not take the ack of {} while it drains: {code}", got.place));
            } else if draining {
                sim.audit().note("acks_failed_in_drain");
            }
            if code == i32::from(Code::InvalidReceiptHandle) {
                if calm {
                    sim.audit().refused_in_calm(&self.client.id, &got, code);
                }
                return;
            }
            sim.sleep(300).await;
        }
    }
}
