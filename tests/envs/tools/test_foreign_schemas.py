"""Tools with schemas as pydantic and MCP servers write them, wherever tools are used: episodes, players, wire, keys."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.foreign_schemas import EDIT, FETCH, PYDANTIC
from tests.sources import AdderSource
from toolorchestra.agents.commands.play import read_action
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.random_values import random_value
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.registration import register
from toolorchestra.envs.testing import check_environment
from toolorchestra.envs.testing.rehearsal import fits
from toolorchestra.envs.tools import Tool, ToolContext

WHOLE = {
    "$ref": "#/$defs/Args",
    "$defs": {
        "Args": {
            "type": "object",
            "properties": {"q": {"type": "string", "pattern": "^[a-z]{3}-\\d+$"}, "deep": {"$ref": "#/$defs/Tree"}},
            "required": ["q"],
        },
        "Tree": {"properties": {"left": {"$ref": "#/$defs/Tree"}, "n": {"type": "integer"}}, "type": "object"},
    },
}
SEVERAL = {
    "type": "object",
    "properties": {
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "below": {"type": "integer", "exclusiveMaximum": -3},
        "units": {"type": "integer", "multipleOf": 5, "minimum": 7},
        "name": {"type": "string", "minLength": 13},
        "code": {"type": "string", "pattern": "^(a|b)\\d$", "examples": ["a1"]},
        "rows": {"type": "array", "items": {"oneOf": [{"const": 1}, {"enum": ["x"]}]}, "minItems": 3},
        "base": {"allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"required": ["b"]}]},
        "free": {},
        "any": True,
    },
    "required": ["at", "share", "below", "units", "name", "code", "rows"],
}


def _echo(context: ToolContext, **arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)


TOOLS = tuple(
    Tool(name, "Shows its arguments.", schema, _echo)
    for name, schema in (("place", PYDANTIC), ("edit", EDIT), ("fetch", FETCH), ("whole", WHOLE), ("several", SEVERAL))
)


class ForeignSource(AdderSource):
    """The adder with tools that somebody else described."""

    tools = TOOLS


def test_an_environment_of_such_tools_keeps_every_rule() -> None:
    register("Tests/Foreign-v0", "tests.envs.tools.test_foreign_schemas:ForeignSource")
    assert check_environment("Tests/Foreign-v0", abandoned=16).steps > 20


@pytest.mark.parametrize("made", TOOLS, ids=lambda made: made.name)
def test_a_random_caller_finds_arguments_that_fit(made: Tool) -> None:
    arguments = [random_value(made.parameters, random.Random(seed)) for seed in range(60)]
    assert len({str(one) for one in arguments}) > 3
    fitting = [one for one in arguments if fits(made, one)]
    assert fitting == [one for one in arguments if one.get("id") != 0]  # `not` is ignored, which is said


def opened() -> OrchestraEnv:
    env = OrchestraEnv(ForeignSource())
    env.reset(seed=1)
    return env


def test_the_agent_reads_the_refusal_and_the_result() -> None:
    env = opened()
    observation = env.step(render_call("place", {"place": {"city": "R"}}))[0]
    assert observation["messages"][-1]["content"] == "Error: place.city needs at least 2 characters, got 1"
    observation = env.step(render_call("place", {"place": {"city": "Rome"}}))[0]
    assert observation["messages"][-1]["content"] == '{"place": {"city": "Rome"}}'
    assert observation["tools"][0]["function"]["parameters"] == PYDANTIC


def test_shorthand_finds_the_arguments_of_a_referenced_schema() -> None:
    episode = opened().episode
    assert episode is not None
    assert read_action("whole abc-1", episode) == render_call("whole", {"q": "abc-1"})
    assert read_action("fetch x", episode) == render_call("fetch", {"url": "x"})
