"""JSON schemas of tools as pydantic and MCP servers write them."""

from __future__ import annotations

from typing import Any

PYDANTIC: dict[str, Any] = {
    "$defs": {
        "Cat": {
            "properties": {
                "kind": {"const": "cat", "title": "Kind", "type": "string"},
                "lives": {"maximum": 9, "minimum": 0, "title": "Lives", "type": "integer"},
            },
            "required": ["kind", "lives"],
            "title": "Cat",
            "type": "object",
        },
        "Dog": {
            "properties": {"kind": {"const": "dog", "type": "string"}, "name": {"type": "string"}},
            "required": ["kind", "name"],
            "title": "Dog",
            "type": "object",
        },
        "Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"},
        "Node": {
            "properties": {
                "value": {"title": "Value", "type": "integer"},
                "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array"},
            },
            "required": ["value"],
            "type": "object",
        },
        "Place": {
            "properties": {
                "city": {"minLength": 2, "title": "City", "type": "string"},
                "zip": {"anyOf": [{"pattern": "^\\d{5}$", "type": "string"}, {"type": "null"}], "default": None},
            },
            "required": ["city"],
            "type": "object",
        },
    },
    "properties": {
        "place": {"$ref": "#/$defs/Place"},
        "others": {"anyOf": [{"items": {"$ref": "#/$defs/Place"}, "type": "array"}, {"type": "null"}], "default": None},
        "pet": {
            "anyOf": [
                {
                    "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
                    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                },
                {"type": "null"},
            ],
            "default": None,
        },
        "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        "tree": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
        "tags": {"additionalProperties": {"type": "integer"}, "default": {}, "type": "object"},
        "size": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 5},
        "pair": {
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [{"type": "number"}, {"type": "string"}],
            "type": "array",
        },
        "day": {"anyOf": [{"format": "date", "type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["place"],
    "title": "Arguments",
    "type": "object",
}
"""As BaseModel.model_json_schema() writes a model with nested, optional, discriminated and recursive fields."""

EDIT: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "edits": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "from": {"type": "string", "description": "Text to look for"},
                    "to": {"type": "string", "description": "Text to put there"},
                },
                "required": ["from", "to"],
                "additionalProperties": False,
            },
        },
        "backup": {"$ref": "#/properties/path"},
        "dryRun": {"type": "boolean", "default": False},
    },
    "required": ["path", "edits"],
    "additionalProperties": False,
}
"""As servers in TypeScript write it, from zod."""

FETCH: dict[str, Any] = {
    "description": "Where to look.",
    "properties": {
        "url": {"type": "string", "format": "uri", "minLength": 1, "title": "Url"},
        "max_length": {"type": "integer", "default": 5000, "exclusiveMinimum": 0, "exclusiveMaximum": 1000000},
        "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
        "step": {"type": "number", "multipleOf": 0.1},
        "mode": {"oneOf": [{"const": "raw", "title": "as it is"}, {"const": "text", "title": "as text"}]},
        "id": {"type": ["string", "integer"], "examples": ["a1"], "not": {"enum": ["", 0]}},
        "header": {"type": "object", "patternProperties": {"^X-": {"type": "string"}}},
    },
    "anyOf": [{"required": ["url"]}, {"required": ["id"]}],
    "title": "Fetch",
    "type": "object",
}
"""As servers in Python write it, and by hand."""
