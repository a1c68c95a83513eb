"""A recorded line tells the whole episode, exactly, and a file survives crashes and company."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.sources import SleeperSource, nap
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import append_line
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.money.prices import NANO, TOOL, Tokens, Usage, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools import ToolContext, ToolResult
from toolorchestra.envs.wrappers import RecordTrajectories, Routing, read_trajectories

SEARCH = render_call("search", {"model": "search-2"})
ANSWER = render_call("answer", {"model": "answer-1"})


def recorded(path: Path, **settings: Any) -> RecordTrajectories:
    return RecordTrajectories(gym.make("ToolOrchestra/HLE-v0", **settings), path)


def base(env: gym.Env[Any, Any]) -> OrchestraEnv:
    assert isinstance(env.unwrapped, OrchestraEnv)
    return env.unwrapped


def test_a_line_tells_the_episode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "runs.jsonl"
    env = recorded(path, preference={"outcome": 1, "usd": 0.5})
    _, opening = env.reset(seed=3)
    gained = [env.step(action)[1] for action in (SEARCH, SEARCH + SEARCH, ANSWER)]
    (row,) = read_trajectories(path)
    episode = base(env).episode
    assert episode is not None
    assert episode.outcome is not None
    assert row["task_id"] == opening["task_id"]
    assert row["seed"] == episode.context.seed
    assert row["reset_seed"] == 3
    assert row["preference"] == opening["preference"]
    assert row["price_sheet"] == "paper-2025-11"
    assert row["messages"] == [dict(m) for m in episode.messages]
    assert row["tools"] == episode.observation["tools"]
    assert row["rewards"] == gained
    assert row["outcome"] == {"value": episode.outcome.value, "evidence": dict(episode.outcome.evidence)}
    assert row["calls"] == {"search-2": 3, "answer-1": 1}
    assert (row["terminated"], row["truncated_by"], row["failed"], row["abandoned"]) == (True, "", None, False)
    assert row["totals"]["turns"] == 3
    assert row["totals"]["nano_usd"] == episode.ledger.nano_usd == sum(c["nano_usd"] for c in row["charges"])
    assert row["totals"]["nano_usd"] == sum(row["totals"]["nano_usd_by_role"].values())
    assert row["totals"]["nano_usd"] == sum(row["totals"]["nano_usd_by_tool"].values())
    assert row["totals"]["seconds"] == episode.ledger.seconds
    assert {c["turn"] for c in row["charges"]} == {1, 2, 3}
    assert {c["tool"] for c in row["charges"]} == {"", "search-2", "answer-1"}
    sheet = load_sheet("paper-2025-11")
    for c in row["charges"]:
        usage = Usage(c["item"], c["role"], Tokens(**c["tokens"]), c["units"], c["seconds"], c["estimated"])
        assert sheet.charge(usage).nano_usd == c["nano_usd"]
    again = base(env).factory.start(row["seed"])
    assert again.episode.task_id == row["task_id"]


def test_abandoned_episodes_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    env = recorded(path)
    env.reset(seed=0)
    env.reset(seed=1)  # nothing was played: nothing to tell
    assert not path.exists()
    env.step(SEARCH)
    env.reset(seed=2)
    env.step(ANSWER)
    env.reset(seed=3)
    env.step(SEARCH)
    env.close()
    env.close()
    rows = list(read_trajectories(path))
    assert [r["abandoned"] for r in rows] == [True, False, True]
    assert [r["reset_seed"] for r in rows] == [1, 2, 3]
    assert rows[0]["outcome"] is None
    assert rows[0]["totals"]["nano_usd"] == sum(c["nano_usd"] for c in rows[0]["charges"]) > 0


def test_an_episode_goes_on_where_a_reset_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    env = recorded(path)
    env.reset(seed=0)
    env.step(SEARCH)
    with pytest.raises(ConfigError, match="Did you mean 'budget'"):
        env.reset(options={"budgte": 1.0})
    assert env.step(ANSWER)[2]
    env.close()
    (row,) = read_trajectories(path)
    assert (row["reset_seed"], row["totals"]["turns"], row["abandoned"]) == (0, 2, False)
    assert row["outcome"]


def test_an_episode_that_gymnasiums_own_limit_cut_is_abandoned(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    env = recorded(path, max_episode_steps=2)
    for turn in (SEARCH, ANSWER):
        env.reset(seed=0)
        env.step(SEARCH)
        env.step(turn)
    cut, whole = read_trajectories(path)
    assert (cut["outcome"], cut["terminated"], cut["abandoned"]) == (None, False, True)
    assert (whole["terminated"], whole["abandoned"]) == (True, False)


async def _interrupted(context: ToolContext, milliseconds: int) -> ToolResult:
    """Ctrl-C while it is awaited. What it may have cost is booked when it is broken off, as of a model's request."""
    await asyncio.sleep(0.1)  # by then the caller waits
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(milliseconds / 1000)
    finally:
        context.bill.add(Usage("tavily/search", TOOL, units=1))
    return ToolResult("slept")


