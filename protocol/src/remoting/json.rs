//! The JSON header. It is read straight into a command and its fields into their one buffer; it is written by hand in the order
//! of keys that Apache's processes use.

use std::fmt;

use bytes::{BufMut, BytesMut};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Command, ExtFields, FrameError, Language, MAX_EXT_FIELDS, SerializeType};

/// Appends the header.
pub(super) fn encode(command: &Command, out: &mut BytesMut) {
    out.put_slice(b"{\"code\":");
    number(command.code, out);
    if !command.ext.is_empty() {
        out.put_slice(b",\"extFields\":{");
        for (position, (name, value)) in command.ext.iter().enumerate() {
            if position > 0 {
                out.put_u8(b',');
            }
            string(name, out);
            out.put_u8(b':');
            string(value, out);
        }
        out.put_u8(b'}');
    }
    out.put_slice(b",\"flag\":");
    number(command.flag, out);
    out.put_slice(b",\"language\":\"");
    out.put_slice(command.language.name().as_bytes());
    out.put_slice(b"\",\"opaque\":");
    number(command.opaque, out);
    if let Some(remark) = &command.remark {
        out.put_slice(b",\"remark\":");
        string(remark, out);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    number(command.version, out);
    out.put_u8(b'}');
}

fn number(value: i32, out: &mut BytesMut) {
    out.put_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a JSON string. Stretches without special characters are copied whole.
fn string(text: &str, out: &mut BytesMut) {
    out.reserve(text.len() + 2);
    out.put_u8(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\') {
        let (plain, special) = rest.split_at(at);
        out.put_slice(plain);
        let Some((byte, after)) = special.split_first() else { break };
        escape(*byte, out);
        rest = after;
    }
    out.put_slice(rest);
    out.put_u8(b'"');
}

fn escape(byte: u8, out: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0C => b'f',
        _ => {
            let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.put_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.put_slice(&[b'\\', short]);
}

/// Reads the header; the body is left empty. Unknown keys are skipped, missing numbers are 0.
pub(super) fn decode(head: &[u8]) -> Result<Command, FrameError> {
    // Once for all: the reader then need not check each string.
    let text = std::str::from_utf8(head).map_err(|_| FrameError::Json("not UTF-8".to_owned()))?;
    let mut too_many = false;
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = HeadSeed { capacity: head.len(), too_many: &mut too_many }.deserialize(&mut reader);
    match read.and_then(|command| reader.end().map(|()| command)) {
        Ok(command) => Ok(command),
        Err(_) if too_many => Err(FrameError::TooManyFields),
        Err(error) => Err(FrameError::Json(error.to_string())),
    }
}

/// The keys of the header object.
enum Key {
    Code,
    Ext,
    Flag,
    Language,
    Opaque,
    Remark,
    Version,
    Unknown,
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Key, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a header field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        Ok(match name {
            "code" => Key::Code,
            "extFields" => Key::Ext,
            "flag" => Key::Flag,
            "language" => Key::Language,
            "opaque" => Key::Opaque,
            "remark" => Key::Remark,
            "version" => Key::Version,
            _ => Key::Unknown,
        })
    }
}

struct HeadSeed<'a> {
    /// Bytes of the header: enough for all its fields.
    capacity: usize,
    /// Tells the one error of our own from those of the parser.
    too_many: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for HeadSeed<'_> {
    type Value = Command;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Command, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeadSeed<'_> {
    type Value = Command;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Command, A::Error> {
        let mut command = Command::request(0);
        command.language = Language::Other;
        command.version = 0;
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match key {
                Key::Code => command.code = map.next_value()?,
                Key::Flag => command.flag = map.next_value()?,
                Key::Opaque => command.opaque = map.next_value()?,
                Key::Version => command.version = map.next_value()?,
                Key::Language => command.language = map.next_value_seed(LanguageSeed)?,
                Key::Remark => command.remark = map.next_value()?,
                Key::Ext => {
                    command.ext = ExtFields::with_capacity(self.capacity);
                    map.next_value_seed(ExtSeed { ext: &mut command.ext, too_many: &mut *self.too_many })?;
                }
                Key::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        command.serialize = SerializeType::Json;
        Ok(command)
    }
}

struct LanguageSeed;

impl<'de> DeserializeSeed<'de> for LanguageSeed {
    type Value = Language;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Language, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for LanguageSeed {
    type Value = Language;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a language name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Language, E> {
        Ok(Language::from_name(name))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Language, E> {
        Ok(u8::try_from(number).map_or(Language::Other, Language::from_number))
    }

    fn visit_unit<E>(self) -> Result<Language, E> {
        Ok(Language::Other)
    }
}

/// Reads the fields object, or nothing for `null`.
struct ExtSeed<'a> {
    ext: &'a mut ExtFields,
    too_many: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for ExtSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ExtSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            let start = self.ext.buffer().len();
            if map.next_key_seed(AppendSeed(self.ext.buffer()))?.is_none() {
                return Ok(());
            }
            let name_len = self.ext.buffer().len() - start;
            if map.next_value_seed(AppendSeed(self.ext.buffer()))? {
                self.ext.commit(start, name_len);
            } else {
                self.ext.discard(start);
            }
            if self.ext.len() > MAX_EXT_FIELDS {
                *self.too_many = true;
                return Err(serde::de::Error::custom("too many fields"));
            }
        }
    }
}

/// Appends a string, or the text of a number or boolean (some clients do not quote them), to a buffer. False for `null`.
struct AppendSeed<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for AppendSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for AppendSeed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        self.0.push_str(text);
        Ok(true)
    }

    fn visit_i64<E>(self, number: i64) -> Result<bool, E> {
        self.0.push_str(itoa::Buffer::new().format(number));
        Ok(true)
    }

    fn visit_u64<E>(self, number: u64) -> Result<bool, E> {
        self.0.push_str(itoa::Buffer::new().format(number));
        Ok(true)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        self.0.push_str(if value { "true" } else { "false" });
        Ok(true)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}
