//! Short hashes of what was applied, the same in every version and on every machine.

/// FNV-1a, 64 bits, as 16 hexadecimal digits: tells changes apart, and keeps no secrets.
#[must_use]
pub fn of(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_hash_that_is_written_down() {
        assert_eq!(super::of(""), "cbf29ce484222325");
        assert_eq!(super::of("foobar"), "85944171f73967e8");
    }
}
