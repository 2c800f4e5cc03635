//! Patches: JSON merge, and server-side apply as far as one manager goes that never meets another one's fields.

use serde_json::{Map, Value};

/// Takes away what the manager applied `before` and does not any more, and merges what it applies now.
pub(super) fn apply(object: &mut Value, before: &Value, now: &Value) {
    withdraw(object, before, now);
    merge(object, now);
}

fn withdraw(object: &mut Value, before: &Value, now: &Value) {
    let (Some(fields), Some(before)) = (object.as_object_mut(), before.as_object()) else { return };
    for (name, was) in before {
        match now.get(name) {
            None => drop(fields.remove(name)),
            Some(is) => {
                if let Some(field) = fields.get_mut(name) {
                    withdraw(field, was, is);
                }
            }
        }
    }
}

fn merge(object: &mut Value, now: &Value) {
    match now {
        Value::Object(now) => {
            if !object.is_object() {
                *object = Value::Object(Map::new());
            }
            let fields = object.as_object_mut().expect("made one");
            for (name, value) in now {
                merge(fields.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        other => *object = other.clone(),
    }
}

/// RFC 7386.
pub(super) fn merge_patch(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("made one");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge_patch(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
