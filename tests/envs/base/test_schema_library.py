"""Schemas beyond the fast part, as pydantic and MCP servers write them: what they take and how they refuse."""

from __future__ import annotations

import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pytest

from tests.foreign_schemas import EDIT, FETCH, PYDANTIC
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.base.schema_library import FORMATS, LibrarySchema
from toolorchestra.envs.tools import Tool

HOME = {"city": "Rome"}
FITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (PYDANTIC, {"place": HOME}),
    (PYDANTIC, {"place": {"city": "Rome", "zip": "00184"}, "others": [HOME, HOME], "colour": "blue"}),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "cat", "lives": 9}}),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "dog", "name": "Rex"}, "others": None}),
    (PYDANTIC, {"place": HOME, "tree": {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}}),
    (PYDANTIC, {"place": HOME, "tags": {"a": 1}, "size": "large", "pair": [1.5, "m"], "day": "2026-11-01"}),
    (PYDANTIC, {"place": HOME, "size": -(10**400)}),
    (EDIT, {"path": "a.txt", "edits": [{"from": "a", "to": "b"}], "dryRun": True, "backup": "b.txt"}),
    (FETCH, {"url": "this is no URI, which is not checked", "max_length": 1, "labels": ["a", "b"]}),
    (FETCH, {"id": 7, "step": 0.3, "mode": "text", "header": {"X-a": "b"}}),
]


@pytest.mark.parametrize(("schema", "arguments"), FITS, ids=str)
def test_fits(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    Checker(schema).check(arguments, "t")


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (PYDANTIC, {}, "t needs the argument 'place'"),
    (PYDANTIC, {"place": HOME, "plaec": 1}, "t has no argument 'plaec'; its arguments: place, others, pet, "),
    (PYDANTIC, {"place": "Rome"}, "place must be object, got str 'Rome'"),
    (PYDANTIC, {"place": {}}, "place needs the argument 'city'"),
    (PYDANTIC, {"place": {"city": "R"}}, "place.city needs at least 2 characters, got 1"),
    (PYDANTIC, {"place": {"city": "Rome", "zip": "1"}}, "place.zip must be text with the pattern ^\\d{5}$, got '1'"),
    (PYDANTIC, {"place": {"city": "Rome", "zap": "1"}}, "place has no argument 'zap'; its arguments: city, zip"),
    (PYDANTIC, {"place": HOME, "others": [HOME, {"city": 5}]}, "others[1].city must be string, got int 5"),
    (PYDANTIC, {"place": HOME, "others": 5}, "others must be array or null, got int 5"),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "cow"}}, "pet.kind must be one of: cat, dog; got 'cow'"),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "cat", "lives": 10}}, "pet.lives must be at most 9, got 10"),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "dog"}}, "pet needs the argument 'name'"),
    (PYDANTIC, {"place": HOME, "pet": True}, "pet must be object or null, got bool True"),
    (PYDANTIC, {"place": HOME, "colour": "green"}, "colour must be one of: red, blue; got 'green'"),
    (PYDANTIC, {"place": HOME, "tree": {"value": 1, "children": [{"value": 2.0}]}}, "tree.children[0].value must be "),
    (PYDANTIC, {"place": HOME, "tags": {"a": "b"}}, "tags.a must be integer, got str 'b'"),
    (PYDANTIC, {"place": HOME, "size": 1.5}, "size must be integer or string, got float 1.5"),
    (PYDANTIC, {"place": HOME, "pair": [1]}, "pair needs at least 2 items, got 1"),
    (PYDANTIC, {"place": HOME, "pair": ["a", "b"]}, "pair[0] must be number, got str 'a'"),
    (PYDANTIC, {"place": HOME, "day": "2026-13-01"}, "day must be text of the format date, got '2026-13-01'"),
    (EDIT, {"path": ""}, "t needs the argument 'edits'"),
    (EDIT, {"path": "", "edits": [{"from": "", "to": ""}]}, "path needs at least 1 characters, got 0"),
    (EDIT, {"path": "a", "edits": []}, "edits needs at least 1 items, got 0"),
    (EDIT, {"path": "a", "edits": [{"from": ""}]}, "edits[0] needs the argument 'to'"),
    (EDIT, {"path": "a", "edits": [{"from": "", "to": "", "by": 1}]}, "edits[0] has no argument 'by'; its arguments: "),
    (EDIT, {"path": "a", "edits": [{"from": "", "to": ""}], "backup": 1}, "backup must be string, got int 1"),
    (FETCH, {}, "t needs the argument 'url'"),
    (FETCH, {"max_length": 5}, "t needs the argument 'url'"),
    (FETCH, {"url": "u", "max_length": 0}, "max_length must be above 0, got 0"),
    (FETCH, {"url": "u", "max_length": 1000000}, "max_length must be below 1000000, got 1000000"),
    (FETCH, {"url": "u", "labels": ["a", "a"]}, "labels must be a list without repetitions, got ['a', 'a']"),
    (FETCH, {"url": "u", "labels": list("abcd")}, "labels may have 3 items, got 4"),
    (FETCH, {"url": "u", "step": 0.35}, "step must be a multiple of 0.1, got 0.35"),
    (FETCH, {"url": "u", "mode": "html"}, "mode must be one of: raw, text; got 'html'"),
    (FETCH, {"id": ""}, "id may not fit {'enum': ['', 0]}, got str ''"),
    (FETCH, {"id": 1.0}, "id must be string or integer, got float 1.0"),
    (FETCH, {"url": "u", "header": {"Y-a": "b"}}, "header has no argument 'Y-a'; its arguments: none"),
    (FETCH, {"url": "u", "header": {"X-a": 5}}, "header.X-a must be string, got int 5"),
    (FETCH, {"url": "u", "q": 5}, "t has no argument 'q'; its arguments: url, max_length, "),
]


