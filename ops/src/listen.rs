//! Listening, and who it is that comes.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted; the operating system may allow fewer.
const BACKLOG: u32 = 1024;

/// Listens on `address`. `[::]` is every address of this machine, IPv6 and IPv4, and on a machine without IPv6 every one of IPv4, of which a
/// line in the log tells; `0.0.0.0` is every one of IPv4 alone.
///
/// # Errors
/// The operating system refuses: mostly because the port is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    listen_by(address, bind)
}

fn listen_by<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address) {
        // A kernel without IPv6, or one that lets nobody use it, says so in many ways; a port that is taken is taken in one.
        Err(error) if is_every_address(address) && error.kind() != ErrorKind::AddrInUse => {
            let bound = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))?;
            tracing::info!(%address, "there is no IPv6 here ({error}): listening by IPv4 alone");
            Ok(bound)
        }
        bound => bound,
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    if is_every_address(address) {
        // Otherwise net.ipv6.bindv6only decides.
        SockRef::from(&socket).set_only_v6(false)?;
    }
    // As tokio's own listeners have it: a program that is started again need not wait for old connections to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn is_every_address(address: SocketAddr) -> bool {
    address.is_ipv6() && address.ip().is_unspecified()
}

/// The address of a peer as others know it. A listener of both families tells IPv4 addresses in the form of IPv6, `::ffff:10.0.0.1`.
#[must_use]
pub fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// What is tried for `asked` on a machine that answers IPv6 with `refusal`, and how it ends.
    fn tried(asked: &str, refusal: impl Fn() -> io::Error) -> (Vec<String>, Result<String, ErrorKind>) {
        let tried = RefCell::new(Vec::new());
        let ended = listen_by(address(asked), |address| {
            tried.borrow_mut().push(address.to_string());
            if address.is_ipv6() { Err(refusal()) } else { Ok(address.to_string()) }
        });
        (tried.into_inner(), ended.map_err(|error| error.kind()))
    }

    #[test]
    fn without_ipv6_every_address_is_every_one_of_ipv4() {
        let (tries, ended) = tried("[::]:8081", || ErrorKind::Unsupported.into());
        assert_eq!((tries, ended), (vec!["[::]:8081".into(), "0.0.0.0:8081".into()], Ok("0.0.0.0:8081".into())));
        let (tries, ended) = tried("[::1]:8081", || ErrorKind::AddrNotAvailable.into());
        assert_eq!((tries, ended), (vec!["[::1]:8081".into()], Err(ErrorKind::AddrNotAvailable)), "one is that one");
        let (tries, ended) = tried("[::]:8081", || ErrorKind::AddrInUse.into());
        assert_eq!((tries, ended), (vec!["[::]:8081".into()], Err(ErrorKind::AddrInUse)));
        assert_eq!(tried("0.0.0.0:1", || ErrorKind::Other.into()).1, Ok("0.0.0.0:1".into()));
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_told() {
        let taken = listen(address("127.0.0.1:0")).expect("a free port").local_addr().expect("an address");
        let first = listen(taken).expect("free again");
        assert_eq!(listen(taken).expect_err("taken").kind(), ErrorKind::AddrInUse);
        drop(first);
    }

    #[tokio::test]
    async fn every_address_takes_both_families_and_tells_ipv4_as_it_is() {
        let listener = listen(address("[::]:0")).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let four = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("by IPv4");
        let (_, peer) = listener.accept().await.expect("the connection");
        assert_eq!(canonical(peer), four.local_addr().expect("an address"));
        // Not on every machine.
        if let Ok(six) = tokio::net::TcpStream::connect(("::1", port)).await {
            let (_, peer) = listener.accept().await.expect("the connection");
            assert_eq!(canonical(peer), six.local_addr().expect("an address"));
        }
    }

    #[test]
    fn a_peer_has_one_address() {
        assert_eq!(canonical(address("[::ffff:10.0.0.1]:80")), address("10.0.0.1:80"));
        assert_eq!(canonical(address("[2001:db8::1]:80")), address("[2001:db8::1]:80"));
        assert_eq!(canonical(address("10.0.0.1:80")), address("10.0.0.1:80"));
    }
}
