"""Owns the schema checks: what they take, how they refuse, in bounded time, and which schemas are no schemas."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.foreign_schemas import EDIT, FETCH, PYDANTIC
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.json_schema import FORMATS, Checker
from toolorchestra.envs.tools import Tool, tool


def one(part: Any, **beside: Any) -> dict[str, Any]:
    """A schema of one required argument."""
    return {"type": "object", "properties": {"x": part}, "required": ["x"], **beside}


def refusal(schema: Any, arguments: dict[str, Any]) -> str:
    with pytest.raises(ToolError) as caught:
        Checker(schema).check(arguments, "t")
    assert len(str(caught.value)) <= 2000
    return str(caught.value)


HOME = {"city": "Rome"}
WHOLE_CALLS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (PYDANTIC, {"place": {"city": "Rome", "zip": "00184"}, "others": [HOME, HOME], "colour": "blue"}),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "dog", "name": "Rex"}, "others": None}),
    (PYDANTIC, {"place": HOME, "tree": {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}}),
    (PYDANTIC, {"place": HOME, "tags": {"a": 1}, "size": "large", "pair": [1.5, "m"], "day": "2026-11-01"}),
    (EDIT, {"path": "a.txt", "edits": [{"from": "a", "to": "b"}], "dryRun": True, "backup": "b.txt"}),
    (FETCH, {"id": 7, "step": 0.3, "mode": "text", "header": {"X-a": "b"}}),
]


@pytest.mark.parametrize(("schema", "arguments"), WHOLE_CALLS, ids=str)
def test_calls_of_foreign_schemas_fit(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    Checker(schema).check(arguments, "t")


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (PYDANTIC, {"place": HOME, "plaec": 1}, "t has no argument 'plaec'; its arguments: place, others, pet, "),
    (PYDANTIC, {"place": {"city": "Rome", "zip": "1"}}, "place.zip must be text with the pattern ^\\d{5}$, got '1'"),
    (PYDANTIC, {"place": HOME, "others": [HOME, {"city": 5}]}, "others[1].city must be string, got int 5"),
    (PYDANTIC, {"place": HOME, "pet": {"kind": "cow"}}, "pet.kind must be one of: cat, dog; got 'cow'"),
    (PYDANTIC, {"place": HOME, "pet": True}, "pet must be object or null, got bool True"),
    (PYDANTIC, {"place": HOME, "tree": {"value": 1, "children": [{"value": 2.0}]}}, "tree.children[0].value must be "),
    (PYDANTIC, {"place": HOME, "day": "2026-13-01"}, "day must be text of the format date, got '2026-13-01'"),
    (EDIT, {"path": "a", "edits": [{"from": "", "to": "", "by": 1}]}, "edits[0] has no argument 'by'; its arguments: "),
    (FETCH, {"url": "u", "max_length": 1000000}, "max_length must be below 1000000, got 1000000"),
    (FETCH, {"url": "u", "labels": ["a", "a"]}, "labels must be a list without repetitions, got ['a', 'a']"),
    (FETCH, {"id": ""}, "id may not fit {'enum': ['', 0]}, got str ''"),
    (FETCH, {"url": "u", "header": {"Y-a": "b"}}, "header has no argument 'Y-a'; its arguments: none"),
]


@pytest.mark.parametrize(("schema", "arguments", "message"), MISFITS, ids=str)
def test_calls_of_foreign_schemas_are_refused(schema: Any, arguments: dict[str, Any], message: str) -> None:
    assert refusal(schema, arguments).startswith(message)


SAID: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": "integer"}, True, "x must be integer, got bool True"),
    ({"type": ["string", "null"]}, 5, "x must be string or null, got int 5"),
    ({"type": "string"}, ["y" * 500], f"x must be string, got list ['{'y' * 58}"),
    ({"type": "string", "enum": ["a", "b"]}, "c", "x must be one of: a, b; got 'c'"),
    ({"enum": [1]}, True, "x must be one of: 1; got True"),
    ({"type": "integer", "minimum": 1}, 0, "x must be at least 1, got 0"),
    ({"items": {"items": {"type": "string"}}}, [["a"], ["b", 5]], "x[1][1] must be string, got int 5"),
]


@pytest.mark.parametrize(("part", "value", "message"), SAID, ids=str)
def test_the_agent_reads_where_what_and_what_came(part: dict[str, Any], value: Any, message: str) -> None:
    assert refusal(one(part), {"x": value}) == message
    described = {**part, "description": "what the agent reads", "title": "X", "default": None}
    assert refusal(one(described), {"x": value}) == message


A = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
B = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
KEYWORDS: list[tuple[Any, Any, Any, str]] = [
    ({"const": [1, {"a": None}]}, [1, {"a": None}], [1, {}], "x must be [1, {'a': None}], got [1, {}]"),
    ({"multipleOf": 0.01}, 19.99, 19.999, "x must be a multiple of 0.01, got 19.999"),
    ({"uniqueItems": True}, [1, True, "1", [1], [True]], [{"a": 1}, 1, {"a": 1.0}], "x must be a list without "),
    ({"contains": {"type": "string"}}, [1, "a"], [1], "x does not fit contains {'type': 'string'}, got list [1]"),
    ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}, "x needs the argument 'b'"),
    ({"anyOf": [{"minimum": 5}, {"type": "null"}]}, 5, 4, "x must be at least 5, got 4"),
    ({"anyOf": [{"const": 1}, {"enum": ["a", "b"]}]}, "b", "c", "x must be one of: 1, a, b; got 'c'"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 1, 2, "x fits several alternatives where it may fit one only"),
    ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, 2, "a", "x needs at least 2 char"),
    ({"additionalProperties": {"enum": [1]}}, {"é.f": 1}, {"é.f": 2}, "x.é.f must be one of: 1; got 2"),
    ({"$ref": "#/$defs/a~1b%20c"}, 1, "1", "x must be integer, got str '1'"),
]


@pytest.mark.parametrize(("part", "fitting", "other", "message"), KEYWORDS, ids=str)
def test_keywords(part: Any, fitting: Any, other: Any, message: str) -> None:
    schema = one(part, **{"$defs": {"a/b c": {"type": "integer"}}})
    Checker(schema).check({"x": fitting}, "t")
    assert refusal(schema, {"x": other}).startswith(message)


CLOSED: list[tuple[Any, Any, Any, str]] = [
    ({"unevaluatedProperties": False, **A}, {"a": 1}, {"a": 1, "b": 2}, "x has no argument 'b'; its arguments: a"),
    ({"allOf": [A, B]}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, "x has no argument 'c'; its arguments: a, b"),
    ({**A, "anyOf": [B]}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, "x has no argument 'c'; its arguments: a, b"),
    ({"anyOf": [A, {"type": "null"}]}, {"a": 1}, {"a": 1, "c": 1}, "x has no argument 'c'; its arguments: a"),
    ({"$ref": "#/$defs/A"}, {"a": 1}, {"a": 1, "c": 1}, "x has no argument 'c'; its arguments: a"),
    ({"type": "array", "items": A}, [{"a": 1}], [{"a": 1, "c": 1}], "x[0] has no argument 'c'; its arguments: a"),
    ({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, {"a": 1}, {"c": 1}, "x has no argument 'c'"),
]


@pytest.mark.parametrize(("part", "fitting", "other", "message"), CLOSED, ids=str)
def test_an_object_takes_no_names_but_its_own(part: Any, fitting: Any, other: Any, message: str) -> None:
    schema = one(part, **{"$defs": {"A": A}})
    Checker(schema).check({"x": fitting}, "t")
    assert refusal(schema, {"x": other}).startswith(message)


def test_the_arguments_themselves_take_no_others() -> None:
    whole = {"$ref": "#/$defs/Args", "$defs": {"Args": {**A, "type": "object"}}}
    assert list(Checker(whole).arguments) == ["a"]
    assert refusal(whole, {"b": 1, "a": 1}) == "t has no argument 'b'; its arguments: a"
    assert refusal(whole, {}) == "t needs the argument 'a'"
    together = {"type": "object", "allOf": [A, B]}
    Checker(together).check({"a": 1, "b": 2}, "t")
    assert refusal(together, {"a": 1, "b": 2, "c": 3}) == "t has no argument 'c'; its arguments: a, b"
    nothing = {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}
    Checker(nothing).check({}, "t")
    assert refusal(nothing, {"a": 1}) == "t has no argument 'a'; its arguments: none"
    Checker({**nothing, "additionalProperties": True}).check({"a": 1}, "t")
    two = {"properties": {"model": {"enum": ["a-1", "a-2"]}, "query": {"type": "string"}}, "required": ["model"]}
    assert refusal(two, {"q": "x"}) == "t needs the argument 'model', one of: a-1, a-2"
    assert refusal(two, {"model": "a-1", "q": 1, "query": 2}) == "t has no argument 'q'; its arguments: model, query"
    assert refusal(two, {"model": "a-1", "query": 2, "q": 1}) == "query must be string, got int 2"


def test_names_a_reader_may_rely_on() -> None:
    assert list(Checker(PYDANTIC).arguments) == list(PYDANTIC["properties"])
    assert Checker(PYDANTIC).arguments["colour"]["enum"] == ["red", "blue"]
    assert Checker(PYDANTIC).arguments["colour"]["default"] == "red"
    needed = {**PYDANTIC, "required": [*PYDANTIC["required"], "colour"]}
    keyed = Tool("paint", "Paints.", needed, lambda context, **arguments: None, keyed_by="colour")
    assert keyed.keys == ("red", "blue")
    schema = one({"$ref": "#/$defs/C"}, **{"$defs": {"C": {"enum": ["red", "blue"]}}})
    assert refusal(schema, {}) == "t needs the argument 'x', one of: red, blue"


def test_earlier_drafts_are_read_as_they_meant_it() -> None:
    four = one({"minimum": 1, "exclusiveMinimum": True}, **{"$schema": "http://json-schema.org/draft-04/schema#"})
    assert refusal(four, {"x": 1}) == "x must be above 1, got 1"
    Checker(one({"minimum": 1, "exclusiveMinimum": False})).check({"x": 1}, "t")
    seven = one({"items": [{"type": "integer"}], "additionalItems": False})
    Checker(seven).check({"x": [1]}, "t")
    assert refusal(seven, {"x": ["a"]}) == "x[0] must be integer, got str 'a'"
    assert refusal(seven, {"x": [1, 2]}) == "x[1] may not be given, got int 2"
    needing = one({"dependencies": {"a": ["b"], "c": {"minProperties": 2}}})
    assert refusal(needing, {"x": {"a": 1}}) == "x needs the argument 'b'"
    assert refusal(needing, {"x": {"c": 1}}) == "x needs at least 2 arguments, got 1"


@pytest.mark.parametrize(("name", "good", "bad"), [("date", "2024-02-29", "2023-02-29"), ("email", "a@b", "ab")])
def test_formats(name: str, good: str, bad: str) -> None:
    assert name in FORMATS
    schema = one({"format": name})
    Checker(schema).check({"x": good}, "t")
    Checker(schema).check({"x": 5}, "t")
    assert refusal(schema, {"x": bad}) == f"x must be text of the format {name}, got {bad!r}"


def test_words_of_openapi_are_no_misspellings() -> None:
    Checker(one({"type": "string", "example": "a", "nullable": True})).check({"x": "b"}, "t")


WRONG: list[tuple[Any, str]] = [
    (one({"type": "str"}), "properties.x.type must be one of: array, boolean, integer, null, number, "),
    (one({"const": 1}, type="array"), "arguments are an object, and its type is 'array'"),
    (one({"const": 1}, required=["y"]), "required names ['y'] are not among the properties"),
    (one({"pattern": r"(a)\1"}), r"the pattern '(a)\\1' cannot be read; write a regular expression without look-"),
    (one({"maxLenght": 5}), "#/properties/x has 'maxLenght', which is no keyword; did you mean 'maxLength'"),
    (one({"$ref": "https://example.com/a.json"}), "#/properties/x refers to 'https://example.com/a.json', which is no"),
    (one({"$ref": "#/$defs/none"}), "#/properties/x refers to '#/$defs/none', which is no schema inside this one"),
    (one({"$dynamicRef": "#a"}), "#/properties/x has $dynamicRef, which is not followed; use $ref"),
    (one({"$id": "https://example.com/x"}), "#/properties/x has an $id of its own; only the whole schema may have one"),
    (one({"const": float("nan")}), "the schema cannot be written as JSON"),
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
    for depth in (500, 5000):
        deep: dict[str, Any] = {"minLength": 1}
        for _ in range(depth):
            deep = {"items": deep}
        with pytest.raises(ConfigError, match=r"nested|JSON"):
            Checker(one(deep))


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


def _nested(depth: int, wrap: Any, inner: Any) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


DEFS: dict[str, Any] = {
    "E": {"anyOf": [{"$ref": "#/$defs/And"}, {"$ref": "#/$defs/Or"}]},
    **{n: {"properties": {"op": {}, "of": {"type": "array", "items": {"$ref": "#/$defs/E"}}}} for n in ("And", "Or")},
    "List": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/List"}}]},
}
HOSTILE: list[tuple[Any, Any, str]] = [
    ({"pattern": "^(a+)+$"}, "a" * 200_000 + "!", "x must be text with the pattern"),
    ({"$ref": "#/$defs/E"}, _nested(40, lambda v: {"of": [v]}, {"no": "z"}), "do not fit, and are too deep to say"),
    ({"type": "array", "items": {"minLength": 2}}, ["a"] * 10_000, "x[0] needs at least 2 characters, got 1"),
    ({"uniqueItems": True}, [{"a": n} for n in range(2000)] * 2, "without repetitions"),
]


@pytest.mark.parametrize(("part", "value", "message"), HOSTILE, ids=lambda value: str(value)[:40])
def test_no_argument_keeps_the_check_busy(part: Any, value: Any, message: str) -> None:
    schema = one(part, **{"$defs": DEFS})
    started = time.monotonic()
    assert message in refusal(schema, {"x": value})
    assert time.monotonic() - started < 10


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, 2.0, 10**30]) | st.text("ab", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([PYDANTIC, EDIT, FETCH]),
    st.dictionaries(st.sampled_from([*PYDANTIC["properties"], *EDIT["properties"], "url", "id"]), _VALUES, max_size=4),
)
def test_whatever_is_given_it_fits_or_is_refused(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    try:
        Checker(schema).check(arguments, "t")
    except ToolError:
        return
    assert set(arguments) <= set(schema["properties"])
    assert "anyOf" in schema or set(schema["required"]) <= set(arguments)


def test_a_function_that_cannot_be_called_by_name_is_no_tool() -> None:
    def first(query: str, /) -> str:
        return query

    def many(*queries: str) -> str:
        return " ".join(queries)

    for function, said in ((first, "`query: "), (many, r"`\*queries: ")):
        with pytest.raises(ConfigError, match=f"{function.__name__}: arguments are given by name; {said}"):
            tool(function)
