"""How far play follows a preference: on the same tasks, under the preference and under a reference, how much of what
the preference names has changed in its favour. Made of rows alone.

The reference is play without a preference; where a policy has none of the same environment and split, play under a
balanced one. A preference names what it weighs more than the reference does: dollars, seconds, or calls of tools. Only
trials that ended count, and only under the same price sheet; a task is one pair, with the means of its trials on either
side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

from toolorchestra.agents.evaluation.rows import Cell, EvaluationRow, grouped
from toolorchestra.agents.evaluation.statistics import Interval, mean_interval, ratio_interval
from toolorchestra.envs.base.preference import ACCURATE, GENERAL

NO_PREFERENCE, BALANCED = "none", "balanced"
Rows = Sequence[EvaluationRow]
_PREFERENCE = re.compile(r", preference=[^,]*")


PreferenceMeasure = Literal["usd", "seconds", "calls"]
"""What a preference names: the agent's bill, the episode's time, or the share of the calls that go to certain tools."""


@dataclass(frozen=True)
class PreferenceEffect:
    """How far a policy follows one kind of preference in one thing that it names, against a reference on the same
    tasks."""

    env: str
    split: str
    policy: str
    preference: str
    """Kind of the preference."""
    reference: str
    """The kind of preference that it is held against; "none" for play without one."""
    measure: PreferenceMeasure
    tasks: int
    """Played to their end on both sides, under one price sheet."""
    left_out: int
    """Played under the preference, and not so."""
    before: float
    """Value under the reference: cents, seconds, or the named tools' share of the calls; a mean over tasks."""
    after: float
    """The same under the preference."""
    followed: float
    """Above 0: the share of cents or seconds that was saved, or by how much the share of the calls grew."""
    interval: Interval
    points: float
    """What it did to the accuracy: under the preference less under the reference."""


class _Pair(NamedTuple):
    """The trials of a task under one price sheet."""

    without: Rows
    preferred: Rows


def controllability_of(rows: Iterable[EvaluationRow]) -> tuple[PreferenceEffect, ...]:
    """Every kind of preference of every policy, in each thing that it names. Empty where no task was played under a
    preference and under a reference."""
    made: list[PreferenceEffect] = []
    by_place = grouped(rows, lambda row: (_PREFERENCE.sub("", row.env), row.split, row.policy))
    for place, some in by_place.items():
        kinds = grouped(some, kind_of)
        reference = next((kind for kind in (NO_PREFERENCE, BALANCED) if _ended(kinds.get(kind, ()))), "")
        for kind, preferred in sorted(kinds.items()):
            if reference and kind not in (NO_PREFERENCE, reference):
                made += _effects(place, kind, preferred, reference, _ended(kinds[reference]))
    return tuple(made)


def kind_of(row: EvaluationRow) -> str:
    """Kind of the user's preference; "none" for none."""
    return str(row.preference.get("kind", "custom")) if row.preference.get("sentence") else NO_PREFERENCE


def _effects(place: Cell, kind: str, preferred: Rows, reference: str, without: Rows) -> Iterable[PreferenceEffect]:
    tasks = len({row.task for row in preferred})
    pairs = _pairs(without, _ended(preferred))
    usual = _weights(without[0])
    named = set[str]().union(*(_named(row, usual) for row in preferred))
    measured: list[PreferenceMeasure] = [name for name in ("usd", "seconds", "calls") if name in named]
    for measure in measured if pairs else ():
        before, after = _means(pairs, measure, usual)
        change, interval = _change(measure, before, after)
        right = _both(pairs, lambda rows, _: _mean(rows, "value"))
        yield PreferenceEffect(
            *place,
            preference=kind,
            reference=reference,
            measure=measure,
            tasks=len(before),
            left_out=tasks - len(before),
            before=math.fsum(before) / len(before),
            after=math.fsum(after) / len(after),
            followed=change,
            interval=interval,
            points=math.fsum(b - a for a, b in zip(*right, strict=True)) / len(before),
        )


def _change(measure: PreferenceMeasure, before: Sequence[float], after: Sequence[float]) -> tuple[float, Interval]:
    """Above 0 the preference was followed: the share that was saved, or the growth of the named tools' share of
    calls."""
    if measure == "calls":
        moved = [b - a for a, b in zip(before, after, strict=True)]
        return math.fsum(moved) / len(moved), mean_interval(moved) or Interval(-1.0, 1.0)
    left = ratio_interval(after, before)
    total = math.fsum(before)
    return 1 - math.fsum(after) / total if total else math.nan, Interval(1 - left.high, 1 - left.low)


def _means(
    pairs: Mapping[str, Sequence[_Pair]], measure: PreferenceMeasure, usual: Mapping[str, float]
) -> tuple[list[float], list[float]]:
    """Means of each task, on either side."""
    if measure == "calls":
        return _both(pairs, lambda rows, preferred: _share(rows, preferred, usual))
    return _both(pairs, lambda rows, _: _mean(rows, "cents" if measure == "usd" else "seconds"))


def _both(pairs: Mapping[str, Sequence[_Pair]], of: Callable[[Rows, Rows], float]) -> tuple[list[float], list[float]]:
    """A figure of each task without and under the preference, each the mean over the price sheets that it was played
    under. `of` is given the rows of a side, and those under the preference."""
    without, under = [], []
    for some in pairs.values():
        without.append(math.fsum(of(pair.without, pair.preferred) for pair in some) / len(some))
        under.append(math.fsum(of(pair.preferred, pair.preferred) for pair in some) / len(some))
    return without, under


def _pairs(without: Rows, preferred: Rows) -> dict[str, list[_Pair]]:
    """The pairs of each task, in the order of the tasks' names."""
    ones, others = (grouped(rows, lambda row: (row.task, row.sheet)) for rows in (without, preferred))
    made = [_Pair(ones[key], others[key]) for key in sorted(ones.keys() & others.keys())]
    return grouped(made, lambda pair: pair.preferred[0].task)


def _weights(row: EvaluationRow) -> dict[str, float]:
    return dict(row.preference.get("weights", {})) if kind_of(row) != NO_PREFERENCE else ACCURATE.weights()


def _named(row: EvaluationRow, usual: Mapping[str, float]) -> set[str]:
    """Names among "usd", "seconds" and "calls" that the row's preference weighs more than is usual."""
    weights = _weights(row)
    named = {name for name in ("usd", "seconds") if weights.get(name, 0.0) > usual.get(name, 0.0)}
    return named | ({"calls"} if _tools(row, usual) else set())


def _tools(row: EvaluationRow, usual: Mapping[str, float]) -> set[str]:
    return {key for key, n in _weights(row).items() if key not in GENERAL and n > usual.get(key, 0.0)}


def _share(rows: Rows, preferred: Rows, usual: Mapping[str, float]) -> float:
    """Share of the calls that went to the favoured tools; 0 where nothing was called."""
    favoured = set[str]().union(*(_tools(row, usual) for row in preferred))
    every = sum(sum(row.calls.values()) for row in rows)
    return sum(row.calls.get(key, 0) for row in rows for key in favoured) / every if every else 0.0


def _mean(rows: Rows, name: str) -> float:
    return math.fsum(map(attrgetter(name), rows)) / len(rows)


def _ended(rows: Rows) -> list[EvaluationRow]:
    return [row for row in rows if row.status == "ended"]
