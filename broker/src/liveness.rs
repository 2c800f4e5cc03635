//! Which clients are alive, as far as sidecars say so. Pure: it is given the time.
//!
//! A lease names its holder. A sidecar vouches for all of its clients with one request now and then; when no sidecar has
//! vouched for a client during `clientGoneAfter`, the broker gives back what that client holds. Only clients that came through
//! a sidecar are watched: others have nobody to vouch for them, and keep plain leases.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limits;

/// How long a broker that is awake lets pass between two sweeps, milliseconds.
const SWEEP_MS: i64 = 1_000;
/// Without a sweep for longer than this, the process itself stood still, and silence says nothing about the clients.
const ASLEEP_MS: i64 = SWEEP_MS + SWEEP_MS / 2;

#[derive(Debug)]
struct Client {
    /// When somebody vouched for it or it asked for messages.
    last_ms: i64,
    vouchers: Vec<Voucher>,
    /// The sidecar that vouched for it first.
    first: Option<Arc<str>>,
    /// It may hold what came through a sidecar that nobody has heard of, or that has forgotten it.
    moved: bool,
}

impl Client {
    fn new(last_ms: i64, moved: bool) -> Self {
        Self { last_ms, vouchers: Vec::new(), first: None, moved }
    }
}

#[derive(Debug)]
struct Voucher {
    sidecar: Arc<str>,
    last_ms: i64,
}

/// The clients that are watched.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// Silence after which a client is gone, milliseconds.
    gone_after_ms: i64,
    clients: HashMap<Arc<str>, Client>,
    swept_ms: i64,
}

impl Liveness {
    /// Watches from `now_ms` on. `gone_after_ms`: at least 1.
    pub(crate) fn new(now_ms: i64, gone_after_ms: i64) -> Self {
        Self { gone_after_ms, clients: HashMap::new(), swept_ms: now_ms }
    }

    /// A client asked for messages through a sidecar: it is watched from now on. `false`: there are too many.
    pub(crate) fn seen(&mut self, now_ms: i64, client: &str) -> bool {
        self.watch(now_ms, client, false)
    }

    /// A client holds messages from before the broker started, whoever they came through; or those of one that is gone could not
    /// be given back. `false`: there are too many.
    pub(crate) fn holds(&mut self, now_ms: i64, client: &str) -> bool {
        self.watch(now_ms, client, true)
    }

    fn watch(&mut self, now_ms: i64, client: &str, moved: bool) -> bool {
        if let Some(known) = self.clients.get_mut(client) {
            known.last_ms = known.last_ms.max(now_ms);
            return true;
        }
        if self.clients.len() >= limits::WATCHED_CLIENTS_MAX {
            return false;
        }
        self.clients.insert(client.into(), Client::new(now_ms, moved));
        true
    }

    /// A sidecar says that a client is alive. `false`: there are too many.
    pub(crate) fn vouch(&mut self, now_ms: i64, sidecar: &Arc<str>, client: &str) -> bool {
        if !self.seen(now_ms, client) {
            return false;
        }
        let Some(known) = self.clients.get_mut(client) else { return false };
        known.moved |= known.first.get_or_insert_with(|| Arc::clone(sidecar)) != sidecar;
        if let Some(voucher) = known.vouchers.iter_mut().find(|voucher| voucher.sidecar == *sidecar) {
            voucher.last_ms = voucher.last_ms.max(now_ms);
            return true;
        }
        if known.vouchers.len() >= limits::VOUCHERS_PER_CLIENT_MAX
            && let Some(oldest) = known.vouchers.iter().enumerate().min_by_key(|(_, voucher)| voucher.last_ms)
        {
            known.vouchers.swap_remove(oldest.0);
        }
        known.vouchers.push(Voucher { sidecar: Arc::clone(sidecar), last_ms: now_ms });
        true
    }

    /// A client said goodbye to a sidecar, which gives back what it kept for it. If another one vouches for it, it is alive. If it
    /// was never anywhere else, it is watched no more: it may have left its handles to somebody else, so its leases run to their
    /// end. Otherwise a sidecar that it left may still extend what it holds, or be dead: it is gone with the next sweep.
    pub(crate) fn goodbye(&mut self, now_ms: i64, sidecar: &str, client: &str) {
        if !self.leave(now_ms, sidecar, client) && self.clients.get(client).is_some_and(|known| !known.moved) {
            self.clients.remove(client);
        }
    }

    /// A sidecar takes a client for gone. Whether another one vouches for it. If not, and the client was elsewhere before, it is
    /// gone with the next sweep: what it got elsewhere would otherwise wait for longer than what it got there.
    pub(crate) fn leave(&mut self, now_ms: i64, sidecar: &str, client: &str) -> bool {
        let oldest_ms = now_ms.saturating_sub(self.gone_after_ms);
        let Some(known) = self.clients.get_mut(client) else { return false };
        known.moved |= known.first.as_deref().is_some_and(|first| first != sidecar);
        known.vouchers.retain(|voucher| *voucher.sidecar != *sidecar);
        let elsewhere = known.vouchers.iter().any(|voucher| voucher.last_ms > oldest_ms);
        if !elsewhere && known.moved {
            known.last_ms = known.last_ms.min(oldest_ms);
        }
        elsewhere
    }

    /// Clients that are gone, in no order; they are watched no more.
    pub(crate) fn sweep(&mut self, now_ms: i64) -> Vec<Arc<str>> {
        let pause = now_ms.saturating_sub(self.swept_ms);
        self.swept_ms = now_ms;
        if pause > ASLEEP_MS {
            // What was said meanwhile may not have been read yet.
            let pause = pause - SWEEP_MS;
            for client in self.clients.values_mut() {
                client.last_ms = client.last_ms.saturating_add(pause).min(now_ms);
                for voucher in &mut client.vouchers {
                    voucher.last_ms = voucher.last_ms.saturating_add(pause).min(now_ms);
                }
            }
        }
        let oldest_ms = now_ms.saturating_sub(self.gone_after_ms);
        self.clients.extract_if(|_, client| client.last_ms <= oldest_ms).map(|(name, _)| name).collect()
    }

