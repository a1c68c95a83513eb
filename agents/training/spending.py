"""What real models cost a training run: estimated before, counted over all its lives, and held to its spend cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.environments import simulated, training
from toolorchestra.agents.evaluation.estimate import SAMPLED_TASKS, CostEstimate, estimated
from toolorchestra.agents.evaluation.rows import PAID
from toolorchestra.agents.evaluation.runs import Contest
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.players import player
from toolorchestra.agents.training.demonstrations import TRIES
from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.prices import MOST_USD, ORCHESTRATOR
from toolorchestra.envs.money.spend_cap import SpendCap

PAID_BY_ONE = "real models are paid by one process, which counts what they cost"


def paid_by_one(config: TrainConfig, say: Callable[[str], None]) -> TrainConfig:
    """The same run, with one process that plays where real models are paid: a spend cap counts within one."""
    if simulated(config.environments) or config.model.processes == 1:
        return config
    say(f"{PAID_BY_ONE}: model.processes=1")
    return replace(config, model=replace(config.model, processes=1))


@contextmanager
def counted(
    mixes: Sequence[EnvMix], spend_cap: float | None, folder: Path, say: Callable[[str], None]
) -> Iterator[None]:
    """Count what real models cost while this lasts, beside what earlier lives of the run have paid, and tell it at the
    end."""
    if simulated(mixes):
        yield
        return
    cap = SpendCap(MOST_USD if spend_cap is None else spend_cap)
    for charges in SpendJournal.left(folder / PAID).values():
        for charge in charges:
            cap.add(charge.nano_usd, unconfirmed=charge.usage.unconfirmed)
    token = JOURNAL.set(SpendJournal(folder / PAID, cap))
    try:
        yield
    finally:
        JOURNAL.reset(token)
        unconfirmed = f", {cap.unconfirmed_usd:.9f} $ of it unconfirmed" if cap.unconfirmed_usd else ""
        if cap.spent_usd or spend_cap is not None:  # tools of one's own may have asked no model at all
            say(f"billed, and paid where models and tools are real: {cap.spent_usd:.9f} ${unconfirmed}")


# -- before anything is spent ------------------------------------------------------------------------------------------


def episodes_of(config: TrainConfig) -> float:
    """How many episodes the run plays before its report: for the supervised start, its gate, the steps and what is held
    out, which is played before the first step, every so many steps and after the last one."""
    start, step = config.warm_start, config.groups * config.rollouts
    shown = start.demonstrations if start.steps and not start.trajectories else 0
    shown *= TRIES + 1 if start.planned else 1
    evaluations = 1 + math.ceil(config.steps / config.evaluate_every)
    looked_at = evaluations * config.evaluation_tasks * len(config.environments)
    return shown + step * (config.steps + bool(start.steps and start.gate)) + looked_at


def estimate_of(config: TrainConfig, like: Sequence[Path], reported: int) -> str:
    """What the run may pay to real models, in a sentence: each environment's part of its episodes, `reported` of the
    report among them, at what one costs. The orchestrator is the model that is trained, and is paid by nobody."""
    episodes = episodes_of(config) + reported
    paid = paid_for(config.environments, config.seed, like, lambda one: episodes / one.trials)
    return f"{episodes:,.0f} episodes: {paid}"


def paid_for(mixes: Sequence[EnvMix], seed: int, like: Sequence[Path], times: Callable[[CostEstimate], float]) -> str:
    """Dollars of `times` as many plays of each environment as its estimate is of, each by its weight, in words."""
    total, low, likely, high = sum(mix.weight for mix in mixes), 0.0, 0.0, 0.0
    for mix in mixes:
        made, name = training(mix), mix.env_id.rpartition("/")[2]
        trials = trials_of(name, made, "random", SAMPLED_TASKS, seed, 1)
        contest = Contest(name, mix.train, "random", made, player("random", made), trials)
        one = estimated(contest, like, len(trials), learns=True)
        part = times(one) * mix.weight / total
        paid = [usd for role, usd in one.usd.items() if role not in ("all", ORCHESTRATOR)]
        low, likely, high = (
            so_far + part * sum(usd[at] for usd in paid) for at, so_far in enumerate((low, likely, high))
        )
    return f"$ {likely:.4g} ({low:.4g} to {high:.4g}), an estimate; nothing was spent"
