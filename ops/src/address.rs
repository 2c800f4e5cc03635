//! Addresses as people write them.

use std::net::{Ipv6Addr, SocketAddr};

/// Longest name of a host that DNS knows, in bytes.
const HOST_BYTES_MAX: usize = 253;

/// Reads an address to listen on: a number, not a name, with its port.
///
/// # Errors
/// Says what is wanted.
pub fn to_listen_on(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_no_address| {
        let port = text.trim_start_matches(':').parse::<u16>().unwrap_or(8081);
        format!("HOST:PORT is wanted, with the host as a number: 127.0.0.1:{port} or 0.0.0.0:{port} or [::]:{port}")
    })
}

/// Checks `HOST:PORT`, an IPv6 address in brackets.
///
/// # Errors
/// Says what is wrong.
pub fn check(text: &str) -> Result<(), String> {
    if text.contains("://") {
        return Err("an address has no scheme".to_owned());
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| "the port is missing".to_owned())?;
    if !is_host(host) {
        return Err(format!("\"{host}\" is no host"));
    }
    match port.parse::<u16>() {
        Ok(1..) if port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _no_port => Err(format!("\"{port}\" is no port from 1 to 65535")),
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let named = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(named)
}

/// A host and its port as one text, an IPv6 address in brackets, whether it came in them or not.
#[must_use]
pub fn with_port(host: &str, port: u16) -> String {
    let host = without_brackets(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A host without the brackets that an IPv6 address may have.
#[must_use]
pub fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_wanted() {
        assert_eq!(to_listen_on("127.0.0.1:0").map(|address| address.port()), Ok(0));
        assert_eq!(to_listen_on("[::1]:80").map(|address| address.port()), Ok(80));
        for (wrong, example) in [
            ("9000", "127.0.0.1:9000"),
            (":9000", "0.0.0.0:9000"),
            ("localhost:80", "127.0.0.1:8081"),
            ("", "[::]:8081"),
        ] {
            assert!(
                to_listen_on(wrong).is_err_and(|said| said.contains("HOST:PORT") && said.contains(example)),
                "{wrong}"
            );
        }
    }

    #[test]
    fn takes_names_and_addresses() {
        for right in [
            "127.0.0.1:8081",
            "localhost:1",
            "broker-0.brokers:65535",
            "a_b.example:80",
            "[::1]:8081",
            "[2001:db8::1]:10911",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in [
            "",
            "foo",
            "foo:",
            ":80",
            "::::",
            "::1:80",
            "[::1]",
            "[::1]80",
            "[foo]:80",
            "foo:0",
            "foo:99999",
            "foo:+80",
            "foo:-1",
            "foo bar:80",
            "http://foo:80",
            "foo:80/path",
            "foo:80,bar:80",
            "user@foo:80",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        for (host, address) in [
            ("broker-0.brokers", "broker-0.brokers:1"),
            ("10.0.0.1", "10.0.0.1:1"),
            ("2001:db8::1", "[2001:db8::1]:1"),
            ("[2001:db8::1]", "[2001:db8::1]:1"),
        ] {
            assert_eq!(with_port(host, 1), address);
            assert_eq!(check(address), Ok(()));
        }
    }
}
