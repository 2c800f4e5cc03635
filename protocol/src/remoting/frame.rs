use bytes::{BufMut, Bytes, BytesMut};

use super::{Command, MAX_EXT_FIELDS, SerializeType, binary, json};

/// The longest frame that is accepted unless configured otherwise, the length field included: 16 MiB, as in Apache's processes.
pub const DEFAULT_MAX_FRAME: usize = 16 * 1024 * 1024;

/// The header length is a 24-bit field.
const MAX_HEADER: usize = 0x00FF_FFFF;
const LENGTH_FIELD: usize = 4;
const TYPE_FIELD: usize = 4;

/// Why bytes are no frame. The stream cannot be trusted any more: close the connection.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The length field is negative or too small for a frame.
    #[error("a frame states a length of {0} bytes")]
    BadLength(i32),
    /// The length field exceeds the limit.
    #[error("a frame of {length} bytes is over the limit of {limit}")]
    TooLarge {
        /// What the frame states, the length field included.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The header does not fit into the frame.
    #[error("a header of {header} bytes in a frame with room for {room}")]
    BadHeaderLength {
        /// What the frame states.
        header: usize,
        /// What is left of the frame.
        room: usize,
    },
    /// The type byte is neither 0 (JSON) nor 1 (binary).
    #[error("unknown header serialization {0}")]
    UnknownSerializeType(u8),
    /// The header is not a JSON object with the expected types.
    #[error("malformed JSON header: {0}")]
    Json(String),
    /// The binary header ends early or one of its lengths is wrong.
    #[error("malformed binary header at {0}")]
    Binary(&'static str),
    /// More than [`MAX_EXT_FIELDS`] fields.
    #[error("a header of more than {MAX_EXT_FIELDS} fields")]
    TooManyFields,
}

/// Takes one frame off the front of `buf`. `Ok(None)`: more bytes are needed, `buf` is as it was. The body shares memory with
/// `buf`, nothing is copied. `max_frame` is in bytes and counts the length field.
///
/// Lengths are checked as soon as they have arrived, so a frame that lies is refused before memory is spent on it.
///
/// # Errors
/// The bytes are no frame; see [`FrameError`].
pub fn decode(buf: &mut BytesMut, max_frame: usize) -> Result<Option<Command>, FrameError> {
    let Some(length) = read_i32(buf, 0) else { return Ok(None) };
    let content = usize::try_from(length).map_err(|_| FrameError::BadLength(length))?;
    if content < TYPE_FIELD {
        return Err(FrameError::BadLength(length));
    }
    let total = content + LENGTH_FIELD;
    if total > max_frame {
        return Err(FrameError::TooLarge { length: total, limit: max_frame });
    }
    let Some(word) = read_i32(buf, LENGTH_FIELD) else { return Ok(None) };
    let [kind, high, mid, low] = word.to_be_bytes();
    let header = usize::from(high) << 16 | usize::from(mid) << 8 | usize::from(low);
    let room = content - TYPE_FIELD;
    if header > room {
        return Err(FrameError::BadHeaderLength { header, room });
    }
    let read = match kind {
        0 => json::decode,
        1 => binary::decode,
        other => return Err(FrameError::UnknownSerializeType(other)),
    };
    if buf.len() < total {
        return Ok(None);
    }
    let mut frame = buf.split_to(total).freeze();
    let body: Bytes = frame.split_off(LENGTH_FIELD + TYPE_FIELD + header);
    let head = frame.get(LENGTH_FIELD + TYPE_FIELD..).unwrap_or_default();
    let mut command = read(head)?;
    command.body = body;
    Ok(Some(command))
}

/// Appends a whole frame to `out`.
pub fn encode(command: &Command, out: &mut BytesMut) {
    out.reserve(LENGTH_FIELD + TYPE_FIELD + head_estimate(command) + command.body.len());
    encode_head(command, out);
    out.put_slice(&command.body);
}

/// Appends a frame without its body; the length field counts the body, which is to be written right after.
///
/// A header of 16 MiB or more does not fit into its length field. It is written without its fields and its remark, so that
/// the stream stays readable and the receiver sees which request or response went wrong.
pub fn encode_head(command: &Command, out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(&[0; LENGTH_FIELD + TYPE_FIELD]);
    let mut kind = write_header(command, out);
    let mut header = out.len() - start - LENGTH_FIELD - TYPE_FIELD;
    if header > MAX_HEADER {
        out.truncate(start + LENGTH_FIELD + TYPE_FIELD);
        let bare = Command { remark: None, ext: Default::default(), body: Bytes::new(), ..command.clone() };
        kind = write_header(&bare, out);
        header = out.len() - start - LENGTH_FIELD - TYPE_FIELD;
    }
    let length = (TYPE_FIELD + header + command.body.len()) as u32;
    let word = u32::from(kind) << 24 | header as u32;
    if let Some(prefix) = out.get_mut(start..start + LENGTH_FIELD + TYPE_FIELD) {
        let (first, second) = prefix.split_at_mut(LENGTH_FIELD);
        first.copy_from_slice(&length.to_be_bytes());
        second.copy_from_slice(&word.to_be_bytes());
    }
}

/// Writes the header and returns its type byte. A field name too long for the binary form makes it JSON.
fn write_header(command: &Command, out: &mut BytesMut) -> u8 {
    match command.serialize {
        SerializeType::RocketMq if binary::fits(command) => {
            binary::encode(command, out);
            1
        }
        SerializeType::RocketMq | SerializeType::Json => {
            json::encode(command, out);
            0
        }
    }
}

fn head_estimate(command: &Command) -> usize {
    let fields: usize = command.ext.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
    128 + fields + command.remark.as_ref().map_or(0, String::len)
}

fn read_i32(buf: &[u8], at: usize) -> Option<i32> {
    let bytes = buf.get(at..at + 4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}
