"""Replayed outcomes: the runs that were recorded, each once before any twice, billed by a sheet, never for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.recorded.source import RecordedSource
from toolorchestra.envs.domains.recorded.world import priced
from toolorchestra.envs.money.prices import PriceError
from toolorchestra.envs.outcomes.table import read_table
from toolorchestra.envs.testing import check_environment

ID = "ToolOrchestra/Recorded-v0"
PRICES = {
    "qwen3-8b": {"usd_per_mtok": {"input": 0.2, "output": 0.2}},
    "big": {"usd_per_mtok": {"input": 1, "output": 10}},
    "small": {"usd_per_mtok": {"input": 0.1, "output": 1}},
}
SHEET = {"id": "mine", "date": "2026-01-01", "source": "test", "prices": PRICES}
RUNS = 4


def table(folder: Path, *, big: str = "tokens", tasks: int = 30) -> Path:
    """Two models: `small` is right in its last run alone, `big` in all."""
    lines = ["task,family,model,run,success,seconds,input,output,reasoning,usd"]
    for task in range(tasks):
        for run in range(RUNS):
            tokens = f"{1000 + run},{100 + run},{10 * run}"
            lines.append(f"task_{task},fam{task % 3},small,{run},{run == RUNS - 1},{run + 1.5},{tokens},")
            used = {"tokens": f"{tokens},", "dollars": f",,,0.{run + 1}", "nothing": ",,,0"}[big]
            lines.append(f"task_{task},fam{task % 3},big,{run},true,{20 + run},{used}")
    file = folder / "outcomes.csv"
    file.write_text("\n".join(lines))
    return file


def made(file: Path, **more: Any) -> gym.Env[Any, Any]:
    return gym.make(ID, **{"rows": str(file), "prices": SHEET, "preference": "none", **more})


def send(env: gym.Env[Any, Any], model: str) -> tuple[Any, ...]:
    return env.step(render_call("send", {"model": model}))


def test_the_first_choice_ends_the_task_as_a_recorded_run_did(tmp_path: Path) -> None:
    env = made(table(tmp_path))
    env.reset(seed=3)
    _, reward, ended, _, info = send(env, "big")
    assert (reward, ended) == (1.0, True)
    charge = next(c for c in info["charges"] if c["item"] == "big")
    tokens = charge["tokens"]
    assert charge["nano_usd"] == tokens["input"] * 1000 + (tokens["output"] + tokens["reasoning"]) * 10_000
    assert charge["seconds"] - 20 in range(RUNS)


def test_no_run_is_taken_twice_before_all_were(tmp_path: Path) -> None:
    env = made(table(tmp_path), attempts="checked")
    orders = set()
    for seed in range(6):
        env.reset(seed=seed)
        seconds = []
        for _ in range(2 * RUNS):
            _, _, ended, _, info = send(env, "small")
            assert not ended
            seconds.append(info["charges"][-1]["seconds"])
        assert sorted(seconds[:RUNS]) == sorted(seconds[RUNS:]) == [1.5, 2.5, 3.5, 4.5]
        orders.add(tuple(seconds))
    assert len(orders) > 2  # the order is the seed's


def test_a_check_tells_and_the_named_attempt_counts(tmp_path: Path) -> None:
    env = made(table(tmp_path), attempts="checked")
    for named, right in (("attempt 1", 0.0), ("the last one", 1.0)):
        env.reset(seed=0)
        found = []
        while not found or "failed" in found[-1]:
            found.append(send(env, "small")[0]["messages"][-1]["content"])
        assert found[-1].startswith("Check passed")
        if len(found) == 1:
            continue
        assert env.step(render_call("submit", {"answer": named}))[1] == right


def test_recorded_dollars_are_billed_where_tokens_are_not_known(tmp_path: Path) -> None:
    env = made(table(tmp_path, big="dollars"))
    observation, _ = env.reset(seed=3)
    told = observation["tools"][0]["function"]["description"]
    assert "billed the dollars of its recording; about $0.25 a task" in told
    info = send(env, "big")[4]
    charge = next(c for c in info["charges"] if c["item"] == "big")
    assert charge["nano_usd"] in [100_000_000 * n for n in range(1, RUNS + 1)]


def test_what_has_no_price_is_refused_or_left_out_and_never_free(tmp_path: Path) -> None:
    file = table(tmp_path, big="nothing")
    with pytest.raises(ConfigError, match="120 of 120 runs of 'big' have neither tokens nor dollars"):
        made(file)
    with pytest.raises(ConfigError, match=r"no row|no task was run by all"):
        RecordedSource(rows=priced(read_table(file)))
    assert RecordedSource(rows=priced(read_table(file)), models=["small"]).runs.models == ("small",)
    other = {**SHEET, "prices": {"qwen3-8b": PRICES["qwen3-8b"]}}
    env = made(file, models=["small"], prices=other)
    with pytest.raises((ConfigError, PriceError), match="no price by the token for 'small'"):
        env.reset(seed=0)


def test_folds_hold_each_task_out_once(tmp_path: Path) -> None:
    file = table(tmp_path)
    held_out: list[str] = []
    for fold in range(5):
        source = RecordedSource(rows=str(file), fold=fold)
        parts = {split: {name.split("/", 2)[2] for name in source.ids(split)} for split in source.splits}
        assert parts["train"] | parts["validation"] | parts["test"] == parts["all"]
        assert not parts["train"] & parts["test"]
        assert not parts["validation"] & (parts["train"] | parts["test"])
        held_out += parts["test"]
    assert sorted(held_out) == sorted(f"task_{n}" for n in range(30))


@pytest.mark.parametrize("attempts", ["one", "checked"])
def test_it_keeps_the_rules_that_every_environment_keeps(tmp_path: Path, attempts: str) -> None:
    played = check_environment(ID, abandoned=50, rows=str(table(tmp_path)), prices=SHEET, attempts=attempts)
    assert played.episodes > 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"rows": None}, 'needs recorded outcomes: gym.make.*rows="outcomes.csv"'),
        ({"rows": "none.csv"}, "no outcomes at none.csv"),
        ({"models": ["bigg"]}, "no model 'bigg'.*big"),
        ({"fold": 2.5}, "fold is a whole number from 0 to 4, got 2.5"),
        ({"fold": 9}, "fold is a whole number from 0 to 4, got 9"),
        ({"attempts": "many"}, "no attempts 'many'"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        made(table(tmp_path), **more)
