//! What every Waybill process needs around its work: a clock, logs, the admin port, a configuration file that is
//! reloaded while the process runs, TLS, and the wish to stop.

#![forbid(unsafe_code)]

pub mod address;
pub mod admin;
pub mod clock;
pub mod config;
pub mod connect;
mod exposition;
pub mod listen;
pub mod logs;
pub mod process;
pub mod runtime;
pub mod signal;
pub mod tls;
