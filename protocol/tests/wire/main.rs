//! What the crate promises about bytes. One binary, because each links all of gRPC.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod bodies;
mod codes;
mod descriptors;
mod frames;
mod golden;
mod handles;
mod headers;
mod messages;
mod mutations;
mod recall;
mod support;
mod transaction;
