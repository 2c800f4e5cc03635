//! How long messages are kept: the log is shortened by age, and by how full the disk is, but never by what is promised.
//!
//! - `plan`: which segments may go; pure
//! - `pass`: one look at the log, and what comes of it
//!
//! # Rules
//! - Segments go from the oldest on, whole: when the newest message in one is older than `fileReservedTime`, or, younger ones too, while
//!   the disk is fuller than `diskMaxUsedSpaceRatio` or the log longer than `logBytesMax`. Whether a group has consumed a message does
//!   not matter.
//! - A message that somebody holds a lease on, that is delayed, or that is half of a transaction, is promised: the segment it lies in
//!   stays, and with it those after it. How much stays for that reason is counted.
//! - On what is to go and stays only for leases, no more leases are given, but to messages that had one at that time. That holds for groups
//!   that begin to read then, or are moved back, too.
//! - A delayed message is as old as its arrival in its queue, and so is one that was half of a transaction. Where space is short, their places in
//!   the log would go first; so they stay promised for ten minutes after their arrival, one minute while the disk is full.
//! - Messages of a topic with a `reserve.time` of its own go from its queues when they are older than that and nobody holds one before
//!   them; their bytes go with their segment.
//! - A twentieth of the disk the log may always take. So where others fill it beyond the ratio by themselves, it does not shrink to
//!   nothing, which would not help.

mod pass;
mod plan;

pub(crate) use pass::Memory;
pub use pass::Retained;
pub use plan::{By, Cause, Plan, Policy, Promise, arrival, plan};
