//! Placeholder; see ARCHITECTURE.md.
pub mod store;

pub mod lease;