@pytest.mark.parametrize(("schema", "arguments", "message"), MISFITS, ids=str)
def test_misfits(schema: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    assert refusal(schema, arguments).startswith(message)


def refusal(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    with pytest.raises(ToolError) as caught:
        Checker(schema).check(arguments, "t")
    assert len(str(caught.value)) <= 300
    return str(caught.value)


def one(part: Any, **beside: Any) -> dict[str, Any]:
    """A schema of one required argument."""
    return {"type": "object", "properties": {"x": part}, "required": ["x"], **beside}


A = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
B = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
KEYWORDS: list[tuple[Any, Any, Any, str]] = [
    ({"const": [1, {"a": None}]}, [1, {"a": None}], [1, {}], "x must be [1, {'a': None}], got [1, {}]"),
    ({"type": "string", "minLength": 2}, "é😀", "é", "x needs at least 2 characters, got 1"),
    ({"minProperties": 1, "maxProperties": 2}, {"a": 1}, {}, "x needs at least 1 arguments, got 0"),
    ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}, "x may have 1 arguments, got 2"),
    ({"multipleOf": 0.01}, 19.99, 19.999, "x must be a multiple of 0.01, got 19.999"),
    ({"multipleOf": 3}, -(3**900), 3**900 + 1, "x must be a multiple of 3, got "),
    ({"uniqueItems": True}, [1, True, "1", [1], [True]], [{"a": 1}, 1, {"a": 1.0}], "x must be a list without "),
    ({"contains": {"type": "string"}}, [1, "a"], [1], "x does not fit contains {'type': 'string'}, got list [1]"),
    ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}, "x may have 1 characters, got 2"),
    ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}, "x does not fit dependentRequired {'a': ['b']}, got "),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1], "x: Expected at most 1 item but found 1 "),
    ({"not": {"type": "string"}}, 1, "a", "x may not fit {'type': 'string'}, got str 'a'"),
    ({"properties": {"a": False, "b": True}}, {"b": 1}, {"a": 1}, "x.a may not be given, got int 1"),
    ({"anyOf": [{"minimum": 5}, {"type": "null"}]}, 5, 4, "x must be at least 5, got 4"),
    ({"anyOf": [{"const": 1}, {"enum": ["a", "b"]}]}, "b", "c", "x must be one of: 1, a, b; got 'c'"),
    ({"anyOf": [False, {"type": "string"}]}, "b", 5, "x may not be given, got int 5"),
    (
        {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        1,
        2,
        "x fits several alternatives where it may fit one only, got",
    ),
    ({"anyOf": [A, B]}, {"b": 1}, {"b": "1"}, "x.b must be integer, got str '1'"),
    (
        {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "array"}]},
        [],
        1,
        "x must be string or null or",
    ),
    ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, 2, "a", "x needs at least 2 char"),
    (
        {"type": "object", "additionalProperties": {"enum": [1]}},
        {"é.f": 1},
        {"é.f": 2},
        "x.é.f must be one of: 1; got 2",
    ),
    ({"type": "object", "unevaluatedProperties": False, **A}, {"a": 1}, {"a": 1, "b": 2}, "x: Unevaluated properties"),
    ({"allOf": [A, B]}, {"a": 1, "b": 1, "c": 1}, {"a": 1}, "x needs the argument 'b'"),
    ({"allOf": [A, {"required": ["b"]}]}, {"a": 1, "b": 1}, {"a": 1}, "x needs the argument 'b'"),
    ({**A, "minProperties": 1, "required": ["b"]}, {"b": 1}, {"a": 1}, "x needs the argument 'b'"),
    ({**A, "anyOf": [{"required": ["a"]}]}, {"a": 1}, {"a": 1, "c": 1}, "x has no argument 'c'; its arguments: a"),
    ({"allOf": [A]}, {"a": 1}, {"a": 1, "c": 1}, "x has no argument 'c'; its arguments: a"),
    ({**A, "anyOf": [B]}, {"a": 1, "b": 1, "c": 1}, {"a": 1}, "x needs the argument 'b'"),
    ({"pattern": "^a.c$"}, "abc", "ab", "x must be text with the pattern ^a.c$, got 'ab'"),
    ({"$ref": "#/$defs/a~1b%20c"}, 1, "1", "x must be integer, got str '1'"),
]


