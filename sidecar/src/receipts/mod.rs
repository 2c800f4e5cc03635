//! The receipt handles that clients hold: kept, renewed by earliest deadline, found again for acks, returned when a client leaves.

mod changer;
mod facade;
mod policy;
mod types;

pub use self::{
    changer::{Change, ChangeError, Changer},
    facade::{AckTicket, ChangeTicket, Receipts},
    policy::{MAX_HANDLES, Policy, PromiseSettings, promise},
    types::*,
};
