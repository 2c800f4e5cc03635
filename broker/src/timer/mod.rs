//! Delayed messages: what a message asks for, and when those that wait are moved to their queues. Pure: it is told the time and what
//! happened, and says what to do; `core::delay` does it.

mod ask;
mod schedule;

pub use ask::{Ask, AskError, LEVELS_MS, ask, level_ms};
pub use schedule::{Look, Refusal, Timer};
