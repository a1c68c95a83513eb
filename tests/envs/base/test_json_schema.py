"""Owns the fast part of the schema checks: every keyword is enforced; what is not fast goes to test_schema_library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.json_schema import Checker, check_arguments, check_schema, is_simple
from toolorchestra.envs.tools import Tool, tool

Check = Callable[[Mapping[str, Any], Mapping[str, Any], str], None]


def by_checker(schema: Mapping[str, Any], arguments: Mapping[str, Any], where: str) -> None:
    Checker(schema).check(arguments, where)


BOTH_WAYS = pytest.mark.parametrize("check", [check_arguments, by_checker])


def one(part: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of one required argument."""
    schema = {"type": "object", "properties": {"x": part}, "required": ["x"]}
    check_schema(schema, "t")
    return schema


def refusal(check: Check, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    with pytest.raises(ToolError) as caught:
        check(schema, arguments, "t")
    message = str(caught.value)
    assert len(message) < 400
    return message


FITS: list[tuple[dict[str, Any], Any]] = [
    ({}, {"anything": [1, None]}),
    ({"type": "string"}, ""),
    ({"type": "integer"}, -(10**400)),
    ({"type": "number"}, 1),
    ({"type": "number"}, 1.5),
    ({"type": "boolean"}, False),
    ({"type": "array"}, [1, "a", None]),
    ({"type": "object"}, {"a": 1}),
    ({"type": "null"}, None),
    ({"type": ["string", "null"]}, None),
    ({"type": ["string", "null"], "maxLength": 2}, None),
    ({"type": ["string", "integer"], "minimum": 3}, "a"),
    ({"type": ["string", "integer"], "maxLength": 2}, 12345),
    ({"maxLength": 2}, 12345),
    ({"minimum": 2}, "a"),
    ({"enum": ["a", 2, None]}, None),
    ({"type": "string", "enum": ["a", "b"]}, "b"),
    ({"type": "integer", "enum": [1, 2]}, 2),
    ({"type": "array", "enum": [[1], [2]]}, [2]),
    ({"type": "string", "enum": [["a"], {}, "b"]}, "b"),
    ({"type": "integer", "minimum": 1}, 1),
    ({"type": "integer", "maximum": 1}, 1),
    ({"type": "number", "minimum": 0.5, "maximum": 1.5}, 1),
    ({"type": "string", "maxLength": 3}, "éé😀"),
    ({"type": "array", "maxItems": 2}, [1, 2]),
    ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
    ({"type": "array", "items": {"type": "integer"}}, []),
    ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, [["a"], []]),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "b"}),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, {"b": 1}),
    ({"type": "string", "description": "d", "title": "t", "default": "x"}, "y"),
]


@BOTH_WAYS
@pytest.mark.parametrize(("part", "value"), FITS, ids=str)
def test_fits(check: Check, part: dict[str, Any], value: Any) -> None:
    check(one(part), {"x": value}, "t")


MISFITS: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": "string"}, 5, "x must be string, got int 5"),
    ({"type": "string"}, None, "x must be string, got NoneType None"),
    ({"type": "integer"}, 1.5, "x must be integer, got float 1.5"),
    ({"type": "integer"}, "1", "x must be integer, got str '1'"),
    ({"type": "integer"}, True, "x must be integer, got bool True"),
    ({"type": "number"}, False, "x must be number, got bool False"),
    ({"type": "boolean"}, 1, "x must be boolean, got int 1"),
    ({"type": "array"}, {"a": 1}, "x must be array, got dict {'a': 1}"),
    ({"type": "object"}, [1], "x must be object, got list [1]"),
    ({"type": "null"}, 0, "x must be null, got int 0"),
    ({"type": ["string", "null"]}, 5, "x must be string or null, got int 5"),
    ({"type": "string"}, ["y" * 500], f"x must be string, got list ['{'y' * 58}"),
    ({"type": "string", "enum": ["a", "b"]}, "c", "x must be one of: a, b; got 'c'"),
    ({"type": "integer", "enum": [1, 2]}, 3, "x must be one of: 1, 2; got 3"),
    ({"enum": ["a"]}, ["a"], "x must be one of: a; got ['a']"),
    ({"type": "integer", "minimum": 1}, 0, "x must be at least 1, got 0"),
    ({"type": "integer", "maximum": 1}, 2, "x must be at most 1, got 2"),
    ({"minimum": 1}, 0.5, "x must be at least 1, got 0.5"),
    ({"type": ["string", "integer"], "minimum": 3}, 2, "x must be at least 3, got 2"),
    ({"type": "string", "maxLength": 3}, "abcd", "x may have 3 characters, got 4"),
    ({"type": "array", "maxItems": 2}, [1, 2, 3], "x may have 2 items, got 3"),
    ({"type": "array", "items": {"type": "integer"}}, [1, "a"], "x[1] must be integer, got str 'a'"),
    ({"type": "array", "items": {"type": "integer", "minimum": 0}}, [1, -1], "x[1] must be at least 0, got -1"),
    ({"items": {"items": {"type": "string"}}}, [["a"], ["b", 5]], "x[1][1] must be string, got int 5"),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": 5}, "a must be string, got int 5"),
    ({"type": "object", "properties": {"a": {}}}, {"b": 5}, "x has no argument 'b'; its arguments: a"),
    ({"type": "object", "additionalProperties": False}, {"b": 5}, "x has no argument 'b'; its arguments: none"),
    ({"properties": {"a": {}}, "required": ["a"]}, {}, "x needs the argument 'a'"),
]


