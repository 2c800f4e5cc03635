//! Addresses to listen on, as options have them.

use std::net::SocketAddr;

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
}
