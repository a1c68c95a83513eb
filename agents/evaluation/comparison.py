"""Runs beside each other: paired differences on the same trials, who wins where, and the fronts.

A pair is one trial of one task by two policies: same environment, split, task, trial, seed and price sheet. Only pairs
whose outcomes are both known make means; how many are not is said, and bounds take them as the worst and the best. What
was played under other prices, or on another version of the tasks, stands in a section of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from toolorchestra.agents.evaluation.frontier import (
    PolicyFrontier,
    Trainings,
    TrialRows,
    frontier,
    mean_rows,
    reach_over,
)
from toolorchestra.agents.evaluation.rows import (
    MANIFEST,
    EvaluationRow,
    grouped,
    latest,
    read_manifest,
    rows_of,
    sheets_of,
    simulated_in,
)
from toolorchestra.agents.evaluation.statistics import (
    Interval,
    TaskTally,
    holm,
    mean_interval,
    paired_share_interval,
    sign_test,
)
from toolorchestra.agents.evaluation.summary import as_plain
from toolorchestra.envs.base.errors import ConfigError, no_such

DRAWN = "prices drawn for each task"
"""Mark in place of a sheet's id, where a policy's rows have several."""


@dataclass(frozen=True)
class NamedRun:
    """A run's rows, and what it is called."""

    name: str
    rows: Sequence[EvaluationRow]
    versions: tuple[tuple[str, str], ...] = ()
    """The version of the tasks, by environment, where the manifest says it as "task_versions"."""
    simulated: str = ""
    """A sentence that says which of its models are simulated; empty for none."""


class ComparedPolicy(NamedTuple):
    """A policy of a run."""

    run: str
    policy: str


class Ground(NamedTuple):
    """What must be the same for two policies to be compared."""

    env: str
    split: str
    version: str
    sheets: str


@dataclass(frozen=True)
class MeanDifference:
    """Difference of pairs: the second policy's mean less the first's."""

    left: float
    right: float
    difference: float
    interval: Interval


@dataclass(frozen=True)
class GroupWin:
    """The one who did better on the tasks of a group."""

    group: str
    pairs: int
    left: float
    right: float
    difference: float
    interval: Interval
    cents: float
    """The second's less the first's."""


@dataclass(frozen=True)
class PairedComparison:
    """Two policies on the same trials. Left is what the right one is compared with."""

    left: str
    right: str
    pairs: int
    unknown: int
    """Trials of both where an outcome is not known."""
    apart: int
    """Trials of both under another seed or price sheet, which are no pairs."""
    alone: int
    """Trials that one of them has and the other has not."""
    accuracy: MeanDifference | None
    bounds: Interval
    """Bounds of the difference in accuracy over all pairs, with what is not known at its worst and best."""
    cents: MeanDifference | None
    minutes: MeanDifference | None
    reward: MeanDifference | None
    """Difference of outcomes less what the agent spent in dollars, which reward="scalar" gives by its own weights."""
    better: int
    """Tasks where the right one did better."""
    worse: int
    p: float | None
    """Probability of the exact sign test over tasks: McNemar's where each has one trial. None where either side is
    several trainings: that test knows nothing of another one."""
    p_of_all: float | None
    """The same, corrected for all comparisons of a section (Holm)."""
    groups: tuple[GroupWin, ...]


@dataclass(frozen=True)
class ComparisonSection:
    """All policies on one ground."""

    ground: Ground
    comparisons: tuple[PairedComparison, ...]
    front: PolicyFrontier | None


@dataclass(frozen=True)
class RunComparison:
    """What the comparison of some runs found: a section for each environment and split, and notes."""

    sections: tuple[ComparisonSection, ...]
    notes: tuple[str, ...]

    def to_json(self) -> object:
        """The comparison as plain values, to be written as strict JSON."""
        return as_plain(self)


def read_runs(folders: Sequence[Path]) -> list[NamedRun]:
    """Each folder's run, under a name that no other has."""
    names = [folder.resolve().name for folder in folders]
    runs = []
    for folder, name in zip(folders, names, strict=True):
        manifest = read_manifest(folder)
        versions = manifest.get("task_versions", {})
        if not isinstance(versions, Mapping):
            raise ConfigError(f"{folder / MANIFEST}: task_versions is an object, got {versions!r:.40}")
        told = tuple(sorted((str(env), str(version)) for env, version in versions.items()))
        own = name if names.count(name) == 1 else str(folder)
        runs.append(NamedRun(own, rows_of(folder), told, simulated_in(manifest)))
    return runs


