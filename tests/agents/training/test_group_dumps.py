"""Dumped rollouts: what they say, that they change no result, keep their bound and come once after a resume."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agents.rollouts.test_grpo import group_of
from tests.agents.training.test_trainer import COLD, SMALL, run, weights
from tests.agents.training.trained_models import kept, same
from toolorchestra.agents.configuration import environments
from toolorchestra.agents.configuration.environments import chosen_tasks
from toolorchestra.agents.reports.page_data import recorded_row
from toolorchestra.agents.rollouts.grpo import (
    AdvantageParams,
    Group,
    Grpo,
    Measure,
    RewardBreakdown,
    TokenSequence,
    TrainingBatch,
    training_batch,
)
from toolorchestra.agents.rollouts.rollout import RolloutParams
from toolorchestra.agents.training import group_dumps, training_run
from toolorchestra.agents.training.group_dumps import ROLLOUTS, why_left_out, write
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.trainer import TrainingRun
from toolorchestra.envs.wrappers import read_trajectories

WARM = replace(SMALL.warm_start, steps=100)
DUMPED = replace(SMALL, steps=3, evaluate_every=3, save_every=1, dump_every=2, warm_start=WARM)
UNTAUGHT = COLD
"""One step of a model that knows nothing: where nothing has to be learnt."""


def lines(folder: Path) -> list[dict[str, Any]]:
    return list(read_trajectories(folder / ROLLOUTS))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumped")
    run(folder, DUMPED)
    return folder


def test_every_rollout_of_a_dumped_group_is_there_as_a_trajectory(trained: Path) -> None:
    found = lines(trained)
    places = [tuple(line["training"][name] for name in ("step", "group", "rollout")) for line in found]
    assert places == [(step, group, rollout) for step in (0, 2) for group in (0,) for rollout in range(4)]
    seen: Counter[tuple[str, ...]] = Counter()
    for line in found:
        row = recorded_row(line, seen)
        assert (row.policy, row.turns) == ("policy", line["totals"]["turns"])
        assert row.agent_nano_usd == sum(c["nano_usd"] for c in line["charges"] if c["role"] != "judge")
        assert all(1 <= charge["turn"] <= row.turns for charge in line["charges"])
        assert line["messages"][0]["role"] == "system"


def begun_again(trained: Path, folder: Path, **settings: Any) -> TrainingRun:
    """The same run from the end of its warm start on, with other settings of dumps."""
    shutil.copytree(trained, folder)
    for later in (folder / "checkpoints").glob("step-*"):
        if later.name != "step-000000":
            shutil.rmtree(later)
    return run(folder, replace(DUMPED, **settings), resume=True)


def test_the_rewards_and_what_is_learnt_from_are_those_of_the_step(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "DUMPED_GROUPS", DUMPED.groups)
    begun_again(trained, tmp_path / "all", dump_every=1)
    dumped = [line["training"] for line in lines(tmp_path / "all")]
    rows = [row for row in read(tmp_path / "all" / "metrics.jsonl") if row["kind"] == "train"]
    assert len(dumped) == len(rows) * DUMPED.groups * DUMPED.rollouts
    for row in rows:
        mine = [one for one in dumped if one["step"] == row["step"]]
        scored = [one["reward"] for one in mine if one["reward"] is not None]  # None: out of context, so left out
        assert len(mine) - len(scored) == row["context"] + row["failed"]
        assert row["group_reward"] == pytest.approx(sum(scored) / len(scored))
        assert row["used"] == sum(not one["left_out"] for one in mine) == sum(bool(one["advantage"]) for one in mine)
    assert any(row["used"] for row in rows)


def test_dumping_changes_no_result(trained: Path, tmp_path: Path) -> None:
    without = begun_again(trained, tmp_path / "without", dump_every=0)
    expected = kept(trained, 3)["weights"]
    assert same(expected, weights(without))
    assert not same(expected, kept(trained, 0)["weights"])
    assert (tmp_path / "without" / ROLLOUTS).read_bytes() == b""  # what the run had dumped is of steps done again


def test_a_resumed_run_has_each_dump_once_and_the_same(trained: Path, tmp_path: Path) -> None:
    """It goes on from step 1, so step 2 is dumped again; a kill has torn the last line."""
    shutil.copytree(trained, tmp_path / "copy")
    for step in (2, 3):
        shutil.rmtree(tmp_path / "copy" / "checkpoints" / f"step-{step:06d}")
    whole = (trained / ROLLOUTS).read_bytes()
    (tmp_path / "copy" / ROLLOUTS).write_bytes(whole + whole[:300])
    run(tmp_path / "copy", DUMPED, resume=True)
    assert (tmp_path / "copy" / ROLLOUTS).read_bytes() == whole


# -- what is not learnt from -------------------------------------------------------------------------------------------


def measure(outcome: float = 1.0, **fields: Any) -> Measure:
    return Measure(outcome, 0.0, 0.0, {}, **fields)


def reasons(totals: list[float | None], measures: list[Measure], params: AdvantageParams) -> list[str]:
    rewards = [None if total is None else RewardBreakdown(total, {}, True) for total in totals]
    (given,) = Grpo(params).advantages([group_of(*measures)], [rewards])
    kept = [total for total in totals if total is not None]
    said = [why_left_out(r, a, m, kept, params) for r, a, m in zip(rewards, given, measures, strict=True)]
    assert [not reason for reason in said] == [advantage is not None for advantage in given]
    return said


def test_each_reason_is_told() -> None:
    plain = AdvantageParams()
    broken = measure(failed=True)
    assert reasons([0.0, 1.0, None], [measure(), measure(), broken], plain) == ["", "", "the episode failed"]
    assert reasons([1.0, None], [measure(), broken], plain)[0] == "no other rollout of the group has a reward"
    assert set(reasons([0.5, 0.55], [measure()] * 2, plain)) == {"the rewards of the group differ too little"}
    assert reasons([0.0, 0.5, 1.0], [measure()] * 3, plain)[1] == ""  # its tokens count, with advantage 0
    strict = AdvantageParams(unreadable="dropped")
    odd = [measure(), measure(valid_format=False), measure(valid_output=False)]
    assert reasons([0.0, 1.0, 0.4], odd, strict) == ["", "a turn could not be read", "it ran into a limit"]


def test_a_rollout_that_failed_is_dumped_with_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline has passed before its first turn: no reward, no outcome, and no evidence of anything."""
    with monkeypatch.context() as patch:
        patch.setattr(training_run, "RolloutParams", partial(RolloutParams, deadline_seconds=1e-9))
        run(tmp_path, UNTAUGHT)
    found = lines(tmp_path)
    assert {line["training"]["left_out"] for line in found} == {"the episode failed"}
    assert {line["training"]["reward"] for line in found} == {None}
    row = recorded_row(found[0], Counter())
    assert (row.status, row.failure) == ("failed", "rollout: it ran into its deadline")


