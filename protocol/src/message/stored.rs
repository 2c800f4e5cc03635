use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{MAX_PROPERTIES, MessageError, sys_flag};

/// The form with a topic of at most 127 bytes.
const MAGIC_V1: i32 = -626_843_481;
/// The form with a topic of at most 32767 bytes.
const MAGIC_V2: i32 = -626_843_477;

// Positions of fields up to the first of varying length.
const AT_MAGIC: usize = 4;
const AT_QUEUE_ID: usize = 12;
const AT_QUEUE_OFFSET: usize = 20;
const AT_PHYSICAL_OFFSET: usize = 28;
const AT_SYS_FLAG: usize = 36;
const AT_BORN_HOST: usize = 48;

/// A message as brokers store and deliver it. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The topic it lies in.
    pub topic: String,
    /// The queue it lies in.
    pub queue_id: i32,
    /// The user's own number.
    pub flag: i32,
    /// Its place in the queue.
    pub queue_offset: i64,
    /// Its place in the log.
    pub physical_offset: i64,
    /// Bits of [`sys_flag`]. Those of the hosts' families are set by [`encode`](Self::encode) from the hosts.
    pub sys_flag: i32,
    /// When the producer made it.
    pub born_timestamp: i64,
    /// The producer.
    pub born_host: SocketAddr,
    /// When the broker stored it.
    pub store_timestamp: i64,
    /// The broker.
    pub store_host: SocketAddr,
    /// Deliveries before this one.
    pub reconsume_times: i32,
    /// For the second half of a transaction: where the first lies.
    pub prepared_transaction_offset: i64,
    /// As it was sent, compressed if the flag says so.
    pub body: Bytes,
    /// In the form of [`properties`](super::properties).
    pub properties: String,
}

impl StoredMessage {
    /// Appends the message.
    ///
    /// # Errors
    /// The topic, the properties or the body are too long for their length fields; `out` is then as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), MessageError> {
        let v2 = self.topic.len() > i8::MAX as usize;
        check_len("topic", self.topic.len(), i16::MAX as usize)?;
        check_len("properties", self.properties.len(), MAX_PROPERTIES)?;
        let hosts = [self.born_host, self.store_host].map(|h| if h.is_ipv6() { 20 } else { 8 });
        let fixed = AT_BORN_HOST + hosts[0] + 8 + hosts[1] + 4 + 8 + 4 + if v2 { 2 } else { 1 } + 2;
        let rest = fixed + self.topic.len() + self.properties.len();
        check_len("body", self.body.len(), i32::MAX as usize - rest)?;
        let total = rest + self.body.len();

