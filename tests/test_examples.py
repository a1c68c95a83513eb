"""The examples of docs/own-tools.md: tools, prices, models and task sources of a user's own."""

from __future__ import annotations

import asyncio
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
from toolorchestra.agents.commands import train
from toolorchestra.agents.configuration.config import EnvMix, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import SamplingParams
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training.demonstrations import find_routes
from toolorchestra.agents.training.engines_by_name import named_engine
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


SEAMS = EXAMPLES / "seams"


@pytest.fixture
def seams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SEAMS)


@pytest.mark.usefixtures("seams")
def test_a_backend_of_ones_own_answers_and_is_billed(capsys: pytest.CaptureFixture[str]) -> None:
    made = __import__("model_backend")
    env = gym.make("ToolOrchestra/HLE-v0", backends=made.backing(lambda asked: "one two three"), preference="none")
    env.reset(seed=1)
    info = env.step(render_call("answer", {"model": "answer-1"}))[4]
    assert info["outcome"]["evidence"]["answer"] == "one two three"
    (charge,) = [charge for charge in info["charges"] if charge["role"] == "expert"]
    assert (charge["tokens"]["output"], charge["seconds"]) == (3, 0.5)
    assert info["ledger"]["usd_by_role"]["expert"] > 0
    made.main()
    assert "'expert': 0." in capsys.readouterr().out


@pytest.mark.usefixtures("seams")
def test_a_reward_term_of_ones_own_is_part_of_the_reward() -> None:
    made = __import__("reward_term")
    plain = gym.make("ToolOrchestra/FRAMES-v0", split="test", preference="none")
    env = made.PromptAnswers(plain, patience=1.0, each=0.01)
    env.reset(seed=11)
    _, reward, terminated, _, info = env.step(render_call("answer", {"model": "answer-1"}))
    assert terminated
    assert info["ledger"]["seconds"] > 1.0
    late = -0.01 * (info["ledger"]["seconds"] - 1.0)
    assert info["reward_terms"] == {"task": info["outcome"]["value"], "late": pytest.approx(late)}
    assert reward == pytest.approx(info["outcome"]["value"] + late)
    made.main()


@pytest.mark.usefixtures("seams")
def test_an_engine_of_ones_own_is_named_and_counts(tmp_path: Path) -> None:
    small = (
        "--warm-start.steps 0 --steps 1 --groups 1 --rollouts 2 --updates 1 --no-report --evaluation-tasks 1".split()
    )
    small += "--model.processes 1 --max-tokens 4 --model.hidden 16 --model.layers 1".split()
    world = "--env HLE-v0 style=brief shown_characters=0 max_turns=1".split()
    assert train.main([*small, *world, "--engine", "engine:CountingEngine", "--out", str(tmp_path)]) == 0
    made = __import__("engine")
    config = train.options([*small, *world]).config
    made_engine, _ = named_engine(replace(config, engine="engine:CountingEngine"), print)
    assert isinstance(made_engine, made.CountingEngine)
    sampled = asyncio.run(made_engine.sample([1, 2, 3], SamplingParams(4, 1.0, ()), ""))
    assert made_engine.sampled == len(sampled.tokens) > 0
    made_engine.close()
