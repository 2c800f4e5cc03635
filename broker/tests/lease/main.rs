//! The lease ledger: each rule by itself, rows in the store, and a long random life beside a simple model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails where it cannot go on")]

mod model;
mod oracle;
mod ordered;
mod rows;
mod rules;
mod support;
