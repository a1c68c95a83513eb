"""What is said of a run, made of its rows: the figures of each policy on each environment and split, and of each group
of their tasks.

Accuracy is of all trials that were planned: what failed, was cut or was not played is not known, and widens it to
bounds. Money, time, tokens and calls are means over the trials that ended. Cents are the agent's own: orchestrator,
experts and tools. Those of judges and simulated users stand apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.evaluation.controllability import PreferenceEffect, controllability_of
from toolorchestra.agents.evaluation.heldout import preference_score
from toolorchestra.agents.evaluation.rows import (
    MANIFEST,
    Cell,
    EvaluationRow,
    grouped,
    latest,
    read_manifest,
    sheets_of,
)
from toolorchestra.agents.evaluation.statistics import (
    Interval,
    Share,
    TaskTally,
    entropy,
    mean_interval,
    most_used,
    pass_at,
    pass_hat,
    pass_rates,
    quantile,
    ratio_interval,
    share_of,
)
from toolorchestra.agents.rollouts.grpo import Measure
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import ACCURATE, GENERAL, Preference
from toolorchestra.envs.money.ledger import NO_REPLIES, Replies
from toolorchestra.envs.money.prices import CLASSES, NANO


@dataclass(frozen=True)
class TrialCounts:
    """What became of the trials."""

    planned: int
    ended: int
    failed: int
    cut: int
    unplayed: int

    @property
    def unknown(self) -> int:
        """How many trials have no outcome: they failed, were cut or were not played."""
        return self.failed + self.cut + self.unplayed


@dataclass(frozen=True)
class Spread:
    """A mean with its median and 95th percentile."""

    mean: float
    median: float
    p95: float
    interval: Interval
    """Interval of the mean, over tasks."""


@dataclass(frozen=True)
class SolvedCost:
    """Cents a solved task: all that the agent spent over what it solved. Infinite where nothing was."""

    low: float
    """Cost if all that was played and is not known was solved."""
    high: float
    """Cost if none of it was."""
    interval: Interval


@dataclass(frozen=True)
class PreferenceScore:
    """The paper's preference score against a baseline policy's trials: a mean over pairs whose outcomes are known."""

    mean: float
    pairs: int
    left_out: int


@dataclass(frozen=True)
class Figures:
    """What one policy came to on one environment and split, or on one group of its tasks."""

    env: str
    split: str
    policy: str
    group: str
    """What the tasks share, as "subject: logic"; empty for all of them."""
    tasks: int
    trials: TrialCounts
    accuracy: Share
    of_played: Share
    """The share of those that were played: what was not is left out by its place in the order, which says nothing of
    its outcome."""
    pass_hat: Mapping[int, Interval]
    pass_at: Mapping[int, Interval]
    cents: Spread | None
    minutes: Spread | None
    cents_per_solved: SolvedCost
    cents_by_role: Mapping[str, float]
    tokens: Mapping[str, Mapping[str, float]]
    """A trial's, by role and class."""
    turns: float | None
    calls: Mapping[str, float]
    """A trial's, by countable key."""
    calls_by_model: Mapping[str, float]
    replies: Mapping[str, Replies]
    """What came of the requests to each model, of experts, judges and users too, over all that was played."""
    entropy: float
    """Entropy of calls over models, in nats."""
    most_used: str
    most_used_share: float
    over_budget: float | None
    """The share of ended trials that spent more than their budget."""
    estimated_charges: int
    usd_spent: float
    """Dollars by all that was played, in all roles."""
    usd_unconfirmed: float
    """The part of it that nobody has confirmed: of requests whose replies nobody read to the end, or counted."""
    usd_by_price: float
    """What that would be by the price sheet alone, where servers told other costs than its prices."""
    preference: PreferenceScore | None
    sheets: tuple[str, ...]
    usd_to_learn: float = 0.0
    """Dollars that the policy paid for plays of train tasks before its first trial."""


