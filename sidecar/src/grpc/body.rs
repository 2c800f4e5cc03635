//! Bodies that producers of the remoting protocol compressed. Clients of the gRPC interface know gzip and nothing else, and some fail on
//! whatever else carries that label, so what is in another format goes to them as it was before it was compressed.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::ZlibDecoder;
use lz4_flex::frame::FrameDecoder;
use ruzstd::decoding::StreamingDecoder;

/// The least window of a Zstandard body that is taken; what common levels of compression use, however short the body is.
const WINDOW_MIN: u64 = 8 << 20;

/// Why a body cannot be given to clients as it was before it was compressed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is in no format that is known")]
    Format,
    #[error("decompressed it has more than {0} bytes (maxMessageSize)")]
    TooLarge(usize),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// A compressed body as clients can read it: gzip as it is (`None`), anything else decompressed, if that makes at most `most` bytes. The
/// format is told by the first bytes: flags of messages have no word for gzip, and old producers set none.
///
/// # Errors
/// What is damaged, too large, or in another format.
pub(super) fn decompressed(body: &[u8], most: usize) -> Result<Option<Bytes>, Unreadable> {
    match body {
        [0x1f, 0x8b, ..] => Ok(None),
        [0x04, 0x22, 0x4d, 0x18, ..] => bounded(FrameDecoder::new(body), most).map(Some),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let window = WINDOW_MIN.max(most as u64);
            let decoder = StreamingDecoder::new_with_max_window_size(body, window);
            bounded(decoder.map_err(|error| Unreadable::Damaged(error.to_string()))?, most).map(Some)
        }
        // A method of 8, and the two bytes as a number are a multiple of 31.
        [first, second, ..] if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0 => {
            bounded(ZlibDecoder::new(body), most).map(Some)
        }
        _ => Err(Unreadable::Format),
    }
}

/// All that comes, but no more than one byte above `most`, whatever a small body claims to hold.
fn bounded(from: impl Read, most: usize) -> Result<Bytes, Unreadable> {
    let mut body = Vec::new();
    let damaged = |error: io::Error| Unreadable::Damaged(error.to_string());
    from.take((most as u64).saturating_add(1)).read_to_end(&mut body).map_err(damaged)?;
    if body.len() > most { Err(Unreadable::TooLarge(most)) } else { Ok(body.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn zlib(body: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(body).expect("memory takes everything");
        encoder.finish().expect("memory takes everything")
    }

    fn lz4(body: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(body).expect("memory takes everything");
        encoder.finish().expect("memory takes everything")
    }

    fn zstd(body: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(body: Vec<u8>, level in 0_u32..10) {
            for compressed in [zlib(&body, level), lz4(&body), zstd(&body)] {
                let came = decompressed(&compressed, body.len()).expect("it is whole");
                prop_assert_eq!(came.as_deref(), Some(&body[..]));
                if !body.is_empty() {
                    let refused = decompressed(&compressed, body.len() - 1);
                    prop_assert!(matches!(refused, Err(Unreadable::TooLarge(_))), "{:?}", refused);
                }
            }
        }

        #[test]
        fn any_bytes_are_survived(mut body: Vec<u8>, magic in 0_usize..5) {
            let magics: [&[u8]; 5] = [&[], &[0x78, 0x5e], &[0x04, 0x22, 0x4d, 0x18], &[0x28, 0xb5, 0x2f, 0xfd], &[0x1f, 0x8b]];
            body.splice(0..0, magics[magic].iter().copied());
            let _ = decompressed(&body, 100_000);
        }
    }

    /// `hello` as zlib at level 5, `zstd -19` and `lz4` write it.
    #[test]
    fn formats_of_others() {
        for digits in [
            "785ecb48cdc9c90700062c0215",
            "28b52ffd046829000068656c6c6fa36d9f88",
            "04224d186440a70500008068656c6c6f00000000f97700fb",
        ] {
            let body = hex::decode(digits).expect("digits");
            assert_eq!(decompressed(&body, 5).expect("it is whole").as_deref(), Some(&b"hello"[..]));
        }
        let gzip = hex::decode("1f8b0800000000000003cb48cdc9c9070086a6103605000000").expect("digits");
        assert!(matches!(decompressed(&gzip, 0), Ok(None)), "clients read it themselves");
    }

    #[test]
    fn a_small_body_does_not_make_a_large_one() {
        let zeros = vec![0; 64 << 20];
        for bomb in [zlib(&zeros, 9), lz4(&zeros), zstd(&zeros)] {
            assert!(bomb.len() < zeros.len() / 100);
            assert!(matches!(decompressed(&bomb, 4 << 20), Err(Unreadable::TooLarge(_))));
        }
        // A window of 2 GiB.
        let claims = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        assert!(matches!(decompressed(&claims, 4 << 20), Err(Unreadable::Damaged(_))));
    }

    #[test]
    fn what_is_damaged_is_not_passed_off_as_whole() {
        for whole in [zlib(&[7; 5_000], 5), lz4(&[7; 5_000]), zstd(&[7; 5_000])] {
            let half = &whole[..whole.len() / 2];
            assert!(matches!(decompressed(half, 10_000), Err(Unreadable::Damaged(_))), "{half:x?}");
        }
        for other in [&b""[..], b"x", b"hello", &[0x78, 0x5f]] {
            assert!(matches!(decompressed(other, 10_000), Err(Unreadable::Format)));
        }
    }
}
