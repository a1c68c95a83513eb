"""Routing over recorded outcomes, compared with its best single model: every task is held out once, by folds.

A policy is judged by what it chooses for each held-out task: its success, dollars and seconds are the means of the
chosen model's recorded runs there, so that no luck of a draw is in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toolorchestra.agents.calibration.logistic import fit_logistic
from toolorchestra.agents.calibration.skills_and_lengths import Numbers
from toolorchestra.agents.policies.knn_and_skillbook import EXPECTS, Expectations, Fit, FittedTask, words
from toolorchestra.agents.policies.plans import Plan
from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.domains.recorded.source import RecordedSource
from toolorchestra.envs.factory import EnvSettings, EpisodeFactory
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.outcomes.table import Outcomes

DRAWS = 2_000
COST_WEIGHT = 0.2


class Chosen(NamedTuple):
    """What a policy may expect of each task."""

    success: Numbers
    usd: Numbers
    seconds: Numbers


class ReplayedLine(NamedTuple):
    """A line of the table. Intervals are of 95 %, by a bootstrap of tasks; differences are paired."""

    policy: str
    accuracy: tuple[float, float, float]
    usd: tuple[float, float, float]
    seconds: float
    gain: tuple[float, float, float]
    """Accuracy over that of the best single model, as a share of it, less 1."""
    saving: tuple[float, float, float]
    """Share of the best single model's dollars that is saved; below 0 it costs more."""


@dataclass(frozen=True, eq=False)
class Table:
    """The recording by task and model."""

    tasks: tuple[str, ...]
    families: tuple[str, ...]
    models: tuple[str, ...]
    fold: Numbers
    """Fold of each task."""
    success: Numbers
    """task x model, means over runs."""
    usd: Numbers
    seconds: Numbers

    def of(self, choice: Sequence[int]) -> Chosen:
        """What a choice of model for each task comes to."""
        at = (np.arange(len(self.tasks)), np.asarray(choice))
        return Chosen(self.success[at], self.usd[at], self.seconds[at])


def table_of(source: RecordedSource, prices: Any) -> Table:
    """Means over the recorded runs, billed by the sheet."""
    factory = EpisodeFactory(source, EnvSettings(split="all", prices=prices, preference="none"), {})
    runs, sheet = source.runs, source.runs.priced(factory.sheet)
    tasks = tuple(runs.tasks)
    shape = (len(tasks), len(runs.models))
    success, usd, seconds = (np.zeros(shape) for _ in range(3))
    for at, task in enumerate(tasks):
        for number, model in enumerate(runs.models):
            all_runs = runs.all_runs(task, model, sheet)
            success[at, number] = np.mean([run.success for run in all_runs])
            usd[at, number] = np.mean([sheet.price(model).nano_usd(run.usage) for run in all_runs]) / NANO
            seconds[at, number] = np.mean([run.usage.seconds for run in all_runs])
    families = tuple(runs.family(task) for task in tasks)
    fold = np.array([source.fold_of(task) for task in tasks])
    return Table(tasks, families, runs.models, fold, success, usd, seconds)


Chooser = Callable[[Table, "np.ndarray[Any, np.dtype[np.bool_]]"], Sequence[int]]
"""A function from a table, and which of its tasks may be learnt from, to a model for every task."""


def by_folds(table: Table, choose: Chooser) -> list[int]:
    """A model for every task, learnt from the other folds."""
    made = np.zeros(len(table.tasks), int)
    for fold in np.unique(table.fold):
        held_out = table.fold == fold
        made[held_out] = np.asarray(choose(table, ~held_out))[held_out]
    return [int(one) for one in made]


def cheapest(table: Table, train: Any) -> Sequence[int]:
    """The model whose runs cost least."""
    return [int(np.argmin(table.usd[train].mean(0)))] * len(table.tasks)


def strongest(table: Table, train: Any) -> Sequence[int]:
    """The model that is right most often."""
    return [int(np.argmax(table.success[train].mean(0)))] * len(table.tasks)


def logistic(words: Sequence[Sequence[str]], cost_weight: float = COST_WEIGHT) -> Chooser:
    """A router trained by logistic regression on families and words of the tasks."""

    def choose(table: Table, train: Any) -> Sequence[int]:
        expected = fit_logistic(table.families, words, table.success, train)
        return _worth(expected, table, train, cost_weight)

    return choose


def _worth(expected: Numbers, table: Table, train: Any, cost_weight: float) -> list[int]:
    """The model of greatest expected success less its bill, as a share of the most expensive model's."""
    usd = table.usd[train].mean(0)
    return [int(one) for one in np.argmax(expected - cost_weight * usd / usd.max(), axis=1)]


def fitted(name: str, texts: Sequence[str], cost_weight: float = COST_WEIGHT) -> Chooser:
    """`knn` or `skillbook`, told how often each model is right on each task that may be learnt from."""
    one_of("router", name, EXPECTS)

    def choose(table: Table, train: Any) -> Sequence[int]:
        known = Expectations(_learnt(table, texts, train))
        expected = [EXPECTS[name](known, family, text) for family, text in zip(table.families, texts, strict=True)]
        return _worth(np.array(expected), table, train, cost_weight)

    return choose