@dataclass(frozen=True)
class RunSummary:
    """All figures of a run."""

    policies: tuple[Figures, ...]
    groups: tuple[Figures, ...]
    baseline: str
    """The policy that preference scores are measured against; empty for none."""
    controllability: tuple[PreferenceEffect, ...] = ()
    """Effects of policies that played the same tasks under a preference and under a reference."""
    simulated: str = ""
    """A sentence that says which models are simulated; empty for none."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know, in sentences."""
        said = [self.simulated] if self.simulated else []
        said += [note for figures in self.policies if (note := unknown_note(figures))]
        if self.groups and (unplayed := sum(figures.trials.unplayed for figures in self.policies)):
            said.append(f"{unplayed} trials were not played; the groups are without them, as theirs are not known.")
        if estimated := sum(figures.estimated_charges for figures in self.policies):
            said.append(f"The tokens of {estimated} charges were estimated, since nobody counted them.")
        if unconfirmed := sum(figures.usd_unconfirmed for figures in self.policies):
            said.append(
                f"{unconfirmed:.4g} $ of what was spent is unconfirmed: what requests may have cost at most whose "
                "replies nobody read to the end, or counted."
            )
        spent, by_price = (sum(getattr(one, name) for one in self.policies) for name in ("usd_spent", "usd_by_price"))
        if spent != by_price:
            said.append(
                f"Servers told what replies cost: {spent:.4g} $ in all, where the prices come to {by_price:.4g} $."
            )
        return said

    def to_json(self) -> dict[str, Any]:
        """Convert to strict JSON: what is infinite is null."""
        plain: dict[str, Any] = as_plain(self)
        return {**plain, "notes": self.notes}


def unknown_note(figures: Figures) -> str:
    """Where outcomes are not known: how many of what, and the bounds; else empty."""
    share, trials = figures.accuracy, figures.trials
    if not trials.unknown:
        return ""
    parts = [f"{n} {name}" for n, name in ((trials.failed, "failed"), (trials.cut, "cut")) if n]
    parts += [f"{trials.unplayed} not played"] if trials.unplayed else []
    told = (
        f"{figures.env} {figures.split}, {figures.policy}: {share.right:.6g} right, {trials.unknown} not known "
        f"({', '.join(parts)}), of {share.trials}: {100 * share.low:.3g}-{100 * share.high:.3g} %."
    )
    played, span = figures.of_played, figures.of_played.interval
    if not trials.unplayed or not played.trials:
        return told
    known = f"{100 * played.low:.3g}" + (f"-{100 * played.high:.3g}" if played.unknown else "")
    return f"{told} Of the {played.trials} that were played: {known} % ({100 * span.low:.3g}-{100 * span.high:.3g})."


