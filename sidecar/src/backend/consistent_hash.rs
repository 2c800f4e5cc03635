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
    use super::*;

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