@BOTH_WAYS
@pytest.mark.parametrize(("part", "value", "message"), MISFITS, ids=str)
def test_misfits(check: Check, part: dict[str, Any], value: Any, message: str) -> None:
    assert refusal(check, one(part), {"x": value}) == message
    described = {**part, "description": "what the agent reads", "title": "X", "default": None}
    assert refusal(check, one(described), {"x": value}) == message


TWO = {
    "type": "object",
    "properties": {"model": {"type": "string", "enum": ["a-1", "a-2"]}, "query": {"type": "string"}},
    "required": ["model"],
}


@BOTH_WAYS
def test_missing_and_unknown_arguments(check: Check) -> None:
    check(TWO, {"model": "a-1"}, "t")
    assert refusal(check, TWO, {}) == "t needs the argument 'model', one of: a-1, a-2"
    assert refusal(check, TWO, {"query": "q"}) == "t needs the argument 'model', one of: a-1, a-2"
    assert refusal(check, TWO, {"model": "a-1", "q": "x"}) == "t has no argument 'q'; its arguments: model, query"
    assert "t has no argument 'qqq" in refusal(check, TWO, {"model": "a-1", "q" * 1000: "x"})
    assert refusal(check, {"type": "object"}, {"q": 1}) == "t has no argument 'q'; its arguments: none"
    check({"type": "object"}, {}, "t")
    check({"type": "object", "properties": {}, "additionalProperties": True}, {"q": 1}, "t")


NOT_SIMPLE: list[tuple[dict[str, Any], str]] = [
    ({"pattern": "a"}, "t.x: JSON schema keys ['pattern'] are not understood; use ['additionalProperties', "),
    ({"type": "string", "format": "date"}, "t.x: JSON schema keys ['format'] are not understood"),
    ({"anyOf": [{}]}, "t.x: JSON schema keys ['anyOf'] are not understood"),
    ({"minLength": 1}, "t.x: JSON schema keys ['minLength'] are not understood"),
    ({"const": 1}, "t.x: JSON schema keys ['const'] are not understood"),
    ({"items": {"pattern": "a"}}, "t.x[]: JSON schema keys ['pattern']"),
    ({"properties": {"y": {"pattern": "a"}}}, "t.x.y: JSON schema keys ['pattern']"),
    (
        {"additionalProperties": {"type": "string"}},
        "t.x: additionalProperties is true or false, got {'type': 'string'}",
    ),
]


