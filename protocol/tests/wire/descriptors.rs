//! Our interface against the table of `apache.rocketmq.v2`: every message, field, enum value and method, in both directions.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use serde_json::Value;
use waybill_protocol::grpc::FILE_DESCRIPTOR_SET;

const TABLE: &str = include_str!("../data/grpc-descriptors.json");
const PACKAGE: &str = "apache.rocketmq.v2";

/// One line per fact, so that a difference reads as the line that is missing or too many.
type Facts = BTreeSet<String>;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn expected() -> Facts {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let mut facts = Facts::new();
    for e in list(&table, "enums") {
        for v in list(e, "values") {
            facts.insert(format!(
                "{} enum {} {}={}",
                text(e, "file"),
                text(e, "full_name"),
                text(v, "name"),
                v["number"]
            ));
        }
    }
    for m in list(&table, "messages") {
        facts.insert(format!("{} message {}", text(m, "file"), text(m, "full_name")));
        for f in list(m, "fields") {
            let map = f.get("map").map(|m| format!("<{},{}>", text(m, "key"), text(m, "value"))).unwrap_or_default();
            facts.insert(format!(
                "field {} {}={} json={} {} {} type={} oneof={}{map}",
                text(m, "full_name"),
                text(f, "name"),
                f["number"],
                text(f, "json_name"),
                text(f, "label"),
                text(f, "type"),
                text(f, "type_name"),
                text(f, "oneof"),
            ));
        }
    }
    for s in list(&table, "services") {
        for m in list(s, "methods") {
            facts.insert(format!(
                "{} {} {} {}({}) -> {}({})",
                text(s, "file"),
                text(s, "full_name"),
                text(m, "path"),
                text(m, "input"),
                m["client_streaming"],
                text(m, "output"),
                m["server_streaming"],
            ));
        }
    }
    facts
}

fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Double => "double",
        Type::Float => "float",
        Type::Int64 => "int64",
        Type::Int32 => "int32",
        Type::Bool => "bool",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Message => "message",
        Type::Enum => "enum",
        other => panic!("a type the interface does not use: {other:?}"),
    }
}

/// `string`, or the full name of a message or enum without the leading dot.
fn value_type(field: &FieldDescriptorProto) -> String {
    match field.type_name() {
        "" => type_name(field.r#type()).to_owned(),
        name => name.trim_start_matches('.').to_owned(),
    }
}

fn field_fact(message: &DescriptorProto, full_name: &str, field: &FieldDescriptorProto) -> String {
    let entry = message.nested_type.iter().find(|n| {
        n.options.as_ref().is_some_and(|o| o.map_entry()) && field.type_name() == format!(".{full_name}.{}", n.name())
    });
    let (mut label, mut map, mut oneof) = ("singular", String::new(), "");
    if let Some(entry) = entry {
        label = "map";
        map = format!("<{},{}>", value_type(&entry.field[0]), value_type(&entry.field[1]));
    } else if field.label() == Label::Repeated {
        label = "repeated";
    } else if field.proto3_optional() {
        label = "proto3_optional";
    } else if let Some(index) = field.oneof_index {
        label = "oneof";
        oneof = message.oneof_decl[index as usize].name();
    }
    format!(
        "field {full_name} {}={} json={} {label} {} type={} oneof={oneof}{map}",
        field.name(),
        field.number(),
        field.json_name(),
        type_name(field.r#type()),
        field.type_name().trim_start_matches('.'),
    )
}

fn add_enum(file: &str, scope: &str, e: &EnumDescriptorProto, facts: &mut Facts) {
    for v in &e.value {
        facts.insert(format!("{file} enum {scope}.{} {}={}", e.name(), v.name(), v.number()));
    }
}

fn add_message(file: &str, scope: &str, message: &DescriptorProto, facts: &mut Facts) {
    if message.options.as_ref().is_some_and(|o| o.map_entry()) {
        return;
    }
    let full_name = format!("{scope}.{}", message.name());
    facts.insert(format!("{file} message {full_name}"));
    for field in &message.field {
        facts.insert(field_fact(message, &full_name, field));
    }
    for e in &message.enum_type {
        add_enum(file, &full_name, e, facts);
    }
    for nested in &message.nested_type {
        add_message(file, &full_name, nested, facts);
    }
}

fn ours() -> Facts {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut facts = Facts::new();
    for file in set.file.iter().filter(|f| f.package() == PACKAGE) {
        assert_eq!(file.syntax(), "proto3");
        for e in &file.enum_type {
            add_enum(file.name(), PACKAGE, e, &mut facts);
        }
        for m in &file.message_type {
            add_message(file.name(), PACKAGE, m, &mut facts);
        }
        for s in &file.service {
            for m in &s.method {
                facts.insert(format!(
                    "{} {PACKAGE}.{} /{PACKAGE}.{}/{} {}({}) -> {}({})",
                    file.name(),
                    s.name(),
                    s.name(),
                    m.name(),
                    m.input_type().trim_start_matches('.'),
                    m.client_streaming(),
                    m.output_type().trim_start_matches('.'),
                    m.server_streaming(),
                ));
            }
        }
    }
    facts
}

#[test]
fn interface_equals_the_table() {
    let (ours, expected) = (ours(), expected());
    assert!(expected.len() > 600, "the table was not read: {} facts", expected.len());
    let missing: Vec<_> = expected.difference(&ours).collect();
    let extra: Vec<_> = ours.difference(&expected).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
}

#[test]
fn descriptor_set_is_self_contained() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let names: BTreeSet<_> = set.file.iter().map(|f| f.name()).collect();
    for file in &set.file {
        assert!(file.source_code_info.is_none());
        for import in &file.dependency {
            assert!(names.contains(import.as_str()), "{import} is missing");
        }
    }
}
