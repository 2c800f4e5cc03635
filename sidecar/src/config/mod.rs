//! The configuration of a sidecar: one table of keys, from which come the struct, the validation and the documentation.

mod key;
mod keys;

pub use self::{
    key::{Allowed, Effect, Key, Value},
    keys::Config,
};

/// The addresses in a list separated by `;` or `,`, in order, without blanks and repetitions.
#[must_use]
pub fn addresses(list: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for address in list.split([';', ',']).map(str::trim).filter(|address| !address.is_empty()) {
        if !found.iter().any(|known| known == address) {
            found.push(address.to_owned());
        }
    }
    found
}
