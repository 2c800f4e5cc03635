//! The binary header: fixed numbers, then the remark, then the fields, each with its length in front.

use bytes::{BufMut, BytesMut};

use super::{Command, ExtFields, FrameError, Language, MAX_EXT_FIELDS, SerializeType, codes};

/// Whether all lengths fit their fields.
pub(super) fn fits(command: &Command) -> bool {
    command.ext.iter().all(|(name, _)| i16::try_from(name.len()).is_ok())
}

/// Appends the header. The code and the version are cut to 16 bits, as every peer does.
pub(super) fn encode(command: &Command, out: &mut BytesMut) {
    out.put_i16(command.code as i16);
    out.put_u8(command.language.number());
    out.put_i16(command.version as i16);
    out.put_i32(command.opaque);
    out.put_i32(command.flag);
    let remark = command.remark.as_deref().unwrap_or_default();
    out.put_u32(remark.len() as u32);
    out.put_slice(remark.as_bytes());
    let section: usize = command.ext.iter().map(|(name, value)| 2 + name.len() + 4 + value.len()).sum();
    out.put_u32(section as u32);
    for (name, value) in command.ext.iter() {
        out.put_u16(name.len() as u16);
        out.put_slice(name.as_bytes());
        out.put_u32(value.len() as u32);
        out.put_slice(value.as_bytes());
    }
}

/// Reads the header; the body is left empty.
pub(super) fn decode(head: &[u8]) -> Result<Command, FrameError> {
    let mut at = Cursor(head);
    let code = i32::from(i16::from_be_bytes(at.array("code")?));
    let [language] = at.array("language")?;
    let version = i32::from(i16::from_be_bytes(at.array("version")?));
    let opaque = i32::from_be_bytes(at.array("opaque")?);
    let flag = i32::from_be_bytes(at.array("flag")?);
    let remark = at.text("remark")?;
    let ext = fields(at.sized("extFields")?)?;
    let mut command = Command {
        code,
        language: Language::from_number(language),
        version,
        opaque,
        flag,
        remark: Some(remark.to_owned()).filter(|r| !r.is_empty()),
        ext,
        serialize: SerializeType::RocketMq,
        body: Default::default(),
    };
    if !command.is_response() {
        command.code = codes::canonical(code);
    }
    Ok(command)
}

fn fields(section: &[u8]) -> Result<ExtFields, FrameError> {
    let mut at = Cursor(section);
    let mut ext = ExtFields::with_capacity(section.len());
    while !at.0.is_empty() {
        let name_len = i16::from_be_bytes(at.array("field name length")?);
        let name_len = usize::try_from(name_len).map_err(|_| FrameError::Binary("field name length"))?;
        let name = utf8(at.take(name_len, "field name")?, "field name")?;
        let value = at.text("field value")?;
        ext.set(name, value);
        if ext.len() > MAX_EXT_FIELDS {
            return Err(FrameError::TooManyFields);
        }
    }
    Ok(ext)
}

fn utf8<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, FrameError> {
    std::str::from_utf8(bytes).map_err(|_| FrameError::Binary(what))
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(FrameError::Binary(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        self.take(N, what)?.try_into().map_err(|_| FrameError::Binary(what))
    }

    /// Bytes with a 32-bit length in front.
    fn sized(&mut self, what: &'static str) -> Result<&'a [u8], FrameError> {
        let len = i32::from_be_bytes(self.array(what)?);
        self.take(usize::try_from(len).map_err(|_| FrameError::Binary(what))?, what)
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str, FrameError> {
        utf8(self.sized(what)?, what)
    }
}
