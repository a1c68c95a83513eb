"""What the page of an evaluation shows: the rows of a run, where the transcript of each lies, and what could not be
read. A run is a folder, or a file of RecordTrajectories alone, whose rows are then made of its lines."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.controllability import PreferenceEffect, controllability_of
from toolorchestra.agents.evaluation.rows import (
    MANIFEST,
    RETRIED,
    TRAJECTORIES,
    EvaluationRow,
    RowKey,
    Status,
    grouped,
    latest,
    paid_for,
    read_rows,
    simulated_in,
)
from toolorchestra.agents.evaluation.run_files import chosen_by
from toolorchestra.agents.evaluation.statistics import share_of
from toolorchestra.agents.evaluation.summary import spread_of, tallies_of
from toolorchestra.agents.evaluation.summary_tables import number as digits
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import CLASSES, EXPERT, NANO
from toolorchestra.envs.wrappers.record import NEEDED

MOST_EXACT = 2**53 - 1
"""The largest whole number that a browser holds exactly."""
RECORDED = "recorded"
"""The policy of a line that names none."""
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True)
class ShownTrial:
    """A row, and where its transcript is."""

    row: EvaluationRow
    at: tuple[Path, int] | None
    """The file, and where the line begins; None: it has none."""
    retried: int = 0
    """Number from 1, among its trial's, of a play that was set aside, as its trial was to be played again."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Facts of a rollout that a training run has dumped: its step, group, reward, advantage, and why it taught
    nothing."""


@dataclass(frozen=True)
class ShownRun:
    """What the page is made of."""

    title: str
    trials: tuple[ShownTrial, ...]
    manifest: Any
    notes: tuple[str, ...]
    """What is missing or could not be read, in sentences."""
    preferences: tuple[PreferenceEffect, ...] = ()
    """How far each preference was followed, where tasks were played with and without."""
    training: Mapping[str, Any] | None = None
    """Parts of training runs: facts, players, curves and tables."""


def _with_preferences(run: ShownRun) -> ShownRun:
    try:
        return replace(run, preferences=controllability_of(one.row for one in run.trials if not one.retried))
    except UNREADABLE as err:
        return replace(
            run, notes=(*run.notes, f"How far preferences were followed could not be read off ({err!s:.100}).")
        )


def read_evaluation(path: Path) -> ShownRun:
    """A folder of an evaluation."""
    rows, file = {row.key: row for row in latest(read_rows(path))}, path / TRAJECTORIES
    tries: dict[tuple[Any, ...], tuple[bool, int]] = {}
    broken: list[int] = []
    for number, offset, line in lines_of(file):
        key = _key(line)
        if key is None:
            broken.append(number)
        else:
            tries[key] = max(tries.get(key, (False, 0)), chosen_by(line, rows.get(key), offset))
    found = [(row, tries.pop(key, None)) for key, row in rows.items()]
    trials = tuple(ShownTrial(row, None if chosen is None else (file, chosen[1])) for row, chosen in found)
    missing = sum(trial.at is None for trial in trials)
    notes = [*_broken_note(file, broken)]
    notes += [f"{missing} of {len(rows)} trials have no transcript."] if missing else []
    notes += [f"{len(tries)} transcripts belong to no row and are left out."] if tries else []
    manifest = parsed((path / MANIFEST).read_bytes()) if (path / MANIFEST).is_file() else None
    notes += [f"{MANIFEST} could not be read."] if manifest is None and (path / MANIFEST).is_file() else []
    if isinstance(manifest, Mapping) and manifest.get("simulated") is not True and (unreal := simulated_in(manifest)):
        notes.append(unreal)  # where all models are, the page has a line of its own
    again, told = _plays_set_aside(path / RETRIED, rows, manifest)
    trials += tuple(ShownTrial(row, None, place) for place, row in again)
    return _with_preferences(ShownRun(path.resolve().name, trials, manifest, (*notes, *told)))


def read_evaluations(paths: Sequence[Path]) -> ShownRun:
    """Several evaluations beside each other: each policy is named with its run."""
    runs = [read_evaluation(path) for path in paths]
    trials = [
        replace(trial, row=replace(trial.row, policy=f"{trial.row.policy}, {run.title}"))
        for run in runs
        for trial in run.trials
    ]
    told = {run.title: run.manifest for run in runs}
    unreal = all(isinstance(one, Mapping) and one.get("simulated") is True for one in told.values())
    notes = [f"{run.title}: {note}" for run in runs for note in run.notes]
    if not unreal:
        notes += [f"{name}: {simulated_in(one)}" for name, one in told.items() if one and one.get("simulated") is True]
    title = ", ".join(run.title for run in runs)
    manifest = {**told, "simulated": unreal, "planned": [plan for run in runs for plan in _planned(run)]}
    return _with_preferences(ShownRun(title, tuple(trials), manifest, tuple(notes)))


def _planned(run: ShownRun) -> list[list[Any]]:
    """What the run has planned, as its manifest says it, with each policy as it is named beside other runs."""
    with suppress(*UNREADABLE):
        return [[env, split, f"{policy}, {run.title}", n] for env, split, policy, n in run.manifest["planned"]]
    return []


def read_recording(path: Path) -> ShownRun:
    """A file of RecordTrajectories."""
    trials, notes = read_recorded(path, Counter())
    if not trials:
        raise ConfigError(f"no trajectory in {str(path)!r}; expected lines as RecordTrajectories writes them")
    return _with_preferences(ShownRun(path.name, tuple(trials), None, tuple(notes)))


def read_recorded(path: Path, seen: Counter[tuple[str, ...]]) -> tuple[list[ShownTrial], list[str]]:
    """The trials of a file of RecordTrajectories, and which of its lines could not be read. `seen` counts the episodes
    of each task, which makes them its trials."""
    trials: list[ShownTrial] = []
    broken: list[int] = []
    for number, offset, line in lines_of(path):
        try:
            row, told = recorded_row(line, seen), line.get("training")
        except UNREADABLE:
            broken.append(number)
        else:
            trials.append(ShownTrial(row, (path, offset), training=told if isinstance(told, Mapping) else {}))
    return trials, _broken_note(path, broken)


def lines_of(path: Path) -> Iterator[tuple[int, int, Any]]:
    """Each line that is not empty: its number, where it begins, and its JSON value; None where it is none."""
    if not path.is_file():
        return
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, offset, parsed(line)
            offset += len(line)


def parsed(line: bytes) -> Any:
    """The line's JSON value; None where it is none, as a line that a kill has torn."""
    try:
        return for_browser(json.loads(line))
    except UNREADABLE:
        return None


