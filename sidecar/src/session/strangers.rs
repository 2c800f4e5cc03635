//! Consumers that call without having sent settings here: those of a sidecar that restarted or died, which come to this one
//! and have not opened their telemetry stream yet, or do not notice for minutes that they have lost it.

use std::collections::HashMap;

use crate::limits;

#[derive(Debug)]
struct Stranger {
    first_ms: i64,
    heard_ms: i64,
}

/// What a call of a stranger says of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It is here, and was not.
    First,
    /// It has been calling since then.
    Since(i64),
    /// Nothing: the call was under way when the client said goodbye.
    Late,
}

/// Strangers that called lately.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    known: HashMap<String, Stranger>,
    /// Clients that said goodbye, and when.
    left: HashMap<String, i64>,
}

impl Strangers {
    /// A stranger called.
    pub(super) fn heard(&mut self, now_ms: i64, client_id: &str) -> Call {
        if self.left.get(client_id).is_some_and(|left_ms| now_ms.saturating_sub(*left_ms) < limits::GOODBYE_MS) {
            return Call::Late;
        }
        if let Some(stranger) = self.known.get_mut(client_id) {
            stranger.heard_ms = now_ms;
            return Call::Since(stranger.first_ms);
        }
        if self.known.len() < limits::CLIENTS {
            self.known.insert(client_id.to_owned(), Stranger { first_ms: now_ms, heard_ms: now_ms });
        }
        Call::First
    }

    /// It is no stranger any more.
    pub(super) fn forget(&mut self, client_id: &str) {
        self.known.remove(client_id);
        self.left.remove(client_id);
    }

    /// A client, stranger or not, said goodbye. Whether it was a stranger.
    pub(super) fn goodbye(&mut self, now_ms: i64, client_id: &str) -> bool {
        if self.left.len() < limits::CLIENTS {
            self.left.insert(client_id.to_owned(), now_ms);
        }
        self.known.remove(client_id).is_some()
    }

    /// Forgets those that have been silent.
    pub(super) fn sweep(&mut self, now_ms: i64) {
        self.known.retain(|_, stranger| now_ms.saturating_sub(stranger.heard_ms) < limits::STREAMLESS_GRACE_MS);
        self.left.retain(|_, left_ms| now_ms.saturating_sub(*left_ms) < limits::GOODBYE_MS);
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
        assert_eq!(strangers.heard(1_000, "c"), Call::First);
        assert_eq!(strangers.heard(11_000, "c"), Call::Since(1_000));
        strangers.sweep(11_000 + limits::STREAMLESS_GRACE_MS - 1);
        assert_eq!(strangers.names().collect::<Vec<_>>(), ["c"]);
        strangers.sweep(11_000 + limits::STREAMLESS_GRACE_MS);
        assert_eq!(strangers.heard(90_000, "c"), Call::First, "it came anew");
        strangers.forget("c");
        assert_eq!(strangers.names().count(), 0);
    }

    #[test]
    fn what_was_under_way_at_a_goodbye_is_no_sign_of_life() {
        let mut strangers = Strangers::default();
        assert!(!strangers.goodbye(1_000, "c"), "it was known");
        assert_eq!(strangers.heard(1_001, "c"), Call::Late);
        strangers.sweep(1_000 + limits::GOODBYE_MS - 1);
        assert_eq!(strangers.heard(1_000 + limits::GOODBYE_MS - 1, "c"), Call::Late);
        assert_eq!(strangers.heard(1_000 + limits::GOODBYE_MS, "c"), Call::First, "it is here again");
        assert!(strangers.goodbye(8_000, "c"));
        strangers.forget("c");
        assert_eq!(strangers.heard(8_001, "c"), Call::First, "it had sent settings since");
        strangers.sweep(i64::MAX);
        assert!(strangers.left.is_empty());
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut strangers = Strangers::default();
        for n in 0..limits::CLIENTS + 10 {
            assert_eq!(strangers.heard(0, &n.to_string()), Call::First);
            assert!(!strangers.goodbye(0, &format!("left {n}")));
        }
        assert_eq!(strangers.names().count(), limits::CLIENTS);
        assert_eq!(strangers.left.len(), limits::CLIENTS);
        assert_eq!(strangers.heard(1, "7"), Call::Since(0));
    }
}
