//! What schemars cannot say of a type by itself.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::Condition;

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
