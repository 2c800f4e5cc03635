//! Rows in the store: what is written is read back, and nothing else is taken.

use proptest::prelude::*;
use waybill_broker::lease::schema::{
    LEASE_VALUE_MAX, RowError, lease_key, prefix, progress_key, read_lease, read_progress, write_lease, write_progress,
};
use waybill_broker::lease::{ChangedBy, Lease, MAX_COUNT, MAX_MS, Progress};

fn lease() -> impl Strategy<Value = Lease> {
    let count = || prop_oneof![0..4_u32, 0..=MAX_COUNT];
    (
        0..=2 * MAX_MS - 1,
        -2 * MAX_MS..=2 * MAX_MS,
        0..=MAX_MS,
        count(),
        count(),
        any::<u32>(),
        any::<Option<u32>>(),
        any::<bool>(),
        (0..ChangedBy::ALL.len(), prop_oneof![Just(0), any::<u8>()], prop_oneof![Just(0), any::<u32>()]),
    )
        .prop_map(|(pop_time_ms, invisible_ms, since, attempts, changes, holder, order_group, uncounted, by)| {
            Lease {
                pop_time_ms,
                invisible_ms,
                first_pop_ms: (pop_time_ms - since).max(0),
                attempts,
                changes,
                renewals: by.1,
                changed_by: ChangedBy::ALL[by.0],
                holder,
                order_group,
                uncounted,
                attempt: by.2,
            }
        })
}

fn value_of(lease: &Lease) -> Vec<u8> {
    let mut value = Vec::new();
    write_lease(lease, &mut value);
    value
}

const COMMON: Lease = Lease {
    pop_time_ms: 1_780_000_000_000,
    invisible_ms: 60_000,
    first_pop_ms: 1_780_000_000_000,
    attempts: 1,
    changes: 0,
    renewals: 0,
    changed_by: ChangedBy::Unknown,
    holder: 300,
    order_group: None,
    uncounted: false,
    attempt: 0,
};

proptest! {
    #[test]
    fn leases_come_back(ids in any::<(u32, u32, u32, u64)>(), lease in lease()) {
        let (group, topic, queue, offset) = ids;
        let key = lease_key(group, topic, queue, offset);
        let value = value_of(&lease);
        prop_assert!(value.len() <= LEASE_VALUE_MAX);
        prop_assert!(key.starts_with(&prefix(group, topic)));
        let row = read_lease(&key, &value).unwrap();
        prop_assert_eq!((row.group, row.topic, row.queue, row.offset), ids);
        prop_assert_eq!(row.lease, lease);
    }

    #[test]
    fn progress_comes_back(ids in any::<(u32, u32, u32)>(), next: u64, pop_floor_ms in 0..2 * MAX_MS) {
        let (group, topic, queue) = ids;
        let progress = Progress { next, pop_floor_ms };
        let mut value = Vec::new();
        write_progress(&progress, &mut value);
        prop_assert!(value.len() <= 18);
        let row = read_progress(&progress_key(group, topic, queue), &value).unwrap();
        prop_assert_eq!((row.group, row.topic, row.queue), ids);
        prop_assert_eq!(row.progress, progress);
    }

    #[test]
    fn keys_sort_as_their_numbers(a in any::<(u32, u32, u32, u64)>(), b in any::<(u32, u32, u32, u64)>()) {
        let key = |(group, topic, queue, offset)| lease_key(group, topic, queue, offset);
        prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
    }

    /// Each row has one form: whatever is read is written again as the same bytes.
    #[test]
    fn any_bytes_are_refused_or_are_the_one_form(head in 0x10..0x14_u8, tail in proptest::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..24)) {
        let value: Vec<u8> = std::iter::once(head).chain(tail).collect();
        if let Ok(row) = read_lease(&lease_key(1, 2, 3, 4), &value) {
            prop_assert_eq!(value_of(&row.lease), value.clone());
        }
        if let Ok(row) = read_progress(&progress_key(1, 2, 3), &value) {
            let mut again = Vec::new();
            write_progress(&row.progress, &mut again);
            again[0] |= u8::from(row.being_reset);
            prop_assert_eq!(again, value);
        }
    }
}

