//! All brokers.

use std::collections::BTreeMap;

use waybill_protocol::remoting::{BrokerData, ClusterInfo};

use crate::backend::BackendError;

/// All brokers of all sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// Sorted by name.
    pub(crate) brokers: Vec<BrokerData>,
    /// Broker names by cluster.
    by_cluster: BTreeMap<String, Vec<String>>,
    /// Why a source could not be asked; there may be more brokers then.
    pub(crate) silent: Option<BackendError>,
}

impl Cluster {
    /// Merges what several sources said. Where two speak of the same broker, the earlier one is believed.
    pub(crate) fn merge(answers: impl IntoIterator<Item = ClusterInfo>, silent: Option<BackendError>) -> Self {
        let mut brokers: BTreeMap<String, BrokerData> = BTreeMap::new();
        let mut by_cluster: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for answer in answers {
            for (name, mut broker) in answer.broker_addr_table {
                broker.broker_name.clone_from(&name);
                brokers.entry(name).or_insert(broker);
            }
            for (cluster, names) in answer.cluster_addr_table {
                by_cluster.entry(cluster).or_default().extend(names);
            }
        }
        for names in by_cluster.values_mut() {
            names.sort_unstable();
            names.dedup();
        }
        Self { brokers: brokers.into_values().collect(), by_cluster, silent }
    }

    /// Whether a broker has this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.brokers.iter().any(|broker| broker.broker_name == name)
    }

    /// The names of the brokers of `cluster`, or of all brokers if there is no such cluster.
    pub(crate) fn names(&self, cluster: &str) -> Vec<String> {
        self.by_cluster
            .get(cluster)
            .cloned()
            .unwrap_or_else(|| self.brokers.iter().map(|broker| broker.broker_name.clone()).collect())
    }
}
