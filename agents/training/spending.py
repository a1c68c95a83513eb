"""What real models cost a training run: counted over all its lives, and held to its spend cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import simulated
from toolorchestra.agents.evaluation.rows import PAID
from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.prices import MOST_USD
from toolorchestra.envs.money.spend_cap import SpendCap


def paid_by_one(config: TrainConfig, say: Callable[[str], None]) -> TrainConfig:
    """The same run, with one process that plays where real models are paid: a spend cap counts within one."""
    if simulated(config) or config.model.processes == 1:
        return config
    say("real models are paid by one process, which counts what they cost: model.processes=1")
    return replace(config, model=replace(config.model, processes=1))


@contextmanager
def counted(config: TrainConfig, folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Count what real models cost while this lasts, beside what earlier lives of the run have paid, and tell it at the
    end."""
    if simulated(config):
        yield
        return
    cap = SpendCap(MOST_USD if config.spend_cap is None else config.spend_cap)
    for charges in SpendJournal.left(folder / PAID).values():
        for charge in charges:
            cap.add(charge.nano_usd, unconfirmed=charge.usage.unconfirmed)
    token = JOURNAL.set(SpendJournal(folder / PAID, cap))
    try:
        yield
    finally:
        JOURNAL.reset(token)
        unconfirmed = f", {cap.unconfirmed_usd:.9f} $ of it unconfirmed" if cap.unconfirmed_usd else ""
        say(f"paid to real models: {cap.spent_usd:.9f} ${unconfirmed}")
