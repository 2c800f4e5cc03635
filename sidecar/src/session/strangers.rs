//! Consumers that call without having sent settings here: those of a sidecar that restarted or died, which come to this one
//! and have not opened their telemetry stream yet, or do not notice for minutes that they have lost it.

use std::collections::HashMap;

use crate::limits;

#[derive(Debug)]
struct Stranger {
    first_ms: i64,
    heard_ms: i64,
}

/// Strangers that called lately.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    known: HashMap<String, Stranger>,
}

impl Strangers {
    /// A stranger called. Since when it has been calling, if not for the first time.
    pub(super) fn heard(&mut self, now_ms: i64, client_id: &str) -> Option<i64> {
        if let Some(stranger) = self.known.get_mut(client_id) {
            stranger.heard_ms = now_ms;
            return Some(stranger.first_ms);
        }
        if self.known.len() < limits::CLIENTS {
            self.known.insert(client_id.to_owned(), Stranger { first_ms: now_ms, heard_ms: now_ms });
        }
        None
    }

    /// It is no stranger any more.
    pub(super) fn forget(&mut self, client_id: &str) {
        self.known.remove(client_id);
    }

    /// Forgets those that have been silent.
    pub(super) fn sweep(&mut self, now_ms: i64) {
        self.known.retain(|_, stranger| now_ms.saturating_sub(stranger.heard_ms) < limits::STREAMLESS_GRACE_MS);
    }

    /// All that called lately.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.known.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_remembered_while_it_calls() {
        let mut strangers = Strangers::default();
        assert_eq!(strangers.heard(1_000, "c"), None);
        assert_eq!(strangers.heard(11_000, "c"), Some(1_000));
        strangers.sweep(11_000 + limits::STREAMLESS_GRACE_MS - 1);
        assert_eq!(strangers.names().collect::<Vec<_>>(), ["c"]);
        strangers.sweep(11_000 + limits::STREAMLESS_GRACE_MS);
        assert_eq!(strangers.heard(90_000, "c"), None, "it came anew");
        strangers.forget("c");
        assert_eq!(strangers.names().count(), 0);
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut strangers = Strangers::default();
        for n in 0..limits::CLIENTS + 10 {
            assert_eq!(strangers.heard(0, &n.to_string()), None);
        }
        assert_eq!(strangers.names().count(), limits::CLIENTS);
        assert_eq!(strangers.heard(1, "7"), Some(0));
    }
}
