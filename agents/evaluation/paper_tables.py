"""Runs as the paper's tables, beside the paper's own numbers: accuracy, ¢ and minutes by setting and policy (its table
1), preference (3), and calls by model (15). A setting is what an environment's label says of its tools.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from toolorchestra.agents.evaluation.rows import EvaluationRow, grouped
from toolorchestra.agents.evaluation.summary import Figures, Planned, summarise
from toolorchestra.agents.evaluation.summary_tables import Table, in_percent, number, percents
from toolorchestra.envs.base.errors import ConfigError

BENCHMARKS = {"HLE-v0": "HLE", "FRAMES-v0": "FRAMES", "Tau2-v0": "τ²"}
SETTINGS = {"none": "no tools", "basic": "basic tools", "paper": "all tools", "": "as played"}
BILLED = ("HLE", "FRAMES")
"""The benchmarks that ¢ and minutes are means over, in the paper too."""
TOOLS = {"search": "search", "web_search": "search", "local_search": "search", "reasoner": "code", "python": "code"}
"""Columns of calls by tool, by what the tool's countable key begins with."""


class PaperSetting(NamedTuple):
    """Where a policy played."""

    benchmark: str
    setting: str
    preference: str


Standings = Mapping[tuple[str, str], Sequence[tuple[PaperSetting, Figures]]]
"""Figures by setting and policy."""


def paper_tables(
    rows: Sequence[EvaluationRow], planned: Planned | None = None, baseline: str = ""
) -> list[tuple[str, Table]]:
    """Each table with its title. `baseline` names the policy that preference scores are measured against; without it
    there is no table of them."""
    of_paper = [row for row in rows if _setting_of(row.env)]
    if not of_paper:
        found = ", ".join(sorted({row.env for row in rows})) or "none"
        raise ConfigError(f"trials of {', '.join(BENCHMARKS)} expected, got {found}")
    plan = {cell: count for cell, count in (planned or {}).items() if _setting_of(cell[0])}
    placed = [(place, one) for one in summarise(of_paper, plan, baseline).policies if (place := _setting_of(one.env))]
    preferring = grouped(placed, lambda one: bool(one[0].preference))
    plain, preferred = (
        grouped(preferring.get(named, ()), lambda one: (one[0].setting, one[1].policy)) for named in (False, True)
    )
    file = resources.files("toolorchestra.agents") / "data" / "paper" / "tables.json"
    published = json.loads(file.read_text(encoding="utf-8"))
    made = [("Table 1: accuracy in %, and a task's ¢ and minutes over HLE and FRAMES", [*_main(plain, published)])]
    if baseline:
        made.append((f"Table 3: preference, 100 × the score against {baseline}", [*_preferences(preferred, published)]))
    made.append(("Table 15: calls a task, means over the benchmarks", [*_calls(plain, published)]))
    return [(title, table) for title, table in made if len(table) > 1]


def _setting_of(label: str) -> PaperSetting | None:
    """Read "HLE-v0, tools=basic, preference=frugal"; None of what is no benchmark of the paper's."""
    env, *words = label.split(", ")
    if env not in BENCHMARKS:
        return None
    told = dict(word.partition("=")[::2] for word in words)
    tools, preference = told.pop("tools", ""), told.pop("preference", "none")
    setting = ", ".join([SETTINGS.get(tools, tools), *(f"{name}={text}" for name, text in told.items())])
    return PaperSetting(BENCHMARKS[env], setting, "" if preference == "none" else preference)


def _main(standings: Standings, published: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    yield ["policy", "setting", *BENCHMARKS.values(), "¢", "min"]
    order, seen = list(SETTINGS.values()), dict.fromkeys(setting for setting, _ in standings)
    for setting in sorted(seen, key=lambda one: order.index(one) if one in order else len(order)):
        for (one, policy), found in standings.items():
            if one == setting:
                yield [policy, setting, *(_shares(_on(found, name)) for name in BENCHMARKS.values()), *_bills(found)]
        for row in published["main"]:
            if row["setting"] == (SETTINGS["paper"] if setting == SETTINGS[""] else setting):
                cells = [_cell(row[name]) for name in (*BENCHMARKS.values(), "cents", "minutes")]
                yield [f"paper: {row['model']}", row["setting"], *cells]


def _shares(figures: Sequence[Figures]) -> str:
    return "; ".join(f"{in_percent(f.accuracy)} ({percents(f.accuracy.interval)})" for f in figures) or "-"


def _bills(found: Sequence[tuple[PaperSetting, Figures]]) -> Iterator[str]:
    """Mean cents and minutes."""
    figures = [f for name in BILLED for f in _on(found, name)]
    for spreads in ([f.cents for f in figures], [f.minutes for f in figures]):
        means = [spread.mean for spread in spreads if spread is not None]
        yield number(math.fsum(means) / len(means)) if means else "-"


def _preferences(standings: Standings, published: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    yield ["policy", "setting", *BENCHMARKS.values()]
    for (setting, policy), found in standings.items():
        yield [policy, setting, *(_score(_on(found, name)) for name in BENCHMARKS.values())]
    for row in published["preference"] if standings else ():
        yield [f"paper: {row['model']}", SETTINGS["paper"], *(_cell(row[name]) for name in BENCHMARKS.values())]


def _score(figures: Sequence[Figures]) -> str:
    """The mean over all pairs of all preferences."""
    known = [f.preference for f in figures if f.preference is not None]
    pairs = sum(one.pairs for one in known)
    return f"{100 * math.fsum(one.mean * one.pairs for one in known) / pairs:.1f}" if pairs else "-"


def _calls(standings: Standings, published: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """The models that the paper has first, then others."""
    first = [name for name in published["calls"][0] if name != "model"]
    counted = {key: [_counts(f) for _, f in found] for key, found in standings.items()}
    seen = {name for counts in counted.values() for one in counts for name in one}
    if not seen:
        return
    names = [*first, *sorted(seen - set(first))]
    yield ["policy", "setting", *names]
    for (setting, policy), counts in counted.items():
        means = (math.fsum(one.get(name, 0.0) for one in counts) / len(counts) for name in names)
        yield [policy, setting, *(f"{mean:.1f}" for mean in means)]
    for row in published["calls"]:
        yield [f"paper: {row['model']}", SETTINGS["paper"], *(_cell(row.get(name)) for name in names)]


def _counts(figures: Figures) -> dict[str, float]:
    made = dict(figures.calls_by_model)
    for key, count in figures.calls.items():
        if column := TOOLS.get(key.partition("-")[0]):
            made[column] = made.get(column, 0.0) + count
    return made


def _on(found: Sequence[tuple[PaperSetting, Figures]], benchmark: str) -> list[Figures]:
    return [figures for place, figures in found if place.benchmark == benchmark]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
