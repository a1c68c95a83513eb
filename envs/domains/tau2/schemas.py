"""Translation of the package's JSON schemas, which use references and alternatives, to those that this suite's tools
take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEPT = ("enum", "description", "default", "title")


def plain_schema(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same schema with its references written out. Open alternatives of a record make it an open record."""
    return _plain(schema, schema.get("$defs", {}), where, ())


def _plain(schema: Mapping[str, Any], defs: Mapping[str, Any], where: str, inside: tuple[str, ...]) -> dict[str, Any]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        said = {key: schema[key] for key in ("description", "default") if key in schema}
        if name in inside:  # a record that holds itself: the domain checks it from here on
            return {"type": defs[name].get("type", "object"), "additionalProperties": True, **said}
        return {**_plain(defs[name], defs, where, (*inside, name)), **said}
    made = {key: schema[key] for key in _KEPT if key in schema}
    if "anyOf" in schema:
        return {**_one_of([_plain(part, defs, where, inside) for part in schema["anyOf"]]), **made}
    kind = schema.get("type")
    if kind is not None:
        made["type"] = [kind, "null"] if "default" in made and made["default"] is None else kind
    if "properties" in schema:
        made["properties"] = {
            name: _plain(part, defs, f"{where}.{name}", inside) for name, part in schema["properties"].items()
        }
        made["required"] = list(schema.get("required", ()))
    if schema.get("additionalProperties") is True:
        made["additionalProperties"] = True
    if "items" in schema:
        made["items"] = _plain(schema["items"], defs, f"{where}[]", inside)
    return made


def _one_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema that takes what any of the alternatives takes."""
    if any("type" not in part and "properties" not in part for part in parts):  # one takes anything
        return {}
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        kinds = part.get("type", "object")
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            by_kind.setdefault(kind, []).append(part)
    nullable = by_kind.pop("null", None)
    merged = [_of_one_kind(kind, same) for kind, same in by_kind.items()]
    made = merged[0] if len(merged) == 1 else _of_many_kinds(merged)
    if nullable:
        kinds = made["type"]
        made["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    return made


def _of_one_kind(kind: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return {**parts[0], "type": kind}
    if kind == "object":
        return {**parts[0], "additionalProperties": True, "required": []}
    return {"type": kind}


def _of_many_kinds(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of lists and records says nothing of other kinds; a list of values would say it of all of them."""
    made = {key: value for part in parts for key, value in part.items() if key not in _KEPT}
    return {**made, "type": [part["type"] for part in parts]}


def outer(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What is checked before a domain sees a call: the arguments' names and kinds. Their insides the domain checks."""
    checked = {}
    for name, part in schema.get("properties", {}).items():
        kept = {key: part[key] for key in ("type", "enum") if key in part}
        checked[name] = {**kept, "additionalProperties": True} if part.get("type") == "object" else kept
        if part.get("type") == "integer":  # a whole number may be written 2.0; see DomainToolbox
            checked[name]["type"] = "number"
    return {"type": "object", "properties": checked, "required": list(schema.get("required", ()))}
