"""The examples of docs/own-tools.md: tools, prices, models and task sources of a user's own."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.agents.evaluation.played_episodes import plays, summarise
from tests.paths import REPOSITORY
from toolorchestra.agents.configuration.config import EnvMix, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training.demonstrations import find_routes
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.testing import check_environment
from toolorchestra.envs.wrappers import read_trajectories

EXAMPLES = REPOSITORY / "docs" / "examples"
HOUSE = {
    "tools": str(EXAMPLES / "house" / "tools.json"),
    "prices": str(EXAMPLES / "house" / "prices.json"),
    "simulated": str(EXAMPLES / "house" / "models.json"),
}
PRICES = str(EXAMPLES / "parcels" / "prices.json")


@pytest.fixture
def parcels(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(EXAMPLES / "parcels")
    __import__("parcels")
    return EXAMPLES / "parcels"


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_models_of_ones_own_have_something_to_learn(env_id: str) -> None:
    """Under names and prices of their own: the baselines find the tools by their kind, and the skills by the file."""
    factory = factory_of(f"ToolOrchestra/{env_id}", split="test", preference="none", **HOUSE)
    seen = {
        name: summarise(name, list(plays(factory, baseline(name), 80, 0))) for name in ("random", "strongest", "oracle")
    }
    assert seen["oracle"].accuracy >= seen["strongest"].accuracy - 0.05  # noise of 80 tasks
    assert seen["oracle"].cents < seen["strongest"].cents
    assert seen["random"].accuracy < seen["oracle"].accuracy - 0.3


def test_routes_are_found_through_tools_of_any_name() -> None:
    mix = EnvMix("ToolOrchestra/FRAMES-v0", 1.0, HOUSE)
    config = replace(preset("tiny"), environments=(mix,), anchors=(), warm_start=WarmStart(routes=8))
    found = find_routes(config, range(12))
    assert found
    assert all('"conclude"' in route.actions[-1] for route in found)
    assert any('"look_up"' in action for route in found for action in route.actions)


def test_a_model_that_nobody_simulates_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"'house': no simulated model 'house-7b'.* simulated=FILE.* backends=FILE"):
        gym.make("ToolOrchestra/HLE-v0", tools=HOUSE["tools"], prices=HOUSE["prices"])


def test_the_parcels_keep_every_promise(parcels: Path) -> None:
    assert check_environment("Example/Parcels-v0", prices=PRICES, abandoned=50).episodes


def test_a_parcels_bill_is_the_sheets(parcels: Path) -> None:
    env = gym.make("Example/Parcels-v0", prices=PRICES, preference="none")
    observation, _ = env.reset(seed=3, options={"task_id": "test/254744"})
    assert observation["messages"][-1]["content"] == "Carrier: Aquila. When does parcel 254744 come?"
    described = {t["function"]["name"]: t["function"]["description"] for t in observation["tools"]}
    assert described["track"] == "Ask the tracking service. Price: $0.01 each."
    for tool in ("depot_log", "track", "call_carrier"):
        observation, *_ = env.step(render_call(tool, {}))
        assert observation["messages"][-1]["content"] == "Tuesday: it arrives then."
    _, reward, terminated, _, info = env.step(render_call("reply", {"day": "Tuesday"}))
    assert (reward, terminated, info["ledger"]["usd_by_role"]["tool"]) == (1.0, True, 0.01 + 90 * 0.005)


@pytest.mark.parametrize("wrong", ["parcel", "holdout/1", "test/x"])
def test_a_parcel_that_is_none_is_refused(parcels: Path, wrong: str) -> None:
    env = gym.make("Example/Parcels-v0", prices=PRICES)
    with pytest.raises(ConfigError, match="a task of parcels is SPLIT/NUMBER"):
        env.reset(options={"task_id": wrong})


def test_the_recorder_writes_what_a_warm_start_reads(
    parcels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "runs.jsonl"
    monkeypatch.setattr(sys, "argv", ["record.py", str(path), "--episodes", "40"])
    runpy.run_path(str(parcels / "record.py"), run_name="__main__")
    assert "40 runs, " in capsys.readouterr().out
    rows = list(read_trajectories(path))
    assert len(rows) == 40
    assert {r["outcome"]["value"] for r in rows} == {0.0, 1.0}
    assert json.dumps(rows[0]["tools"]).count('"function":') == 4
