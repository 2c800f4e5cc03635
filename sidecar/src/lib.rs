//! The Waybill sidecar: speaks with clients, keeps receipt handles alive, batches what it sends.

#![forbid(unsafe_code)]

pub mod access;
mod app;
pub mod backend;
pub mod batching;
pub mod config;
mod effective;
pub mod grpc;
pub mod limits;
mod namespace;
mod readiness;
pub mod receipts;
pub mod route;
pub mod serve;
pub mod session;

pub use self::app::{App, BuildError, Ended, Listeners};
