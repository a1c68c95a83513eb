"""Runs beside each other: paired differences on the same trials, who wins where, and the fronts; as tables too.

A pair is one trial of one task by two policies: same environment, split, task, trial, seed and price sheet. Only pairs
whose outcomes are both known make means; how many are not is said, and bounds take them as the worst and the best. What
was played under other prices, or on another version of the tasks, stands in a section of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolorchestra.agents.evaluation.frontier import ANY_RIGHT, ORACLE, PolicyFrontier, PolicyPoint, frontier
from toolorchestra.agents.evaluation.rows import MANIFEST, EvaluationRow, read_rows
from toolorchestra.agents.evaluation.statistics import (
    Interval,
    TaskTally,
    mean_interval,
    paired_share_interval,
    sign_test,
)
from toolorchestra.agents.evaluation.summary import as_plain, latest
from toolorchestra.agents.evaluation.summary_tables import Table, aligned, in_markdown, number, piped, wrapped
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
    p: float
    """Probability of the exact sign test over tasks: McNemar's where each has one trial."""
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


def read_run(folder: str | Path, name: str = "") -> NamedRun:
    """A run's folder, under its own name or another."""
    path = Path(folder)
    manifest = path / MANIFEST
    try:
        data = json.loads(manifest.read_bytes()) if manifest.is_file() else {}
        versions = tuple(sorted((str(env), str(version)) for env, version in data.get("task_versions", {}).items()))
    except (ValueError, AttributeError) as err:
        raise ConfigError(f"{manifest}: expected an object, task_versions in it another ({err!s:.80})") from None
    return NamedRun(name or path.resolve().name, latest(read_rows(path)), versions)


def read_runs(folders: Sequence[Path]) -> list[NamedRun]:
    """Each folder's run, under a name that no other has."""
    names = [folder.resolve().name for folder in folders]
    return [
        read_run(folder, name if names.count(name) == 1 else str(folder))
        for folder, name in zip(folders, names, strict=True)
    ]


def compare_runs(runs: Sequence[NamedRun], against: str = "", singles: Sequence[str] = ()) -> RunComparison:
    """Each policy beside the same policy of the first run, or beside its first one. `against` names a policy of the
    first run that all are compared with. `singles` are policies that always ask one model."""
    by_ground: dict[Ground, dict[ComparedPolicy, list[EvaluationRow]]] = {}
    for run in runs:
        for (env, split, policy), rows in _by_cell(run.rows).items():
            sheets = {row.sheet for row in rows}
            ground = Ground(env, split, dict(run.versions).get(env, ""), min(sheets) if len(sheets) == 1 else DRAWN)
            by_ground.setdefault(ground, {})[ComparedPolicy(run.name, policy)] = rows
    policies = list(dict.fromkeys(player.policy for players in by_ground.values() for player in players))
    for name in filter(None, (against, *singles)):
        if name not in policies:
            raise ConfigError(no_such("policy", name, policies))
    sections = [_section(ground, players, against, singles) for ground, players in by_ground.items()]
    return RunComparison(tuple(sections), tuple(_grounds_apart(by_ground)))


def _by_cell(rows: Iterable[EvaluationRow]) -> dict[tuple[str, str, str], list[EvaluationRow]]:
    made: dict[tuple[str, str, str], list[EvaluationRow]] = {}
    for row in rows:
        made.setdefault((row.env, row.split, row.policy), []).append(row)
    return made


def _grounds_apart(by_ground: dict[Ground, dict[ComparedPolicy, list[EvaluationRow]]]) -> list[str]:
    """Where the same environment and split was played on several grounds, what differs."""
    said = []
    for env, split in dict.fromkeys((ground.env, ground.split) for ground in by_ground):
        grounds = [ground for ground in by_ground if (ground.env, ground.split) == (env, split)]
        if len({ground.sheets for ground in grounds}) > 1:
            parts = "; ".join(f"{_names(by_ground[g])} by {g.sheets}" for g in grounds)
            said.append(
                f"{env} {split} was billed by different price sheets ({parts}): they are not compared with each other. "
                "`toolorchestra compare RUN RUN --reprice SHEET` bills them anew."
            )
        if len({ground.version for ground in grounds}) > 1:
            parts = "; ".join(f"{_names(by_ground[g])}: {g.version or 'not said'}" for g in grounds)
            said.append(
                f"{env} {split} was played on different versions of its tasks ({parts}): they are not compared."
            )
    return said


