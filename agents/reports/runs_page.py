"""Several training runs on one page: their curves in one drawing each, and what each of them reached."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.evaluation.panel import POLICY
from toolorchestra.agents.reports.charts import Chart, Line, line_chart, smoothed
from toolorchestra.agents.reports.plane_chart import PlanePoint, plane_chart
from toolorchestra.agents.reports.report_data import ReportData
from toolorchestra.agents.reports.report_page import REWARDS, SIMULATED, document, table
from toolorchestra.agents.reports.svg import tag, text_of

HELD_OUT = (
    ("reward", "Held-out reward", "reward, 0 to 1", 1.0),
    ("accuracy", "Right answers, held out", "%", 100.0),
    ("cents", "Cost of a held-out task", "cents", 1.0),
)
IN_TRAINING = (("regret", "Regret in training", "reward"), ("cents", "Cost of a rollout", "cents"))
WINDOW = 9
"""Steps that a smoothed value is the mean of."""


def runs_page(runs: Sequence[ReportData]) -> str:
    """The page of runs that have ended."""
    names = [data.folder.resolve().name for data in runs]
    charts = [_plane(runs, names), *(_held_out(runs, names, *what) for what in HELD_OUT)]
    charts += [_in_training(runs, names, *what) for what in IN_TRAINING]
    body = [
        tag("h1", f"{len(runs)} training runs"),
        tag("p", SIMULATED, class_="note") if all(data.summary.get("simulated") for data in runs) else "",
        _results(runs, names),
        tag("p", REWARDS, class_="about"),
        tag("div", *(chart.html() for chart in charts if chart is not None), class_="grid"),
    ]
    return document(f"{len(runs)} training runs", "".join(body))


def _results(runs: Sequence[ReportData], names: Sequence[str]) -> str:
    """A row for each run, and their mean."""
    found = [data.summary["standings"][POLICY] for data in runs]
    rows = [
        (False, [text_of(name), *_cells(data.summary, one)]) for name, data, one in zip(names, runs, found, strict=True)
    ]
    means = {key: statistics.fmean(one[key] for one in found) for key in ("reward", "accuracy", "cents")}
    shares = [data.summary["of_oracle"]["value"] for data in runs if data.summary.get("of_oracle")]
    share = {"value": statistics.fmean(shares)} if len(shares) == len(runs) else None
    rows.append((True, ["mean", *_cells({"of_oracle": share}, means)]))
    return table(["run", "of the oracle's reward", "held-out reward", "right", "¢ a task"], rows)


def _cells(summary: Mapping[str, Any], one: Mapping[str, float]) -> list[str]:
    share = summary.get("of_oracle")
    told = "–" if not share else f"{share['value']:.1%}"
    if share and "low" in share:
        told += tag("small", f"{share['low']:.1%} to {share['high']:.1%}")
    return [told, f"{one['reward']:.3f}", f"{one['accuracy']:.1%}", f"{one['cents']:.2f}"]


def _plane(runs: Sequence[ReportData], names: Sequence[str]) -> Chart | None:
    points = []
    for name, data in zip(names, runs, strict=True):
        one = data.summary["standings"][POLICY]
        ends = one.get("intervals") or {}
        cents, right = (tuple(ends[of]) if of in ends else None for of in ("cents", "accuracy"))
        points.append(PlanePoint(name, one["cents"], one["accuracy"], cents, right, trained=True))
    return plane_chart("The test: accuracy and cost", "The trained policy of each run, on its test tasks.", points)


def _held_out(
    runs: Sequence[ReportData], names: Sequence[str], what: str, title: str, unit: str, times: float
) -> Chart | None:
    lines = []
    for place, (name, data) in enumerate(zip(names, runs, strict=True)):
        found = [(row["step"], row.get(f"{POLICY}/{what}")) for row in data.evaluations]
        lines.append(Line(name, [(x, times * y) for x, y in found if y is not None], f"c{place % 8}"))
    return line_chart(title, "The trained policy on the validation split of each run.", lines, unit=unit)


def _in_training(runs: Sequence[ReportData], names: Sequence[str], what: str, title: str, unit: str) -> Chart | None:
    lines = []
    for place, (name, data) in enumerate(zip(names, runs, strict=True)):
        found = [(row["step"], row[what]) for row in data.train if isinstance(row.get(what), int | float)]
        lines.append(Line(name, smoothed(found, WINDOW), f"c{place % 8}"))
    return line_chart(title, f"Of rollouts of training, the mean of {WINDOW} steps.", lines, unit=unit)