def test_a_rollout_that_is_full_counts_as_not_solved_as_it_does_in_training(tmp_path: Path) -> None:
    run(tmp_path, replace(UNTAUGHT, max_context=UNTAUGHT.max_tokens + 1))
    row = recorded_row(lines(tmp_path)[0], Counter())
    assert (row.status, row.right, row.truncated_by) == ("ended", 0.0, "context")


def test_a_rollout_without_one_sampled_turn_is_dumped_too(tmp_path: Path) -> None:
    """Where what ran out of context counts, in its first turn."""
    params = AdvantageParams(count_context_cuts=True)
    right, cut = group_of(measure(), measure(0.0, context_cut=True)).trajectories
    nothing = TokenSequence([7, 8], [0.0, 0.0], [False, False])
    group = Group([replace(right, record={}), replace(cut, record={}, sequences=[nothing])])
    batch = training_batch([group], Grpo(params))
    write(tmp_path, 0, [group], batch, replace(DUMPED, advantage=params), print)
    told = [line["training"] for line in read(tmp_path / ROLLOUTS)]
    assert [one["advantage"] is None for one in told] == [False, True]
    assert [one["left_out"] for one in told] == ["", "it ran into a limit"]


# -- the file ----------------------------------------------------------------------------------------------------------


def made_line(step: int, size: int) -> bytes:
    line = {"training": {"step": step}, "filled": ""}
    return json.dumps({**line, "filled": "x" * (size - len(json.dumps(line)) - 1)}).encode() + b"\n"


def steps(path: Path) -> list[int]:
    return [json.loads(line)["training"]["step"] for line in path.read_bytes().splitlines()]


def dump(monkeypatch: pytest.MonkeyPatch, folder: Path, step: int, size: int, said: list[str] | None = None) -> None:
    """A step whose rollouts take so many bytes, where a thousand may be taken."""
    monkeypatch.setattr(group_dumps, "MOST_BYTES", 1000)
    monkeypatch.setattr(group_dumps, "_lines", lambda *_: [{}])
    monkeypatch.setattr(group_dumps, "trajectory_line", lambda _: made_line(step, size))
    batch = TrainingBatch([], [], [], 0, 0)
    write(folder, step, [None], batch, DUMPED, (said if said is not None else []).append)  # type: ignore[list-item]


def test_beyond_its_bound_every_second_step_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(0, 70, 10):
        dump(monkeypatch, tmp_path, step, 200)
        assert (tmp_path / ROLLOUTS).stat().st_size <= 1000
    assert steps(tmp_path / ROLLOUTS) == [0, 20, 40, 50, 60]
    dump(monkeypatch, tmp_path, 70, 900)
    assert steps(tmp_path / ROLLOUTS) == [70]
    said: list[str] = []
    dump(monkeypatch, tmp_path, 80, 1200, said)
    assert steps(tmp_path / ROLLOUTS) == [70]
    assert said == ["step 80: its rollouts to be dumped take 0.0 MB, and 0.001 are kept at most; they are left out"]


def test_a_dump_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ROLLOUTS).mkdir()
    said: list[str] = []
    dump(monkeypatch, tmp_path, 0, 200, said)
    assert said[0].startswith("step 0: its rollouts could not be dumped: ")


def test_only_the_groups_of_dumped_steps_are_recorded() -> None:
    assert [task.job.record for task in chosen_tasks(DUMPED, 4)] == [True, False, False, False]
    none = replace(DUMPED, dump_every=0)
    assert not any(task.job.record for tasks in (chosen_tasks(DUMPED, 5), chosen_tasks(none, 4)) for task in tasks)