@pytest.mark.parametrize(("part", "message"), NOT_SIMPLE, ids=str)
def test_where_the_fast_part_alone_checks_nothing_else_is_taken(part: dict[str, Any], message: str) -> None:
    schema = {"type": "object", "properties": {"x": part}}
    with pytest.raises(ConfigError) as caught:
        check_schema(schema, "t")
    assert str(caught.value).startswith(message)
    assert not is_simple(schema)
    Tool("look", "Looks.", schema, lambda context, x: x).checker.check({}, "look")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "str"}, ".x: types ['str'] are not JSON types; use ['array', 'boolean', 'integer', 'null', "),
    ({"type": ["string", "date"]}, ".x: types ['date'] are not JSON types"),
    ({"properties": {"y": {}}, "required": ["z"]}, ".x: required names ['z'] are not among the properties"),
    ({"type": "integer", "minimum": "1"}, ".x: minimum is a number, got '1'"),
    ({"type": "string", "maxLength": True}, ".x: maxLength is a number, got True"),
    ({"type": "integer", "enum": 5}, ".x: enum lists the values that are allowed, got 5"),
    ({"required": ["z"]}, ".x: required names ['z'] are not among the properties"),
    ({"additionalProperties": "no"}, ".x: additionalProperties is true or false, got 'no'"),
]


@pytest.mark.parametrize(("part", "message"), REFUSED, ids=str)
def test_a_simple_schema_that_is_wrong_is_refused_at_construction(part: dict[str, Any], message: str) -> None:
    schema = {"type": "object", "properties": {"x": part}}
    assert is_simple(schema)
    with pytest.raises(ConfigError) as caught:
        check_schema(schema, "t")
    assert str(caught.value).startswith(f"t{message}")
    with pytest.raises(ConfigError) as caught:
        Tool("look", "Looks.", schema, lambda context: None)
    assert str(caught.value).startswith(f"tool 'look'{message}")


def test_a_function_becomes_a_schema_that_is_enforced() -> None:
    def look(query: str, limit: int = 3, exact: bool = False) -> str:
        """Looks something up."""
        return f"{query}{limit}{exact}"

    made = tool(look)
    check_schema(made.parameters, "look")
    check_arguments(made.parameters, {"query": "q", "limit": 4, "exact": True}, "look")
    assert refusal(check_arguments, made.parameters, {"limit": 4}) == "t needs the argument 'query'"
    assert (
        refusal(check_arguments, made.parameters, {"query": "q", "limit": "4"}) == "limit must be integer, got str '4'"
    )


def test_an_annotation_says_which_values_and_which_elements_a_tool_takes() -> None:
    def grade(marks: list[int], scale: Literal[5, 10] = 5, note: Literal["short", 0] = 0) -> str:
        return f"{marks}{scale}{note}"

    made = tool(grade).parameters
    check_arguments(made, {"marks": [1, 2], "scale": 10, "note": "short"}, "grade")
    assert refusal(check_arguments, made, {"marks": ["good"]}) == "marks[0] must be integer, got str 'good'"
    assert refusal(check_arguments, made, {"marks": [], "scale": 7}) == "scale must be one of: 5, 10; got 7"
    assert refusal(check_arguments, made, {"marks": [], "note": 1}) == "note must be one of: short, 0; got 1"


def test_a_function_that_cannot_be_called_by_name_is_no_tool() -> None:
    def first(query: str, /) -> str:
        return query

    def many(*queries: str) -> str:
        return " ".join(queries)

    for function, said in ((first, "`query: "), (many, r"`\*queries: ")):
        with pytest.raises(ConfigError, match=f"{function.__name__}: arguments are given by name; {said}"):
            tool(function)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
            | st.lists(st.sampled_from(["string", "integer", "array", "null"]), min_size=1, max_size=2),
            "enum": st.lists(_VALUES, min_size=1, max_size=3),
            "minimum": st.integers(-5, 5),
            "maximum": st.integers(-5, 5),
            "maxLength": st.integers(0, 3),
            "maxItems": st.integers(0, 3),
            "additionalProperties": st.booleans(),
            "description": st.just("d"),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["array", "object"])},
        optional={"items": inner, "properties": st.dictionaries(st.text(max_size=3), inner, max_size=2)},
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from("abc"), _SCHEMAS, max_size=3), st.dictionaries(st.sampled_from("abcd"), _VALUES))
@settings(max_examples=300, deadline=None)
def test_both_ways_agree_and_raise_nothing_else(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
    check_schema(schema, "t")

    def verdict(check: Check) -> str:
        try:
            check(schema, arguments, "t")
        except ToolError as err:
            return str(err)
        return "fits"

    assert verdict(check_arguments) == verdict(by_checker)
    if set(arguments) - set(properties):
        assert verdict(check_arguments) != "fits"
