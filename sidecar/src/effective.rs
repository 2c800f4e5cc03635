//! What the configuration comes to for each consumer group: for `/config`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value as Json, json};
use waybill_protocol::remoting::{GroupOverrides, SubscriptionGroupConfig, overrides};

use crate::backend::MessageService;
use crate::config::Config;
use crate::limits;
use crate::receipts::{ChannelKind, Mode, PromiseSettings, lease_of_group, promise};

/// What holds for one group.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfGroup {
    /// Whether the leases of gRPC clients that ask for it are renewed.
    renew: bool,
    /// The invisible duration at their receive, milliseconds.
    invisible_time_millis: i64,
    /// The most leases of one request to a broker.
    batch_max_num: i64,
    /// The attributes of the group that say so.
    overrides: Vec<&'static str>,
}

impl OfGroup {
    fn new(config: &Config, group: &SubscriptionGroupConfig) -> Self {
        let own = GroupOverrides::understood(&group.attributes);
        let settings = PromiseSettings::of(config, &own, group.consume_timeout_minute.into());
        let (renew, invisible_time_millis) = match promise(ChannelKind::Grpc, &settings) {
            (mode, ms) if config.enable_proxy_auto_renew => (mode == Mode::Renew, ms),
            _ => (false, lease_of_group(config, settings.consume_timeout_minutes)),
        };
        let most = config.batch_change_invisible_time_max_num;
        let said = [
            (overrides::RENEW, own.renew.is_some()),
            (overrides::INVISIBLE_TIME, own.invisible_ms.is_some()),
            (overrides::BATCH_MAX, own.batch_max.is_some()),
        ];
        Self {
            renew,
            invisible_time_millis,
            batch_max_num: own.batch_max.and_then(|own| i64::try_from(own).ok()).map_or(most, |own| own.min(most)),
            overrides: said.into_iter().filter_map(|(name, is_said)| is_said.then_some(name)).collect(),
        }
    }
}

/// Adds the groups that this sidecar has dealt with, those with values of their own first if there are too many.
pub(crate) fn with_groups(mut shown: Json, config: &Config, messages: &MessageService) -> Json {
    let mut groups: Vec<(String, OfGroup)> =
        messages.known_groups().into_iter().map(|(name, group)| (name, OfGroup::new(config, &group))).collect();
    groups.sort_by_key(|(_, group)| group.overrides.is_empty());
    let left_out = groups.len().saturating_sub(limits::GROUPS_SHOWN);
    groups.truncate(limits::GROUPS_SHOWN);
    if let Some(shown) = shown.as_object_mut() {
        let groups: BTreeMap<String, OfGroup> = groups.into_iter().collect();
        shown.insert("groups".to_owned(), json!(groups));
        shown.insert("groupsLeftOut".to_owned(), json!(left_out));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(attributes: &[(&str, &str)]) -> SubscriptionGroupConfig {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SubscriptionGroupConfig { consume_timeout_minute: 7, attributes, ..SubscriptionGroupConfig::default() }
    }

    fn of(renew: bool, invisible_time_millis: i64, batch_max_num: i64, overrides: &[&'static str]) -> OfGroup {
        OfGroup { renew, invisible_time_millis, batch_max_num, overrides: overrides.to_vec() }
    }

    #[test]
    fn the_groups_value_comes_before_the_sidecars() {
        let on = Config::default();
        let off = Config { enable_grpc_channel_receipt_handle_renew: false, ..Config::default() };
        assert_eq!(OfGroup::new(&on, &group(&[])), of(true, 60_000, 1_024, &[]));
        assert_eq!(OfGroup::new(&off, &group(&[])), of(false, 420_000, 1_024, &[]));
        let never = [(overrides::RENEW, "false"), (overrides::INVISIBLE_TIME, "5000")];
        let said = [overrides::RENEW, overrides::INVISIBLE_TIME];
        assert_eq!(OfGroup::new(&on, &group(&never)), of(false, 420_000, 1_024, &said), "one long lease");
        let always = [(overrides::RENEW, "true"), (overrides::INVISIBLE_TIME, "5000")];
        assert_eq!(OfGroup::new(&off, &group(&always)), of(true, 5_000, 1_024, &said));
    }

    #[test]
    fn the_sidecars_limits_hold_for_every_group() {
        let config = Config { max_invisible_time_ms: 3_000, ..Config::default() };
        let large = [(overrides::RENEW, "true"), (overrides::INVISIBLE_TIME, "5000"), (overrides::BATCH_MAX, "2000")];
        let said = [overrides::RENEW, overrides::INVISIBLE_TIME, overrides::BATCH_MAX];
        assert_eq!(OfGroup::new(&config, &group(&large)), of(true, 3_000, 1_024, &said));
        let config = Config { enable_proxy_auto_renew: false, ..Config::default() };
        assert_eq!(OfGroup::new(&config, &group(&large)), of(false, 420_000, 1_024, &said), "nothing is kept here");
        let small = [(overrides::BATCH_MAX, "10")];
        assert_eq!(OfGroup::new(&Config::default(), &group(&small)), of(true, 60_000, 10, &[overrides::BATCH_MAX]));
    }
}
