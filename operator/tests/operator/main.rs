//! The operator against an API server in this process and real brokers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod api_failures;
mod broker_objects;
mod brokers;
mod cluster;
mod conflicts;
mod convergence;
mod crds;
mod deletion;
mod drain;
mod fake_api;
mod generated;
mod group_counts;
mod injection;
mod injection_hostile;
mod leader;
mod metrics;
mod proxies;
mod proxy_rig;
mod rig;
mod shared_users;
mod tls;
mod users;
mod webhook;
mod webhook_certificates;
mod webhook_strangers;
mod whole;
