"""Several runs' reports as one table: what each seed reached, their mean and their spread."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError

Summary = Mapping[str, Any]
ENDS = ("low", "high")
_PLAYERS = ("policy", "oracle", "strongest", "cheapest", "random")


def read_summaries(folders: Sequence[Path]) -> list[Summary]:
    """The report/summary.json of each run's folder."""
    made: list[Summary] = []
    for folder in folders:
        path = folder / "report" / "summary.json"
        if not path.is_file():
            raise ConfigError(f"{folder} has no report yet (expected {path}); let its run end, or give another folder")
        made.append(json.loads(path.read_text(encoding="utf-8")))
    return made


def as_markdown(runs: Sequence[Summary]) -> str:
    """The share of the oracle's reward, then the rows of each player of all runs, then the probes; mean and spread over
    the runs."""
    header = ["", *(f"seed {run['seed']}" for run in runs), "mean", "spread"]
    rows = [header, ["---"] * len(header)]
    if all(run["of_oracle"] is not None for run in runs):
        rows.append(_row("share of the oracle's reward", [run["of_oracle"]["value"] for run in runs], "{:.1%}"))
        rows += [_row(f"{end} end of its interval", [run["of_oracle"][end] for run in runs], "{:.1%}") for end in ENDS]
    for wish in [wish for wish in runs[0]["by_wish"] if all(wish in run["by_wish"] for run in runs)]:
        found = [run["by_wish"][wish] for run in runs]
        if all(one["of_oracle"] for one in found):
            rows.append(_row(f"wish {wish}: share", [one["of_oracle"]["value"] for one in found], "{:.1%}"))
        for name in ("policy", "oracle"):
            rows.append(_row(f"wish {wish}: {name}'s accuracy", [one[name]["accuracy"] for one in found], "{:.1%}"))
            rows.append(_row(f"wish {wish}: {name}'s ¢ a task", [one[name]["cents"] for one in found], "{:.2f}"))
    for name in _PLAYERS:
        standings = [run["standings"][name] for run in runs if name in run["standings"]]
        if len(standings) < len(runs):
            continue
        rows.append(_row(f"{name}: reward", [s["reward"] for s in standings], "{:.3f}"))
        rows.append(_row(f"{name}: accuracy", [s["accuracy"] for s in standings], "{:.1%}"))
        rows.append(_row(f"{name}: ¢ a solved task", [s["cents_per_solved"] for s in standings], "{:.2f}"))
    for same in zip(*(run["probes"] for run in runs), strict=True):
        for side in ("left", "right"):
            label = f"probe: {same[0]['name']}, {same[0][side]}"
            rows.append(_row(label, [probe[f"{side}_rate"] for probe in same], "{:.2f}"))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _row(label: str, values: Sequence[float | None], form: str) -> list[str]:
    """None, as of cents a solved task where none was solved, has no mean."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return [label, *("-" if value is None else form.format(value) for value in values), "-", "-"]
    spread = form.format(max(known) - min(known))
    return [label, *map(form.format, known), form.format(statistics.fmean(known)), spread]
