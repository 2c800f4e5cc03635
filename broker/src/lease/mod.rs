//! Leases: who holds which message of one topic for one consumer group, and until when.
//!
//! A pure ledger: it is given the time and an event and answers with an outcome and with the [`Change`]s to write, in one batch. It
//! does no I/O and keeps no clock.
//!
//! - `types`: the words of this room
//! - `ledger`: acknowledge, change the invisible duration, reset, count
//! - `pop`: give out
//! - `queue`: the open leases of one queue, by offset and by deadline
//! - `order`: which message groups may be given out, for ordered consumption
//! - [`schema`]: how rows look in the store
//!
//! # Rules
//! - A queue's `next` is the first offset never considered. What lies below it and has no open row is done: acked, filtered out or gone.
//! - deadline = pop time + invisible duration. A lease is live while its deadline is later than now. Nothing happens at the deadline:
//!   from then on the message can simply be taken again.
//! - Identity of a delivery: queue, offset, pop time. The pop time of a delivery is later than that of every earlier one of the same message.
//! - Three pops of four look for expired leases first and then for new messages, the fourth the other way round. For each of both
//!   kinds the queue to start with goes round. So neither a flood of new messages nor one of redeliveries, nor one full queue, starves
//!   the others. Within a queue the oldest deadline comes first.

mod ledger;
mod order;
mod pop;
mod queue;
pub mod schema;
mod types;

pub use ledger::Ledger;
pub use types::*;
