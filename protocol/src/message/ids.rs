use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// `String.hashCode` of Java, which consume queues keep of a tag.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The id that tells where a message lies: address, port and physical offset in upper-case hexadecimal digits, 32 for IPv4
/// and 56 for IPv6.
pub fn offset_msg_id(host: SocketAddr, physical_offset: i64) -> String {
    let mut id = String::with_capacity(56);
    let mut hex = |bytes: &[u8]| {
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(id, "{byte:02X}");
        }
    };
    match host.ip() {
        IpAddr::V4(ip) => hex(&ip.octets()),
        IpAddr::V6(ip) => hex(&ip.octets()),
    }
    hex(&u32::from(host.port()).to_be_bytes());
    hex(&physical_offset.to_be_bytes());
    id
}

/// The physical offset in an id that [`offset_msg_id`] made; `None` if it is none.
pub fn offset_of_msg_id(id: &str) -> Option<i64> {
    let digits = matches!(id.len(), 32 | 56) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let offset = digits.then(|| id.get(id.len() - 16..)).flatten()?;
    Some(u64::from_str_radix(offset, 16).ok()?.cast_signed())
}

/// An address as text, `host:port`, as its `Display` writes it; that of IPv4, which goes out with every message, at a
/// fraction of the cost.
pub fn host_text(host: SocketAddr) -> String {
    let IpAddr::V4(ip) = host.ip() else { return host.to_string() };
    let mut text = String::with_capacity("255.255.255.255:65535".len());
    let mut number = itoa::Buffer::new();
    for (octet, separator) in ip.octets().into_iter().zip(['.', '.', '.', ':']) {
        text.push_str(number.format(octet));
        text.push(separator);
    }
    text.push_str(number.format(host.port()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_as_java() {
        for (text, hash) in [
            ("", 0),
            ("a", 97),
            ("TagA", 2598919),
            ("polygenelubricants", i32::MIN),
            ("你好", 652829),
            // Two UTF-16 units: 0xD83D * 31 + 0xDE9A.
            ("🚚", 1773053),
        ] {
            assert_eq!(java_hash(text), hash, "{text}");
        }
    }

    #[test]
    fn hosts() {
        for text in ["127.0.0.2:22435", "0.0.0.0:0", "255.255.255.255:65535", "[2001:db8::1]:65535"] {
            assert_eq!(text.parse().map(host_text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn offset_ids() {
        let id = |host: &str, offset| host.parse().map(|host| offset_msg_id(host, offset));
        assert_eq!(id("127.0.0.2:22435", 0).as_deref(), Ok("7F000002000057A30000000000000000"));
        assert_eq!(id("10.1.2.255:10911", 0x0123_4567_89AB_CDEF).as_deref(), Ok("0A0102FF00002A9F0123456789ABCDEF"));
        assert_eq!(
            id("[2001:db8::1]:65535", 1).as_deref(),
            Ok("20010DB80000000000000000000000010000FFFF0000000000000001")
        );
        for (host, offset) in [("10.1.2.255:10911", i64::MAX), ("[::1]:1", 0), ("10.1.2.255:10911", -1)] {
            assert_eq!(id(host, offset).ok().and_then(|id| offset_of_msg_id(&id)), Some(offset));
        }
        for none in [
            "",
            "0A0102FF00002A9F0123456789ABCDE",
            "0A0102FF00002A9F0123456789ABCDEX",
            "0A0102FF00002A9F0123456789ABCDé",
        ] {
            assert_eq!(offset_of_msg_id(none), None, "{none}");
        }
    }
}
