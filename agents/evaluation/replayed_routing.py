"""Routing over recorded outcomes, compared with its best single model: every task is held out once, by folds.

A policy is judged by what it chooses for each held-out task: its success, dollars and seconds are the means of the
chosen model's recorded runs there, so that no luck of a draw is in the table. The task oracle, who looks at the runs
themselves, chooses by half of them and is judged by the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from toolorchestra.agents.calibration.logistic import fit_logistic
from toolorchestra.agents.calibration.skills_and_lengths import Numbers
from toolorchestra.agents.evaluation.statistics import Interval, mean_interval, pass_at, ratio_interval
from toolorchestra.agents.policies.knn_and_skillbook import EXPECTS, Expectations, Fit, FittedTask, words
from toolorchestra.agents.policies.plans import Plan
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.recorded.source import RecordedSource
from toolorchestra.envs.factory import EnvSettings, EpisodeFactory
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.outcomes.table import Outcomes


class Chosen(NamedTuple):
    """What a policy may expect of each task."""

    success: Numbers
    usd: Numbers
    seconds: Numbers


class ReplayedLine(NamedTuple):
    """A line of the table. Intervals are of 95 %, by a bootstrap-t of tasks; differences are paired."""

    policy: str
    accuracy: tuple[float, float, float]
    usd: tuple[float, float, float]
    seconds: float
    """Mean over the tasks where they are known; nan where they are of none."""
    gain: tuple[float, float, float]
    """Accuracy over that of the best single model, as a share of it, less 1; nan where that is never right."""
    saving: tuple[float, float, float]
    """Share of the best single model's dollars that is saved; below 0 it costs more; nan where that costs nothing."""


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
    """The same; nan where nobody measured."""
    halves: tuple[Chosen, Chosen] | None = None
    """The same of every second run, and of the others; None where some model has one run of a task."""
    again: Numbers | None = None
    """task x model x number: the chance that one of so many runs, drawn of the recorded ones, is right."""

    def of(self, choice: Sequence[int]) -> Chosen:
        """What a choice of model for each task comes to."""
        at = (np.arange(len(self.tasks)), np.asarray(choice))
        return Chosen(self.success[at], self.usd[at], self.seconds[at])


def table_of(source: RecordedSource, prices: Any) -> Table:
    """Means over the recorded runs, billed by the sheet."""
    factory = EpisodeFactory(source, EnvSettings(split="all", prices=prices, preference="none"), {})
    runs, sheet = source.runs, source.runs.priced(factory.sheet)
    tasks = tuple(runs.tasks)
    found = [
        [
            np.array([
                (run.success, sheet.price(model).nano_usd(run.usage) / NANO, seconds)
                for run, seconds in zip(runs.all_runs(task, model, sheet), runs.seconds(task, model), strict=True)
            ])
            for model in runs.models
        ]
        for task in tasks
    ]  # fmt: skip
    families = tuple(runs.family(task) for task in tasks)
    fold = np.array([source.fold_of(task) for task in tasks])
    made = Table(tasks, families, runs.models, fold, *_means(found, slice(None)))
    least = min(len(of_model) for of_task in found for of_model in of_task)
    if least == 1:
        return made
    halves = (_means(found, slice(0, None, 2)), _means(found, slice(1, None, 2)))
    return replace(made, halves=halves, again=_again(found, least))


def _means(found: Sequence[Sequence[Numbers]], part: slice) -> Chosen:
    """Means over a part of the runs of each task and model; of the seconds over those that are known."""
    means = np.array([[of_model[part].mean(axis=0) for of_model in of_task] for of_task in found])
    seconds = np.array([[_known(of_model[part][:, 2]) for of_model in of_task] for of_task in found])
    return Chosen(means[:, :, 0], means[:, :, 1], seconds)


def _known(values: Numbers) -> float:
    """The mean of what is known of them; nan where nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _again(found: Sequence[Sequence[Numbers]], most: int) -> Numbers:
    """The chance that one of 1, 2, ... runs of a model is right on a task, of the runs that there are."""
    return np.array(
        [
            [
                [pass_at(len(runs), int((runs[:, 0] >= 1).sum()), number) for number in range(1, most + 1)]
                for runs in of_task
            ]
            for of_task in found
        ]
    )


Chooser = Callable[[Table, "np.ndarray[Any, np.dtype[np.bool_]]"], Sequence[int]]
"""A function from a table, and which of its tasks may be learnt from, to a model for every task."""


def by_folds(table: Table, choose: Chooser) -> list[int]:
    """A model for every task, learnt from the other folds."""
    made = np.zeros(len(table.tasks), int)
    for fold in np.unique(table.fold):
        held_out = table.fold == fold
        made[held_out] = np.asarray(choose(table, ~held_out))[held_out]
    return [int(one) for one in made]


def logistic(words: Sequence[Sequence[str]], cost_weight: float) -> Chooser:
    """A router trained by logistic regression on families and words of the tasks."""
    return lambda table, train: _worth(
        fit_logistic(table.families, words, table.success, train), table, train, cost_weight
    )


def _worth(expected: Numbers, table: Table, train: Any, cost_weight: float) -> list[int]:
    """The model of greatest expected success less its bill, as a share of the most expensive model's."""
    usd = table.usd[train].mean(0)
    return [int(one) for one in np.argmax(expected - cost_weight * usd / (usd.max() or 1.0), axis=1)]


