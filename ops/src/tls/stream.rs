//! A TCP connection with TLS or without. Without it is the socket and nothing else: no lock, no copy.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, the handshake done.
    Tls(Box<TlsStream<TcpStream>>),
}

/// What comes in.
#[derive(Debug)]
pub enum ReadHalf {
    /// Without TLS.
    Plain(OwnedReadHalf),
    /// With TLS.
    Tls(tokio::io::ReadHalf<TlsStream<TcpStream>>),
}

/// What goes out. With TLS some of it may wait here until the next flush.
#[derive(Debug)]
pub enum WriteHalf {
    /// Without TLS.
    Plain(OwnedWriteHalf),
    /// With TLS.
    Tls(tokio::io::WriteHalf<TlsStream<TcpStream>>),
}

impl Stream {
    /// For two tasks.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Plain(socket) => {
                let (read, write) = socket.into_split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            Self::Tls(stream) => {
                let (read, write) = tokio::io::split(*stream);
                (ReadHalf::Tls(read), WriteHalf::Tls(write))
            }
        }
    }

    /// Whether it is TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl From<tokio_rustls::server::TlsStream<TcpStream>> for Stream {
    fn from(stream: tokio_rustls::server::TlsStream<TcpStream>) -> Self {
        Self::Tls(Box::new(TlsStream::Server(stream)))
    }
}

impl From<tokio_rustls::client::TlsStream<TcpStream>> for Stream {
    fn from(stream: tokio_rustls::client::TlsStream<TcpStream>) -> Self {
        Self::Tls(Box::new(TlsStream::Client(stream)))
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(read) => Pin::new(read).poll_read(context, into),
            Self::Tls(read) => Pin::new(read).poll_read(context, into),
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(write) => Pin::new(write).poll_write(context, bytes),
            Self::Tls(write) => Pin::new(write).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(write) => Pin::new(write).poll_write_vectored(context, bytes),
            Self::Tls(write) => Pin::new(write).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(write) => write.is_write_vectored(),
            Self::Tls(write) => write.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(write) => Pin::new(write).poll_flush(context),
            Self::Tls(write) => Pin::new(write).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(write) => Pin::new(write).poll_shutdown(context),
            Self::Tls(write) => Pin::new(write).poll_shutdown(context),
        }
    }
}
