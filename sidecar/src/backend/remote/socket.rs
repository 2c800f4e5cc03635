//! Making a connection that notices when its other end is gone, with TLS or without.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::time::timeout;
use waybill_ops::{
    connect::connect as reach,
    tls::{Connector, Stream},
};

/// A silent connection is asked for a sign of life after so long, …
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
/// … then so often, …
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// … and given up after so many unanswered ones.
const KEEPALIVE_RETRIES: u32 = 3;
/// Bytes that the other machine has not confirmed for so long: the machine is gone. A process that is only paused still
/// confirms.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(10);

/// Connects to `address` (`host:port`), and speaks TLS there if there is a connector. The name is resolved anew each time, since a pod
/// that moved has a new address. All of it takes at most `limit`.
pub(super) async fn connect(address: &str, tls: Option<&Connector>, limit: Duration) -> io::Result<Stream> {
    timeout(limit, connecting(address, tls, limit))
        .await
        .map_err(|_late| io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))?
}

async fn connecting(address: &str, tls: Option<&Connector>, limit: Duration) -> io::Result<Stream> {
    let stream = reach(address, limit).await?;
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY).with_retries(KEEPALIVE_RETRIES);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNCONFIRMED_MAX))?;
    match tls {
        None => Ok(Stream::Plain(stream)),
        Some(tls) => Ok(tls.connect(stream, address).await?.into()),
    }
}
