//! The sidecar towards brokers: the connection, routes and the message service; and its own port, with real clients.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // what helps a test may fail like a test

mod app;
mod batches;
mod changes;
mod fake_broker;
mod leases;
mod pop;
mod program;
mod recall;
mod remote;
mod routes;
mod scripted;
mod serve;
mod service;
mod switches;
mod tls;
mod upgrade;

/// What must happen, happens within this, however busy the machine.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

/// Fails instead of hanging.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("it happens in time")
}
