use bytes::Bytes;

use super::{BodyError, ExtFields, Header, HeaderError, JsonBody, Language};

/// Flag bit of a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit of a request that wants no response.
pub const FLAG_ONEWAY: i32 = 2;
/// The protocol version we state: V5_3_1. From 401 on, peers send standard JSON; beyond 475 they may answer GO_AWAY.
pub const VERSION: i32 = 475;

/// How the header of a frame is written. Each side chooses for what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SerializeType {
    /// Type byte 0: a JSON object. What all Apache processes use unless told otherwise.
    #[default]
    Json,
    /// Type byte 1: binary. Cuts the code to 16 bits; see [`codes::canonical`](super::codes::canonical).
    RocketMq,
}

/// One request or response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// A number of [`codes::request`](super::codes::request) or [`codes::response`](super::codes::response).
    pub code: i32,
    /// What the sender is written in.
    pub language: Language,
    /// The sender's protocol version; 0 if it does not say.
    pub version: i32,
    /// Chosen by the requester, repeated in the response. Unique among the requests under way on a connection.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONEWAY`].
    pub flag: i32,
    /// Free text, mostly the reason of an error.
    pub remark: Option<String>,
    /// The fields of the header.
    pub ext: ExtFields,
    /// How the header was, or shall be, written.
    pub serialize: SerializeType,
    /// What it means depends on the code.
    pub body: Bytes,
}

impl Command {
    fn new(code: i32, flag: i32, remark: Option<String>) -> Self {
        Self {
            code,
            language: Language::Rust,
            version: VERSION,
            opaque: 0,
            flag,
            remark,
            ext: ExtFields::new(),
            serialize: SerializeType::Json,
            body: Bytes::new(),
        }
    }

    /// A request without fields and body. Whoever sends it sets `opaque`.
    pub fn request(code: i32) -> Self {
        Self::new(code, 0, None)
    }

    /// A response; an empty remark is no remark. [`reply_to`](Self::reply_to) sets `opaque`.
    pub fn response(code: i32, remark: impl Into<String>) -> Self {
        Self::new(code, FLAG_RESPONSE, Some(remark.into()).filter(|r| !r.is_empty()))
    }

    /// Makes this the response to `request`: same `opaque`, same way of writing the header.
    #[must_use]
    pub fn reply_to(mut self, request: &Command) -> Self {
        self.opaque = request.opaque;
        self.serialize = request.serialize;
        self.flag |= FLAG_RESPONSE;
        self
    }

    /// Adds the fields of a typed header.
    #[must_use]
    pub fn with_header(mut self, header: &impl Header) -> Self {
        header.encode(&mut self.ext);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to JSON.
    #[must_use]
    pub fn with_json(self, body: &impl JsonBody) -> Self {
        self.with_body(body.to_json())
    }

    /// Marks a request as one that wants no response.
    #[must_use]
    pub fn oneway(mut self) -> Self {
        self.flag |= FLAG_ONEWAY;
        self
    }

    /// The fields as a typed header.
    ///
    /// # Errors
    /// A required field is missing or a value cannot be read.
    pub fn header<H: Header>(&self) -> Result<H, HeaderError> {
        H::decode(&self.ext)
    }

    /// The body as JSON of a type.
    ///
    /// # Errors
    /// The body is not such JSON.
    pub fn json<B: JsonBody>(&self) -> Result<B, BodyError> {
        B::from_json(&self.body)
    }

    /// Whether this answers a request.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether the sender wants no response.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }
}