def as_plain(value: Any) -> Any:
    """Dataclasses as objects, intervals as pairs, what is infinite as None."""
    if isinstance(value, Interval):
        return [as_plain(value.low), as_plain(value.high)]
    if is_dataclass(value):
        made = {one.name: as_plain(getattr(value, one.name)) for one in fields(value)}
        return {**made, "value": value.value, "unknown": value.unknown} if isinstance(value, Share) else made
    if isinstance(value, Mapping):
        return {str(key): as_plain(one) for key, one in value.items()}
    if isinstance(value, Replies):
        return value._asdict()
    if isinstance(value, list | tuple):
        return [as_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- making them of rows -----------------------------------------------------------------------------------------------


class PlannedTrials(NamedTuple):
    """The trials that there should be of a policy."""

    trials: int
    each: int = 1
    """How many of each task."""


Planned = Mapping[Cell, PlannedTrials]


def summarise(
    rows: Iterable[EvaluationRow],
    planned: Planned | None = None,
    baseline: str = "",
    learnt: Mapping[Cell, int] | None = None,
    simulated: str = "",
) -> RunSummary:
    """All figures. `planned` has the trials that there should be; without it those that are there were all. `baseline`
    names the policy that preference scores are measured against. `learnt` has what learning cost, in nano-dollars.
    `simulated` says which models are, as simulated_in() of the run's manifest does."""
    kept = latest(rows)
    by_cell: dict[Cell, list[EvaluationRow]] = {cell: [] for cell in planned or ()}
    by_cell |= grouped(kept, lambda row: row.cell)
    against = {_same_task(row): row for row in kept if row.policy == baseline} if baseline else {}
    if baseline and not against:
        raise ConfigError(f"no rows of a policy {baseline!r} to measure preferences against; name one of the run's")
    policies, groups = [], []
    for cell, some in by_cell.items():
        whole = _figures(cell, "", some, (planned or {}).get(cell, PlannedTrials(len(some))), against)
        policies.append(replace(whole, usd_to_learn=(learnt or {}).get(cell, 0) / NANO))
        for group, members in groups_of(some).items():
            groups.append(_figures(cell, group, members, PlannedTrials(len(members)), against))
    return RunSummary(tuple(policies), tuple(groups), baseline, controllability_of(kept), simulated)


def groups_of(rows: Iterable[EvaluationRow]) -> dict[str, list[EvaluationRow]]:
    """The rows of each group, such as "subject: logic", in the order of their names."""
    named = ((f"{name}: {value}", row) for row in rows for name, value in row.groups.items())
    return {name: [row for _, row in some] for name, some in sorted(grouped(named, lambda one: one[0]).items())}


def read_planned(folder: str | Path) -> Planned | None:
    """What a run's manifest plans: a list of [environment, split, policy, trials], and the tasks of each split. None
    where it says nothing."""
    manifest = read_manifest(folder)
    planned, tasks = manifest.get("planned"), manifest.get("tasks", {})
    try:
        return None if planned is None else {
            (str(e), str(s), str(p)): PlannedTrials(int(n), int(n) // (len(tasks.get(f"{e} {s}", ())) or int(n) or 1))
            for e, s, p, n in planned
        }  # fmt: skip
    except (ValueError, TypeError, AttributeError) as err:
        shape = "planned: [[environment, split, policy, trials], ...]"
        raise ConfigError(f"{Path(folder) / MANIFEST}: {shape} expected ({err!s:.80})") from None


def tallies_of(rows: Sequence[EvaluationRow], unplayed: int = 0, each: int = 1) -> list[TaskTally]:
    """The trials of each task. What was not played is put where a task lacks trials of its `each`, or such as others
    have, then to tasks of which none was played."""
    by_task = tasks_of(rows)
    most = max([each, *map(len, by_task.values())])
    made = []
    for some in by_task.values():
        missing = min(unplayed, most - len(some))
        unplayed -= missing
        made.append(TaskTally.of((row.right for row in some), missing))
    while unplayed > 0:
        made.append(TaskTally(0.0, 0, 0, min(most, unplayed)))
        unplayed -= most
    return made


def tasks_of(rows: Iterable[EvaluationRow]) -> dict[str, list[EvaluationRow]]:
    """The trials of each task, in the order of the tasks' names: figures do not depend on which ended first."""
    return dict(sorted(grouped(rows, lambda row: row.task).items()))


def _figures(
    cell: Cell, group: str, rows: list[EvaluationRow], planned: PlannedTrials, against: Mapping[Any, EvaluationRow]
) -> Figures:
    seen, unplayed = Counter(row.status for row in rows), max(0, planned.trials - len(rows))
    trials = TrialCounts(len(rows) + unplayed, seen["ended"], seen["failed"], seen["cut"], unplayed)
    tallies = tallies_of(rows, unplayed, planned.each)
    ended = [row for row in rows if row.status == "ended"]
    n = len(ended) or 1
    by_model = _calls_by_model(ended)
    most, share = most_used(by_model)
    return Figures(
        *cell,
        group=group,
        tasks=len({row.task for row in rows}),
        trials=trials,
        accuracy=share_of(tallies),
        of_played=share_of(tallies_of(rows)),
        pass_hat=pass_rates(tallies, pass_hat),
        pass_at=pass_rates(tallies, pass_at),
        cents=spread_of(ended, attrgetter("cents")),
        minutes=spread_of(ended, attrgetter("minutes")),
        cents_per_solved=_solved_cost(rows),
        cents_by_role={role: 100 * nano / NANO / n for role, nano in _summed(ended, "nano_usd_by_role").items()},
        tokens=_tokens(ended),
        turns=sum(row.turns for row in ended) / n if ended else None,
        calls={key: count / n for key, count in _summed(ended, "calls").items()},
        calls_by_model={model: count / n for model, count in by_model.items()},
        replies=_replies(rows),
        entropy=entropy(by_model),
        most_used=most,
        most_used_share=share,
        over_budget=sum(row.over_budget_usd > 0 for row in ended) / n if ended else None,
        estimated_charges=sum(row.estimated for row in rows),
        usd_spent=sum(row.nano_usd for row in rows) / NANO,
        usd_unconfirmed=sum(row.unconfirmed_nano_usd for row in rows) / NANO,
        usd_by_price=sum(row.nano_usd - row.over_price_nano_usd for row in rows) / NANO,
        preference=_preference(rows, against),
        sheets=tuple(sheets_of(rows)),
    )


def spread_of(rows: Sequence[EvaluationRow], of: Callable[[EvaluationRow], float]) -> Spread | None:
    """The mean of a measure over trials, with its interval over tasks. None of no trials."""
    values = [of(row) for row in rows]
    median, p95 = quantile(values, 0.5), quantile(values, 0.95)
    if median is None or p95 is None:
        return None
    by_task = tasks_of(rows)
    shares = [math.fsum(map(of, some)) * len(by_task) / len(rows) for some in by_task.values()]
    interval = mean_interval(shares, never_below_0=True) or Interval(-math.inf, math.inf)
    return Spread(math.fsum(values) / len(values), median, p95, interval)


def _solved_cost(rows: Sequence[EvaluationRow]) -> SolvedCost:
    cents = [100 * sum(row.agent_nano_usd for row in some) / NANO for some in tasks_of(rows).values()]
    tallies = tallies_of(rows)
    solved, perhaps = [one.solved for one in tallies], [one.high().solved for one in tallies]
    if not sum(perhaps):
        return SolvedCost(math.inf, math.inf, Interval(math.inf, math.inf))
    interval = ratio_interval(cents, solved)
    if perhaps != solved:
        interval = interval.union(ratio_interval(cents, perhaps))
    return SolvedCost(sum(cents) / sum(perhaps), sum(cents) / sum(solved) if sum(solved) else math.inf, interval)


def _summed(rows: Sequence[EvaluationRow], name: str) -> dict[str, int]:
    made: Counter[str] = Counter()
    for row in rows:
        made.update(getattr(row, name))
    return dict(sorted(made.items()))


def _tokens(rows: Sequence[EvaluationRow]) -> dict[str, dict[str, float]]:
    by_role = grouped(((role, counts) for row in rows for role, counts in row.tokens.items()), lambda one: one[0])
    sums = {role: map(sum, zip(*(counts for _, counts in some), strict=True)) for role, some in by_role.items()}
    return {role: dict(zip(CLASSES, (n / len(rows) for n in of), strict=True)) for role, of in sorted(sums.items())}


def _calls_by_model(rows: Sequence[EvaluationRow]) -> dict[str, int]:
    made: Counter[str] = Counter()
    for row in rows:
        for key, count in row.calls.items():
            if model := row.models.get(key):
                made[model] += count
    return dict(sorted(made.items()))


def _replies(rows: Iterable[EvaluationRow]) -> dict[str, Replies]:
    made: dict[str, Replies] = {}
    for row in rows:
        for model, counts in row.replies.items():
            made[model] = made.get(model, NO_REPLIES).plus(counts)
    return dict(sorted(made.items()))


def _same_task(row: EvaluationRow) -> tuple[str, str, str, int]:
    return (row.env, row.split, row.task, row.trial)


def _measure(row: EvaluationRow) -> Measure:
    """A row as rewards look at it."""
    return Measure(row.value, row.agent_usd, row.seconds, row.calls, failed=row.right is None)


def _preference_of(row: EvaluationRow) -> Preference:
    """The user's preference; the outcome alone where there was none."""
    weights = dict(row.preference.get("weights", {}))
    if not weights:
        return ACCURATE
    general = {name: weights.pop(name, 0.0) for name in GENERAL}
    return Preference(**general, tools=weights)


def _preference(rows: Sequence[EvaluationRow], against: Mapping[Any, EvaluationRow]) -> PreferenceScore | None:
    if not against:
        return None
    scores = [
        preference_score(_measure(row), _measure(other), _preference_of(row))
        for row in rows
        if (other := against.get(_same_task(row))) is not None
        and None not in (row.right, other.right)
        and (row.seed, row.sheet) == (other.seed, other.sheet)
    ]
    return PreferenceScore(sum(scores) / len(scores) if scores else math.nan, len(scores), len(rows) - len(scores))