@pytest.mark.parametrize(("part", "fitting", "other", "message"), KEYWORDS, ids=str)
def test_keywords(part: Any, fitting: Any, other: Any, message: str) -> None:
    schema = one(part, **{"$defs": {"a/b c": {"type": "integer"}}})
    Checker(schema).check({"x": fitting}, "t")
    assert refusal(schema, {"x": other}).startswith(message)


def test_a_draft_is_read_as_itself() -> None:
    four = one({"minimum": 1, "exclusiveMinimum": True}, **{"$schema": "http://json-schema.org/draft-04/schema#"})
    assert refusal(four, {"x": 1}) == "x must be above 1, got 1"
    seven = one({"items": [{"type": "integer"}], "additionalItems": False})
    seven["$schema"] = "http://json-schema.org/draft-07/schema#"
    Checker(seven).check({"x": [1]}, "t")
    assert refusal(seven, {"x": ["a"]}) == "x[0] must be integer, got str 'a'"
    assert refusal(seven, {"x": [1, 2]}).startswith("x: Additional items are not allowed")
    for unknown in ("https://example.com/of-our-own", ""):  # read as the latest
        assert refusal(one({"const": 1}, **{"$schema": unknown}), {"x": 2}) == "x must be 1, got 2"
    inner = one({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1})  # by the rules of the whole
    assert refusal(inner, {"x": 2}) == "x must be 1, got 2"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("email", "a@b", "ab"),
        ("idn-email", "é@b", "é"),
        ("ipv4", "192.0.2.7", "192.0.2.777"),
        ("ipv6", "::1", "::g"),
        ("uuid", "123e4567-e89b-42d3-a456-426614174000", "123e4567e89b42d3a456426614174000"),
    ],
)
def test_formats_that_need_no_package_are_checked(name: str, good: str, bad: str) -> None:
    assert name in FORMATS
    schema = one({"format": name})
    Checker(schema).check({"x": good}, "t")
    Checker(schema).check({"x": 5}, "t")
    assert refusal(schema, {"x": bad}) == f"x must be text of the format {name}, got {bad!r}"


def test_other_formats_are_not_checked() -> None:
    for name in ("date-time", "uri", "hostname", "duration", "regex", "color", "int64", "no such format"):
        Checker(one({"type": "string", "format": name})).check({"x": "("}, "t")


WRONG: list[tuple[Any, str]] = [
    (one({"anyOf": []}), "properties.x.anyOf needs at least 1 items, got 0"),
    (one({"anyOf": {"type": "string"}}), "properties.x.anyOf must be array, got dict {'type': 'string'}"),
    (one({"type": "str", "minLength": 1}), "properties.x.type must be one of: array, boolean, integer, null, number, "),
    (one({"minLength": -1}), "properties.x.minLength must be at least 0, got -1"),
    (
        one({"items": [{}]}),
        "properties.x.items must be object or boolean, got list [{}] (read as https://json-schema.org/",
    ),
    (one({"minLength": 1}, required="x"), "required must be array, got str 'x'"),
    (one({"const": 1}, type="array"), "arguments are an object, and its type is 'array'"),
    (one({"const": 1}, required=["y"]), "required names ['y'] are not among the properties"),
    (one({}, anyOf=[{"required": ["x"]}, {"required": ["y"]}]), "required names ['y'] are not among the properties"),
    (one({"pattern": "("}), "the pattern '(' cannot be read: missing )"),
    (one({"pattern": r"(a)\1"}), r"the pattern '(a)\\1' holds a back reference"),
    (one({"patternProperties": {"[": {}}}), "the pattern '[' cannot be read"),
    (one({"patternProperties": {"a": {}}, "unevaluatedProperties": False}), "it has patternProperties and unevaluated"),
    (
        one({"type": "string", "maxLenght": 5}),
        "#/properties/x has 'maxLenght', which is no keyword; did you mean 'maxLength",
    ),
    (
        one({"$ref": "https://example.com/a.json"}),
        "#/properties/x refers to 'https://example.com/a.json', which is no ",
    ),
    (
        one({"$ref": "a.json#/b"}),
        "#/properties/x refers to 'a.json#/b', which is no schema inside this one, and nothing",
    ),
    (one({"$ref": "#/$defs/none"}), "#/properties/x refers to '#/$defs/none', which is no schema inside this one"),
    (
        one({"$ref": "#/$defs/a/examples/0"}, **{"$defs": {"a": {"examples": [{}]}}}),
        "#/properties/x refers to '#/$defs/a/ex",
    ),
    (one({"$dynamicRef": "#a"}), "#/properties/x has $dynamicRef, which is not followed; use $ref"),
    (one({"$id": "https://example.com/x"}), "#/properties/x has an $id of its own; only the whole schema may have one"),
    (one({"$ref": "#/properties/x"}), "its references go in a circle, from #/properties/x to #/properties/x, and look"),
    (one({"anyOf": [{}, {"not": {"$ref": "#/properties/x"}}]}), "its references go in a circle, from #/properties/x"),
    (
        one({"const": 1}, **{"$schema": "http://json-schema.org/draft-03/schema#"}),
        "$schema is 'http://json-schema.org/dr",
    ),
    (one({"const": 1}, **{"$schema": 5}), "$schema is 5; drafts 4 to 2020-12 can be read"),
    (one({"const": float("nan")}), "the schema cannot be written as JSON"),
    (one({"const": {1, 2}}), "the schema cannot be written as JSON"),
]


