"""The examples of docs/own-tools.md: tools, prices, models and task sources of a user's own."""

from __future__ import annotations

import json
import runpy
import statistics
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.agents.evaluation.played_episodes import record, standing
from tests.paths import REPOSITORY
from toolorchestra.agents.commands import train
from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training.metrics import read as read_metrics
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.testing import check_environment
from toolorchestra.envs.wrappers import read_trajectories

EXAMPLES = REPOSITORY / "docs" / "examples"
HOUSE = {
    "tools": str(EXAMPLES / "house" / "tools.json"),
    "prices": str(EXAMPLES / "house" / "prices.json"),
    "experts": str(EXAMPLES / "house" / "experts.json"),
}
PRICES = str(EXAMPLES / "parcels" / "prices.json")


@pytest.fixture
def parcels(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(EXAMPLES / "parcels")
    __import__("parcels")
    return EXAMPLES / "parcels"


def test_models_of_ones_own_have_something_to_learn() -> None:
    """Under names and prices of their own: the baselines find the tools by their kind, and the skills by the file."""
    factory = factory_of("ToolOrchestra/HLE-v0", split="test", preference="none", **HOUSE)
    random, oracle = (
        standing([record(played(factory, baseline(name), seed)) for seed in range(40)]) for name in ("random", "oracle")
    )
    assert random.accuracy < oracle.accuracy - 0.1


def test_a_model_that_nobody_simulates_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"'house': no simulated model 'house-7b'.* experts=FILE.* backends=FILE"):
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


@pytest.mark.parametrize("wrong", ["holdout/1", "test/x"])
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


