"""How good a fit is: each fact of the recording beside what simulations by the fit have, and what it could foretell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from toolorchestra.agents.calibration.facts import facts
from toolorchestra.agents.calibration.fit import MOST_DRAWN, Fit, narrowing, sample, shared
from toolorchestra.agents.calibration.held_out import coverage, families_left_out, models_left_out
from toolorchestra.agents.calibration.normal import percentiles
from toolorchestra.agents.calibration.simulate import simulated
from toolorchestra.envs.base.errors import ConfigError

SIMULATIONS = 100
ENDS = (2.5, 97.5)


class Compared(NamedTuple):
    """A fact, recorded and simulated."""

    fact: str
    recorded: float
    simulated: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.recorded <= self.high


def compared(made: Fit, simulations: int = SIMULATIONS) -> list[Compared]:
    """Every fact that the recording can say. Of many tasks, some are simulated, and their ends drawn together as the
    intervals of the fit are."""
    recorded, narrow = facts(made.rows), narrowing(len(made.rows.tasks))
    some = sample(made)
    drawn = [facts(simulated(some, seed)) for seed in range(simulations)]
    rows = []
    for name, value in recorded.items():
        found = np.array([one[name] for one in drawn if name in one] or [np.nan])
        mean = float(np.nanmean(found))
        low, high = (mean + narrow * (float(end) - mean) for end in percentiles(found, ENDS))
        rows.append(Compared(name, value, mean, low, high))
    return rows


def page(made: Fit, simulations: int = SIMULATIONS) -> str:
    """How good the fit is, as a page in Markdown."""
    return "\n".join([*_head(made), *_facts(compared(made, simulations)), *_left_out(made), ""])


def _head(made: Fit) -> Iterator[str]:
    rows = made.rows
    families, models = len(rows.family_names), len(rows.models)
    yield f"{len(rows):,} rows: {len(rows.tasks):,} tasks of {families} families, {models} models."
    if len(rows.tasks) > MOST_DRAWN:
        yield (
            f"The values are of all rows. Intervals and simulations take {MOST_DRAWN:,} of the tasks at a time, and "
            f"are narrowed to what all tasks tell. What is left out below is foretold for {MOST_DRAWN:,} of the tasks."
        )
    for sentence in made.warnings:
        yield f"- Warning: {sentence}."
    yield from ("", "| shared by all models | value | 95 % interval (tasks drawn anew) |", "| --- | --- | --- |")
    for name in shared(made):
        if name in made.intervals:
            value, low, high = made.intervals[name]
            yield f"| {name} | {value:.2f} | {low:.2f} to {high:.2f} |"


def _facts(rows: Sequence[Compared]) -> Iterator[str]:
    yield from ("", "| fact | recorded | simulated | 95 % of simulations |  |", "| --- | --- | --- | --- | --- |")
    for row in rows:
        mark = "" if row.inside else "outside"
        yield f"| {row.fact} | {row.recorded:.3f} | {row.simulated:.3f} | {row.low:.3f} to {row.high:.3f} | {mark} |"


def _left_out(made: Fit) -> Iterator[str]:
    """What was foretold of families and models that the fit had not seen."""
    made = sample(made)
    try:
        families = families_left_out(made.rows)
    except ConfigError as err:
        yield from ("", f"No family could be left out: {err}.")
    else:
        yield from ("", "| left out | rates of models in their 95 % intervals | mean width |", "| --- | --- | --- |")
        for name, found in families.items():
            width = np.mean([one.high - one.low for one in found])
            yield f"| {name or 'all'} | {coverage(found):.0%} of {len(found)} | {width:.2f} |"
    if made.success.repeated:
        found = models_left_out(made.rows)
        text = f"{coverage(found):.0%} of {len(found)} numbers lie in their 95 % intervals"
        yield from ("", f"Models left out one by one, shares of tasks never, always and sometimes solved: {text}.")
