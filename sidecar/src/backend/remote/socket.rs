//! Making a TCP connection that notices when its other end is gone.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};

/// A silent connection is asked for a sign of life after so long, …
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
/// … then so often, …
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// … and given up after so many unanswered ones.
const KEEPALIVE_RETRIES: u32 = 3;
/// Bytes that the other machine has not confirmed for so long: the machine is gone. A process that is only paused still
/// confirms.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(10);

/// Connects to `address` (`host:port`). The name is resolved anew each time, since a pod that moved has a new address.
pub(super) async fn connect(address: &str, limit: Duration) -> io::Result<TcpStream> {
    let stream = timeout(limit, TcpStream::connect(address))
        .await
        .map_err(|_late| io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))??;
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY).with_retries(KEEPALIVE_RETRIES);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNCONFIRMED_MAX))?;
    Ok(stream)
}
