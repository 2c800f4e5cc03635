//! What a consumer group decides for itself about its leases, before the sidecars' configuration.

use std::collections::BTreeMap;

use serde::Serialize;
use waybill_protocol::remoting::GroupOverrides;
use waybill_protocol::remoting::overrides::{BATCH_ENTRIES, BATCH_MAX, INVISIBLE_MS, INVISIBLE_TIME, RENEW};

use crate::quantity;

/// Leaves it to the sidecars.
const DEFAULT: &str = "default";

#[derive(Debug, clap::Args)]
pub(super) struct LeaseArgs {
    /// Whether sidecars renew the leases of push consumers (on), or take messages for the whole time to consume (off);
    /// default leaves it to each sidecar's enableGrpcChannelReceiptHandleRenew
    #[arg(long, value_name = "ON|OFF|DEFAULT", value_parser = renew)]
    renew: Option<Wish>,
    /// How long messages that are renewed are invisible at first, 1s to 24h; default leaves it to each sidecar's
    /// defaultInvisibleTimeMills
    #[arg(long, value_name = "DURATION|default", value_parser = invisible)]
    invisible_duration: Option<Wish>,
    /// The most acks or changes in one request to the broker, 1 to 10000; a sidecar's batchChangeInvisibleTimeMaxNum still
    /// holds, and alone with default
    #[arg(long, value_name = "N|default", value_parser = batch_max)]
    batch_max: Option<Wish>,
}

/// An attribute's value, or None for none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish(Option<String>);

fn renew(text: &str) -> Result<Wish, String> {
    match text {
        "on" => Ok(Wish(Some("true".to_owned()))),
        "off" => Ok(Wish(Some("false".to_owned()))),
        DEFAULT => Ok(Wish(None)),
        _other => Err("it is on, off or default".to_owned()),
    }
}

fn invisible(text: &str) -> Result<Wish, String> {
    if text == DEFAULT {
        return Ok(Wish(None));
    }
    let ms = i64::try_from(quantity::duration(text)?.as_millis()).ok();
    match ms.filter(|ms| INVISIBLE_MS.contains(ms)) {
        Some(ms) => Ok(Wish(Some(ms.to_string()))),
        None => Err("it is from 1s to 24h, or default".to_owned()),
    }
}

fn batch_max(text: &str) -> Result<Wish, String> {
    if text == DEFAULT {
        return Ok(Wish(None));
    }
    match text.parse().ok().filter(|number| BATCH_ENTRIES.contains(number)) {
        Some(number) => Ok(Wish(Some(number.to_string()))),
        None => Err(format!("it is from {} to {}, or default", BATCH_ENTRIES.start(), BATCH_ENTRIES.end())),
    }
}

impl LeaseArgs {
    /// Puts what was asked for among the attributes of a group.
    pub(super) fn apply(&self, attributes: &mut BTreeMap<String, String>) {
        for (key, wish) in
            [(RENEW, &self.renew), (INVISIBLE_TIME, &self.invisible_duration), (BATCH_MAX, &self.batch_max)]
        {
            match wish {
                Some(Wish(Some(value))) => drop(attributes.insert(key.to_owned(), value.clone())),
                Some(Wish(None)) => drop(attributes.remove(key)),
                None => {}
            }
        }
    }
}

/// Attributes travel as changes: `+key` with a value sets, `-key` removes; what is not named stays.
pub(super) fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let set = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let set = set.map(|(key, value)| (format!("+{key}"), value.clone()));
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    set.chain(removed.map(|key| (format!("-{key}"), String::new()))).collect()
}

/// As they are printed. What is missing is left to the sidecars.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    renew: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invisible_time_millis: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_max_num: Option<usize>,
}

impl From<GroupOverrides> for Overrides {
    fn from(overrides: GroupOverrides) -> Self {
        let GroupOverrides { renew, invisible_ms, batch_max } = overrides;
        Self { renew, invisible_time_millis: invisible_ms, batch_max_num: batch_max }
    }
}

impl Overrides {
    /// Those that there are, as the end of a sentence.
    pub(super) fn in_short(&self) -> String {
        let mut text = String::new();
        if let Some(renew) = self.renew {
            text.push_str(if renew { ", leases renewed" } else { ", leases not renewed" });
        }
        if let Some(ms) = self.invisible_time_millis {
            text.push_str(&format!(", invisible for {}", quantity::millis(ms)));
        }
        if let Some(most) = self.batch_max_num {
            text.push_str(&format!(", {most} in a batch"));
        }
        text
    }

    /// All of them, in a line each.
    pub(super) fn in_lines(&self) -> String {
        let sidecars = |key: &str| format!("as each sidecar has it ({key})");
        let renew = match self.renew {
            Some(true) => "on".to_owned(),
            Some(false) => "off".to_owned(),
            None => sidecars("enableGrpcChannelReceiptHandleRenew"),
        };
        let invisible =
            self.invisible_time_millis.map_or_else(|| sidecars("defaultInvisibleTimeMills"), quantity::millis);
        let most = self.batch_max_num.map(|most| most.to_string());
        let most = most.unwrap_or_else(|| sidecars("batchChangeInvisibleTimeMaxNum"));
        format!("renewal: {renew}\ninvisible at the receive, if renewed: {invisible}\nin one batch at most: {most}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(renew("on"), Ok(Wish(Some("true".into()))));
        assert_eq!(invisible("30s"), Ok(Wish(Some("30000".into()))));
        assert_eq!(batch_max("10000"), Ok(Wish(Some("10000".into()))));
        for parse in [renew, invisible, batch_max] {
            assert_eq!(parse("default"), Ok(Wish(None)));
            for wrong in ["", "true", "-1", "0", "0s", "25h", "10001"] {
                assert!(parse(wrong).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn only_changes_travel() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let (before, after) = (map(&[("a", "1"), ("b", "2"), ("c", "3")]), map(&[("a", "1"), ("b", "4"), ("d", "5")]));
        assert_eq!(changes(&before, &after), map(&[("+b", "4"), ("+d", "5"), ("-c", "")]));
    }
}
