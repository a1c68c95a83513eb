"""What a run would cost, before anything is spent: from an earlier run, or from simulated plays of the same tasks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from toolorchestra.agents.evaluation.rows import EvaluationRow, bill_of, read_rows
from toolorchestra.agents.evaluation.runs import Contest
from toolorchestra.agents.evaluation.statistics import Z
from toolorchestra.agents.evaluation.trials import Trial
from toolorchestra.agents.policies.base import PlayerOptions, unreal
from toolorchestra.agents.policies.baselines import PREFIX as ALWAYS
from toolorchestra.agents.policies.players import NAMES, playable, player
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

SAMPLED_TASKS = 20
LOW, HIGH = "cheapest", "strongest"
"""Players of the simulated tasks in place of a model: a run will hardly cost less than the one, or more than the
other."""


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


def estimated(contest: Contest, like: Sequence[Path], at_once: int, *, learns: bool = False) -> CostEstimate:
    """Estimate one contest, by the folders of earlier runs (`like`) or by simulated plays. A policy that `learns` while
    it plays may come to play any way. Raises ConfigError where neither says anything."""
    name = f"{contest.env} {contest.split} {contest.policy}"
    if like:
        rows = [row for folder in like for row in read_rows(folder) if row.status == "ended"]
        ended = [row for row in rows if (row.env, row.policy) == (contest.env, contest.policy)]
        named = ", ".join(map(str, like))
        if not ended:
            raise ConfigError(f"{named} has no trial of {contest.policy} on {contest.env} that ended; name another run")
        return _summed(name, contest, f"{len(ended)} trials of {named}", ended, ended, at_once)
    source, settings = _simulated(contest.made.source), contest.made.settings
    if source is None:
        raise ConfigError(
            f"nothing says what {name} costs; play a few of its tasks first, and name the folder of that run in like",
            command_line="--tasks 5 --out FOLDER, and then --estimate FOLDER",
        )
    at_its_prices = replace(settings, spend_cap=None, prices=contest.made.sheet)
    simulated = EpisodeFactory(source, at_its_prices, {})
    ruled = (contest.policy in NAMES or contest.policy.startswith(ALWAYS)) and not playable(contest.policy, simulated)
    who = (contest.policy,) if ruled and not learns else (LOW, HIGH)
    asked, sampled = not ruled or unreal(contest.made), contest.trials[:SAMPLED_TASKS]
    plays = [asyncio.run(_plays(simulated, one, contest, sampled, asked=asked)) for one in who]
    basis = f"simulated plays of {len(sampled)} of its tasks, by {' and by '.join(who)}"
    return _summed(name, contest, basis, plays[0], plays[-1], at_once)


def _simulated(source: object) -> QaSource | None:
    """The same source over simulated experts; None where they know no answer, or have no row for a model."""
    if isinstance(source, QaSource) and source.dataset is None:
        with suppress(ConfigError):
            return replace(source, backends=None)
    return None


async def _plays(
    made: EpisodeFactory, name: str, contest: Contest, trials: Sequence[Trial], *, asked: bool
) -> list[EvaluationRow]:
    """Rows of simulated plays, billed by the contest's sheet; without the orchestrator where no model is asked to be
    one."""
    who, gates, rows = player(name, made, 0, PlayerOptions(fit_tasks=SAMPLED_TASKS)), Gates(), []
    sheet = contest.made.start(trials[0].seed).episode.sheet
    for trial in trials:
        episode = made.start(trial.seed).episode
        await begin(episode, gates)
        while not episode.over:
            await advance(episode, (await who.move(episode)).text, gates)
        charges = [one for one in episode.ledger.reprice(sheet) if asked or one.usage.role != ORCHESTRATOR]
        rows.append(
            EvaluationRow(
                *trial.key, trial.seed, "failed", None, elapsed_ns=episode.ledger.elapsed_ns, **bill_of(charges),
                calls=dict(episode.calls),
            )
        )  # fmt: skip
    return rows


def _summed(
    name: str, contest: Contest, basis: str, low: Sequence[EvaluationRow], high: Sequence[EvaluationRow], at_once: int
) -> CostEstimate:
    count, both = len(contest.trials), [*low, *high]
    lanes = min(at_once, count)
    roles = list(dict.fromkeys(role for row in both for role in row.nano_usd_by_role))

    def ranged(of: Callable[[EvaluationRow], float]) -> tuple[float, float, float]:
        return _range([of(row) for row in low], [of(row) for row in high], count)

    usd = {role: ranged(lambda row, role=role: row.nano_usd_by_role.get(role, 0) / NANO) for role in roles}  # type: ignore[misc]
    usd["all"] = ranged(lambda row: row.usd)
    return CostEstimate(
        name,
        count,
        basis,
        usd,
        {role: count * fmean([sum(row.tokens.get(role, ())) for row in both]) for role in roles},
        count * fmean([sum(row.calls.values()) for row in both]),
        ranged(lambda row: row.minutes / lanes),
    )


def _range(low: Sequence[float], high: Sequence[float], count: int) -> tuple[float, float, float]:
    """Give from, likely and to, of so many trials: where both are one sample, where their sum is with 95 %."""
    likely = fmean([*low, *high])
    if low != high:
        least, most = sorted((fmean(low), fmean(high)))  # the cheaper player may be the slower
        return count * least, count * likely, count * most
    squares = sum((value - likely) ** 2 for value in low) / max(1, len(low) - 1)
    reach = Z * math.sqrt(squares * (1 / len(low) + 1 / count))
    return count * max(0.0, likely - reach), count * likely, count * (likely + reach)
