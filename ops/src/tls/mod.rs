//! TLS: certificates that are read again when they change, both ends of a connection, and connections that may be TLS or not.

mod certificate;
mod client;
mod server;
mod stream;

pub use certificate::{CertificateError, CertificateSource};
pub use client::{Connector, Trust};
pub use server::Acceptor;
pub use stream::{ReadHalf, Stream, WriteHalf};

/// The first byte of every TLS connection; no frame of remoting and no HTTP begins with it.
pub const TLS_HANDSHAKE: u8 = 0x16;

#[cfg(test)]
mod tests;
