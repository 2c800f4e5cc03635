//! What a broker allows.

use crate::BrokerConfig;

impl BrokerConfig {
    /// What the broker allows now: 2 write, 4 read.
    #[must_use]
    pub fn permission(&self) -> i32 {
        const READ: i32 = 4;
        if self.read_only_brokers.contains(&self.broker_name) {
            self.broker_permission & READ
        } else {
            self.broker_permission
        }
    }
}
