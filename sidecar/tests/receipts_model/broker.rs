//! A broker in as few words as possible: leases of messages of one group, in the shape of ours or of Apache's.

use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_sidecar::receipts::ChangeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Ours: a change keeps the pop time, every handle of the delivery stays valid.
    Stable,
    /// Apache's: a change makes a new handle, the old one is dead; a redelivery lies elsewhere.
    Moving,
}

#[derive(Debug)]
enum State {
    Free,
    Leased { deadline: i64 },
    Acked,
}

#[derive(Debug)]
struct Message {
    state: State,
    /// The newest handle of the last delivery.
    handle: ReceiptHandle,
}

pub struct Broker {
    shape: Shape,
    /// How far its clock is ahead of the sidecar's.
    skew: i64,
    messages: Vec<Message>,
    next_offset: i64,
}

impl Broker {
    pub fn new(name: &str, shape: Shape, skew: i64, messages: usize) -> Self {
        let mut broker = Self { shape, skew, messages: Vec::new(), next_offset: 0 };
        for _ in 0..messages {
            let handle = ReceiptHandle {
                start_offset: 0,
                pop_time: 0,
                invisible_time: 0,
                revive_queue_id: 0,
                topic_type: TopicType::Normal,
                broker_name: name.to_owned(),
                queue_id: 0,
                offset: broker.next_offset(),
                commit_log_offset: Some(7),
            };
            broker.messages.push(Message { state: State::Free, handle });
        }
        broker
    }

    fn next_offset(&mut self) -> i64 {
        self.next_offset += 1;
        self.next_offset
    }

    /// Gives message `index` out if it is visible. An acked one is followed by a fresh one.
    pub fn pop(&mut self, index: usize, now: i64, invisible_ms: i64) -> Option<ReceiptHandle> {
        let offset = self.next_offset();
        let (shape, skew) = (self.shape, self.skew);
        let message = &mut self.messages[index];
        let popped_before = message.handle.pop_time > 0;
        match message.state {
            State::Leased { deadline } if deadline > now => return None,
            State::Acked => {
                message.handle.offset = offset;
                message.handle.topic_type = TopicType::Normal;
            }
            _ if shape == Shape::Moving && popped_before => {
                message.handle.offset = offset;
                message.handle.topic_type = TopicType::RetryV1;
            }
            _ => {}
        }
        message.handle.pop_time = (now + skew).max(message.handle.pop_time + 1);
        message.handle.start_offset = message.handle.offset;
        message.handle.invisible_time = invisible_ms;
        message.state = State::Leased { deadline: now + invisible_ms };
        Some(message.handle.clone())
    }

    /// The live lease that a handle is about, if any, and whether the handle is good for it.
    fn lease(&mut self, handle: &ReceiptHandle, now: i64) -> Option<(&mut Message, bool)> {
        let shape = self.shape;
        let message = self
            .messages
            .iter_mut()
            .find(|message| (message.handle.offset, message.handle.topic_type) == (handle.offset, handle.topic_type))?;
        let live = matches!(message.state, State::Leased { deadline } if deadline > now);
        let good = handle.pop_time == message.handle.pop_time;
        // An older handle of the same delivery; at our broker there is none.
        let known = good || shape == Shape::Moving;
        (live && known).then_some((message, good))
    }

    pub fn change(
        &mut self,
        handle: &ReceiptHandle,
        now: i64,
        invisible_ms: i64,
    ) -> Result<ReceiptHandle, ChangeError> {
        let (shape, skew) = (self.shape, self.skew);
        let (message, good) = self.lease(handle, now).ok_or(ChangeError::Gone)?;
        if !good {
            return Err(ChangeError::Gone);
        }
        match shape {
            Shape::Stable => message.handle.invisible_time = now + skew - message.handle.pop_time + invisible_ms,
            Shape::Moving => {
                message.handle.pop_time = (now + skew).max(message.handle.pop_time + 1);
                message.handle.invisible_time = invisible_ms;
            }
        }
        message.state = State::Leased { deadline: now + invisible_ms };
        Ok(message.handle.clone())
    }

    /// Acks. `Ok(false)` is Apache's answer to a superseded handle: success without any effect.
    pub fn ack(&mut self, handle: &ReceiptHandle, now: i64) -> Result<bool, ChangeError> {
        let (message, good) = self.lease(handle, now).ok_or(ChangeError::Gone)?;
        if good {
            message.state = State::Acked;
        }
        Ok(good)
    }

    /// When the lease of the delivery with this handle ends at the latest; nothing if it is not leased.
    pub fn deadline(&mut self, handle: &ReceiptHandle, now: i64) -> Option<i64> {
        let (message, _) = self.lease(handle, now)?;
        match message.state {
            State::Leased { deadline } => Some(deadline),
            State::Free | State::Acked => None,
        }
    }
}
