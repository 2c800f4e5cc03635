//! The port that clients connect to: TLS and plaintext on the same one.
//!
//! The first byte decides, as the official clients expect. A connection reaches the gRPC server only after it has shown
//! that it speaks HTTP/2.

mod accept;
mod gather;
mod io;
mod tls;

pub use self::{
    accept::{Limits, ServeMetrics, incoming},
    io::ClientIo,
    tls::Tls,
};
