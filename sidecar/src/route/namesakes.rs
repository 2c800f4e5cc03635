//! Brokers that have the same name and should not.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use waybill_protocol::remoting::BrokerData;

use super::MASTER;
use crate::limits;

/// The pairs that were reported.
#[derive(Default)]
pub(super) struct Namesakes {
    reported: Mutex<HashSet<[String; 3]>>,
}

impl Namesakes {
    /// Whether this pair was not reported before. After [`limits::NAMESAKES`] pairs nothing is new any more.
    pub(super) fn is_new(&self, name: &str, used: &str, other: &str) -> bool {
        let mut reported = self.reported.lock();
        reported.len() < limits::NAMESAKES && reported.insert([name, used, other].map(str::to_owned))
    }
}

/// Name, address used and address not used of each master that has the name of an earlier one, once for each name.
pub(super) fn find<'a>(said: impl IntoIterator<Item = &'a BrokerData>) -> Vec<(&'a str, &'a str, &'a str)> {
    let mut masters: HashMap<&str, &str> = HashMap::new();
    let mut found: HashMap<&str, (&str, &str)> = HashMap::new();
    for broker in said {
        let Some(address) = broker.broker_addrs.get(&MASTER) else { continue };
        let used = *masters.entry(&broker.broker_name).or_insert(address);
        if used != address {
            found.entry(&broker.broker_name).or_insert((used, address));
        }
    }
    found.into_iter().map(|(name, (used, other))| (name, used, other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_reported_once() {
        let broker = |address: &str| BrokerData {
            broker_name: "x".into(),
            broker_addrs: [(MASTER, address.to_owned())].into(),
            ..BrokerData::default()
        };
        let replica = BrokerData { broker_addrs: [(1, "c:1".to_owned())].into(), ..broker("") };
        let said = [broker("a:1"), replica, broker("b:1"), broker("b:1")];
        assert_eq!(find(&said), [("x", "a:1", "b:1")]);
        assert_eq!(find(said.iter().take(2)), []);
        let namesakes = Namesakes::default();
        assert!(namesakes.is_new("x", "a:1", "b:1"));
        assert!(!namesakes.is_new("x", "a:1", "b:1"));
        assert!(namesakes.is_new("x", "a:1", "c:1"));
    }
}
