//! Connecting to a host that may have several addresses.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Connects to `address`, host:port; a name is looked up. Of several addresses, such as one of IPv6 and one of IPv4, one after the other is
/// tried, and each but the last has only its share of `limit`: one that leads nowhere does not hold up the others.
///
/// # Errors
/// What the last one said, or that there is none.
pub async fn connect(address: &str, limit: Duration) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = lookup_host(address).await?.collect();
    first(&addresses, limit, TcpStream::connect).await
}

async fn first<T, F>(addresses: &[SocketAddr], limit: Duration, connect: impl Fn(SocketAddr) -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let Some((last, others)) = addresses.split_last() else {
        return Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    };
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in others {
        if let Ok(Ok(connected)) = timeout(share, connect(*address)).await {
            return Ok(connected);
        }
    }
    connect(*last).await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
    }

    /// Port 1 answers, 2 refuses, 3 is silent.
    async fn reached(ports: &[u16]) -> io::Result<u16> {
        let connect = |address: SocketAddr| async move {
            match address.port() {
                1 => Ok(1),
                2 => Err(ErrorKind::ConnectionRefused.into()),
                _silent => pending().await,
            }
        };
        first(&addresses(ports), LIMIT, connect).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_leads_nowhere_does_not_hold_up_the_others() {
        let began = Instant::now();
        assert_eq!(reached(&[2, 1]).await.ok(), Some(1));
        assert_eq!(began.elapsed(), Duration::ZERO, "who refuses is not waited for");
        assert_eq!(reached(&[3, 3, 1]).await.ok(), Some(1));
        assert_eq!(began.elapsed(), LIMIT / 3 * 2);
        assert_eq!(reached(&[3, 2]).await.map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
        assert!(reached(&[]).await.is_err());
    }
}
