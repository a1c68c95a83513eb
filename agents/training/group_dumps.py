"""A few groups of rollouts as they were trained on, to read afterwards: the run's page shows them.

One line for each rollout in the form of RecordTrajectories, under "training" with the step, the group, the reward, the
advantage, and why it taught nothing. Nothing of the run depends on the file, which keeps its bound by dropping every
second of the steps it has.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.rollouts.grpo import (
    AdvantageParams,
    Advantages,
    Group,
    Measure,
    RewardBreakdown,
    TrainingBatch,
)
from toolorchestra.agents.training import metrics
from toolorchestra.envs.base.files import append_line, keep_lines
from toolorchestra.envs.wrappers.record import trajectory_line

ROLLOUTS = "rollouts.jsonl"
POLICY = "policy"
MOST_BYTES = 50_000_000
"""Bytes that the file may take; beyond it every second of the dumped steps goes."""


def write(
    folder: Path,
    step: int,
    groups: Sequence[Group],
    batch: TrainingBatch,
    config: TrainConfig,
    say: Callable[[str], None],
) -> None:
    """Add the groups of a step whose rollouts were recorded. What cannot be written is said, and stops nothing."""
    told = [line for place, group in enumerate(groups) for line in _lines(step, place, group, batch, config)]
    if not told:
        return
    lines, path = b"".join(map(trajectory_line, told)), folder / ROLLOUTS
    if len(lines) > MOST_BYTES:
        size, most = len(lines) / 1e6, f"{MOST_BYTES / 1e6:g} are kept at most; they are left out"
        say(f"step {step}: its rollouts to be dumped take {size:.1f} MB, and {most}")
        return
    try:
        _shorten(path, MOST_BYTES - len(lines))
        append_line(path, lines)
    except OSError as err:
        say(f"step {step}: its rollouts could not be dumped: {err}")


def rewind(folder: Path, step: int) -> None:
    """Drop what stands there of this step and later ones, which a resumed run makes again, and torn lines."""
    keep_lines(folder / ROLLOUTS, lambda row: _step_of(row) < step)


def _lines(step: int, place: int, group: Group, batch: TrainingBatch, config: TrainConfig) -> list[dict[str, Any]]:
    rewards, given = batch.rewards[place], batch.advantages[place]
    totals = [reward.total for reward in rewards if reward is not None]
    shared = {"step": step, "group": place, "spread": statistics.stdev(totals) if len(totals) > 1 else None}
    made = []
    for number, rollout in enumerate(group.trajectories):
        if rollout.record is None:
            continue
        reward, measure = rewards[number], rollout.measure
        advantage = given[number] or None  # of no turn, where the first one ran out of context
        training = {
            **shared,
            "rollout": number,
            "reward": None if reward is None else reward.total,
            "parts": {} if reward is None else reward.parts,
            "advantage": None if advantage is None else statistics.fmean(advantage),
            "left_out": why_left_out(reward, advantage, measure, totals, config.advantage),
            "valid_format": measure.valid_format,
            "valid_output": measure.valid_output,
            "sampled_tokens": rollout.sampled_tokens,
        }
        env = rollout.env_id.rpartition("/")[2]
        made.append({"training": training, "policy": POLICY, "env": env, **rollout.record})
    return made


def why_left_out(
    reward: RewardBreakdown | None,
    advantage: Advantages | None,
    measure: Measure,
    totals: Sequence[float],
    params: AdvantageParams,
) -> str:
    """Why a rollout taught nothing; "" where it taught something. `totals` are all rewards of its group."""
    if advantage is not None:
        return ""
    if reward is None:
        return "the episode failed" if measure.failed else "it ran out of context"
    if len(totals) < 2:
        return "no other rollout of the group has a reward"
    if statistics.stdev(totals) <= params.least_spread:
        return "the rewards of the group differ too little"
    if params.unreadable == "dropped" and not measure.valid_format:
        return "a turn could not be read"
    return "it ran into a limit"


# -- the file's bound --------------------------------------------------------------------------------------------------


def _shorten(path: Path, most: int) -> None:
    while path.is_file() and path.stat().st_size > most:
        _halve(path)


def _halve(path: Path) -> None:
    steps = sorted({_step_of(row) for row in metrics.read(path)})
    kept = set(steps[::2]) if len(steps) > 1 else set()
    keep_lines(path, lambda row: _step_of(row) in kept)


def _step_of(row: Mapping[str, Any]) -> int:
    return int(row["training"]["step"])
