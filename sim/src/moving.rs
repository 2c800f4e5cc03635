//! Makes the real broker look like Apache's, as far as its handles go: each change of a lease gives a new handle and ends the one
//! before, an ack that finds no lease is answered OK and does nothing, and nobody watches over clients.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::message::StoredMessage;
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, Command, Language,
    PopMessageRequestHeader, PopMessageResponseHeader,
};

/// A message of a group: group, queue, offset.
type Message = (String, i32, i64);

/// The newest delivery of a message: its pop time as the real broker knows it, and the one in its newest handle.
#[derive(Debug, Clone, Copy)]
struct Moved {
    inner: i64,
    outer: i64,
}

/// The handles that are out. As on Apache's disk, they survive a restart.
#[derive(Debug, Default)]
pub struct Moving {
    moved: Mutex<BTreeMap<Message, Moved>>,
}

/// What becomes of a request at the door.
pub enum Entered {
    /// The real broker is asked.
    Ask(Command),
    /// It is answered here, and nothing is done.
    Answered(Command),
}

impl Moving {
    /// Puts the handle that the real broker knows into a request.
    pub fn enter(&self, command: Command) -> Entered {
        let refuse = |command: &Command, code: i32| {
            Entered::Answered(as_java(Command::response(code, "not by this handle").reply_to(command)))
        };
        match command.code {
            own::VOUCH_FOR_CLIENTS | request::BATCH_CHANGE_MESSAGE_INVISIBLETIME | request::BATCH_ACK_MESSAGE => {
                refuse(&command, response::REQUEST_CODE_NOT_SUPPORTED)
            }
            request::ACK_MESSAGE => {
                let Ok(mut header) = command.header::<AckMessageRequestHeader>() else { return Entered::Ask(command) };
                match self.inner(&header.consumer_group, &header.extra_info) {
                    Some(handle) => header.extra_info = handle,
                    None => return refuse(&command, response::SUCCESS),
                }
                Entered::Ask(command.with_header(&header))
            }
            request::CHANGE_MESSAGE_INVISIBLETIME => {
                let Ok(mut header) = command.header::<ChangeInvisibleTimeRequestHeader>() else {
                    return Entered::Ask(command);
                };
                match self.inner(&header.consumer_group, &header.extra_info) {
                    Some(handle) => header.extra_info = handle,
                    None => return refuse(&command, response::NO_MESSAGE),
                }
                Entered::Ask(command.with_header(&header))
            }
            _ => Entered::Ask(command),
        }
    }

    /// The handle for the real broker; nothing if a newer one has taken its place.
    fn inner(&self, group: &str, text: &str) -> Option<String> {
        let Ok(mut handle) = text.parse::<ReceiptHandle>() else { return Some(text.to_owned()) };
        let key = (group.to_owned(), handle.queue_id, handle.offset);
        // Of a delivery whose answer was never seen here nothing has moved.
        let Some(moved) = self.moved.lock().get(&key).copied() else { return Some(text.to_owned()) };
        if handle.pop_time != moved.outer {
            return None;
        }
        handle.pop_time = moved.inner;
        Some(handle.to_string())
    }

    /// Makes the real broker's answer Apache's. `now` is what the broker's clock shows.
    pub fn leave(&self, now: i64, asked: &Command, answer: Command) -> Command {
        let answer = as_java(answer);
        match asked.code {
            request::POP_MESSAGE if answer.code == response::SUCCESS => self.note_pop(asked, &answer),
            request::CHANGE_MESSAGE_INVISIBLETIME if answer.code == response::SUCCESS => {
                return self.move_on(now, asked, answer);
            }
            request::ACK_MESSAGE if nothing_there(&answer) => {
                return as_java(Command::response(response::SUCCESS, "").reply_to(asked));
            }
            _ => {}
        }
        answer
    }

    fn note_pop(&self, asked: &Command, answer: &Command) {
        let (Ok(header), Ok(popped)) =
            (asked.header::<PopMessageRequestHeader>(), answer.header::<PopMessageResponseHeader>())
        else {
            return;
        };
        for message in StoredMessage::decode_all(answer.body.clone()).unwrap_or_default() {
            let key = (header.consumer_group.clone(), message.queue_id, message.queue_offset);
            let new = Moved { inner: popped.pop_time, outer: popped.pop_time };
            let known = self.moved.lock().get(&key).map_or(i64::MIN, |moved| moved.inner);
            if new.inner > known {
                self.moved.lock().insert(key, new);
            }
        }
    }

    fn move_on(&self, now: i64, asked: &Command, answer: Command) -> Command {
        let (Ok(header), Ok(mut told)) =
            (asked.header::<ChangeInvisibleTimeRequestHeader>(), answer.header::<ChangeInvisibleTimeResponseHeader>())
        else {
            return answer;
        };
        let mut all = self.moved.lock();
        let moved = all
            .entry((header.consumer_group, header.queue_id, header.offset))
            .or_insert(Moved { inner: told.pop_time, outer: told.pop_time });
        if moved.inner != told.pop_time {
            return answer;
        }
        let deadline = told.pop_time + told.invisible_time;
        moved.outer = now.max(moved.outer + 1);
        told.pop_time = moved.outer;
        told.invisible_time = deadline - moved.outer;
        answer.with_header(&told)
    }
}

/// Whether an ack found no lease to end.
#[must_use]
pub fn nothing_there(answer: &Command) -> bool {
    matches!(answer.code, response::NO_MESSAGE | response::MESSAGE_ILLEGAL)
}

/// All brokers of Apache are, and say so.
fn as_java(mut answer: Command) -> Command {
    answer.language = Language::Java;
    answer
}