        out.reserve(total);
        out.put_u32(total as u32);
        out.put_i32(if v2 { MAGIC_V2 } else { MAGIC_V1 });
        out.put_u32(body_crc(&self.body));
        out.put_i32(self.queue_id);
        out.put_i32(self.flag);
        out.put_i64(self.queue_offset);
        out.put_i64(self.physical_offset);
        let mut flag = self.sys_flag & !(sys_flag::BORN_V6 | sys_flag::STORE_V6);
        if self.born_host.is_ipv6() {
            flag |= sys_flag::BORN_V6;
        }
        if self.store_host.is_ipv6() {
            flag |= sys_flag::STORE_V6;
        }
        out.put_i32(flag);
        out.put_i64(self.born_timestamp);
        put_host(self.born_host, out);
        out.put_i64(self.store_timestamp);
        put_host(self.store_host, out);
        out.put_i32(self.reconsume_times);
        out.put_i64(self.prepared_transaction_offset);
        out.put_u32(self.body.len() as u32);
        out.put_slice(&self.body);
        if v2 {
            out.put_u16(self.topic.len() as u16);
        } else {
            out.put_u8(self.topic.len() as u8);
        }
        out.put_slice(self.topic.as_bytes());
        out.put_u16(self.properties.len() as u16);
        out.put_slice(self.properties.as_bytes());
        Ok(())
    }

    /// Takes one message off the front of `buf`; its body shares memory with `buf`. Property text that is not UTF-8 is read
    /// with replacement characters, as everyone else does, so that one such message does not block its queue.
    ///
    /// # Errors
    /// The bytes are no message; `buf` is then as it was.
    pub fn decode(buf: &mut Bytes) -> Result<Self, MessageError> {
        let layout = Layout::of(buf)?;
        let mut at = buf.slice(..layout.total);
        at.advance(AT_MAGIC + 4);
        let crc = at.get_u32();
        let (queue_id, flag) = (at.get_i32(), at.get_i32());
        let (queue_offset, physical_offset) = (at.get_i64(), at.get_i64());
        let sys_flag = at.get_i32();
        let born_timestamp = at.get_i64();
        let born_host = get_host(&mut at, sys_flag & sys_flag::BORN_V6 != 0)?;
        let store_timestamp = at.get_i64();
        let store_host = get_host(&mut at, sys_flag & sys_flag::STORE_V6 != 0)?;
        let (reconsume_times, prepared_transaction_offset) = (at.get_i32(), at.get_i64());

        let body = buf.slice(layout.body.0..layout.body.1);
        // 0 is what tools write that do not care.
        if crc != 0 && crc != body_crc(&body) {
            return Err(MessageError::BodyChecksum);
        }
        let topic = buf.get(layout.topic.0..layout.topic.1).unwrap_or_default();
        let topic = std::str::from_utf8(topic).map_err(|_| MessageError::NotUtf8("topic"))?.to_owned();
        let properties = buf.get(layout.properties.0..layout.properties.1).unwrap_or_default();
        let properties = String::from_utf8_lossy(properties).into_owned();
        buf.advance(layout.total);
        Ok(Self {
            topic,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            properties,
        })
    }

    /// Reads messages that lie one behind the other, as the answer to a pop has them.
    ///
    /// # Errors
    /// One of them is no message.
    pub fn decode_all(mut buf: Bytes) -> Result<Vec<Self>, MessageError> {
        let mut messages = Vec::new();
        while !buf.is_empty() {
            messages.push(Self::decode(&mut buf)?);
        }
        Ok(messages)
    }
}

/// What differs between deliveries of a message, or is not known when it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The queue it is in.
    pub queue_id: i32,
    /// Its place there.
    pub queue_offset: i64,
    /// Its position in the log.
    pub physical_offset: i64,
    /// When it came into its queue, milliseconds since the epoch.
    pub store_timestamp: i64,
    /// Earlier attempts to consume it.
    pub reconsume_times: i32,
}

/// Changes in an encoded message what differs from delivery to delivery, without decoding it.
///
/// # Errors
/// The bytes are no message; they are then as they were.
pub fn patch_delivery(encoded: &mut [u8], delivery: &Delivery) -> Result<(), MessageError> {
    let layout = Layout::of(encoded)?;
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = encoded.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(AT_QUEUE_ID, &delivery.queue_id.to_be_bytes());
    put(AT_QUEUE_OFFSET, &delivery.queue_offset.to_be_bytes());
    put(AT_PHYSICAL_OFFSET, &delivery.physical_offset.to_be_bytes());
    put(layout.store_timestamp, &delivery.store_timestamp.to_be_bytes());
    put(layout.reconsume_times, &delivery.reconsume_times.to_be_bytes());
    Ok(())
}

/// The properties of an encoded message, without decoding the rest.
///
/// # Errors
/// The bytes are no message, or its properties are not UTF-8.
pub fn peek_properties(encoded: &[u8]) -> Result<&str, MessageError> {
    let (start, end) = Layout::of(encoded)?.properties;
    let raw = encoded.get(start..end).unwrap_or_default();
    std::str::from_utf8(raw).map_err(|_| MessageError::NotUtf8("properties"))
}