/// The form on disk must not change unnoticed: bytes worked out by hand.
#[test]
fn a_lease_has_this_form() {
    let lease = Lease {
        pop_time_ms: 1000,
        invisible_ms: -3,
        first_pop_ms: 872,
        attempts: 2,
        changes: 1,
        renewals: 0,
        changed_by: ChangedBy::Unknown,
        holder: 300,
        order_group: Some(0x0102_0304),
        uncounted: true,
        attempt: 0,
    };
    assert_eq!(value_of(&lease), [0x13, 0xe8, 0x07, 0x05, 0x80, 0x01, 2, 1, 0xac, 0x02, 1, 2, 3, 4]);
    assert_eq!(value_of(&COMMON).len(), 15, "what most leases look like");
    // Two bytes more once it is known who changed it; the numbers are for ever.
    let plain = value_of(&COMMON);
    for (number, by) in ChangedBy::ALL.into_iter().enumerate() {
        let value = value_of(&Lease { changed_by: by, renewals: 7, ..COMMON });
        assert_eq!((value[0], &value[1..15], &value[15..]), (0x14, &plain[1..], &[number as u8, 7][..]));
    }
    // Four more for the name of the receive.
    let named = value_of(&Lease { attempt: 0x0a0b_0c0d, ..COMMON });
    assert_eq!((named[0], &named[1..15], &named[15..]), (0x18, &plain[1..], &[0x0a, 0x0b, 0x0c, 0x0d][..]));
    let nameless = [&[0x18][..], &plain[1..], &[0; 4]].concat();
    assert_eq!(read_lease(&lease_key(1, 2, 3, 4), &nameless), Err(RowError::Value), "no name is no name");
}

#[test]
fn progress_has_this_form() {
    let mut value = Vec::new();
    write_progress(&Progress { next: 300, pop_floor_ms: 5 }, &mut value);
    assert_eq!(value, [0x10, 0xac, 0x02, 5]);
}

#[test]
fn sizes_are_exact() {
    let key = lease_key(1, 2, 3, 4);
    let value = value_of(&Lease { order_group: Some(5), ..COMMON });
    for size in 0..value.len() {
        assert_eq!(read_lease(&key, &value[..size]), Err(RowError::Value));
    }
    assert_eq!(read_lease(&key, &[value.as_slice(), &[0]].concat()), Err(RowError::Value));
    for size in [0, 12, 19, 21] {
        assert_eq!(read_lease(&vec![0; size], &value), Err(RowError::Key(size)));
    }
    let mut value = Vec::new();
    write_progress(&Progress { next: 300, pop_floor_ms: 0 }, &mut value);
    let key = progress_key(1, 2, 3);
    for size in 0..value.len() {
        assert_eq!(read_progress(&key, &value[..size]), Err(RowError::Value));
    }
    assert_eq!(read_progress(&key, &[value.as_slice(), &[0]].concat()), Err(RowError::Value));
    for size in [0, 11, 13, 20] {
        assert_eq!(read_progress(&vec![0; size], &value), Err(RowError::Key(size)));
    }
}

#[test]
fn other_versions_are_refused() {
    let good = value_of(&COMMON);
    for head in (0..=255).filter(|head| !(0x10..=0x1f).contains(head)) {
        let mut value = good.clone();
        value[0] = head;
        assert_eq!(read_lease(&lease_key(1, 2, 3, 4), &value), Err(RowError::Version(head)));
        assert_eq!(read_progress(&progress_key(1, 2, 3), &[head, 0, 0]), Err(RowError::Version(head)));
    }
    for head in 0x12..=0x1f {
        assert_eq!(read_progress(&progress_key(1, 2, 3), &[head, 0, 0]), Err(RowError::Version(head)));
    }
    let being_reset = |head| read_progress(&progress_key(1, 2, 3), &[head, 0, 0]).map(|row| row.being_reset);
    assert_eq!((being_reset(0x10), being_reset(0x11)), (Ok(false), Ok(true)));
}

#[test]
fn changes_that_nobody_made_are_refused() {
    let key = lease_key(1, 2, 3, 4);
    let mut value = value_of(&Lease { changed_by: ChangedBy::Broker, ..COMMON });
    for (number, expected) in [(6, true), (7, false), (255, false), (0, false)] {
        value[15] = number;
        assert_eq!(read_lease(&key, &value).is_ok(), expected, "{number}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let key = lease_key(1, 2, 3, 4);
    for bad in [
        Lease { pop_time_ms: 2 * MAX_MS, first_pop_ms: 2 * MAX_MS, ..COMMON },
        Lease { pop_time_ms: -1, first_pop_ms: -1, ..COMMON },
        Lease { first_pop_ms: COMMON.pop_time_ms + 1, ..COMMON },
        Lease { first_pop_ms: -1, ..COMMON },
        Lease { attempts: MAX_COUNT + 1, ..COMMON },
        Lease { changes: u32::MAX, ..COMMON },
        Lease { invisible_ms: i64::MIN, ..COMMON },
    ] {
        assert_eq!(read_lease(&key, &value_of(&bad)), Err(RowError::Value), "{bad:?}");
    }
}