@pytest.mark.parametrize(("schema", "message"), WRONG, ids=str)
def test_a_schema_that_is_wrong_is_refused_with_its_place(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Tool("look", "Looks.", schema, lambda context: None)
    said = str(caught.value)
    assert said.startswith("tool 'look': the schema ")
    assert message in said
    assert len(said) < 450


def test_a_schema_nested_without_end_is_refused() -> None:
    for depth in (120, 5000):
        deep: dict[str, Any] = {"minLength": 1}
        for _ in range(depth):
            deep = {"items": deep}
        with pytest.raises(ConfigError, match=r"nested|JSON"):
            LibrarySchema(one(deep)) if depth < 1000 else Checker(one(deep))


def test_names_a_reader_may_rely_on() -> None:
    assert list(Checker(PYDANTIC).arguments) == list(PYDANTIC["properties"])
    assert Checker(PYDANTIC).arguments["colour"]["enum"] == ["red", "blue"]
    assert Checker(PYDANTIC).arguments["colour"]["default"] == "red"
    whole = {"$ref": "#/$defs/Args", "$defs": {"Args": {**A, "type": "object"}}}
    assert list(Checker(whole).arguments) == ["a"]
    assert refusal(whole, {"b": 1}) == "t has no argument 'b'; its arguments: a"
    assert refusal(whole, {}) == "t needs the argument 'a'"
    together = {"type": "object", "allOf": [A, B]}
    Checker(together).check({"a": 1, "b": 2}, "t")
    assert refusal(together, {"a": 1, "b": 2, "c": 3}) == "t has no argument 'c'; its arguments: a, b"
    nothing = {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}
    Checker(nothing).check({}, "t")
    assert refusal(nothing, {"a": 1}) == "t has no argument 'a'; its arguments: none"
    Checker({**nothing, "additionalProperties": True}).check({"a": 1}, "t")
    keyed = Tool("paint", "Paints.", PYDANTIC, lambda context, **arguments: None, keyed_by="colour")
    assert keyed.keys == ("red", "blue")


def test_what_is_missing_is_said_with_its_choices() -> None:
    schema = one({"$ref": "#/$defs/C"}, **{"$defs": {"C": {"enum": ["red", "blue"]}}})
    assert refusal(schema, {}) == "t needs the argument 'x', one of: red, blue"


def test_a_schema_of_other_containers_is_taken() -> None:
    frozen = MappingProxyType({"type": "object", "properties": MappingProxyType({"x": {"enum": (1, 2), "const": 1}})})
    Checker(frozen).check({"x": 1}, "t")


def test_a_text_is_short_whatever_was_given() -> None:
    long = "z" * 10_000
    schema = one({"anyOf": [{"enum": [f"{n}{long}" for n in range(50)]}, {"const": long}, {"pattern": long[:4000]}]})
    refusal(schema, {"x": long[:50]})
    refusal(one({"minLength": 1, "additionalProperties": {"type": "null"}}), {"x": {long: {long: long}}})
    refusal({"type": "object", "properties": {f"{n}{long}": {"minLength": 1} for n in range(9)}}, {long: long})
    refusal(one({"not": {"enum": [long]}}), {"x": long})


def test_the_library_is_imported_when_such_a_schema_is_seen_and_not_before() -> None:
    code = (
        "import sys; from toolorchestra.envs.base.json_schema import Checker; import toolorchestra.envs.tools; "
        "Checker({'type': 'object', 'properties': {'x': {'type': 'string'}}}).check({'x': 'a'}, 't'); "
        "before = 'jsonschema' in sys.modules; Checker({'type': 'object', 'minProperties': 0}).check({}, 't'); "
        "print(before, 'jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "False True"
