//! The Waybill sidecar: speaks with clients, keeps receipt handles alive, batches what it sends.

pub mod backend;
pub mod config;
pub mod receipts;
pub mod route;
