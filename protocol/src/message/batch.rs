use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{MAX_PROPERTIES, MessageError};

/// One message in the body of a batch; topic and queue are in the header of the request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchItem {
    /// The user's own number.
    pub flag: i32,
    /// The body.
    pub body: Bytes,
    /// In the form of [`properties`](super::properties).
    pub properties: String,
}

/// Size, magic, checksum, flag, length of the body, length of the properties.
const FIXED: usize = 4 + 4 + 4 + 4 + 4 + 2;

/// Reads the body of a batch; the bodies share memory with it.
///
/// # Errors
/// The bytes are no batch.
pub fn decode_batch(mut body: Bytes) -> Result<Vec<BatchItem>, MessageError> {
    let mut items = Vec::new();
    while !body.is_empty() {
        items.push(decode_item(&mut body)?);
    }
    Ok(items)
}

/// Magic and checksum of an item are 0 and mean nothing.
fn decode_item(batch: &mut Bytes) -> Result<BatchItem, MessageError> {
    let value = batch.try_get_i32().map_err(|_| MessageError::Truncated("size"))?;
    let stated = usize::try_from(value).map_err(|_| MessageError::BadNumber { field: "size", value })?;
    let rest = stated.checked_sub(4).ok_or(MessageError::BadNumber { field: "size", value })?;
    let mut item = take(batch, rest, "bytes")?;
    take(&mut item, 8, "checksum")?;
    let flag = item.try_get_i32().map_err(|_| MessageError::Truncated("flag"))?;
    let len = item.try_get_i32().map_err(|_| MessageError::Truncated("body"))?;
    let body = part(&mut item, len, "body")?;
    let len = item.try_get_i16().map_err(|_| MessageError::Truncated("properties"))?;
    let properties = part(&mut item, i32::from(len), "properties")?;
    if !item.is_empty() {
        return Err(MessageError::SizeMismatch { stated, found: stated - item.len() });
    }
    let properties = std::str::from_utf8(&properties).map_err(|_| MessageError::NotUtf8("properties"))?;
    Ok(BatchItem { flag, body, properties: properties.to_owned() })
}

fn part(from: &mut Bytes, len: i32, field: &'static str) -> Result<Bytes, MessageError> {
    let len = usize::try_from(len).map_err(|_| MessageError::BadNumber { field, value: len })?;
    take(from, len, field)
}

fn take(from: &mut Bytes, len: usize, field: &'static str) -> Result<Bytes, MessageError> {
    if len > from.len() { Err(MessageError::Truncated(field)) } else { Ok(from.split_to(len)) }
}

/// Writes the body of a batch.
///
/// # Errors
/// A body or properties are too long for their length fields.
pub fn encode_batch(items: &[BatchItem]) -> Result<Bytes, MessageError> {
    let sizes = items.iter().map(|item| FIXED + item.body.len() + item.properties.len());
    let mut out = BytesMut::with_capacity(sizes.sum());
    for item in items {
        let (body, properties) = (item.body.len(), item.properties.len());
        let max = i32::MAX as usize - FIXED - MAX_PROPERTIES;
        if body > max {
            return Err(MessageError::TooLong { field: "body", len: body, max });
        }
        if properties > MAX_PROPERTIES {
            return Err(MessageError::TooLong { field: "properties", len: properties, max: MAX_PROPERTIES });
        }
        out.put_u32((FIXED + body + properties) as u32);
        out.put_u64(0);
        out.put_i32(item.flag);
        out.put_u32(body as u32);
        out.put_slice(&item.body);
        out.put_u16(properties as u16);
        out.put_slice(item.properties.as_bytes());
    }
    Ok(out.freeze())
}
