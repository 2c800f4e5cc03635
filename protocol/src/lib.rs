//! What goes over the wire between RocketMQ clients, the sidecar and brokers, and nothing else: no sockets, no tasks, no clock.
#![forbid(unsafe_code)]

pub mod filter;
pub mod grpc;
pub mod handle;
pub mod message;
pub mod names;
pub mod recall;
pub mod remoting;
pub mod transaction;
