//! A client's connection, with TLS or without, as the gRPC server sees it.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::{accept::Place, gather::Gather};

/// What every HTTP/2 client sends first.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection that has shown that it speaks HTTP/2.
pub struct ClientIo {
    socket: Socket,
    /// How much of the preface, which was read already, is still to be given to the server.
    preface_left: usize,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    gather: Gather,
    /// The connection's place among the permitted number, free again when this is dropped; it also says when to end it.
    place: Place,
}

impl ClientIo {
    pub(super) async fn plain(mut socket: TcpStream, peer: SocketAddr, place: Place) -> io::Result<Self> {
        read_preface(&mut socket).await?;
        let local = socket.local_addr().ok();
        Ok(Self::new(Socket::Plain(socket), local, peer, place))
    }

    pub(super) async fn tls(mut socket: TlsStream<TcpStream>, peer: SocketAddr, place: Place) -> io::Result<Self> {
        read_preface(&mut socket).await?;
        let local = socket.get_ref().0.local_addr().ok();
        Ok(Self::new(Socket::Tls(Box::new(socket)), local, peer, place))
    }

    fn new(socket: Socket, local: Option<SocketAddr>, peer: SocketAddr, place: Place) -> Self {
        Self { socket, preface_left: PREFACE.len(), local, peer, gather: Gather::default(), place }
    }

    fn write_half(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        let socket: &mut (dyn AsyncWrite + Send + Unpin) = match &mut self.get_mut().socket {
            Socket::Plain(socket) => socket,
            Socket::Tls(socket) => socket,
        };
        Pin::new(socket)
    }
}

async fn read_preface(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut seen = [0; PREFACE.len()];
    socket.read_exact(&mut seen).await?;
    if seen != *PREFACE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak HTTP/2"));
    }
    Ok(())
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.place.cut(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if this.preface_left > 0 {
            let left = PREFACE.get(PREFACE.len() - this.preface_left..).unwrap_or_default();
            let taken = left.len().min(into.remaining());
            into.put_slice(left.get(..taken).unwrap_or_default());
            this.preface_left -= taken;
            return Poll::Ready(Ok(()));
        }
        match &mut this.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_read(context, into),
            Socket::Tls(socket) => Pin::new(socket).poll_read(context, into),
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.gather.poll(context));
        self.write_half().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.gather.poll(context));
        self.write_half().poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().write_half().poll_flush(context))?;
        self.gather.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_half().poll_shutdown(context)
    }
}

impl Connected for ClientIo {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo { local_addr: self.local, remote_addr: Some(self.peer) }
    }
}