def _learnt(table: Table, texts: Sequence[str], train: Any) -> Fit:
    """Learn as if every model had played every one of these tasks often."""
    plans = tuple(Plan("", "", model) for model in table.models)
    tasks = tuple(
        FittedTask(texts[int(at)], table.families[int(at)], tuple(map(float, table.success[at])))
        for at in np.flatnonzero(train)
    )
    return Fit("", plans, tasks, used=(), plays=(), usd=0.0, episodes=0, failed=0)


def oracle(table: Table) -> list[int]:
    """Choose for each task the model that is right most often there; of equals the cheapest. It knows what nobody
    can."""
    order = np.lexsort((table.usd, -table.success), axis=1)
    return [int(row[0]) for row in order]


def escalating(table: Table) -> Chosen:
    """Try models from the cheapest up, with a check after each run, in the order of the other folds, until one
    passes."""
    success, usd, seconds = (np.zeros(len(table.tasks)) for _ in range(3))
    for fold in np.unique(table.fold):
        held_out = table.fold == fold
        unsolved = np.ones(int(held_out.sum()))
        for model in np.argsort(table.usd[~held_out].mean(0)):
            usd[held_out] += unsolved * table.usd[held_out, model]
            seconds[held_out] += unsolved * table.seconds[held_out, model]
            unsolved = unsolved * (1 - table.success[held_out, model])
        success[held_out] = 1 - unsolved
    return Chosen(success, usd, seconds)


def standings(table: Table, chosen: Mapping[str, Chosen], best: Chosen, seed: int = 0) -> list[ReplayedLine]:
    """Lines of the table. `best` is the single model that the others are compared with."""
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(table.tasks), size=(DRAWS, len(table.tasks)))
    return [_standing(name, one, best, draws) for name, one in chosen.items()]


def _standing(name: str, one: Chosen, best: Chosen, draws: Any) -> ReplayedLine:
    def interval(of: Callable[[Any], Numbers]) -> tuple[float, float, float]:
        low, high = np.percentile(of(draws), (2.5, 97.5))
        return (float(of(np.arange(draws.shape[1])[None])[0]), float(low), float(high))

    return ReplayedLine(
        name,
        interval(lambda at: one.success[at].mean(1)),
        interval(lambda at: one.usd[at].mean(1)),
        float(one.seconds.mean()),
        interval(lambda at: one.success[at].mean(1) / best.success[at].mean(1) - 1),
        interval(lambda at: 1 - one.usd[at].mean(1) / best.usd[at].mean(1)),
    )


def front(table: Table) -> list[int]:
    """The models that no other beats in accuracy and dollars at once, the cheapest first."""
    right, usd = table.success.mean(0), table.usd.mean(0)
    kept, reached = [], -1.0
    for model in np.lexsort((-right, usd)):
        if right[model] > reached:
            kept.append(int(model))
            reached = float(right[model])
    return kept


def best_single(table: Table) -> int:
    """The model that is right most often; of equals the cheapest."""
    return int(np.lexsort((table.usd.mean(0), -table.success.mean(0)))[0])


def complete_models(rows: Outcomes, share: float) -> tuple[str, ...]:
    """The models with a graded run that has a price on at least this share of the tasks."""
    priced = np.isfinite(rows.measures["usd"]) | np.isfinite(rows.measures["output"])
    kept = np.isfinite(rows.success) & priced
    ran = [len(np.unique(rows.task[kept & (rows.model == model)])) for model in range(len(rows.models))]
    chosen = tuple(m for m, count in zip(rows.models, ran, strict=True) if count >= share * len(rows.tasks))
    if len(chosen) < 2:
        raise ConfigError(
            f"{rows.where}: {len(chosen)} models ran {share:.0%} of the tasks with a price; lower the share"
        )
    return chosen


def contest(table: Table, texts: Sequence[str], cost_weight: float) -> list[ReplayedLine]:
    """Every line of the table. `texts` are what was asked, by task."""
    told = [words(text) for text in texts]
    choosers: dict[str, Chooser] = {
        "cheapest": cheapest,
        "strongest": strongest,
        "knn": fitted("knn", texts, cost_weight),
        "skillbook": fitted("skillbook", texts, cost_weight),
        "trained router (logistic)": logistic(told, cost_weight),
        "trained router, accuracy alone": logistic(told, 0.0),
    }
    chosen = {table.models[model]: table.of([model] * len(table.tasks)) for model in front(table)}
    chosen |= {name: table.of(by_folds(table, choose)) for name, choose in choosers.items()}
    chosen["cascade, with a check after each run"] = escalating(table)
    chosen["task oracle, one run"] = table.of(oracle(table))
    return standings(table, chosen, table.of([best_single(table)] * len(table.tasks)))
