//! The sidecar towards brokers: the connection, routes and the message service; and its own port, with real clients.

mod app;
mod fake_broker;
mod pop;
mod program;
mod remote;
mod routes;
mod scripted;
mod serve;
mod service;
