//! Whether an object in the cluster is as it should be.

use serde_json::{Map, Value, json};

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

/// By which field the items of a list are told apart, as the API server does it: the first that all of them have.
const KEYS: [&str; 5] = ["mountPath", "containerPort", "port", "name", "topologyKey"];

/// What is to be taken out of `live` for its lists to have no more items than those of `wanted`, as a strategic merge patch. What another
/// manager added to a list survives an apply. None: nothing.
#[must_use]
pub(super) fn surplus(live: &Value, wanted: &Value) -> Option<Value> {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let of_fields = wanted.iter().filter_map(|(name, wanted)| {
                let surplus = live.get(name).and_then(|live| surplus(live, wanted))?;
                Some((name.clone(), surplus))
            });
            let of_fields: Map<String, Value> = of_fields.collect();
            (!of_fields.is_empty()).then_some(Value::Object(of_fields))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            let all_have = |key: &&str| live.iter().chain(wanted).all(|item| item.get(*key).is_some());
            let key = KEYS.into_iter().find(all_have)?;
            let of_items = live.iter().filter_map(|item| {
                let Some(wanted) = wanted.iter().find(|wanted| wanted.get(key) == item.get(key)) else {
                    return Some(json!({ key: item.get(key), "$patch": "delete" }));
                };
                let mut surplus = surplus(item, wanted)?;
                surplus[key] = json!(item.get(key));
                Some(surplus)
            });
            let of_items: Vec<Value> = of_items.collect();
            (!of_items.is_empty()).then_some(Value::Array(of_items))
        }
        _values => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{covers, surplus};

    #[test]
    fn what_others_added_to_lists_is_to_go() {
        let container = json!({ "name": "broker", "env": [{ "name": "A", "value": "b" }], "args": ["--x"],
            "ports": [{ "name": "p", "containerPort": 1 }], "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
        let pod = |containers: serde_json::Value| json!({ "spec": { "replicas": 1, "containers": containers } });
        let wanted = pod(json!([container]));
        assert_eq!(surplus(&wanted, &wanted), None);
        let mut more = container.clone();
        more["env"] = json!([{ "name": "A", "value": "b" }, { "name": "FOO", "value": "bar" }]);
        more["ports"] =
            json!([{ "name": "p", "containerPort": 1, "protocol": "TCP" }, { "name": "q", "containerPort": 2 }]);
        more["volumeMounts"] = json!([{ "name": "v", "mountPath": "/w" }, { "name": "v", "mountPath": "/v" }]);
        more["resources"] = json!({ "limits": {} });
        let expected = pod(json!([
            {
                "name": "broker",
                "env": [{ "name": "FOO", "$patch": "delete" }],
                "ports": [{ "containerPort": 2, "$patch": "delete" }],
                "volumeMounts": [{ "mountPath": "/w", "$patch": "delete" }],
            },
            { "name": "spy", "$patch": "delete" },
        ]));
        let mut expected = expected;
        expected["spec"].as_object_mut().expect("an object").remove("replicas");
        assert_eq!(surplus(&pod(json!([more, { "name": "spy" }])), &wanted), Some(expected));
        // Lists without keys belong to one manager as a whole, and an apply replaces them.
        assert_eq!(surplus(&json!({ "args": ["a", "b"] }), &json!({ "args": ["a"] })), None);
    }

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
