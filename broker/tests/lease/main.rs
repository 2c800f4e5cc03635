//! The lease ledger: each rule by itself, rows in the store, and a long random life beside a simple model.

mod model;
mod oracle;
mod ordered;
mod rows;
mod rules;
mod support;
