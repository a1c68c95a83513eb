"""Checks by the library: they agree with the fast part, take bounded time, and raise nothing but refusals."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.foreign_schemas import EDIT, FETCH, PYDANTIC
from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.json_schema import Checker, check_arguments, check_schema, is_simple
from toolorchestra.envs.base.schema_library import MOST_VALUES, LibrarySchema


def one(part: Any) -> dict[str, Any]:
    """A schema of one required argument."""
    return {"type": "object", "properties": {"x": part}, "required": ["x"], "$defs": DEFS}


DEFS: dict[str, Any] = {
    "E": {"anyOf": [{"$ref": "#/$defs/And"}, {"$ref": "#/$defs/Or"}]},
    **{
        name: {"properties": {"op": {"const": op}, "of": {"type": "array", "items": {"$ref": "#/$defs/E"}}}}
        for name, op in (("And", "and"), ("Or", "or"))
    },
    "List": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/List"}}]},
}


def _nested(depth: int, wrap: Any, inner: Any) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


HOSTILE: list[tuple[Any, Any, str]] = [
    ({"pattern": "^(a+)+$"}, "a" * 200_000 + "!", "too long or too deep to be checked"),
    ({"pattern": "^(a+)+$"}, "a" * 100 + "!", "x must be text with the pattern"),
    ({"items": {"pattern": "^(a|a|b)*c?$"}}, ["a" * 5000] * 100, "too long or too deep to be checked"),
    ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 60 + "!": 1}, "x has no argument 'aaaa"),
    ({"$ref": "#/$defs/E"}, _nested(40, lambda v: {"op": "and", "of": [v]}, {"op": "z"}), "too long or too deep"),
    ({"type": "array", "items": {"minLength": 1}}, ["a"] * (MOST_VALUES + 1), f"hold more than {MOST_VALUES} values"),
    ({"uniqueItems": True}, [{"a": n} for n in range(2000)] * 2, "without repetitions"),
]


@pytest.mark.parametrize(("part", "value", "message"), HOSTILE, ids=lambda value: str(value)[:40])
def test_no_argument_keeps_the_check_busy(part: Any, value: Any, message: str) -> None:
    checker = Checker(one(part))
    started = time.monotonic()
    with pytest.raises(ToolError, match=message.replace("(", r"\(")):
        checker.check({"x": value}, "t")
    assert time.monotonic() - started < 20


def test_as_deep_as_a_call_may_be() -> None:
    checker = Checker(one({"$ref": "#/$defs/List"}))
    value = _nested(97, lambda inner: [inner], None)
    with ThreadPoolExecutor(1) as fresh_stack:
        fresh_stack.submit(checker.check, {"x": value}, "t").result()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, 2.0, 10**30]) | st.text("ab", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
_TEXTS = st.none() | st.text("ab", max_size=2)
_KINDS = ["string", "integer", "number", "array", "object", "null"]
# The fast part compares as Python does, which takes true for 1: so no enum holds a number, and no bound stands where
# true or false may come.
_SIMPLE = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(_KINDS) | st.lists(st.sampled_from(_KINDS), min_size=1, max_size=2, unique=True)},
        optional={
            "enum": st.lists(_TEXTS | st.lists(_TEXTS, max_size=1), min_size=1, max_size=3),
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "maxLength": st.integers(0, 3),
            "maxItems": st.integers(0, 3),
            "additionalProperties": st.booleans(),
            "description": st.just("d"),
        },
    )
    | st.sampled_from([{}, {"type": "boolean"}, {"type": "object"}]),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["array", "object"])},
        optional={
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "additionalProperties": st.booleans(),
        },
    ),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from("abc"), _SIMPLE, max_size=3),
    st.lists(st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=4), min_size=1, max_size=4),
    st.none() | st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_fast_part_and_the_library_agree(
    properties: dict[str, Any], calls: list[dict[str, Any]], more: bool | None
) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
    if more is not None:
        schema["additionalProperties"] = more
    assert is_simple(schema)
    check_schema(schema, "t")
    library = LibrarySchema(schema)
    for arguments in calls:
        assert fits(lambda: check_arguments(schema, arguments, "t")) == fits(lambda: library.check(arguments, "t"))  # noqa: B023


def fits(check: Any) -> bool:
    said = ""
    try:
        check()
    except ToolError as err:
        said = str(err)
    assert len(said) < 400
    return not said


@given(
    st.sampled_from([PYDANTIC, EDIT, FETCH]),
    st.dictionaries(st.sampled_from([*PYDANTIC["properties"], *EDIT["properties"], "url", "id"]), _VALUES, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_whatever_is_given_it_fits_or_is_refused(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    checker = Checker(schema)
    if fits(lambda: checker.check(arguments, "t")):
        assert set(arguments) <= set(schema["properties"])
        assert "anyOf" in schema or set(schema["required"]) <= set(arguments)
