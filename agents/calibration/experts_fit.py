"""A fit of recorded outcomes, with intervals by a bootstrap of tasks, and its file, written and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from toolorchestra.agents.calibration.skills_and_lengths import (
    LENGTHS,
    Counts,
    LengthFit,
    SuccessFit,
    as_plain,
    fit_lengths,
    fit_success,
    percentiles,
    together,
)
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import write_json
from toolorchestra.envs.outcomes.table import Outcomes

FORMAT = 1
DRAWS = 200
FEW_ROWS = 200
FEW_TASKS = 20
"""Tasks a family, on average, below which a family's rates take up much of what its tasks have in common."""
ENDS = (2.5, 97.5)
Interval = tuple[float, float, float]
"""A value with the ends of its 95 % interval."""


@dataclass(frozen=True, eq=False)
class ExpertsFit:
    """What was found in some rows."""

    rows: Outcomes
    counts: Counts
    success: SuccessFit
    lengths: Mapping[str, LengthFit]
    together: float
    """Correlation of tokens and seconds between runs of one model on one task; nan where the rows cannot say."""
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    """Intervals of the numbers that all models share, of each model's rate and skill over all families, and of its
    skills in each."""

    @property
    def warnings(self) -> list[str]:
        """What these rows cannot say, in sentences."""
        rows, counts = self.rows, self.counts
        graded, each = int(counts.runs.sum()), len(counts.family) / counts.families
        small = [name for name, size in zip(rows.family_names, _sizes(counts), strict=True) if size < 5]
        never = [model for model, right in zip(rows.models, counts.right.sum(0), strict=True) if not right]
        said = [
            (graded < FEW_ROWS, f"only {graded} graded rows: see how wide the intervals are before you use this"),
            (
                not self.success.repeated,
                "no model ran a task twice: luck of a model with a task cannot be told from chance, and is left out; "
                "asking again will look more useful than it is",
            ),
            (not rows.runs_were_named, "the rows name no runs: each row was taken for a run of its own"),
            (rows.zero_dollars, f"{rows.zero_dollars} rows say 0 dollars, which was taken for unknown"),
            *((True, f"left out: {count} {what}") for what, count in rows.left_out.items()),
            *((name not in self.lengths, f"no {name} are known: nothing was fitted of them") for name in LENGTHS),
            (len(rows) - graded, f"{len(rows) - graded} rows are not graded, and count for their lengths alone"),
            (
                each < FEW_TASKS,
                f"{each:.1f} tasks a family: task_sd and pair_sd come out too small, since each family's rates are "
                "fitted on the same few tasks; name fewer families, or record more tasks",
            ),
            (small, f"families of fewer than five tasks are known by little: {', '.join(map(repr, small[:5]))}"),
            (never, f"never right, so that no more is known than that they are weak: {', '.join(never[:5])}"),
        ]
        return [sentence for holds, sentence in said if holds]


def fit(rows: Outcomes, draws: int = DRAWS) -> ExpertsFit:
    """Fit rows. A model none of whose rows is graded is left out. Raises ConfigError where one model alone is left, or
    nothing is graded."""
    graded = np.unique(rows.model[np.isfinite(rows.success)])
    if 0 < len(graded) < len(rows.models):
        kept = rows.only([rows.models[at] for at in graded])
        names = ", ".join(sorted({*rows.models} - {*kept.models}))
        told = {f"models of which no row is graded: {names}": len(rows.models) - len(graded)}
        rows = replace(kept, left_out={**rows.left_out, **told})
    if len(rows.models) < 2:
        raise ConfigError(
            f"{rows.where}: all graded rows are of {rows.models[0]!r}; what models share (difficulty) and what each "
            "has for itself (skill) can be told apart from two models on"
        )
    counts = Counts.of(rows)
    success = fit_success(counts)
    made = ExpertsFit(rows, counts, success, fit_lengths(rows, counts, success), together(rows))
    return replace(made, intervals=_intervals(made, draws))


def shared(made: ExpertsFit) -> dict[str, float]:
    """The numbers that all models share, by name."""
    success = made.success
    most = float(np.abs(success.luck_by_strength).max())
    values = {"task_sd": success.task_sd, "pair_sd": success.pair_sd, "luck_by_strength": most}
    for measure, numbers in as_plain(made.lengths).items():
        values.update({f"{measure} {name}": value for name, value in numbers.items()})
    return values


