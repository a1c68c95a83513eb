"""What Tau2-v0 is proved by: reference paths reach reward 1, doing nothing and transferring at once reach the known
floors, recorded real runs return their recorded rewards. scripts/prove_tau2.py prints it, the tests demand it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.source import RECORDED, Tau2Source
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.testing.tau2_players import PLAYERS, Replayed, plans, play, replay

SOURCE = "toolorchestra.envs.domains.tau2.source:Tau2Source"
MOST_TURNS = 1000


class Case(NamedTuple):
    """A set of tasks under a kind of user."""

    domain: str
    split: str
    user: str


class Solved(NamedTuple):
    """How many tasks there are, and how many of them each player solves."""

    tasks: int
    gold: int
    nothing: int
    transfer: int


EXPECTED: Mapping[Case, Solved] = {
    Case("airline", "base", "scripted"): Solved(50, 50, 19, 19),
    Case("airline", "train", "scripted"): Solved(30, 30, 13, 13),
    Case("airline", "test", "scripted"): Solved(20, 20, 6, 6),
    Case("retail", "base", "scripted"): Solved(114, 114, 7, 7),
    Case("retail", "train", "scripted"): Solved(74, 74, 5, 5),
    Case("retail", "test", "scripted"): Solved(40, 40, 2, 2),
    Case("telecom", "base", "scripted"): Solved(114, 114, 0, 20),
    Case("telecom", "train", "scripted"): Solved(74, 74, 0, 8),
    Case("telecom", "test", "scripted"): Solved(40, 40, 0, 12),
    Case("telecom", "small", "scripted"): Solved(20, 20, 0, 2),
    Case("telecom", "full", "scripted"): Solved(2285, 2285, 0, 32),
    Case("telecom-workflow", "base", "scripted"): Solved(114, 114, 0, 20),
    Case("telecom", "base", "none"): Solved(114, 114, 0, 20),
    Case("telecom", "full", "none"): Solved(2285, 2285, 0, 32),
    Case("mock", "base", "scripted"): Solved(9, 8, 1, 2),
    Case("mock", "base", "none"): Solved(6, 6, 1, 2),
}


def made(user: str, *, strict: bool = False, **settings: Any) -> tuple[OrchestraEnv, Tau2Source]:
    """An environment with its source."""
    env = OrchestraEnv(SOURCE, user=user, strict_compat=strict, preference="none", max_turns=MOST_TURNS, **settings)
    source = env.factory.source
    if not isinstance(source, Tau2Source):
        raise ConfigError(f"{SOURCE} made a {type(source).__name__}")
    return env, source


def winners(case: Case, player: str, *, strict: bool = False) -> list[str]:
    """The benchmark's ids of the tasks that a player solves."""
    env, source = made(case.user, strict=strict, domain=case.domain, split=case.split)
    act = PLAYERS[player]
    tasks = plans(source, case.split)
    return [
        plan.task_id
        for task_id, plan in tasks.items()
        if play(env, task_id, act(plan, solo=case.user == "none")).reward == 1.0
    ]


def count(case: Case, *, strict: bool = False) -> Solved:
    """Counts the tasks of a case, and how many of them each player solves."""
    _, source = made(case.user, domain=case.domain, split=case.split)
    return Solved(len(source.ids(case.split)), *(len(winners(case, player, strict=strict)) for player in PLAYERS))


@dataclass(frozen=True, slots=True)
class ReplayResults:
    """What came of recorded runs that were played again."""

    runs: Sequence[Replayed]

    @property
    def complete(self) -> bool:
        """Whether every reward came back, and every part of it that was recorded."""
        return bool(self.runs) and all(run.agrees for run in self.runs)

    def __str__(self) -> str:
        recorded = Counter(part for run in self.runs for part in run.run.parts or ())
        agreed = Counter(
            part for run in self.runs for part, value in (run.run.parts or {}).items() if run.parts.get(part) == value
        )
        lines = [
            f"{sum(run.reward == run.run.reward for run in self.runs)}/{len(self.runs)} rewards",
            *(f"{part} {agreed[part]}/{number}" for part, number in sorted(recorded.items())),
            f"{sum(run.outputs_equal for run in self.runs)}/{sum(run.outputs for run in self.runs)} tool outputs",
        ]
        return ", ".join(lines)


def replay_all(recordings: str, *, strict: bool = False) -> ReplayResults:
    """Replay every run of a file."""
    env, source = made(
        "replay", strict=strict, domain="all", split=RECORDED, recordings=recordings, max_steps=None, max_errors=None
    )
    return ReplayResults([replay(env, source, task_id) for task_id in source.ids(RECORDED)])
