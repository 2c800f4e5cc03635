//! What the official clients say of themselves with every call: an access key, and a signature of the time they say it is.
//!
//! `authorization: MQv2-HMAC-SHA1 Credential=<access key>, SignedHeaders=x-mq-date-time, Signature=<hex>`, where the signature is
//! HMAC-SHA1 with the secret key over the text of `x-mq-date-time` as it was sent. That time is the client's local one in one of several
//! forms, so nothing can be concluded from it; a signature that was overheard stays good until the secret key changes. TLS keeps it
//! from being overheard.

use ring::hmac;

use super::Refusal;
use super::secret::SecretKey;

/// The only algorithm that clients use.
const ALGORITHM: &str = "MQv2-HMAC-SHA1";
/// Bytes of HMAC-SHA1.
const SIGNATURE_BYTES: usize = 20;
/// The longest access key, in bytes.
pub(super) const ACCESS_KEY_BYTES: usize = 128;

/// The header `authorization` of a client with these credentials that sends `date_time` as `x-mq-date-time`.
#[must_use]
pub fn authorization(access_key: &str, secret_key: &str, date_time: &str) -> String {
    let signature = hex::encode(hmac::sign(SecretKey::new(secret_key).key(), date_time.as_bytes()));
    format!("{ALGORITHM} Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}")
}

/// Who somebody says they are, and the proof, which is yet to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    access_key: String,
    date_time: String,
    signature: [u8; SIGNATURE_BYTES],
}

impl Signed {
    /// Reads the headers `authorization` and `x-mq-date-time`.
    ///
    /// # Errors
    /// [`Refusal::Unsigned`] if the call names nobody, [`Refusal::Malformed`] if it does so in another form.
    pub fn read(authorization: Option<&str>, date_time: Option<&str>) -> Result<Self, Refusal> {
        let authorization = authorization.map(str::trim).filter(|text| !text.is_empty()).ok_or(Refusal::Unsigned)?;
        let (algorithm, parts) = authorization.split_once(' ').ok_or(Refusal::Malformed)?;
        if algorithm != ALGORITHM {
            return Err(Refusal::Malformed);
        }
        let part = |name: &str| {
            let pairs = parts.split(',').filter_map(|part| part.trim().split_once('='));
            pairs.into_iter().find_map(|(key, value)| (key == name).then_some(value))
        };
        // The published Go client writes `<access key>//Rocketmq`.
        let credential = part("Credential").ok_or(Refusal::Malformed)?;
        let access_key = credential.split('/').next().unwrap_or_default();
        if access_key.is_empty() {
            // Some clients always write the header, also without credentials.
            return Err(Refusal::Unsigned);
        }
        let mut signature = [0; SIGNATURE_BYTES];
        let hex = part("Signature").ok_or(Refusal::Malformed)?;
        hex::decode_to_slice(hex, &mut signature).map_err(|_not_one| Refusal::Malformed)?;
        if access_key.len() > ACCESS_KEY_BYTES {
            return Err(Refusal::Malformed);
        }
        let date_time = date_time.ok_or(Refusal::Malformed)?.to_owned();
        Ok(Self { access_key: access_key.to_owned(), date_time, signature })
    }

    /// Who it says it is.
    #[must_use]
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// What is signed.
    pub(super) fn content(&self) -> &[u8] {
        self.date_time.as_bytes()
    }

    /// The proof.
    pub(super) fn proof(&self) -> &[u8] {
        &self.signature
    }
}
