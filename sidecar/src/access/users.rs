//! The file with the users: who there is, with which secret, and what each may do.

use std::collections::HashMap;

use ring::hmac;
use serde::Deserialize;
use waybill_ops::config::{Invalid, Validate};

use super::Refusal;
use super::rules::{Need, Permission, permit};
use super::secret::SecretKey;
use super::signature::{ACCESS_KEY_BYTES, Signed};

/// A user.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct User {
    access_key: String,
    secret_key: SecretKey,
    /// A super user may do everything.
    #[serde(default)]
    super_user: bool,
    /// A user that is switched off is as good as none.
    #[serde(default = "enabled")]
    enabled: bool,
    #[serde(default)]
    permissions: Vec<Permission>,
}

fn enabled() -> bool {
    true
}

impl User {
    /// Whether the user may do what is needed.
    #[must_use]
    pub fn may(&self, need: Need<'_>) -> bool {
        self.super_user || permit(&self.permissions, need)
    }
}

/// All users.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Users {
    /// Whatever tells who wrote the file which state of it is in force.
    revision: String,
    users: Vec<User>,
    /// Places in `users`, by access key.
    #[serde(skip)]
    places: HashMap<String, usize>,
}

impl Users {
    /// To be called once when all users are known.
    pub(super) fn index(&mut self) {
        self.places = self.users.iter().map(|user| user.access_key.clone()).zip(0..).collect();
    }

    /// What the file calls its state.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// The user, whoever claims to be it.
    #[must_use]
    pub fn get(&self, access_key: &str) -> Option<&User> {
        self.places.get(access_key).and_then(|place| self.users.get(*place))
    }

    /// The user who signed.
    ///
    /// # Errors
    /// There is none, or the signature is not that user's. Which of the two takes as long to find out either way.
    pub fn authenticate(&self, signed: &Signed) -> Result<&User, Refusal> {
        let user = self.get(signed.access_key());
        let nobody = SecretKey::new("");
        let key = user.map_or(nobody.key(), |user| user.secret_key.key());
        let genuine = hmac::verify(key, signed.content(), signed.proof()).is_ok();
        match user {
            None => Err(Refusal::UnknownAccessKey),
            Some(_) if !genuine => Err(Refusal::WrongSignature),
            Some(user) if !user.enabled => Err(Refusal::Disabled),
            Some(user) => Ok(user),
        }
    }
}

/// What is wrong with the text of a file with users, if anything. Nothing that is written in it is repeated.
#[must_use]
pub fn mistake(text: &str) -> Option<String> {
    let Ok(mut users) = serde_json::from_str::<Users>(text) else {
        return Some("it is not in the form of such a file".to_owned());
    };
    users.index();
    users.validate().err().map(|invalid| format!("{}: {}", invalid.key, invalid.reason))
}

impl Validate for Users {
    const SECRET: bool = true;

    fn validate(&self) -> Result<(), Invalid> {
        for (at, user) in self.users.iter().enumerate() {
            let invalid = |key: &str, reason: &str| Err(Invalid::new(format!("users[{at}].{key}"), reason));
            let key = &user.access_key;
            if key.is_empty() || key.len() > ACCESS_KEY_BYTES || !key.bytes().all(of_access_key) {
                let reason =
                    "an access key has 1 to 128 visible ASCII characters, without comma, slash and equals sign";
                return invalid("accessKey", reason);
            }
            if self.places.get(key) != Some(&at) {
                return invalid("accessKey", "another user has the same access key");
            }
            if user.secret_key.is_empty() {
                return invalid("secretKey", "it is empty");
            }
            for (number, permission) in user.permissions.iter().enumerate() {
                if let Some(mistake) = permission.mistake() {
                    return invalid(&format!("permissions[{number}]"), mistake);
                }
            }
        }
        Ok(())
    }
}

/// What the header that names the access key can hold.
fn of_access_key(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b",/=".contains(&byte)
}
