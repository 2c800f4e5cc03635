//! Placeholder; see ARCHITECTURE.md.
pub mod store;
