//! Secret keys.

use ring::hmac;
use serde::{Deserialize, Deserializer};

/// A secret key, ready to sign and to check signatures with. Its text is not kept.
pub(crate) struct SecretKey {
    key: hmac::Key,
    empty: bool,
}

impl SecretKey {
    /// The key that clients know as this text.
    pub(crate) fn new(text: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        Self { key, empty: text.is_empty() }
    }

    /// As the algorithm takes it.
    pub(crate) fn key(&self) -> &hmac::Key {
        &self.key
    }

    /// Whether there is no text.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }
}

impl<'de> Deserialize<'de> for SecretKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::new(&text))
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey")
    }
}
