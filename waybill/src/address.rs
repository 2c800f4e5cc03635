//! Addresses as people write them: `host:port`.

/// Checks `HOST:PORT`, an IPv6 address in brackets; gives it back as it is.
///
/// # Errors
/// Says what is wrong and what an address looks like.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    waybill_ops::address::check(text).map(|()| text.to_owned()).map_err(|wrong| {
        format!("{wrong}; an address is host:port, such as 127.0.0.1:8081, broker-0.example:10911 or [::1]:8081")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_an_address_looks_like() {
        assert_eq!(parse("[::1]:8081").as_deref(), Ok("[::1]:8081"));
        for wrong in ["foo", "::1:80"] {
            let said = parse(wrong).expect_err(wrong);
            assert!(said.contains("127.0.0.1:8081") && said.contains("[::1]:8081"), "{wrong}: {said}");
        }
    }
}
