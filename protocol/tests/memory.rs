//! A length that lies must not cost memory. Alone in its binary: the address space of the whole process is measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::{Bytes, BytesMut};
use waybill_protocol::message::{StoredMessage, decode_batch, peek_properties};
use waybill_protocol::remoting::{BatchAckBody, BitSet, JsonBody, decode};

/// The largest address space this process has had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn with(bytes: &[u8], at: usize, number: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[test]
fn lies_cost_no_memory() {
    // A binary frame: lengths of the header, the remark and the fields; a message: its size and its body's.
    let frame = [&[0, 0, 0, 25, 1, 0, 0, 21][..], &[0; 21]].concat();
    let message = [&[0, 0, 0, 100, 0xDA, 0xA3, 0x20, 0xA7][..], &[0; 92]].concat();
    let before = peak();
    for lie in [0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x0100_0000, 0x3000_0000] {
        for at in [0, 4, 21, 25] {
            // No limit at all: the lie alone decides.
            let read = decode(&mut BytesMut::from(&with(&frame, at, lie)[..]), usize::MAX);
            assert!(!matches!(read, Ok(Some(_))), "{at} {lie:#x}");
        }
        for at in [0, 84] {
            let bytes = with(&message, at, lie);
            assert!(peek_properties(&bytes).is_err());
            assert!(StoredMessage::decode_all(Bytes::from(bytes)).is_err());
        }
        for at in [0, 16] {
            assert!(decode_batch(with(&[0; 22], at, lie).into()).is_err());
        }
    }
    assert!(BitSet::new().set(usize::MAX / 16).is_err());
    assert!(BatchAckBody::from_json(br#"{"acks":[{"b":"////////////"}],"brokerName":7}"#).is_err());
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "the address space grew by {grown} KiB");
}
