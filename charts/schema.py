"""Holds custom resources against the schemas of their definitions, as far as fields, types and limits go. CEL rules are the API server's."""

import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def problems(value, schema, path):
    """What is wrong with a value, as lines that begin with the field's path."""
    if value is None:
        return [] if schema.get("nullable") else [f"{path}: is null"]
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, (int, str)) else [f"{path}: is no number or text"]
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{path}: is no {kind}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is none of {schema['enum']}")
    if isinstance(value, str):
        found += text(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            found.append(f"{path}: {value} is out of range")
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{path}: has {len(value)} entries")
        for number, entry in enumerate(value):
            found += problems(entry, schema.get("items", {}), f"{path}[{number}]")
    elif isinstance(value, dict):
        found += fields(value, schema, path)
    return found


def text(value, schema, path):
    """What is wrong with a text."""
    found = []
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        found.append(f"{path}: has {len(value)} characters")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path}: {value!r} does not match {schema['pattern']}")
    return found


def fields(value, schema, path):
    """What is wrong with an object's fields."""
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("type") is None
    found = [f"{path}.{name}: is missing" for name in schema.get("required", []) if name not in value]
    for name, entry in value.items():
        if name in known:
            found += problems(entry, known[name], f"{path}.{name}")
        elif isinstance(others, dict):
            found += problems(entry, others, f"{path}.{name}")
        elif not free and others is not True:
            found.append(f"{path}.{name}: there is no such field")
    return found


def of_resource(resource, definitions):
    """What is wrong with a resource; `definitions` by kind."""
    kind = resource.get("kind")
    definition = definitions.get(kind)
    if definition is None:
        return [f"{kind}: there is no such kind"]
    version = definition["spec"]["versions"][0]
    wanted = f"{definition['spec']['group']}/{version['name']}"
    if resource.get("apiVersion") != wanted:
        return [f"apiVersion: is not {wanted}"]
    schema = dict(version["schema"]["openAPIV3Schema"])
    schema["properties"] = schema["properties"] | {"apiVersion": {}, "kind": {}, "metadata": {}}
    return problems(resource, schema, kind)
