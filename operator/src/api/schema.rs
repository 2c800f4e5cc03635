//! What schemars cannot say of a type by itself.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::{Condition, PodState};

/// Conditions are a map by type for server-side apply and for `kubectl`.
pub(super) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<Condition>();
    json_schema!({
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Pods are a map by name.
pub(super) fn pods(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<PodState>();
    json_schema!({
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// Something of Kubernetes' own whose fields the API server checks when it is used.
pub(super) fn any_object(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Several of them.
pub(super) fn any_objects(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// Amounts by name, as Kubernetes writes them.
pub(super) fn amounts(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "string", "pattern": AMOUNT, "maxLength": 32 },
    })
}

/// An amount that is not negative.
pub(super) const AMOUNT: &str = r"^([0-9]+(\.[0-9]+)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|m|k|M|G|T|P|E)?$";
