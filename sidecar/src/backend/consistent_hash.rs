//! Which queue the messages of one group go to: the same choice as Apache's proxy, so that both may serve the same
//! producers.

/// Jump consistent hash over a linear congruential generator: when a bucket is added, as few keys as possible move.
///
/// `buckets` must be at least 1; the result is below it.
pub(super) fn bucket_of(key: i32, buckets: usize) -> usize {
    let last = i64::try_from(buckets).unwrap_or(i64::MAX);
    // Java widens the signed hash; the generator works on the same 64 bits.
    let mut state = i64::from(key) as u64;
    let mut bucket = 0_i64;
    loop {
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        // The top 31 bits, as a number in (0, 1].
        let fraction = ((state >> 33) as f64 + 1.0) / f64::from(1_u32 << 31);
        let next = ((bucket + 1) as f64 / fraction) as i64;
        if next >= last {
            return usize::try_from(bucket).unwrap_or_default();
        }
        bucket = next;
    }
}

#[cfg(test)]
mod tests {
    use waybill_protocol::message::java_hash;

    use super::*;

    /// What Guava 31.1, which Apache's proxy calls, answered (`Hashing.consistentHash(group.hashCode(), queues)`).
    #[test]
    fn the_queue_is_the_one_that_apaches_proxy_chooses() {
        const QUEUES: [usize; 7] = [1, 2, 3, 8, 16, 97, 1_000];
        for (group, expected) in [
            ("order-4711", [0, 0, 0, 3, 3, 20, 400]),
            ("a", [0, 0, 0, 0, 0, 29, 346]),
            ("", [0, 0, 0, 0, 0, 0, 0]),
            ("FPSM", [0, 0, 2, 2, 13, 83, 995]),
            ("群组-1", [0, 1, 1, 1, 13, 32, 845]),
            ("message-group-with-a-rather-long-name-0123456789", [0, 1, 2, 3, 12, 32, 538]),
        ] {
            assert_eq!(QUEUES.map(|queues| bucket_of(java_hash(group), queues)), expected, "{group}");
        }
    }

    #[test]
    fn a_checksum_over_half_a_million_choices_is_guavas() {
        let mut sum = 0_i64;
        for key in -5_000_i32..5_000 {
            for queues in 1..50 {
                let choice = bucket_of(key.wrapping_mul(104_729), queues);
                sum = sum.wrapping_mul(31).wrapping_add(i64::try_from(choice).unwrap());
            }
        }
        assert_eq!(sum, 39_931_556_094_924_695);
    }

    #[test]
    fn adding_a_bucket_moves_keys_only_to_it() {
        for key in -2_000..2_000 {
            for buckets in 1..40 {
                let (before, after) = (bucket_of(key, buckets), bucket_of(key, buckets + 1));
                assert!(before < buckets);
                assert!(after == before || after == buckets, "key {key}: {before} → {after} of {buckets}");
            }
        }
    }

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0; 8];
        for key in 0..8_000 {
            counts[bucket_of(key * 7_919, 8)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