def _names(players: Iterable[ComparedPolicy]) -> str:
    return ", ".join(dict.fromkeys(player.run for player in players))


def _section(
    ground: Ground, players: dict[ComparedPolicy, list[EvaluationRow]], against: str, singles: Sequence[str]
) -> ComparisonSection:
    labels = _labels(list(players))
    first = next(iter(players)).run
    made = []
    for player, rows in players.items():
        other = _opponent(player, [p for p in players if p.run == first], against)
        if other != player:
            made.append(compare_pairs(labels[other], players[other], labels[player], rows))
    trials = {labels[player]: {(row.task, row.trial): row for row in rows} for player, rows in players.items()}
    kept = [labels[player] for player in players if player.policy in singles]
    return ComparisonSection(ground, tuple(made), _front(trials, kept))


def _front(trials: dict[str, dict[tuple[str, int], EvaluationRow]], singles: Sequence[str]) -> PolicyFrontier | None:
    """Trials under another seed or sheet than the first policy's are none of the others'."""
    setting: dict[tuple[str, int], tuple[int, str]] = {}
    for rows in trials.values():
        for key, row in rows.items():
            setting.setdefault(key, (row.seed, row.sheet))
    same = {
        label: {key: row for key, row in rows.items() if setting[key] == (row.seed, row.sheet)}
        for label, rows in trials.items()
    }
    return frontier(same, singles) if len(same) > 1 else None


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
    left: str, left_rows: Sequence[EvaluationRow], right: str, right_rows: Sequence[EvaluationRow]
) -> PairedComparison:
    """Two policies' rows of one environment and split."""
    ones, others = ({(row.task, row.trial): row for row in latest(rows)} for rows in (left_rows, right_rows))
    both = [(ones[key], others[key]) for key in sorted(ones.keys() & others.keys())]
    same = [(a, b) for a, b in both if (a.seed, a.sheet) == (b.seed, b.sheet)]
    known = [(a, b) for a, b in same if a.right is not None and b.right is not None]
    by_task = _by_task(known)
    apart = [math.fsum((b.right or 0.0) - (a.right or 0.0) for a, b in pairs) for pairs in by_task]
    better, worse = sum(d > 1e-12 for d in apart), sum(d < -1e-12 for d in apart)
    return PairedComparison(
        left,
        right,
        pairs=len(known),
        unknown=len(same) - len(known),
        apart=len(both) - len(same),
        alone=len(ones) + len(others) - 2 * len(both),
        accuracy=_accuracy(by_task),
        bounds=_bounds(same),
        cents=_difference(by_task, lambda row: 100 * row.agent_usd),
        minutes=_difference(by_task, lambda row: row.seconds / 60),
        reward=_difference(by_task, lambda row: (row.right or 0.0) - row.agent_usd),
        better=better,
        worse=worse,
        p=sign_test(better, worse),
        groups=tuple(_groups(known)),
    )


Pair = tuple[EvaluationRow, EvaluationRow]


def _by_task(pairs: Sequence[Pair]) -> list[list[Pair]]:
    made: dict[str, list[Pair]] = {}
    for pair in pairs:
        made.setdefault(pair[0].task, []).append(pair)
    return list(made.values())


def _accuracy(by_task: Sequence[Sequence[Pair]]) -> MeanDifference | None:
    if not by_task:
        return None
    sides = [[_tally([pair[side] for pair in pairs]) for pairs in by_task] for side in (0, 1)]
    left, right = (math.fsum(t.right for t in tallies) / sum(t.trials for t in tallies) for tallies in sides)
    return MeanDifference(left, right, right - left, paired_share_interval(*sides))


def _tally(rows: Sequence[EvaluationRow]) -> TaskTally:
    values = [row.right or 0.0 for row in rows]
    return TaskTally(math.fsum(values), sum(v >= 1.0 for v in values), len(values), len(values))


