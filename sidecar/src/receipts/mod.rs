//! The receipt handles that clients hold: kept, renewed by earliest deadline, found again for acks, returned when a
//! client leaves.

mod changer;
mod complain;
pub mod core;
mod driver;
mod facade;
mod metrics;
mod policy;
mod shared;
mod ticket;
mod types;

pub use self::{
    changer::{Change, ChangeError, Changer},
    facade::Receipts,
    policy::{
        DEFAULT_MAX_HANDLES, DEFAULT_MAX_HANDLES_PER_CLIENT, MAX_HANDLES, MAX_REQUESTS_PER_BROKER, Policy,
        PromiseSettings, lease_of_group, promise,
    },
    ticket::{AckTicket, ChangeTicket},
    types::*,
};
