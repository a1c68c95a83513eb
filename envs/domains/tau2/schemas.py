"""From the package's JSON schemas, which use references and alternatives, to those that this suite's tools take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolorchestra.envs.base.errors import ConfigError

_KEPT = ("enum", "description", "default", "title")


def plain_schema(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same schema with its references written out. Open alternatives of a record make it an open record."""
    return _plain(schema, schema.get("$defs", {}), where)


def _plain(schema: Mapping[str, Any], defs: Mapping[str, Any], where: str) -> dict[str, Any]:
    if "$ref" in schema:
        target = defs[schema["$ref"].rpartition("/")[2]]
        said = {key: schema[key] for key in ("description", "default") if key in schema}
        return {**_plain(target, defs, where), **said}
    made = {key: schema[key] for key in _KEPT if key in schema}
    if "anyOf" in schema:
        return {**_one_of([_plain(part, defs, where) for part in schema["anyOf"]], where), **made}
    kind = schema.get("type")
    if kind is not None:
        made["type"] = [kind, "null"] if "default" in made and made["default"] is None else kind
    if "properties" in schema:
        made["properties"] = {
            name: _plain(part, defs, f"{where}.{name}") for name, part in schema["properties"].items()
        }
        made["required"] = list(schema.get("required", ()))
    if schema.get("additionalProperties") is True:
        made["additionalProperties"] = True
    if "items" in schema:
        made["items"] = _plain(schema["items"], defs, f"{where}[]")
    return made


def _one_of(parts: list[dict[str, Any]], where: str) -> dict[str, Any]:
    """One schema that takes what any of the alternatives takes."""
    nullable = any(part.get("type") == "null" for part in parts)
    parts = [part for part in parts if part.get("type") != "null"]
    kinds = list(dict.fromkeys(part.get("type", "object") for part in parts))
    if len(parts) == 1:
        merged = dict(parts[0])
    elif kinds == ["object"]:
        merged = {**parts[0], "additionalProperties": True, "required": []}
    elif len(kinds) == 1:
        merged = {"type": kinds[0]}
    else:
        raise ConfigError(f"{where}: alternatives of {kinds} cannot be written as one schema")
    if nullable:
        merged["type"] = [merged["type"], "null"]
    return merged


def outer(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What is checked before a domain sees a call: the arguments' names and kinds. Their insides the domain checks."""
    checked = {}
    for name, part in schema.get("properties", {}).items():
        kept = {key: part[key] for key in ("type", "enum") if key in part}
        checked[name] = {**kept, "additionalProperties": True} if part.get("type") == "object" else kept
        if part.get("type") == "integer":  # a whole number may be written 2.0; see DomainToolbox
            checked[name]["type"] = "number"
    return {"type": "object", "properties": checked, "required": list(schema.get("required", ()))}