def _difference(by_task: Sequence[Sequence[Pair]], of: Callable[[EvaluationRow], float]) -> MeanDifference | None:
    """A mean over tasks of each task's mean difference: trials of a task are drawn together by the bootstrap."""
    left, right = ([math.fsum(of(p[side]) for p in pairs) / len(pairs) for pairs in by_task] for side in (0, 1))
    apart = [b - a for a, b in zip(left, right, strict=True)]
    interval = mean_interval(apart)
    if interval is None:
        return None
    n = len(by_task)
    return MeanDifference(math.fsum(left) / n, math.fsum(right) / n, math.fsum(apart) / n, interval)


def _bounds(pairs: Sequence[Pair]) -> Interval:
    if not pairs:
        return Interval(-1.0, 1.0)
    least = math.fsum((b.right or 0.0) - (1.0 if a.right is None else a.right) for a, b in pairs)
    most = math.fsum((1.0 if b.right is None else b.right) - (a.right or 0.0) for a, b in pairs)
    return Interval(least / len(pairs), most / len(pairs))


def _groups(pairs: Sequence[Pair]) -> Iterable[GroupWin]:
    by_group: dict[str, list[Pair]] = {}
    for pair in pairs:
        for name, value in pair[0].groups.items():
            by_group.setdefault(f"{name}: {value}", []).append(pair)
    for group, some in sorted(by_group.items()):
        by_task = _by_task(some)
        accuracy, cents = _accuracy(by_task), _difference(by_task, lambda row: 100 * row.agent_usd)
        if accuracy is not None and cents is not None:
            apart = (accuracy.left, accuracy.right, accuracy.difference, accuracy.interval)
            yield GroupWin(group, len(some), *apart, cents.difference)


# -- as tables: text for a terminal, or Markdown -----------------------------------------------------------------------


def comparison_text(compared: RunComparison) -> str:
    """The comparison as text for a terminal."""
    parts = [_part(section, aligned, wrapped) for section in compared.sections]
    return "\n\n".join([*map(wrapped, compared.notes), *parts])


def comparison_markdown(compared: RunComparison) -> str:
    """The comparison in Markdown."""
    parts = [_part(section, piped, in_markdown) for section in compared.sections]
    return "\n\n".join([*map(in_markdown, compared.notes), *(f"### {part}" for part in parts)])


def _part(section: ComparisonSection, table: Callable[[Table], str], words: Callable[[str], str]) -> str:
    ground = section.ground
    title = " ".join(filter(None, (ground.env, ground.split, ground.version))) + f" ({ground.sheets})"
    made = [words(title)]
    if section.comparisons:
        made += [table(_accuracies(section.comparisons)), table(_bills(section.comparisons))]
        made.append(table(_rewards(section.comparisons)))
        if any(one.groups for one in section.comparisons):
            made.append(table(_group_table(section.comparisons)))
        made += [words(note) for one in section.comparisons for note in _said(one)]
    else:
        made.append(words("Only one policy was played here; there is nothing to compare it with."))
    if section.front is not None:
        made += [table(_front_table(section.front)), *map(words, _front_said(section.front))]
    elif section.comparisons:
        made.append(words("No trial has a known outcome for every policy, so there is no front."))
    return "\n\n".join(made)


def _accuracies(comparisons: Sequence[PairedComparison]) -> Table:
    head = ["policy", "against", "pairs", "not known", "%", "against %", "points", "95 %", "bounds", "+", "-", "p"]
    return [head, *([c.right, c.left, str(c.pairs), str(c.unknown), *_accuracy_cells(c)] for c in comparisons)]


def _accuracy_cells(c: PairedComparison) -> list[str]:
    tests = [str(c.better), str(c.worse), f"{c.p:.3g}"]
    if c.accuracy is None:
        return ["-", "-", "-", "-", _points(c.bounds), *tests]
    found = c.accuracy
    shares = [f"{100 * found.right:.1f}", f"{100 * found.left:.1f}", f"{100 * found.difference:+.1f}"]
    return [*shares, _points(found.interval), _points(c.bounds) if c.unknown else "-", *tests]


