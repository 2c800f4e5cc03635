//! The operator: makes brokers have the topics and consumer groups that custom resources describe.
//!
//! - [`api`]: the custom resources
//! - [`crds`]: their definitions, as files
//! - [`admin`]: topics and groups of one broker, over the remoting protocol
//! - [`place`]: the names of things in a cluster
//! - [`reconcile`]: from a resource to what it asks for
//! - [`run`]: watches, and one controller for each kind

#![forbid(unsafe_code)]

pub mod admin;
pub mod api;
pub mod crds;
pub mod place;
pub mod reconcile;
mod run;

pub use run::{Scope, run};
