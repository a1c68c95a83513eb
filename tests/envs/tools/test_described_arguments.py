"""Every argument of every tool that an environment offers says what it is: some trainers refuse one that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.paths import PACKAGE
from tests.tau2_playing import needs_package
from toolorchestra.envs.registration import ids
from toolorchestra.envs.tools import tool

DOMAINS = sorted(folder.name for folder in (PACKAGE / "envs" / "data" / "domains").iterdir())
TOOLSETS = sorted(file.stem for file in (PACKAGE / "envs" / "data" / "toolsets").glob("*.json"))
SETTINGS = [
    *(("HLE-v0", {"tools": name}) for name in TOOLSETS),
    *(("FRAMES-v0", {"tools": name}) for name in TOOLSETS),
    ("HLE-v0", {"diversify": "train"}),
    ("FRAMES-v0", {"style": "brief"}),
    *(("ToolScale-v0", {"domain": name}) for name in DOMAINS),
    *(("Tau2-v0", {"domain": name, "user": "scripted"}) for name in ("airline", "retail", "telecom")),
    *(("Tau2-v0", {"domain": name}) for name in ("telecom", "telecom-workflow")),
    ("Tau2-v0", {"domain": "mock", "user": "scripted", "split": "base"}),
]
CASES = [
    pytest.param(name, settings, marks=needs_package if name == "Tau2-v0" else (), id=f"{name} {settings}")
    for name, settings in SETTINGS
]


def undescribed(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """The arguments without a word, within records and lists too."""
    for name, part in schema.get("properties", {}).items():
        if not part.get("description", "").strip():
            yield f"{where}.{name}"
        yield from undescribed(part, f"{where}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from undescribed(schema[key], f"{where}[]")
    for part in schema.get("anyOf", ()):
        yield from undescribed(part, where)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_tool_and_argument_is_described(name: str, settings: Mapping[str, Any]) -> None:
    env = gym.make(f"ToolOrchestra/{name}", **settings)
    seen = {
        tool["function"]["name"]: tool["function"] for seed in range(2) for tool in env.reset(seed=seed)[0]["tools"]
    }
    assert seen
    assert all(function["description"].strip() for function in seen.values())
    assert not [text for key, function in seen.items() for text in undescribed(function["parameters"], key)]
    env.close()


def test_no_id_is_forgotten() -> None:
    assert {f"ToolOrchestra/{name}" for name, _ in SETTINGS} == set(ids())
    assert len(DOMAINS) >= 10
    assert len(TOOLSETS) >= 2


def test_it_would_be_noticed() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    schema = {"properties": {"a": {"type": "array", "description": "As.", "items": inner}, "c": {}}}
    assert list(undescribed(schema, "t")) == ["t.a[].b", "t.c"]


def test_an_annotation_describes_an_argument_of_ones_own() -> None:
    @tool
    def look(place: Annotated[str, "Where to look."], often: int = 1) -> str:
        """Looks."""
        return place * often

    assert look.parameters["properties"] == {
        "place": {"type": "string", "description": "Where to look."},
        "often": {"type": "integer"},
    }
