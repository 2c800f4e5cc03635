//! Who a client says it is, and the ids it gives to messages.

use std::sync::atomic::{AtomicU32, Ordering};

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use waybill_ops::clock;
use waybill_sidecar::access;

/// 2021-01-01T00:00:00Z, from which message ids count their seconds.
const MESSAGE_ID_EPOCH_MS: i64 = 1_609_459_200_000;

/// Credentials come from the environment: what is on a command line is seen by every process of the machine.
const ACCESS_KEY: &str = "WAYBILL_ACCESS_KEY";
const SECRET_KEY: &str = "WAYBILL_SECRET_KEY";

/// The metadata that every call carries.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    client_id: AsciiMetadataValue,
    proof: Option<Proof>,
}

/// What access control asks for: a signature, and what is signed.
#[derive(Clone)]
struct Proof {
    authorization: AsciiMetadataValue,
    date_time: AsciiMetadataValue,
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proof")
    }
}

impl Proof {
    /// One for all calls: it does not expire. None without credentials, or with ones that no header can carry.
    fn of(access_key: Option<String>, secret_key: Option<String>) -> Option<Self> {
        let date_time = clock::now_ms().to_string();
        let authorization = access::authorization(&access_key?, &secret_key?, &date_time);
        let value = |text: String| AsciiMetadataValue::try_from(text).ok();
        Some(Self { authorization: value(authorization)?, date_time: value(date_time)? })
    }
}

impl Identity {
    /// A client id that no other process, and no other `number` of this one, uses.
    pub(crate) fn new(purpose: &str, number: usize) -> Self {
        let id = format!("waybill-{purpose}@{}@{}@{number}", std::process::id(), clock::now_ms());
        let client_id = AsciiMetadataValue::try_from(id).unwrap_or(AsciiMetadataValue::from_static("waybill"));
        let proof = Proof::of(std::env::var(ACCESS_KEY).ok(), std::env::var(SECRET_KEY).ok());
        Self { client_id, proof }
    }

    pub(super) fn sign(&self, metadata: &mut MetadataMap) {
        metadata.insert("x-mq-client-id", self.client_id.clone());
        metadata.insert("x-mq-language", AsciiMetadataValue::from_static("RUST"));
        metadata.insert("x-mq-client-version", AsciiMetadataValue::from_static("5.0.3"));
        metadata.insert("x-mq-protocol", AsciiMetadataValue::from_static("v2"));
        if let Some(proof) = &self.proof {
            metadata.insert("authorization", proof.authorization.clone());
            metadata.insert("x-mq-date-time", proof.date_time.clone());
        }
    }
}

/// Makes message ids of version 1: `01`, six bytes of machine, two of process, four of seconds, four of sequence.
///
/// The machine's bytes are taken from the time of the start: no hardware address is needed to keep processes apart.
#[derive(Debug)]
pub(crate) struct MessageIds {
    prefix: String,
    sequence: AtomicU32,
}

impl MessageIds {
    pub(crate) fn new() -> Self {
        let now_ms = clock::now_ms();
        let machine = (now_ms as u64) & 0xFFFF_FFFF_FFFF;
        let process = std::process::id() & 0xFFFF;
        let seconds = ((now_ms - MESSAGE_ID_EPOCH_MS) / 1000) as u32;
        Self { prefix: format!("01{machine:012X}{process:04X}{seconds:08X}"), sequence: AtomicU32::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        format!("{}{:08X}", self.prefix, self.sequence.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_version_1() {
        let ids = MessageIds::new();
        let (first, second) = (ids.next(), ids.next());
        assert_eq!(first.len(), 34);
        assert!(first.starts_with("01") && first.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()));
        assert_ne!(first, second);
    }

    #[test]
    fn credentials_are_both_or_none() {
        let proof = |access_key: Option<&str>, secret_key: Option<&str>| {
            Proof::of(access_key.map(str::to_owned), secret_key.map(str::to_owned))
        };
        let both = proof(Some("ak"), Some("sk")).expect("both");
        let date_time = both.date_time.to_str().expect("text");
        assert_eq!(both.authorization.to_str().expect("text"), access::authorization("ak", "sk", date_time));
        assert!(proof(Some("ak"), None).is_none() && proof(None, Some("sk")).is_none());
        assert!(proof(Some("\n"), Some("sk")).is_none(), "no header can carry it");
    }

    #[test]
    fn clients_of_one_process_differ() {
        let metadata = |number| {
            let mut metadata = MetadataMap::new();
            Identity::new("test", number).sign(&mut metadata);
            metadata.get("x-mq-client-id").map(|v| v.as_encoded_bytes().to_vec()).unwrap_or_default()
        };
        assert!(metadata(1).starts_with(b"waybill-test@"));
        assert_ne!(metadata(1), metadata(2));
    }
}
