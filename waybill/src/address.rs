//! Addresses as people write them: `host:port`.

use std::net::Ipv6Addr;

/// Longest name of a host that DNS knows, in bytes.
const HOST_BYTES_MAX: usize = 253;

/// Checks `HOST:PORT`, an IPv6 address in brackets; gives it back as it is.
///
/// # Errors
/// Says what is wrong and what an address looks like.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let wrong = |what: &str| {
        format!("{what}; an address is host:port, such as 127.0.0.1:8081, broker-0.example:10911 or [::1]:8081")
    };
    if text.contains("://") {
        return Err(wrong("an address has no scheme"));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
    if !is_host(host) {
        return Err(wrong(&format!("\"{host}\" is no host")));
    }
    match port.parse::<u16>() {
        Ok(1..) if port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(text.to_owned()),
        _no_port => Err(wrong(&format!("\"{port}\" is no port from 1 to 65535"))),
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let named = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_and_addresses() {
        for right in ["127.0.0.1:8081", "localhost:1", "broker-0.brokers:65535", "a_b.example:80", "[::1]:8081"] {
            assert_eq!(parse(right).as_deref(), Ok(right));
        }
    }

    #[test]
    fn says_what_an_address_looks_like() {
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
            let said = parse(wrong).expect_err(wrong);
            assert!(said.contains("127.0.0.1:8081"), "{wrong}: {said}");
        }
    }
}
