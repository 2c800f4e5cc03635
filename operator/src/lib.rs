//! The operator: makes the pods of brokers and proxies, and brokers have the topics and consumer groups, that custom resources
//! describe.
//!
//! - [`api`]: the custom resources
//! - [`crds`]: their definitions, as files
//! - [`place`]: the names of things in a cluster
//! - [`build`]: from resources to Kubernetes objects; pure
//! - [`admin`]: brokers and sidecars, as their own ports show them
//! - [`reconcile`]: from a resource to what it asks for
//! - [`inject`]: a webhook that gives pods their sidecar
//! - [`leader`]: which of several operators works
//! - [`term`]: for how long one certainly does
//! - [`metrics`]: what is counted
//! - [`run`]: watches, and one controller for each kind

#![forbid(unsafe_code)]

pub mod admin;
pub mod api;
pub mod build;
pub mod crds;
pub mod hash;
pub mod inject;
pub mod leader;
pub mod metrics;
mod noticed;
pub mod place;
mod proxies;
pub mod quantity;
pub mod reconcile;
mod resync;
mod run;
pub mod term;
mod users;

pub use run::{Scope, run};
