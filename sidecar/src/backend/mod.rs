//! What the sidecar asks of brokers.
//!
//! [`MessageService`] is the only thing the gRPC room knows of brokers. It speaks the remoting protocol over a
//! [`Transport`]: over TCP ([`RemoteTransport`]), or by calls into a broker of this very process ([`LocalTransport`]).

mod ack;
mod batches;
mod change;
mod consistent_hash;
mod error;
mod forward;
mod from_brokers;
mod handles;
mod leases;
mod local;
mod metadata;
mod metrics;
mod peers;
mod pop;
mod pop_call;
mod recall;
mod receipts;
mod remote;
mod send;
mod service;
mod signing;
mod superseded;
mod transactions;
mod transport;
mod types;
mod vouch;

pub use self::{
    error::BackendError,
    from_brokers::{FromBrokers, OnRequest},
    local::LocalTransport,
    metrics::BackendMetrics,
    remote::{RemoteOptions, RemoteTransport, TlsNow, tls_of},
    service::MessageService,
    signing::Signing,
    transactions::{Announcer, EndTransaction},
    transport::{Transport, TransportError},
    types::*,
    vouch::Voucher,
};
pub(crate) use self::{
    error::{Subject, from_response},
    metrics::Outcome,
};