    /// Silence after which a client is gone, milliseconds.
    pub(crate) fn gone_after_ms(&self) -> i64 {
        self.gone_after_ms
    }

    /// When somebody vouched for a client or it asked for messages, if it is watched.
    pub(crate) fn last_ms(&self, client: &str) -> Option<i64> {
        self.clients.get(client).map(|known| known.last_ms)
    }

    /// Clients watched now.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: i64 = 30_000;

    fn swept(liveness: &mut Liveness, until_ms: i64) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        while liveness.swept_ms < until_ms {
            let next = until_ms.min(liveness.swept_ms + 1_000);
            gone.extend(liveness.sweep(next));
        }
        gone
    }

    #[test]
    fn a_client_is_gone_when_nobody_has_vouched_for_it_long_enough() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut liveness = Liveness::new(0, GONE);
        assert!(liveness.seen(0, "only-seen"));
        assert!(liveness.vouch(0, &a, "silent") && liveness.vouch(0, &a, "kept"));
        assert!(swept(&mut liveness, 20_000).is_empty());
        assert!(liveness.vouch(20_000, &b, "kept"), "another sidecar is as good");
        let mut gone = swept(&mut liveness, GONE);
        gone.sort();
        assert_eq!(gone, ["only-seen".into(), "silent".into()]);
        assert!(swept(&mut liveness, 49_999).is_empty());
        assert_eq!(swept(&mut liveness, 50_000), ["kept".into()]);
        assert_eq!(liveness.len(), 0);
    }

    #[test]
    fn who_leaves_one_sidecar_is_elsewhere_only_while_another_vouches() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut liveness = Liveness::new(0, GONE);
        liveness.vouch(0, &b, "moved");
        liveness.vouch(0, &a, "moved");
        liveness.vouch(0, &a, "died");
        assert!(!liveness.leave(1_000, "a", "died"));
        assert!(liveness.leave(1_000, "a", "moved"));
        assert!(!liveness.leave(1_000, "a", "unheard-of"));
        liveness.seen(29_000, "moved");
        assert!(!liveness.leave(GONE, "a", "moved"), "b vouched too long ago");
    }

    #[test]
    fn who_says_goodbye_is_watched_no_more_unless_another_sidecar_vouches() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut liveness = Liveness::new(0, GONE);
        liveness.vouch(0, &a, "done");
        liveness.vouch(0, &a, "moved");
        liveness.vouch(0, &b, "moved");
        liveness.goodbye(1, "a", "done");
        liveness.goodbye(1, "a", "moved");
        assert_eq!(swept(&mut liveness, 100_000), ["moved".into()]);
    }

    #[test]
    fn who_was_elsewhere_before_is_gone_at_once_when_its_last_sidecar_says_so() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for bye in [true, false] {
            let mut liveness = Liveness::new(0, GONE);
            liveness.vouch(0, &a, "moved");
            liveness.vouch(0, &b, "moved");
            liveness.vouch(0, &b, "new");
            assert!(liveness.holds(0, "old") && liveness.vouch(0, &b, "old"));
            assert!(liveness.leave(1, "a", "moved"), "b vouches for it");
            for client in ["moved", "new", "old"] {
                if bye {
                    liveness.goodbye(2, "b", client);
                } else {
                    assert!(!liveness.leave(2, "b", client));
                }
            }
            let mut gone = liveness.sweep(1_000);
            gone.sort();
            assert_eq!(gone, ["moved".into(), "old".into()], "goodbye: {bye}");
            assert_eq!(liveness.len(), usize::from(!bye), "who never moved: its sidecar gave back what it kept");
        }
    }

    #[test]
    fn who_comes_back_in_time_is_not_gone() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut liveness = Liveness::new(0, GONE);
        liveness.vouch(0, &a, "moved");
        liveness.vouch(0, &b, "moved");
        liveness.leave(1, "a", "moved");
        liveness.leave(1, "b", "moved");
        liveness.vouch(2, &a, "moved");
        assert!(swept(&mut liveness, GONE).is_empty());
        assert_eq!(swept(&mut liveness, GONE + 1_000), ["moved".into()]);
    }

    #[test]
    fn a_broker_that_stood_still_gives_everybody_the_time_it_missed() {
        let a: Arc<str> = "a".into();
        for (gone_after, still) in [(GONE, 90_000), (3_000, 4_000), (3_000, 1_600)] {
            let mut liveness = Liveness::new(0, gone_after);
            liveness.vouch(0, &a, "c");
            assert!(swept(&mut liveness, gone_after - 2_000).is_empty());
            let awake = gone_after - 2_000 + still;
            assert!(liveness.sweep(awake).is_empty(), "what was said meanwhile is not read yet");
            assert!(swept(&mut liveness, awake + 999).is_empty());
            assert_eq!(swept(&mut liveness, awake + 1_000), ["c".into()], "{gone_after}, {still}");
        }
    }

    #[test]
    fn the_number_of_vouchers_is_bounded() {
        let mut liveness = Liveness::new(0, GONE);
        for n in 0..100 {
            liveness.vouch(n, &format!("s{n}").into(), "c");
        }
        assert_eq!(liveness.clients["c"].vouchers.len(), limits::VOUCHERS_PER_CLIENT_MAX);
        assert!(liveness.clients["c"].vouchers.iter().any(|voucher| &*voucher.sidecar == "s99"));
    }
}