def test_a_start_from_recordings_keeps_its_grammar_at_the_presets_rate(
    parcels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no step ends early, it has unlearnt it after six steps."""
    path = tmp_path / "runs.jsonl"
    monkeypatch.setattr(sys, "argv", ["record.py", str(path)])
    runpy.run_path(str(parcels / "record.py"), run_name="__main__")
    words = f"--env Example/Parcels-v0 prices={PRICES} max_turns=6 --warm-start.trajectories {path} "
    words += (
        "--warm-start.steps 300 --max-tokens 24 --max-context 512 --groups 32 --steps 9 --final-learning-rate 3e-3 "
    )
    words += f"--model.processes 1 --evaluate-every 9 --evaluation-tasks 8 --no-report --out {tmp_path / 'run'}"
    assert train.main(words.split()) == 0
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert statistics.fmean(row["valid"] for row in rows[-3:]) > 0.8
    assert min(row["loss/pace"] for row in rows) < 1  # it was put to the test


SEAMS = EXAMPLES / "seams"


@pytest.fixture
def seams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SEAMS)


@pytest.mark.usefixtures("seams")
def test_a_backend_of_ones_own_answers_and_is_billed(capsys: pytest.CaptureFixture[str]) -> None:
    made = __import__("model_backend")
    env = gym.make(
        "ToolOrchestra/HLE-v0", backends=made.FunctionModel(lambda asked: "one two three"), preference="none"
    )
    env.reset(seed=1)
    info = env.step(render_call("answer", {"model": "answer-1"}))[4]
    assert info["outcome"]["evidence"]["answer"] == "one two three"
    (charge,) = [charge for charge in info["charges"] if charge["role"] == "expert"]
    assert (charge["tokens"]["output"], charge["seconds"]) == (3, 0.5)
    assert info["ledger"]["usd_by_role"]["expert"] > 0
    made.main()
    assert "'expert': 0." in capsys.readouterr().out


@pytest.mark.usefixtures("seams")
def test_a_reward_term_of_ones_own_is_part_of_the_reward(capsys: pytest.CaptureFixture[str]) -> None:
    named = {"split": "test", "preference": "none", "reward_terms": "reward_term:prompt_answers"}
    env = gym.make("ToolOrchestra/FRAMES-v0", **named)
    env.reset(seed=11)
    _, reward, terminated, _, info = env.step(render_call("answer", {"model": "answer-1"}))
    assert terminated
    assert info["ledger"]["seconds"] > 30.0
    late = pytest.approx(-0.002 * (info["ledger"]["seconds"] - 30.0))
    assert info["reward_terms"] == {"prompt_answers": late}
    assert reward == info["outcome"]["value"] + info["reward_terms"]["prompt_answers"]
    __import__("reward_term").main()
    assert "{'prompt_answers': -0.0" in capsys.readouterr().out


SMALL = [
    *"--warm-start.steps 0 --steps 1 --groups 1 --rollouts 4 --updates 1 --no-report --evaluation-tasks 2".split(),
    *"--model.processes 1 --max-tokens 8 --model.hidden 16 --dump-every 1".split(),
]
WORLD = "--env HLE-v0 style=brief shown_characters=0 max_turns=1".split()
TERM = """
def brief(episode):
    return -0.01 * sum(len(m["content"]) for m in episode.messages if m["role"] == "assistant")
"""


def test_a_run_is_trained_and_evaluated_by_a_term_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same weights, tasks and rollouts without the term have nothing to learn, and are worth more by its mean."""
    (tmp_path / "own_terms.py").write_text(TERM)
    monkeypatch.syspath_prepend(tmp_path)
    seen: dict[str, dict[str, dict[str, Any]]] = {}
    for name, own in {"plain": [], "own": ["reward_terms=own_terms:brief"]}.items():
        folder = tmp_path / name
        assert train.main([*SMALL, *WORLD, *own, "--out", str(folder)]) == 0
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        seen[name] = {row["kind"]: row for row in reversed(rows)}
        dumped = [json.loads(line)["training"] for line in (folder / "rollouts.jsonl").read_text().splitlines()]
        assert {part for row in dumped for part in row["parts"]} == ({"term brief"} if own else set())
    plain, own_run = seen["plain"], seen["own"]
    assert "loss/loss" not in plain["train"]
    assert "loss/loss" in own_run["train"]
    assert plain["train"]["group_reward"] == 0.0 > own_run["train"]["group_reward"]
    assert own_run["eval"]["term/brief"] < 0.0
    lost = own_run["eval"]["policy/reward"] - plain["eval"]["policy/reward"]
    assert lost == pytest.approx(own_run["eval"]["term/brief"])
    assert own_run["eval"]["oracle/reward"] < plain["eval"]["oracle/reward"]
    assert "reward terms of yours: brief" in capsys.readouterr().out


@pytest.mark.usefixtures("seams")
def test_a_tool_of_ones_own_stands_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    made = __import__("tool")
    assert check_environment("Example/Pages-v0", abandoned=50).episodes
    env = gym.make("Example/Pages-v0", split="test", preference="none")
    observation, _ = env.reset(seed=11)
    described = {t["function"]["name"]: t["function"] for t in observation["tools"]}
    assert list(described) == ["search", "enhance_reasoning", "answer", "open_page"]
    assert described["open_page"]["description"].endswith("by its title. Price: $0.005 each.")
    assert described["open_page"]["parameters"]["properties"]["title"]["description"] == "The page's whole title."
    lacking = env.step(render_call("open_page", {"title": "Nowhere"}))[4]
    assert "no page 'Nowhere'" in lacking["new_messages"][-1]["content"]
    found = env.step(render_call("open_page", {"title": "the weary pilgrim"}))[4]
    assert [p.title for p in env.unwrapped.episode.world.documents] == ["The Weary Pilgrim"]  # type: ignore[attr-defined]
    assert found["ledger"]["usd_by_role"]["tool"] == 0.01
    observation, _ = env.reset(seed=11, options={"tools": ["answer", "open_page"]})
    assert [t["function"]["name"] for t in observation["tools"]] == ["answer", "open_page"]
    made.main()
    assert "Litand Academy" in capsys.readouterr().out


@pytest.mark.usefixtures("seams")
def test_a_task_source_of_ones_own_keeps_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    made = __import__("task_source")
    assert check_environment("Example/Number-v0", abandoned=50).episodes
    made.main()
    assert capsys.readouterr().out.startswith("249 1.0 {'compare': 10, 'answer': 1}")
    with pytest.raises(ConfigError, match="there are 1000, such as"):
        gym.make("Example/Number-v0").reset(options={"task_id": "holdout/3"})


def test_a_price_sheet_of_ones_own_writes_the_prompt_and_the_bill() -> None:
    own = str(SEAMS / "price_sheet.json")
    for env_id in ("HLE-v0", "FRAMES-v0"):
        env = gym.make(f"ToolOrchestra/{env_id}", prices=own, preference="none")
        observation, info = env.reset(seed=1)
        assert info["price_sheet"] == "example-2026-11"
        offered = next(t["function"] for t in observation["tools"] if t["function"]["name"] == "answer")
        assert "$2 in ($0.2 cached), $16 out" in offered["description"]
        info = env.step(render_call("answer", {"model": "answer-1"}))[4]
        (charge,) = [c for c in info["charges"] if c["role"] == "expert"]
        assert (charge["item"], charge["sheet"]) == ("gpt-5", "example-2026-11")
        tokens = charge["tokens"]
        out = tokens["output"] + tokens["reasoning"]
        assert charge["nano_usd"] == 2_000 * tokens["input"] + 200 * tokens["cached"] + 16_000 * out