def compare_runs(
    runs: Sequence[NamedRun],
    against: str = "",
    singles: Sequence[str] = (),
    seeds: Mapping[str, Sequence[str]] | None = None,
) -> RunComparison:
    """Each policy beside the same policy of the first run, or beside its first one. `against` names a policy of the
    first run that all are compared with. `singles` are policies that always ask one model. `seeds` has, by a name of
    their own, policies of whatever run that are trainings of one policy, and are compared as it."""
    seeds = seeds or {}
    by_ground: dict[Ground, Players] = {}
    for run in runs:
        for (env, split, policy), rows in grouped(run.rows, lambda row: row.cell).items():
            sheets = sheets_of(rows)
            if len(sheets) == 1:  # also of trials that could not be opened, whose rows have none
                rows = [replace(row, sheet=sheets[0]) for row in rows]
            ground = Ground(env, split, dict(run.versions).get(env, ""), sheets[0] if len(sheets) == 1 else DRAWN)
            by_ground.setdefault(ground, {})[ComparedPolicy(run.name, policy)] = rows
    policies = list(dict.fromkeys(player.policy for players in by_ground.values() for player in players))
    first = {player.policy for players in by_ground.values() for player in _first(players)}
    ones = [*filter(first.__contains__, policies), *(name for name in seeds if first.intersection(seeds[name]))]
    asked = [(name, policies) for names in seeds.values() for name in names]
    asked += [(name, [*policies, *seeds]) for name in singles]
    asked += [(against, ones)] if against else []
    for name, known in asked:
        if name not in known:
            raise ConfigError(no_such("policy", name, known))
    _check_seeds(seeds, policies, by_ground.values())
    sections = [_section(ground, players, against, singles, seeds) for ground, players in by_ground.items()]
    unreal = grouped([run for run in runs if run.simulated], lambda run: run.simulated)
    notes = [f"{', '.join(run.name for run in some)}: {sentence}" for sentence, some in unreal.items()]
    return RunComparison(tuple(sections), (*notes, *_grounds_apart(by_ground)))


Players = dict[ComparedPolicy, list[EvaluationRow]]


def _first(players: Players) -> list[ComparedPolicy]:
    """The policies of the first run that has any."""
    return [player for player in players if player.run == next(iter(players)).run]


def _check_seeds(seeds: Mapping[str, Sequence[str]], policies: Sequence[str], grounds: Iterable[Players]) -> None:
    """Refuse trainings that would be counted twice, or that are no several trainings of one policy."""
    of: dict[str, str] = {}
    for name, members in seeds.items():
        if name in policies:
            raise ConfigError(f"seeds: {name!r} is a policy of these runs; give its trainings together another name")
        if len(set(members)) < 2:
            raise ConfigError(f"seeds: {name!r} is one training, {members[0]!r}; name two or more, with commas between")
        for member in members:
            if of.setdefault(member, name) != name:
                raise ConfigError(f"seeds: {member!r} is a training of {of[member]!r} and of {name!r}; name it once")
    for players in grounds:
        for policy, runs in grouped(players, lambda player: player.policy).items():
            if policy in of and len(runs) > 1:
                raise ConfigError(
                    f"seeds: {policy!r} was played in {', '.join(player.run for player in runs)}, and would count as "
                    f"{len(runs)} trainings; compare runs of which one has it"
                )


