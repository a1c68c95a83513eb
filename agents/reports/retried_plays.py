"""Plays that were set aside, as their trials were played again: they are in no figure, and have cost something."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.rows import EvaluationRow, read_rows
from toolorchestra.agents.evaluation.summary_tables import number
from toolorchestra.envs.money.prices import NANO

Trials = Sequence[Sequence[EvaluationRow]]
"""The plays of each trial."""


def plays_set_aside(
    path: Path, rows: Sequence[EvaluationRow], manifest: Any
) -> tuple[list[tuple[int, EvaluationRow]], list[str]]:
    """The plays of a retried.jsonl, each with its number among its trial's, and sentences on what they cost."""
    plays: dict[str, list[EvaluationRow]] = {}
    for row in read_rows(path) if path.is_file() else ():
        plays.setdefault(json.dumps(row.key), []).append(row)
    last = {json.dumps(row.key): row for row in rows}
    again = [plays[key] for key in plays if key in last]
    left = [plays[key] for key in plays if key not in last]
    notes = []
    if again:
        beside = _beside(again, last) if _cached(manifest) else None
        notes.append(f"{_count(again)} retried; {_set_aside(again)} cost {_cents(_paid(again))}{_where(beside)}.")
    if left:
        notes.append(f"{_count(left)} broken off and not played again, for {_cents(_paid(left))}, in no figure.")
    return [numbered for some in plays.values() for numbered in enumerate(some, 1)], notes


def _cached(manifest: Any) -> bool:
    asked = manifest.get("asked") if isinstance(manifest, Mapping) else None
    return isinstance(asked, Mapping) and bool(asked.get("cache"))


def _paid(trials: Trials) -> int:
    return sum(row.nano_usd for some in trials for row in some)


def _beside(trials: Trials, last: Mapping[str, EvaluationRow]) -> int:
    """With a cache a later play is billed again what an earlier one paid: what is above its bill was paid beside it."""
    dearest = {json.dumps(some[0].key): max(row.nano_usd for row in some) for some in trials}
    return sum(max(0, nano - last[key].nano_usd) for key, nano in dearest.items())


def _where(beside: int | None) -> str:
    if beside is None:
        return ", in no figure"
    return f". As a cache answers, the last plays are billed that again; {_cents(beside)} is in no figure"


def _count(trials: Trials) -> str:
    return "1 trial was" if len(trials) == 1 else f"{len(trials)} trials were"


def _set_aside(trials: Trials) -> str:
    count = sum(map(len, trials))
    return "the play that does not count" if count == 1 else f"the {count} plays that do not count"


def _cents(nano_usd: int) -> str:
    return f"{number(nano_usd / NANO * 100)} ¢"