def for_browser(value: Any) -> Any:
    """Convert numbers that a browser would change (seeds of 64 bits, nan) into texts."""
    if isinstance(value, Mapping):
        return {str(key): for_browser(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [for_browser(one) for one in value]
    whole = isinstance(value, int) and abs(value) > MOST_EXACT
    return str(value) if whole or (isinstance(value, float) and not math.isfinite(value)) else value


def intervals_of(trials: Iterable[ShownTrial]) -> dict[str, dict[str, Any]]:
    """The intervals of each policy's figures in each environment, and under "" in all together, as the tables have
    them: of the accuracy its ends; of the cents a trial their mean and its ends. By where, and by policy."""
    rows = [one.row for one in trials if not one.retried and one.row.status == "ended"]
    apart = [replace(row, task=json.dumps([row.env, row.split, row.task])) for row in rows]
    by_place = grouped(rows, lambda row: f"{row.env} · {row.split}" if row.split else row.env)
    return {
        where: {policy: _intervals(own) for policy, own in grouped(some, lambda row: row.policy).items()}
        for where, some in {"": apart, **by_place}.items()
    }


def _intervals(rows: Sequence[EvaluationRow]) -> dict[str, Any]:
    share, cents = share_of(tallies_of(rows)), spread_of(rows, attrgetter("cents"))
    ends = [] if cents is None else [cents.mean, cents.interval.low, cents.interval.high]
    told = [end if math.isfinite(end) else None for end in ends]
    return {"accuracy": [share.interval.low, share.interval.high], "cents": told}


def _key(line: Any) -> tuple[Any, ...] | None:
    key = line.get("key") if isinstance(line, Mapping) else None
    if not isinstance(key, list) or len(key) != 5 or not all(isinstance(part, str | int) for part in key):
        return None
    return tuple(key)


def _broken_note(path: Path, numbers: list[int]) -> list[str]:
    if not numbers:
        return []
    shown = ", ".join(map(str, numbers[:5])) + (" and others" if len(numbers) > 5 else "")
    return [f"{path.name}: {len(numbers)} lines could not be read: {shown}."]


# -- rows of a recording -----------------------------------------------------------------------------------------------


def recorded_row(line: Mapping[str, Any], seen: Counter[tuple[str, ...]]) -> EvaluationRow:
    """The row of a line of RecordTrajectories. `seen` counts the episodes of each task, which makes them its trials."""
    if missing := [name for name in NEEDED if name not in line and name != "messages"]:  # a service may keep none
        raise ValueError(f"no {', '.join(missing)}")
    task, totals, charges = line.get("task") or {}, line["totals"], list(line["charges"])
    env, split, policy, name, trial = _key(line) or _named(line, task, seen)
    status, failure = _status(line)
    by_item, by_role = (grouped(charges, itemgetter(name)) for name in ("item", "role"))
    return EvaluationRow(
        env=env, split=split, policy=policy, task=name, trial=trial, seed=line["seed"],
        status=status, failure=failure,
        right=float(line["outcome"]["value"]) if status == "ended" else None,
        evidence=(line["outcome"] or {}).get("evidence", {}),
        truncated_by=str(line.get("truncated_by") or ""),
        turns=int(totals["turns"]),
        elapsed_ns=round(totals["seconds"] * NANO),
        nano_usd_by_role=dict(totals["nano_usd_by_role"]),
        nano_usd_by_tool=dict(totals["nano_usd_by_tool"]),
        nano_usd_by_model={item: sum(c["nano_usd"] for c in some) for item, some in by_item.items()},
        tokens={role: [sum(c["tokens"][name] for c in some) for name in CLASSES] for role, some in by_role.items()},
        estimated=sum(bool(charge["estimated"]) for charge in charges),
        unconfirmed_nano_usd=sum(charge["nano_usd"] for charge in charges if charge.get("unconfirmed")),
        calls=dict(line.get("calls") or {}),
        models={charge["tool"]: charge["item"] for charge in charges if charge["role"] == EXPERT},
        groups={k: str(v) for k, v in task.items() if k not in ("task_id", "split")},
        preference=line.get("preference") or {},
        over_budget_usd=float(line.get("over_budget_usd") or 0),
        sheet=str(line.get("price_sheet") or ""),
    )  # fmt: skip


def _named(line: Mapping[str, Any], task: Mapping[str, Any], seen: Counter[tuple[str, ...]]) -> tuple[Any, ...]:
    name = str(line["task_id"])
    env = str(line.get("env") or name.partition("/")[0])
    named = (env, str(line.get("split") or task.get("split", "")), str(line.get("policy", RECORDED)), name)
    seen[named] += 1
    return (*named, seen[named] - 1)


def _status(line: Mapping[str, Any]) -> tuple[Status, str]:
    if line.get("truncated_by") == "spend_cap":
        return "cut", "the run's spend cap is used up"
    if line.get("abandoned"):
        return "cut", "left before its end"
    if failed := line.get("failed"):
        said = failed.get("error") or failed.get("message") or json.dumps(failed)
        return "failed", f"{failed.get('where', '')}: {said}".removeprefix(": ").splitlines()[0]
    if line["outcome"] is None:
        return "failed", "it ended without an outcome"
    return ("ended", "") if line["outcome"]["value"] is not None else ("failed", "nobody knows what is right")


# -- plays that were set aside, as their trials were played again: in no figure, and paid for --------------------------


def _plays_set_aside(
    path: Path, last: Mapping[RowKey, EvaluationRow], manifest: Any
) -> tuple[list[tuple[int, EvaluationRow]], list[str]]:
    """The plays of a retried.jsonl, each with its number among its trial's, and sentences on what they cost."""
    plays = grouped(read_rows(path) if path.is_file() else (), lambda row: row.key)
    again, left = ({key: some for key, some in plays.items() if (key in last) == one} for one in (True, False))
    notes = []
    if again:
        count = sum(map(len, again.values()))
        aside = "the play that does not count" if count == 1 else f"the {count} plays that do not count"
        beside, asked = ", in no figure", manifest.get("asked") if isinstance(manifest, Mapping) else None
        if isinstance(asked, Mapping) and asked.get("cache"):  # what is above the last play's bill was paid beside it
            bills = {key: last[key].nano_usd for key in again}
            more = sum(paid_for(some, bills[key], cached=True) - bills[key] for key, some in again.items())
            beside = f". As a cache answers, the last plays are billed that again; {_cents(more)} is in no figure"
        notes.append(f"{_count(again)} retried; {aside} cost {_paid(again)}{beside}.")
    if left:
        notes.append(f"{_count(left)} broken off and not played again, for {_paid(left)}, in no figure.")
    return [numbered for some in plays.values() for numbered in enumerate(some, 1)], notes


def _count(trials: Mapping[RowKey, Sequence[EvaluationRow]]) -> str:
    return "1 trial was" if len(trials) == 1 else f"{len(trials)} trials were"


def _paid(trials: Mapping[RowKey, Sequence[EvaluationRow]]) -> str:
    return _cents(sum(row.nano_usd for some in trials.values() for row in some))


def _cents(nano_usd: int) -> str:
    return f"{digits(nano_usd / NANO * 100)} ¢"
