"""A function's annotations as the schema of its arguments: what each becomes, and what the function is then given."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.tools import Tool, ToolContext, tool
from toolorchestra.envs.tools.annotations import builder_of, schema_of


@dataclass
class Place:
    city: str
    zip: str | None = None
    tags: list[str] = field(default_factory=list)
    seen: int = field(default=0, init=False)


@dataclass
class Shop:
    city: str


class Parcel(TypedDict):
    weight: float
    to: Place
    note: NotRequired[str]


class Loose(TypedDict, total=False):
    a: Required[int]
    b: Annotated[str, "beside"]


@dataclass
class Node:
    value: int
    children: list[Node]


PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "zip": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
}
SCHEMAS: list[tuple[Any, Any]] = [
    (str, {"type": "string"}),
    (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
    (int | str | list[int], {"type": ["integer", "string", "array"], "items": {"type": "integer"}}),
    (Literal["a", "b"] | None, {"type": ["string", "null"], "enum": ["a", "b", None]}),
    (Literal["all"] | int, {"anyOf": [{"type": "string", "enum": ["all"]}, {"type": "integer"}]}),
    (
        list[int] | list[str],
        {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "string"}}]},
    ),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Place | None, {**PLACE, "type": ["object", "null"]}),
    (dict[str, list[Place]], {"type": "object", "additionalProperties": {"type": "array", "items": PLACE}}),
    (
        Parcel,
        {
            "type": "object",
            "properties": {"weight": {"type": "number"}, "to": PLACE, "note": {"type": "string"}},
            "required": ["weight", "to"],
        },
    ),
    (Loose, {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}),
]


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS, ids=str)
def test_what_an_annotation_becomes(hint: Any, schema: Any) -> None:
    assert schema_of(hint, "f.x") == schema
    Tool("look", "Looks.", {"type": "object", "properties": {"x": schema}}, lambda context, x: x)


@pytest.mark.parametrize("hint", [bytes, tuple[int, str], dict[int, bytes] | set], ids=str)
def test_what_says_nothing_to_json_is_refused(hint: Any) -> None:
    with pytest.raises(ConfigError, match=r"f\.x: annotate with str, int, .* a dataclass or TypedDict.*; got"):
        schema_of(hint, "f.x")


def test_a_record_that_holds_itself_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"a Node holds a Node, .* make the Tool of a schema with \$defs and \$ref"):
        schema_of(Node, "f.x")


def test_two_dataclasses_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match="which dataclass an argument is meant to be cannot be told"):
        builder_of(Place | Shop)
    assert builder_of(dict[str, int] | Loose) is None


@tool
def send(
    parcel: Parcel,
    stops: list[Place],
    home: Place | str | None = None,
    by_name: dict[str, Place] | None = None,
    count: int | None = None,
) -> str:
    """Sends it."""
    return f"{parcel} {stops} {home} {by_name} {count}"


def run(made: Tool, **arguments: Any) -> Any:
    made.checker.check(arguments, made.name)
    return made.run(None, **arguments)


ROME, HERE = {"city": "Rome"}, {"city": "Here", "zip": None, "tags": ["a"]}


def test_a_function_is_given_its_dataclasses() -> None:
    rome = "Place(city='Rome', zip=None, tags=[], seen=0)"
    parcel = {"weight": 1.5, "to": ROME}
    assert run(send, parcel=parcel, stops=[ROME], home="there", count=None) == (
        f"{{'weight': 1.5, 'to': {rome}}} [{rome}] there None None"
    )
    here = "Place(city='Here', zip=None, tags=['a'], seen=0)"
    assert run(send, parcel=parcel, stops=[], home=HERE, by_name={"x": ROME}, count=2) == (
        f"{{'weight': 1.5, 'to': {rome}}} [] {here} {{'x': {rome}}} 2"
    )


def test_context_and_waiting_are_as_without_records() -> None:
    @tool
    async def look(context: ToolContext, place: Place) -> str:
        """Looks."""
        return f"{place.city} {context}"

    assert look.suspends
    waiting = look.run("the context", place=ROME)
    assert inspect.iscoroutine(waiting)
    with pytest.raises(StopIteration, match="Rome the context"):
        waiting.send(None)
    assert "context" not in look.parameters["properties"]
