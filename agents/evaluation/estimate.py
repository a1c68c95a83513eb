"""What a run would cost, before anything is spent: from an earlier run, or from simulated plays of the same tasks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolorchestra.agents.evaluation.rows import EvaluationRow, bill_of, read_rows
from toolorchestra.agents.evaluation.runs import Contest
from toolorchestra.agents.evaluation.statistics import Z
from toolorchestra.agents.policies.base import PlayerOptions, unreal
from toolorchestra.agents.policies.baselines import PREFIX as ALWAYS
from toolorchestra.agents.policies.players import NAMES, playable, player
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, PriceSheet
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

SAMPLED_TASKS = 20
LOW, HIGH = "cheapest", "strongest"
"""Players of the simulated tasks in place of a model: a run will hardly cost less than the one, or more than the
other."""


@dataclass(frozen=True)
class OneTrial:
    """What a trial came to, or may come to."""

    nano_usd: Mapping[str, int]
    """Cost by role."""
    tokens: Mapping[str, Sequence[int]]
    """Tokens by role and class."""
    seconds: float
    calls: int


@dataclass(frozen=True)
class CostEstimate:
    """What a contest may cost: of each figure from, likely, to."""

    contest: str
    trials: int
    basis: str
    """What it was made of, in words."""
    usd: Mapping[str, tuple[float, float, float]]
    """Dollars by role, and under "all"."""
    tokens: Mapping[str, float]
    """Tokens by role: the likely number."""
    calls: float
    minutes: tuple[float, float, float]

    def __str__(self) -> str:
        low, likely, high = self.usd["all"]
        roles = ", ".join(f"{role} {dollars[1]:.4g}" for role, dollars in self.usd.items() if role != "all")
        tokens = ", ".join(f"{role} {count:,.0f}" for role, count in self.tokens.items() if count)
        low_minutes, likely_minutes, high_minutes = self.minutes
        return "\n".join([
            f"{self.contest}: {self.trials} trials, by {self.basis}",
            f"  $ {likely:.4g} ({low:.4g} to {high:.4g}); by role: {roles}",
            f"  calls {self.calls:,.0f}; tokens: {tokens}",
            f"  minutes {likely_minutes:.3g} ({low_minutes:.3g} to {high_minutes:.3g})",
        ])  # fmt: skip


def _simulated(made: EpisodeFactory) -> EpisodeFactory | None:
    """The same environment with nothing real behind it, at the prices of the backends file; None where simulated
    experts know no answer."""
    source = made.source
    if not isinstance(source, QaSource) or source.dataset is not None:
        return None
    return EpisodeFactory(type(source)(source.tools), replace(made.settings, spend_cap=None, prices=made.sheet), {})


def estimated(contest: Contest, like: Sequence[Path], at_once: int, *, learns: bool = False) -> CostEstimate:
    """Estimate one contest, by the folders of earlier runs (`like`) or by simulated plays. A policy that `learns` while
    it plays may come to play any way. Raises ConfigError where neither says anything."""
    name = f"{contest.env} {contest.split} {contest.policy}"
    if like:
        rows = [row for folder in like for row in read_rows(folder) if row.status == "ended"]
        ended = [_of_row(row) for row in rows if (row.env, row.policy) == (contest.env, contest.policy)]
        named = ", ".join(map(str, like))
        if not ended:
            raise ConfigError(f"{named} has no trial of {contest.policy} on {contest.env} that ended; name another run")
        return _summed(name, contest, f"{len(ended)} trials of {named}", ended, ended, at_once)
    simulated = _simulated(contest.made)
    if simulated is None:
        raise ConfigError(
            f"nothing says what {name} costs; play a few of its tasks first, and name the folder of that run in like",
            command_line="--tasks 5 --out FOLDER, and then --estimate FOLDER",
        )
    seeds = [trial.seed for trial in contest.trials[:SAMPLED_TASKS]]
    ruled = (contest.policy in NAMES or contest.policy.startswith(ALWAYS)) and not playable(contest.policy, simulated)
    who = (contest.policy,) if ruled and not learns else (LOW, HIGH)
    sheet, asked = contest.made.start(seeds[0]).episode.sheet, not ruled or unreal(contest.made)
    plays = [_trials(asyncio.run(_episodes(simulated, name, seeds)), sheet, asked=asked) for name in who]
    basis = f"simulated plays of {len(seeds)} of its tasks, by {' and by '.join(who)}"
    return _summed(name, contest, basis, plays[0], plays[-1], at_once)


async def _episodes(made: EpisodeFactory, name: str, seeds: Sequence[int]) -> list[Episode]:
    """Episodes of simulated experts, played to their end."""
    who, gates, ended = player(name, made, 0, PlayerOptions(fit_tasks=SAMPLED_TASKS)), Gates(), []
    for seed in seeds:
        episode = made.start(seed).episode
        await begin(episode, gates)
        while not episode.over:
            await advance(episode, (await who.move(episode)).text, gates)
        ended.append(episode)
    return ended


def _trials(episodes: Sequence[Episode], sheet: PriceSheet, *, asked: bool) -> list[OneTrial]:
    """Bills of episodes under another price sheet; without the orchestrator where no model is asked to be one."""
    trials = []
    for episode in episodes:
        charges = [one for one in episode.ledger.reprice(sheet) if asked or one.usage.role != ORCHESTRATOR]
        bill = bill_of(charges)
        calls = sum(episode.calls.values())
        trials.append(OneTrial(bill["nano_usd_by_role"], bill["tokens"], episode.ledger.seconds, calls))
    return trials


def _of_row(row: EvaluationRow) -> OneTrial:
    return OneTrial(row.nano_usd_by_role, row.tokens, row.seconds, sum(row.calls.values()))


def _summed(
    name: str, contest: Contest, basis: str, low: Sequence[OneTrial], high: Sequence[OneTrial], at_once: int
) -> CostEstimate:
    count, both = len(contest.trials), [*low, *high]
    lanes = min(at_once, count)
    roles = list(dict.fromkeys(role for one in both for role in one.nano_usd))

    def ranged(of: Callable[[OneTrial], float]) -> tuple[float, float, float]:
        return _range([of(one) for one in low], [of(one) for one in high], count)

    usd = {role: ranged(lambda one, role=role: one.nano_usd.get(role, 0) / NANO) for role in roles}  # type: ignore[misc]
    usd["all"] = ranged(lambda one: sum(one.nano_usd.values()) / NANO)
    minutes = ranged(lambda one: one.seconds / 60 / lanes)
    return CostEstimate(
        name,
        count,
        basis,
        usd,
        {role: count * _mean(sum(one.tokens.get(role, ())) for one in both) for role in roles},
        count * _mean(one.calls for one in both),
        minutes,
    )


def _range(low: Sequence[float], high: Sequence[float], count: int) -> tuple[float, float, float]:
    """Give from, likely and to, of so many trials: where both are one sample, where their sum is with 95 %."""
    likely = _mean([*low, *high])
    if low != high:
        return count * _mean(low), count * likely, count * _mean(high)
    squares = sum((value - likely) ** 2 for value in low) / max(1, len(low) - 1)
    reach = Z * math.sqrt(squares * (1 / len(low) + 1 / count))
    return count * max(0.0, likely - reach), count * likely, count * (likely + reach)


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return sum(kept) / len(kept) if kept else 0.0
