//! Whether an object in the cluster is as it should be.

use serde_json::Value;

use crate::quantity;

/// Whether `live` has everything that `wanted` says. What else `live` has was decided by others: defaults, other programs. The API
/// server writes amounts in its own way, so amounts are compared by value.
#[must_use]
pub(super) fn covers(live: &Value, wanted: &Value) -> bool {
    compare(live, wanted, false)
}

fn compare(live: &Value, wanted: &Value, amounts: bool) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            let amounts = amounts || matches!(name.as_str(), "requests" | "limits" | "sizeLimit");
            live.get(name).is_some_and(|live| compare(live, wanted, amounts))
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| compare(live, wanted, amounts))
        }
        (Value::String(live), Value::String(wanted)) if amounts => {
            live == wanted || quantity::parse(live).is_some_and(|amount| Some(amount) == quantity::parse(wanted))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::covers;

    #[test]
    fn what_others_decided_does_not_matter() {
        let wanted = json!({ "spec": { "replicas": 2, "ports": [{ "port": 1 }] } });
        let live = json!({ "spec": { "replicas": 2, "ports": [{ "port": 1, "protocol": "TCP" }], "paused": false }, "status": {} });
        assert!(covers(&live, &wanted));
        for live in [
            json!({}),
            json!({ "spec": { "replicas": 3, "ports": [{ "port": 1 }] } }),
            json!({ "spec": { "replicas": 2 } }),
            json!({ "spec": { "replicas": 2, "ports": [] } }),
            json!({ "spec": { "replicas": 2, "ports": [{ "port": 1 }, { "port": 2 }] } }),
        ] {
            assert!(!covers(&live, &wanted), "{live}");
        }
    }

    #[test]
    fn amounts_are_compared_by_value_and_other_text_is_not() {
        let amounts = |cpu: &str| json!({ "requests": { "cpu": cpu } });
        assert!(covers(&amounts("1"), &amounts("1000m")));
        assert!(!covers(&amounts("1"), &amounts("1001m")));
        assert!(!covers(&json!({ "image": "1" }), &json!({ "image": "1000m" })));
    }
}