def _grounds_apart(by_ground: Mapping[Ground, Players]) -> list[str]:
    """Where the same environment and split was played on several grounds, what differs."""
    said = []
    for (env, split), grounds in grouped(by_ground, lambda ground: (ground.env, ground.split)).items():
        runs = {ground: ", ".join(dict.fromkeys(player.run for player in by_ground[ground])) for ground in grounds}
        if len({ground.sheets for ground in grounds}) > 1:
            parts = "; ".join(f"{names} by {ground.sheets}" for ground, names in runs.items())
            said.append(
                f"{env} {split} was billed by different price sheets ({parts}): they are not compared with each other. "
                "`toolorchestra compare RUN RUN --reprice SHEET` bills them anew."
            )
        if len({ground.version for ground in grounds}) > 1:
            parts = "; ".join(f"{names}: {ground.version or 'not said'}" for ground, names in runs.items())
            said.append(
                f"{env} {split} was played on different versions of its tasks ({parts}): they are not compared."
            )
    return said


def _section(
    ground: Ground, players: Players, against: str, singles: Sequence[str], seeds: Mapping[str, Sequence[str]]
) -> ComparisonSection:
    home = next(iter(players)).run
    players, several = _together(players, seeds)
    labels = _labels(list(players))
    trainings = {labels[player]: rows for player, rows in several.items()}
    first = [player for player in players if player.run == home]
    made = []
    for player, rows in players.items():
        if (other := _opponent(player, first, against)) != player:
            made.append(compare_pairs(labels[other], players[other], labels[player], rows, trainings))
    corrected = iter(holm([one.p for one in made if one.p is not None]))
    made = [one if one.p is None else replace(one, p_of_all=next(corrected)) for one in made]
    trials = {labels[player]: {(row.task, row.trial): row for row in rows} for player, rows in players.items()}
    kept = [labels[player] for player in players if player.policy in singles]
    return ComparisonSection(ground, tuple(made), _front(trials, kept, trainings))


def _together(
    players: Players, seeds: Mapping[str, Sequence[str]]
) -> tuple[Players, dict[ComparedPolicy, list[TrialRows]]]:
    """The policies, with those that are trainings of one in its place; and the rows of each training."""
    single = dict(players)
    several: dict[ComparedPolicy, list[TrialRows]] = {}
    for name, members in seeds.items():
        mine = [player for player in players if player.policy in members]
        if len(mine) > 1:
            several[ComparedPolicy(mine[0].run, name)] = [
                {(row.task, row.trial): row for row in single.pop(player)} for player in mine
            ]
    return {**single, **{player: mean_rows(player.policy, rows) for player, rows in several.items()}}, several


def _front(
    trials: dict[str, dict[tuple[str, int], EvaluationRow]], singles: Sequence[str], trainings: Trainings
) -> PolicyFrontier | None:
    """Trials under another seed or sheet than the first policy's are none of the others'."""
    setting: dict[tuple[str, int], tuple[int, str]] = {}
    for rows in trials.values():
        for key, row in rows.items():
            setting.setdefault(key, (row.seed, row.sheet))
    same = {
        label: {key: row for key, row in rows.items() if setting[key] == (row.seed, row.sheet)}
        for label, rows in trials.items()
    }
    return frontier(same, singles, trainings) if len(same) > 1 else None


def _opponent(player: ComparedPolicy, first: Sequence[ComparedPolicy], against: str) -> ComparedPolicy:
    if against:
        return next((p for p in first if p.policy == against), player)
    same = next((p for p in first if p.policy == player.policy), first[0])
    return same if same != player else first[0]


def _labels(players: Sequence[ComparedPolicy]) -> dict[ComparedPolicy, str]:
    """A policy's name, with its run's where several runs are there."""
    several = len({player.run for player in players}) > 1
    return {player: f"{player.run}: {player.policy}" if several else player.policy for player in players}