class InterruptedSource(SleeperSource):
    """Naps that Ctrl-C breaks off."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = (replace(self.tools[0], run=_interrupted),)


def test_what_a_call_has_cost_that_ctrl_c_broke_off_is_in_the_row(tmp_path: Path) -> None:
    path, cap = tmp_path / "runs.jsonl", SpendCap(1.0)
    env = RecordTrajectories(OrchestraEnv(InterruptedSource(), spend_cap=cap), path)
    env.reset(seed=0)
    with pytest.raises(KeyboardInterrupt):
        env.step(nap(60_000))
    env.close()
    (row,) = read_trajectories(path)
    assert [charge["turn"] for charge in row["charges"] if charge["item"] == "tavily/search"] == [1]
    assert row["totals"]["nano_usd"] == round(cap.spent_usd * NANO)


def test_failed_episodes_stay_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    env = recorded(path)
    env.reset(seed=0)
    episode = base(env).episode
    assert episode is not None
    episode.world.question = SimpleNamespace(images=())  # type: ignore[attr-defined]
    _, reward, *_ = env.step(SEARCH)
    assert reward != reward
    (line,) = path.read_text().splitlines()
    row = json.loads(line, parse_constant=pytest.fail)
    assert row["rewards"] == [None]
    assert row["truncated_by"] == "failed"
    assert "Error" in row["failed"]["error"]
    assert row["charges"]


def test_odd_text_stays_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    env = recorded(path)
    env.reset(seed=0)
    said = "größe 表\u2028\x85\n\x00 \ud800"
    env.step(said)
    env.close()
    (row,) = read_trajectories(path)
    assert row["messages"][2]["content"] == said.replace("\ud800", "?")
    assert path.read_bytes().count(b"\n") == 1


def test_goes_with_the_other_wrappers(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    env = RecordTrajectories(Routing(gym.make("ToolOrchestra/HLE-v0")), path)
    env.reset(seed=0)
    env.step(0)
    env.step(6)
    (row,) = read_trajectories(path)
    assert len(row["rewards"]) == 2
    assert env.spec is not None
    assert isinstance(gym.make(env.spec), RecordTrajectories)
    told = "RecordTrajectories goes around a ToolOrchestra environment, got "
    with pytest.raises(ConfigError, match=f'{told}CartPoleEnv; wrap one of those, such as gym.make."ToolOrchestra'):
        RecordTrajectories(gym.make("CartPole-v1"), path)
    with pytest.raises(ConfigError, match=f"{told}OrchestraVectorEnv, a vector of them; use gym.make_vec"):
        RecordTrajectories(gym.make_vec("ToolOrchestra/HLE-v0", num_envs=2), path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [(b'{"task_id": "x', "not JSON"), (b'{"task_id": "x"}', "without seed, messages"), (b"\xff", "not JSON"),
     (b"5", "without task_id")],
)  # fmt: skip
def test_broken_lines_are_named(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(ConfigError, match=rf"runs\.jsonl, line 1: .*{complaint}"):
        next(read_trajectories(path))


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"task_id": "cut sho')
    env = recorded(path)
    env.reset(seed=0)
    env.step(ANSWER)
    (whole,) = path.read_bytes().splitlines()
    assert json.loads(whole)["calls"] == {"answer-1": 1}
    path.write_bytes(whole)  # as an editor may leave it
    env.reset(seed=0)
    env.step(ANSWER)
    assert [one["calls"] for one in read_trajectories(path)] == [{"answer-1": 1}] * 2


def test_processes_may_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(path, letter)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert sorted(path.read_bytes().split()) == [b"a" * 100_000] * 40 + [b"b" * 100_000] * 40


def _append(path: Path, letter: bytes) -> None:
    for _ in range(40):
        append_line(path, letter * 100_000 + b"\n")