def _points(interval: Interval) -> str:
    return f"{100 * interval.low:+.1f}..{100 * interval.high:+.1f}"


def _bills(comparisons: Sequence[PairedComparison]) -> Table:
    head = ["policy", "against", "¢", "against", "difference", "95 %", "min", "against", "difference", "95 %"]
    return [head, *([c.right, c.left, *_bill(c.cents), *_bill(c.minutes)] for c in comparisons)]


def _rewards(comparisons: Sequence[PairedComparison]) -> Table:
    head = ["policy", "against", "reward", "against", "difference", "95 %"]
    return [head, *([c.right, c.left, *_reward(c.reward)] for c in comparisons)]


def _reward(found: MeanDifference | None) -> list[str]:
    """Three decimals each: rewards that lie near 1 differ in the third."""
    if found is None:
        return ["-"] * 4
    low, high = found.interval.low, found.interval.high
    return [f"{found.right:.3f}", f"{found.left:.3f}", f"{found.difference:+.3f}", f"{low:+.3f}..{high:+.3f}"]


def _bill(found: MeanDifference | None) -> list[str]:
    if found is None:
        return ["-"] * 4
    span = f"{signed(found.interval.low)}..{signed(found.interval.high)}"
    return [number(found.right), number(found.left), signed(found.difference), span]


def signed(value: float) -> str:
    """Three digits with a sign."""
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"


def _group_table(comparisons: Sequence[PairedComparison]) -> Table:
    head = ["group", "policy", "against", "pairs", "%", "against %", "points", "95 %", "¢"]
    rows = []
    for group, policy, against, one in sorted((g.group, c.right, c.left, g) for c in comparisons for g in c.groups):
        shares = [f"{100 * one.right:.1f}", f"{100 * one.left:.1f}", f"{100 * one.difference:+.1f}"]
        rows.append([group, policy, against, str(one.pairs), *shares, _points(one.interval), signed(one.cents)])
    return [head, *rows]


def _said(c: PairedComparison) -> list[str]:
    """What was left out of the pairs."""
    said = []
    if c.unknown:
        said.append(f"{c.unknown} of {c.pairs + c.unknown} pairs have an outcome that is not known")
    if c.apart:
        said.append(f"{c.apart} trials had another seed or other prices, and are no pairs")
    if c.alone:
        said.append(f"{c.alone} trials were played by one of them alone")
    return [f"{c.right} against {c.left}: {'; '.join(said)}."] if said else []


def _front_table(front: PolicyFrontier) -> Table:
    head = ["policy", "front", "%", "¢", "PerfGain", "CostSave", "ParetoDist", "nAUC", "RCI"]
    rows = [_point(point) for point in sorted(front.points, key=lambda p: (p.cents, p.policy))]
    oracle = [
        ORACLE if front.cross_fitted else ANY_RIGHT,
        "",
        f"{100 * front.oracle_accuracy:.1f}",
        number(front.oracle_cents),
        *["-"] * 5,
    ]
    return [head, *rows, oracle]


def _point(point: PolicyPoint) -> list[str]:
    accuracy = f"{100 * point.accuracy:.1f}"
    gains = ["-" if share is None else f"{100 * share:+.1f} %" for share in (point.perf_gain, point.cost_save)]
    rest = [f"{point.pareto_dist:.3f}", f"{100 * point.nauc:.1f}", f"{point.collapse:.2f}"]
    return [point.policy, "yes" if point.on_front else "", accuracy, number(point.cents), *gains, *rest]


def _front_said(front: PolicyFrontier) -> list[str]:
    names, area = ", ".join(front.front), 100 * front.nauc
    said = [f"Best single policy: {front.best_single}. Front: {names}. nAUC of all: {area:.1f}."]
    if front.left_out:
        bounds = "; ".join(f"{p.policy} {100 * p.low:.1f}-{100 * p.high:.1f} %" for p in front.points)
        said.append(
            f"The front is of {front.trials} trials; {front.left_out} are left out, as their outcome is not known for "
            f"every policy. With them at their worst and best: {bounds}."
        )
    return said
