"""One trial of a task: which ones there are to play, and what playing one comes to."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolorchestra.agents.evaluation.rows import EvaluationRow, Status, bill_of
from toolorchestra.envs.base.errors import ConfigError, WrongSetting
from toolorchestra.envs.base.terminal import one_line
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.factory import EpisodeFactory, Started
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.runtime.driver import advance, begin
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.wrappers.record import trajectory

FAILURE_CHARACTERS = 500
_APART = 1_000_003
"""Between the seeds of a task's trials."""
_GROUPS = ("subject", "level", "hops", "domain", "difficulty")
_OPENING = ("task", "preference", "budget", "budget_rule", "price_sheet")
"""What the trajectory keeps of what an episode's start told."""
_CAP_REFUSED = ("the spend cap was used up", "nothing was sent")
"""What a failure says where the spend cap is its cause."""
_TRIES = 20
"""Draws for each new task, where most have been drawn already."""


Policy = Callable[[Episode], Awaitable[tuple[str, Usage | None]]]


@dataclass(frozen=True)
class Trial:
    """One task that one policy is to play once."""

    env: str
    split: str
    policy: str
    task: str
    number: int
    seed: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """As its row has it."""
        return (self.env, self.split, self.policy, self.task, self.number)


class PlayedTrial(NamedTuple):
    """What a trial came to."""

    row: EvaluationRow
    trajectory: dict[str, Any]
    wrong: ConfigError | None = None
    """What is wrong with the run's settings, where that made it fail: the other trials would fail by it too."""


def tasks_of(made: EpisodeFactory, tasks: int, seed: int) -> list[tuple[str, int]]:
    """So many different tasks of the environment's split, each with the seed of its first trial. A source that can list
    its tasks gives the first ones; of any other they are drawn, by seeds that count on from `seed`."""
    source: Any = made.source
    split = made.settings.split
    listed = _listed(source, split)
    if listed is not None:
        return [(task, seed + number) for number, task in enumerate(listed[:tasks])]
    found: dict[str, int] = {}
    for number in range(tasks * _TRIES):
        if len(found) == tasks:
            break
        found.setdefault(source.draw(split, random.Random(seed + number)), seed + number)
    return list(found.items())


def _listed(source: Any, split: str) -> Sequence[str] | None:
    """The ids of a split; None where they are generated without end, or listed by domain alone."""
    if not hasattr(source, "ids"):
        return None
    try:
        return list(source.ids(split))
    except (ConfigError, TypeError):
        return None


def trials_of(env: str, made: EpisodeFactory, policy: str, tasks: int, seed: int, trials: int) -> list[Trial]:
    """Every trial of a policy on an environment's split: all tasks once, then all of them again."""
    found = tasks_of(made, tasks, seed)
    split = made.settings.split
    return [
        Trial(env, split, policy, task, number, first + number * _APART)
        for number in range(trials)
        for task, first in found
    ]


async def play(
    trial: Trial, made: EpisodeFactory, policy: Policy, gates: Gates, watch: Callable[[Episode], None] | None = None
) -> PlayedTrial:
    """Play a trial to its end. `watch` is told of its episode when that begins. Whatever breaks down, this trial alone
    fails; a wrong setting is told beside it, for it would fail all."""
    try:
        started = made.start(trial.seed, {"task_id": trial.task})
    except Exception as err:  # noqa: BLE001 - a task that cannot be opened is one failed trial
        row = EvaluationRow(*trial.key, trial.seed, "failed", None, failure=_told("opening", err))
        nothing = {"key": list(trial.key), "task_id": trial.task, "seed": trial.seed, "messages": [], "charges": [],
                   "rewards": [], "outcome": None, "totals": {}}  # fmt: skip
        return PlayedTrial(row, nothing, err if isinstance(err, ConfigError) else None)
    if watch is not None:
        watch(started.episode)
    return await _played(trial, started, policy, gates)


async def _played(trial: Trial, started: Started, policy: Policy, gates: Gates) -> PlayedTrial:
    episode = started.episode
    turns: list[int] = []
    rewards: list[float] = []
    failure, wrong = "", None
    last: Step | None = None
    where = "opening"
    try:
        await begin(episode, gates)
        while not episode.over:
            where = "policy"
            text, usage = await policy(episode)
            if not isinstance(text, str):
                raise TypeError(f"a move is a text, got {type(text).__name__}")
            where = "step"
            last = await advance(episode, text, gates, usage)
            rewards.append(last.reward)
            turns += [episode.turn] * (len(episode.ledger) - len(turns))
    except Exception as err:  # noqa: BLE001 - the other trials go on
        failure, wrong = _told(where, err), err if isinstance(err, ConfigError) else None
        episode.settle_policy()
    turns += [episode.turn] * (len(episode.ledger) - len(turns))
    if episode.failure:
        failure = one_line(f"{episode.failure.where}: {episode.failure.error}")[:FAILURE_CHARACTERS]
        wrong = wrong or (WrongSetting(episode.failure.setting) if episode.failure.setting else None)
    info = last.info if last is not None else {}
    row = _row(trial, started, info, failure)
    terminated = last is not None and last.terminated
    told = {name: started.info[name] for name in _OPENING if name in started.info}
    shown = {"key": list(trial.key), "reset_seed": trial.seed, **told}
    return PlayedTrial(row, trajectory(episode, shown, turns, rewards, info, terminated=terminated), wrong)


def _told(where: str, err: Exception) -> str:
    return one_line(f"{where}: {type(err).__name__}: {err}")[:FAILURE_CHARACTERS]


def _row(trial: Trial, started: Started, info: Mapping[str, Any], failure: str) -> EvaluationRow:
    episode = started.episode
    status = _status(episode, info, failure)
    outcome = episode.outcome if status == "ended" else None
    evidence = dict(outcome.evidence) if outcome else {}
    told = {**evidence, **started.info["task"]}
    return EvaluationRow(
        *trial.key[:4],
        trial.number,
        trial.seed,
        status,
        outcome.value if outcome else None,
        evidence,
        failure,
        info.get("truncated_by", ""),
        episode.turn,
        episode.ledger.elapsed_ns,
        **bill_of([*episode.ledger]),
        calls=dict(episode.calls),
        models={offer.alias: offer.model for tool in episode.world.toolbox for offer in tool.offers},
        groups={name: str(told[name]) for name in _GROUPS if name in told},
        preference=_wish(episode),
        over_budget_usd=info.get("over_budget_usd", 0.0),
        sheet=episode.sheet.sheet_id,
        digest=digest_of(episode),
    )


def _status(episode: Episode, info: Mapping[str, Any], failure: str) -> Status:
    cap = episode.rules.spend_cap
    broken = failure or not episode.over or episode.outcome is None
    refused = any(words in failure for words in _CAP_REFUSED)
    cut = info.get("truncated_by") == "spend_cap" or bool(broken and cap is not None and cap.used_up and refused)
    return "cut" if cut else "failed" if broken else "ended"


def _wish(episode: Episode) -> dict[str, Any]:
    wish = episode.preference
    return {"kind": wish.kind, "weights": wish.weights(), "sentence": wish.sentence} if wish.sentence else {}


def digest_of(episode: Episode) -> str:
    """Of the transcript, every charge and the outcome: equal where two episodes are."""
    parts = [str([dict(m) for m in episode.messages]), str(list(episode.ledger)), str(episode.ledger.elapsed_ns)]
    outcome = episode.outcome
    parts.append(str(outcome and (outcome.value, dict(outcome.evidence))))
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