def fitted(name: str, texts: Sequence[str], cost_weight: float) -> Chooser:
    """`knn` or `skillbook`, told how often each model is right on each task that may be learnt from: as if every model
    had played every one of these tasks often."""

    def choose(table: Table, train: Any) -> Sequence[int]:
        plans = tuple(Plan("", "", model) for model in table.models)
        tasks = tuple(
            FittedTask(texts[int(at)], table.families[int(at)], tuple(map(float, table.success[at])))
            for at in np.flatnonzero(train)
        )
        known = Expectations(Fit("", plans, tasks, used=(), plays=(), usd=0.0, episodes=0, failed=0))
        expected = [EXPECTS[name](known, family, text) for family, text in zip(table.families, texts, strict=True)]
        return _worth(np.array(expected), table, train, cost_weight)

    return choose


def oracle(table: Table) -> Chosen:
    """Choose for each task the model that is right most often there, of equals the one that is so elsewhere: by one
    half of the runs, judged by the other, and the other way round. Where there is one run it is the cheapest that was
    right: then it says whether any model was right, which nobody can choose."""
    halves = table.halves or (Chosen(table.success, table.usd, table.seconds),) * 2
    sides = []
    for known, judged in (halves, halves[::-1]):
        elsewhere = known.success.mean(axis=0) * bool(table.halves) + np.zeros_like(known.success)
        choice = np.lexsort((known.usd, -elsewhere, -known.success), axis=1)[:, 0]
        sides.append(np.array([column[np.arange(len(choice)), choice] for column in judged]))
    return Chosen(*((sides[0] + sides[1]) / 2))


def same_model_again(table: Table, model: int) -> Iterator[tuple[str, Chosen]]:
    """One model asked again, with a check after each run, as often as there are runs: what more calls bring without any
    choice of models. And as many models as that, each asked once, from the cheapest of the front up."""
    if table.again is None:
        return
    most = table.again.shape[2]
    right = np.concatenate([np.zeros((len(table.tasks), 1)), table.again[:, model]], axis=1)
    sent = (1 - right[:, :-1]).sum(axis=1)
    yield (
        f"{table.models[model]}, up to {most} runs with a check",
        Chosen(right[:, -1], sent * table.usd[:, model], sent * table.seconds[:, model]),
    )
    yield f"cascade of up to {most} models", escalating(table, most)


def escalating(table: Table, most: int | None = None) -> Chosen:
    """Try models from the cheapest up, with a check after each run, in the order of the other folds, until one passes.
    With `most`, the best so many of the other folds' models."""
    success, usd, seconds = (np.zeros(len(table.tasks)) for _ in range(3))
    for fold in np.unique(table.fold):
        held_out = table.fold == fold
        unsolved = np.ones(int(held_out.sum()))
        best = np.argsort(-table.success[~held_out].mean(0), kind="stable")[:most]
        for model in best[np.argsort(table.usd[~held_out][:, best].mean(0))]:
            usd[held_out] += unsolved * table.usd[held_out, model]
            seconds[held_out] += np.where(unsolved, unsolved * table.seconds[held_out, model], 0.0)
            unsolved = unsolved * (1 - table.success[held_out, model])
        success[held_out] = 1 - unsolved
    return Chosen(success, usd, seconds)


def _standing(name: str, one: Chosen, best: Chosen) -> ReplayedLine:
    """A line of the table. `best` is the single model that it is compared with."""
    gain, left = _ratio(one.success, best.success), _ratio(one.usd, best.usd)
    accuracy = _mean(one.success, outcomes=True)
    return ReplayedLine(
        name,
        (accuracy[0], max(0.0, accuracy[1]), min(1.0, accuracy[2])),
        _mean(one.usd),
        _known(one.seconds),
        (gain[0] - 1, gain[1] - 1, gain[2] - 1),
        (1 - left[0], 1 - left[2], 1 - left[1]),
    )


def _mean(values: Numbers, *, outcomes: bool = False) -> tuple[float, float, float]:
    found = mean_interval(values.tolist(), outcomes=outcomes) or Interval(-np.inf, np.inf)
    return float(values.mean()), found.low, found.high


def _ratio(tops: Numbers, bottoms: Numbers) -> tuple[float, float, float]:
    if not bottoms.any():
        return np.nan, np.nan, np.nan
    found = ratio_interval(tops.tolist(), bottoms.tolist())
    return float(tops.mean() / bottoms.mean()), found.low, found.high


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
    every = len(table.tasks)
    choosers: dict[str, Chooser] = {
        "cheapest": lambda table, train: [int(np.argmin(table.usd[train].mean(0)))] * every,
        "strongest": lambda table, train: [int(np.argmax(table.success[train].mean(0)))] * every,
        "knn": fitted("knn", texts, cost_weight),
        "skillbook": fitted("skillbook", texts, cost_weight),
        "trained router (logistic)": logistic(told, cost_weight),
        "trained router, accuracy alone": logistic(told, 0.0),
    }
    chosen = {table.models[model]: table.of([model] * every) for model in front(table)}
    chosen |= {name: table.of(by_folds(table, choose)) for name, choose in choosers.items()}
    chosen["cascade, with a check after each run"] = escalating(table)
    best = best_single(table)
    chosen |= dict(same_model_again(table, best))
    chosen["task oracle, one run" if table.halves else "any model right, one run each"] = oracle(table)
    of_best = table.of([best] * every)
    return [_standing(name, one, of_best) for name, one in chosen.items()]