def _intervals(made: ExpertsFit, draws: int) -> dict[str, Interval]:
    """Tasks are drawn anew, with all that was run on them. What the lengths' rows give is fitted again with them."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    tasks = len(made.counts.family)
    by_task = _RowsByTask(made.rows)
    for _ in range(draws):
        chosen = rng.integers(tasks, size=tasks)
        counts = made.counts.of_tasks(chosen)
        success = fit_success(counts)
        again = replace(made, counts=counts, success=success, lengths=fit_lengths(by_task.of(chosen), counts, success))
        for name, value in _named(again).items():
            found.setdefault(name, []).append(value)
    intervals = {}
    for name, value in _named(made).items():
        if name in found and math.isfinite(value):
            low, high = percentiles(found[name], ENDS)
            intervals[name] = (value, float(low), float(high))
    return intervals


def _named(made: ExpertsFit) -> dict[str, float]:
    values, counts, success = shared(made), made.counts, made.success
    share = np.bincount(counts.family, minlength=counts.families) / len(counts.family)
    for name, numbers in (("rate", share @ success.rate), ("skill", share @ success.skill)):
        values.update({f"{name} {model}": float(v) for model, v in zip(made.rows.models, numbers, strict=True)})
    for at, family in enumerate(made.rows.family_names):
        skills = zip(made.rows.models, success.skill[at], strict=True)
        values.update({_in_family(model, family): float(skill) for model, skill in skills})
    return values


def _in_family(model: str, family: str) -> str:
    """What the interval of a model's skill in a family is called."""
    return f"skill {model} in {family}"


def _reasoning_share(rows: Outcomes, model: int) -> float | None:
    """The share of a model's output that is reasoning, over the rows that tell both apart; None without such rows."""
    thought, written = (rows.measures[name][rows.model == model] for name in ("reasoning", "output"))
    known = np.isfinite(thought) & np.isfinite(written)
    whole = float((thought[known] + written[known]).sum())
    return float(thought[known].sum()) / whole if whole else None


class _RowsByTask:
    """The rows in the order of their tasks."""

    def __init__(self, rows: Outcomes) -> None:
        self._rows = rows
        self._order = np.argsort(rows.task, kind="stable")
        self._starts = np.searchsorted(rows.task[self._order], np.arange(len(rows.tasks) + 1))

    def of(self, chosen: np.ndarray[Any, np.dtype[np.int64]]) -> Outcomes:
        """The rows of tasks that were drawn, each draw as a task of its own."""
        rows, order, starts = self._rows, self._order, self._starts
        sizes = (starts[1:] - starts[:-1])[chosen]
        at = np.concatenate([order[starts[task] : starts[task + 1]] for task in chosen])
        picked = {name: column[at] for name, column in rows.measures.items()}
        return replace(
            rows,
            task=np.repeat(np.arange(len(chosen), dtype=np.int32), sizes),
            model=rows.model[at],
            run=rows.run[at],
            success=rows.success[at],
            measures=picked,
            families=tuple(rows.families[task] for task in chosen),
        )


def _sizes(counts: Counts) -> list[int]:
    return [int(size) for size in np.bincount(counts.family, minlength=counts.families)]


def as_json(made: ExpertsFit) -> dict[str, Any]:
    """The models file: fitted numbers with intervals, and no row of the recording."""
    rows, families = made.rows, made.rows.family_names
    models: dict[str, Any] = {}
    for at, model in enumerate(rows.models):
        models[model] = {
            "rate": _rounded(made.intervals.get(f"rate {model}")),
            "skill": {f: round(float(made.success.skill[n, at]), 4) for n, f in enumerate(families)},
            "skill ends": {f: _rounded(made.intervals.get(_in_family(model, f)), 1) for f in families},
            "luck_by_strength": round(float(made.success.luck_by_strength[at]), 4),
            "reasoning": None if (share := _reasoning_share(rows, at)) is None else round(share, 4),
            **{
                measure: {
                    "median": {f: _significant(float(one.median[n, at])) for n, f in enumerate(families)},
                    "spread": round(float(one.spread[at]), 4),
                }
                for measure, one in made.lengths.items()
            },
        }
    return {
        "format": FORMAT,
        "kind": "fitted experts",
        "rows": int(made.counts.runs.sum()),
        "tasks": len(rows.tasks),
        "families": {f: size for f, size in zip(families, _sizes(made.counts), strict=True)},
        "shared": {name: _rounded(made.intervals.get(name)) for name in shared(made)},
        "tokens with seconds": None if math.isnan(made.together) else round(made.together, 4),
        "warnings": made.warnings,
        "models": models,
    }