def compare_pairs(
    left: str,
    left_rows: Sequence[EvaluationRow],
    right: str,
    right_rows: Sequence[EvaluationRow],
    trainings: Trainings | None = None,
) -> PairedComparison:
    """Two policies' rows of one environment and split, with those of each training where one is several."""
    ones, others = ({(row.task, row.trial): row for row in latest(rows)} for rows in (left_rows, right_rows))
    both = [(ones[key], others[key]) for key in sorted(ones.keys() & others.keys())]
    same = [(a, b) for a, b in both if (a.seed, a.sheet) == (b.seed, b.sheet)]
    known = [(a, b) for a, b in same if a.right is not None and b.right is not None]
    by_task = _by_task(known)
    apart = [math.fsum(b.value - a.value for a, b in pairs) for pairs in by_task]
    sides = [(trainings or {}).get(name, ()) for name in (left, right)]
    better, worse = sum(d > 1e-12 for d in apart), sum(d < -1e-12 for d in apart)
    return PairedComparison(
        left,
        right,
        pairs=len(known),
        unknown=len(same) - len(known),
        apart=len(both) - len(same),
        alone=len(ones) + len(others) - 2 * len(both),
        accuracy=_accuracy(by_task, sides),
        bounds=_bounds(same),
        cents=_difference(by_task, attrgetter("cents"), sides),
        minutes=_difference(by_task, attrgetter("minutes"), sides),
        reward=_difference(by_task, lambda row: row.value - row.agent_usd, sides, outcomes=True),
        better=better,
        worse=worse,
        p=(p := None if any(sides) else sign_test(better, worse)),
        p_of_all=p,
        groups=tuple(_groups(known, sides)),
    )


Pair = tuple[EvaluationRow, EvaluationRow]
Sides = Sequence[Sequence[TrialRows]]
"""The rows of each training, on either side; none where a policy is one."""


def _by_task(pairs: Sequence[Pair]) -> list[list[Pair]]:
    return list(grouped(pairs, lambda pair: pair[0].task).values())


def _accuracy(by_task: Sequence[Sequence[Pair]], trainings: Sides) -> MeanDifference | None:
    if not by_task:
        return None
    sides = [[TaskTally.of(pair[side].value for pair in pairs) for pairs in by_task] for side in (0, 1)]
    left, right = (math.fsum(t.right for t in tallies) / sum(t.trials for t in tallies) for tallies in sides)
    interval = paired_share_interval(sides[0], sides[1])
    interval = _wider(right - left, interval, by_task, attrgetter("value"), trainings).within(-1.0, 1.0)
    return MeanDifference(left, right, right - left, interval)


def _difference(
    by_task: Sequence[Sequence[Pair]], of: Callable[[EvaluationRow], float], trainings: Sides, *, outcomes: bool = False
) -> MeanDifference | None:
    """A mean over tasks of each task's mean difference: trials of a task are drawn together by the bootstrap."""
    left, right = ([math.fsum(of(p[side]) for p in pairs) / len(pairs) for pairs in by_task] for side in (0, 1))
    apart, n = [b - a for a, b in zip(left, right, strict=True)], len(by_task)
    if not apart:
        return None
    mean = math.fsum(apart) / n
    interval = mean_interval(apart, outcomes=outcomes) or Interval(-math.inf, math.inf)
    interval = _wider(mean, interval, by_task, of, trainings)
    return MeanDifference(math.fsum(left) / n, math.fsum(right) / n, mean, interval)


def _wider(
    value: float,
    interval: Interval,
    by_task: Sequence[Sequence[Pair]],
    of: Callable[[EvaluationRow], float],
    trainings: Sides,
) -> Interval:
    """The interval with what another training of either side may change."""
    keys = [(a.task, a.trial) for pairs in by_task for a, _ in pairs]
    reach = math.hypot(*(reach_over(rows, keys, of) for rows in trainings))
    return interval.wider(value, reach) if reach else interval


def _bounds(pairs: Sequence[Pair]) -> Interval:
    if not pairs:
        return Interval(-1.0, 1.0)
    least = math.fsum(b.value - (1.0 if a.right is None else a.right) for a, b in pairs)
    most = math.fsum((1.0 if b.right is None else b.right) - a.value for a, b in pairs)
    return Interval(least / len(pairs), most / len(pairs))


def _groups(pairs: Sequence[Pair], trainings: Sides) -> Iterable[GroupWin]:
    named = ((f"{name}: {value}", pair) for pair in pairs for name, value in pair[0].groups.items())
    for group, members in sorted(grouped(named, lambda one: one[0]).items()):
        some = [pair for _, pair in members]
        by_task = _by_task(some)
        accuracy = _accuracy(by_task, trainings)
        cents = _difference(by_task, attrgetter("cents"), trainings)
        if accuracy is not None and cents is not None:
            apart = (accuracy.left, accuracy.right, accuracy.difference, accuracy.interval)
            yield GroupWin(group, len(some), *apart, cents.difference)