/// The bits of [`sys_flag`] of an encoded message, without decoding the rest; none if it is too short to be one.
pub fn peek_sys_flag(encoded: &[u8]) -> i32 {
    read_i32(encoded, AT_SYS_FLAG, "flags").unwrap_or(0)
}

/// Where the parts of the message at the front of some bytes lie. All positions are within `total`, and `total` is within the
/// bytes.
struct Layout {
    total: usize,
    store_timestamp: usize,
    reconsume_times: usize,
    body: (usize, usize),
    topic: (usize, usize),
    properties: (usize, usize),
}

impl Layout {
    fn of(bytes: &[u8]) -> Result<Self, MessageError> {
        let stated = read_i32(bytes, 0, "size")?;
        let total = length("size", stated)?;
        let bytes = bytes.get(..total).ok_or(MessageError::Truncated("bytes"))?;
        let v2 = match read_i32(bytes, AT_MAGIC, "magic")? {
            MAGIC_V1 => false,
            MAGIC_V2 => true,
            other => return Err(MessageError::BadMagic(other)),
        };
        let flag = read_i32(bytes, AT_SYS_FLAG, "flags")?;
        let host = |bit| if flag & bit != 0 { 20 } else { 8 };
        let store_timestamp = AT_BORN_HOST + host(sys_flag::BORN_V6);
        let reconsume_times = store_timestamp + 8 + host(sys_flag::STORE_V6);

        let body = sized(bytes, reconsume_times + 4 + 8, 4, "body")?;
        let topic = sized(bytes, body.1, if v2 { 2 } else { 1 }, "topic")?;
        let properties = sized(bytes, topic.1, 2, "properties")?;
        if properties.1 != total {
            return Err(MessageError::SizeMismatch { stated: total, found: properties.1 });
        }
        Ok(Self { total, store_timestamp, reconsume_times, body, topic, properties })
    }
}

/// Start and end of a part that has its length, a signed number of `width` bytes, in front of it.
fn sized(bytes: &[u8], at: usize, width: usize, field: &'static str) -> Result<(usize, usize), MessageError> {
    let start = at + width;
    let len = match *bytes.get(at..start).ok_or(MessageError::Truncated(field))? {
        [a] => i32::from(a as i8),
        [a, b] => i32::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i32::from_be_bytes([a, b, c, d]),
        _ => return Err(MessageError::Truncated(field)),
    };
    let end = start + length(field, len)?;
    if end > bytes.len() { Err(MessageError::Truncated(field)) } else { Ok((start, end)) }
}

fn length(field: &'static str, value: i32) -> Result<usize, MessageError> {
    usize::try_from(value).map_err(|_| MessageError::BadNumber { field, value })
}

fn read_i32(bytes: &[u8], at: usize, field: &'static str) -> Result<i32, MessageError> {
    let four = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    four.map(i32::from_be_bytes).ok_or(MessageError::Truncated(field))
}

fn check_len(field: &'static str, len: usize, max: usize) -> Result<(), MessageError> {
    if len > max { Err(MessageError::TooLong { field, len, max }) } else { Ok(()) }
}

/// The checksum has 31 bits, because Java's numbers have a sign.
fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7FFF_FFFF
}

fn put_host(host: SocketAddr, out: &mut BytesMut) {
    match host.ip() {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
    out.put_u32(u32::from(host.port()));
}

/// The layout has made sure that the bytes are there.
fn get_host(at: &mut Bytes, v6: bool) -> Result<SocketAddr, MessageError> {
    let ip: IpAddr =
        if v6 { Ipv6Addr::from_bits(at.get_u128()).into() } else { Ipv4Addr::from_bits(at.get_u32()).into() };
    let value = at.get_i32();
    let port = u16::try_from(value).map_err(|_| MessageError::BadNumber { field: "port", value })?;
    Ok(SocketAddr::new(ip, port))
}