def _rounded(interval: Interval | None, start: int = 0) -> list[float] | None:
    return None if interval is None else [round(value, 4) for value in interval[start:]]


def _significant(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def write(made: ExpertsFit, path: Path, source: str = "") -> None:
    """Write the models file. `source` says where the rows are from, with their revision."""
    written({"source": source or made.rows.where.rpartition("/")[2], **as_json(made)}, path, "the fit")


def written(data: object, path: Path, what: str) -> None:
    """Write what was made as JSON."""
    try:
        write_json(path, data)
    except OSError as err:
        raise ConfigError(f"{what} cannot be written to {path}: {err.strerror}") from None


# -- the file, read ----------------------------------------------------------------------------------------------------


KIND = "fitted experts"
MAKE = "toolorchestra recorded fit OUTCOMES --out FILE makes one"


@dataclass(frozen=True)
class FitFile:
    """What such a file says. None: the recording could not say it."""

    where: str
    source: str
    rows: int
    tasks: int
    families: Mapping[str, int]
    """Each family with its number of tasks."""
    shared: Mapping[str, float | None]
    """The numbers that all models share, by name."""
    together: float | None
    models: Mapping[str, Mapping[str, Any]]
    warnings: Sequence[str]
    told: Mapping[str, Any]
    """The file as it is."""

    def skill(self, model: str, families: Sequence[str]) -> float:
        """A model's skill, over families as often as their tasks came."""
        return self._mean(families, self.models[model]["skill"])

    def median(self, model: str, measure: str, families: Sequence[str]) -> float | None:
        """A model's median tokens or seconds, over families likewise; None where they are not known."""
        of_family = (self.models[model].get(measure) or {}).get("median", {})
        known = {f: math.log(of_family[f]) for f in families if of_family.get(f)}
        return math.exp(self._mean(list(known), known)) if known else None

    def spread(self, model: str) -> float:
        """How widely its lengths spread, as a share of all models' deviation: the geometric mean of what is known."""
        found = [one["spread"] for name in ("tokens", "seconds") if (one := self.models[model].get(name))]
        return math.exp(sum(map(math.log, found)) / len(found)) if found and min(found) > 0 else 1.0

    def _mean(self, families: Sequence[str], values: Mapping[str, float]) -> float:
        weight = {family: max(1, self.families[family]) for family in families}
        return sum(weight[family] * values[family] for family in families) / sum(weight.values())


def read_fit(path: Path) -> FitFile:
    """Read a file of `recorded fit`. Raises ConfigError that says what was expected."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as err:
        raise ConfigError(f"no fit can be read at {path} ({err.strerror}); {MAKE}") from None
    except (ValueError, RecursionError) as err:
        raise ConfigError(
            f"{path}: a JSON file of fitted experts expected, and it is no JSON ({err}); {MAKE}"
        ) from None
    if not isinstance(data, Mapping) or data.get("kind") != KIND:
        got = f"kind {data.get('kind')!r:.40}" if isinstance(data, Mapping) else f"{data!r:.40}"
        raise ConfigError(f"{path}: a file of kind {KIND!r} expected, got {got}; {MAKE}")
    if data.get("format") != FORMAT:
        raise ConfigError(f"{path}: format {FORMAT} expected, got {data.get('format')!r:.20}; fit the recording again")
    try:
        return _checked(data, str(path))
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ConfigError(f"{path}: families, shared, models as `recorded fit` writes them expected ({err!r:.120}); "
                          "fit the recording again") from None  # fmt: skip


def _checked(data: Mapping[str, Any], where: str) -> FitFile:
    families = {name: int(size) for name, size in data["families"].items()}
    models = dict(data["models"])
    for name, one in models.items():
        if set(one["skill"]) != set(families) or not all(math.isfinite(v) for v in one["skill"].values()):
            raise ValueError(f"{name}: a skill for each of {sorted(families)}")
    together = data.get("tokens with seconds")
    return FitFile(
        where=where,
        source=str(data.get("source", "")),
        rows=int(data.get("rows", 0)),
        tasks=int(data.get("tasks", 0)),
        families=families,
        shared={name: None if value is None else float(value[0]) for name, value in data["shared"].items()},
        together=None if together is None else float(together),
        models=models,
        warnings=tuple(data.get("warnings", ())),
        told=data,
    )
