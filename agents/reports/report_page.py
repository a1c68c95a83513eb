"""The page of a training run: one HTML file that loads nothing, for a wide window or a phone, light or dark.

Its size has a bound that does not grow with the run: charts have MOST_POINTS points a line, texts of episodes are cut,
and the whole episodes stand in pages of their own. A report of many steps takes less than a megabyte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from toolorchestra.agents.evaluation.heldout import CALLS
from toolorchestra.agents.evaluation.panel import POLICY
from toolorchestra.agents.reports.charts import Chart, bar_chart
from toolorchestra.agents.reports.episode_html import episode_html
from toolorchestra.agents.reports.plane_chart import PlanePoint, plane_chart
from toolorchestra.agents.reports.report_data import TESTED_PAGE, ReportData, last_group, some_tested
from toolorchestra.agents.reports.svg import tag, text_of
from toolorchestra.agents.reports.training_curves import curves
from toolorchestra.agents.training.opening import counted
from toolorchestra.agents.training.sessions import seconds_of

MINE = "the trained policy"
SHOWN = 2
"""Right, wrong and failed episodes of the test, each."""
SIMULATED = (
    "Simulated: experts and their latencies are those of the embedded worlds. Nothing here measures a real model."
)
REWARDS = (
    "The held-out reward goes from 0 to 1: it weighs right answers, cents, seconds and favoured tools by the user's "
    "wish, on the scale of the fixed players. A wrong answer earns 0. Ends of intervals are of 95 %."
)


def report_page(data: ReportData) -> str:
    """The whole page of a training run, as HTML."""
    summary = data.summary
    body = [
        tag("h1", text_of(data.title)),
        tag("p", text_of(_reached(summary)), class_="lead"),
        tag("p", SIMULATED, class_="note") if summary.get("simulated") else "",
        _facts(data),
        tag("h2", "The result, on the test split"),
        _standings(summary["standings"]),
        tag("p", REWARDS, class_="about"),
        _cards(_planes(data), "grid planes"),
        tag("h2", "Learning"),
        _cards([*curves(data.train, data.evaluations, data.warm), *_calls(data)], "grid"),
        *_wishes(summary.get("by_wish") or {}),
        *_environments(summary.get("by_environment") or {}),
        tag("h2", "Counterfactual probes"),
        tag("p", "The same task with one thing changed: how often each side was chosen.", class_="about"),
        _probes(summary.get("probes") or ()),
        *_episodes(data),
        *_configuration(data),
        _foot(data),
    ]
    return document(data.title, "".join(body))


def document(title: str, body: str) -> str:
    """A page around a body. Its policy lets it run and load nothing."""
    folder = resources.files("toolorchestra.agents") / "data" / "training_report"
    style = (folder / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text_of(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def table(head: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]]) -> str:
    """Cells are markup already; a row may be marked. A column whose head ends in * is left out on a phone."""
    hidden = ["wide-only" if name.endswith("*") else None for name in head]
    top = "".join(tag("th", text_of(name.rstrip("*")), class_=kind) for name, kind in zip(head, hidden, strict=True))
    lines = "".join(
        tag(
            "tr",
            *(tag("td", cell, class_=kind) for cell, kind in zip(cells, hidden, strict=True)),
            class_="mine" if mine else None,
        )
        for mine, cells in rows
    )
    return tag("div", tag("table", tag("thead", tag("tr", top)), tag("tbody", lines), class_="data"), class_="scroll")


# -- the head ----------------------------------------------------------------------------------------------------------


def _reached(summary: Mapping[str, Any]) -> str:
    where = "On tasks, prices, tools and wordings never trained on, as far as the environments vary them, the policy"
    mine, share = summary["standings"][POLICY], summary.get("of_oracle")
    solved = f"{where} solves {mine['accuracy']:.1%} at {mine['cents']:.2f} ¢ a task"
    if not share:
        return f"{solved}. No fixed player can play them."
    only = [name for name, panel in (summary.get("by_environment") or {}).items() if "oracle" not in panel]
    note = f" Fixed players do not play {', '.join(sorted(only))}." if only else ""
    return (
        f"{solved}. It earns {share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}] of the held-out reward of "
        f"an oracle that knows questions, skills and the wish.{note}"
    )


def _facts(data: ReportData) -> str:
    summary, sessions = data.summary, data.sessions
    facts = [("steps", f"{summary['steps']}; the weights are those of step {summary['best_step']}")]
    if sessions:
        last, size = sessions[-1], sessions[-1].size
        if size is not None:
            trained = "all trained" if size.trained == size.parameters else f"{counted(size.trained)} trained"
            facts.append(("parameters", f"{counted(size.parameters)}, {trained}"))
        times = f" in {len(sessions)} sessions" if len(sessions) > 1 else ""
        if first := sessions[0].step:
            facts.append(("training took", f"not recorded up to step {first}"))
        else:
            facts.append(("training took", duration(seconds_of(list(sessions))) + times))
        facts += [
            ("began" if not first else "went on", sessions[0].date),
            ("machine", last.machine),
            ("version", f"toolorchestra {last.version}"),
        ]
    else:
        facts.append(("machine and duration", "not recorded by the version that trained it"))
    names = ", ".join(summary.get("by_environment") or ())
    facts.append(("environments", names.replace("ToolOrchestra/", "")))
    facts.append(("test", f"{summary['standings'][POLICY]['tasks']} tasks, {summary['failed']} episodes failed"))
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", text_of(value))) for name, value in facts), class_="facts")


def duration(seconds: float) -> str:
    """A duration as text in seconds, minutes or hours, such as "5 min"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


# -- the result --------------------------------------------------------------------------------------------------------


def _ends(standing: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Of an interval, where the summary has one."""
    found = (standing.get("intervals") or {}).get(name)
    return (found[0], found[1]) if found else None


def _with_ends(value: str, ends: tuple[float, float] | None, form: str) -> str:
    return value + (tag("small", f"{form.format(ends[0])} to {form.format(ends[1])}") if ends else "")


def _called(name: str) -> str:
    return MINE if name == POLICY else name


def _standings(standings: Mapping[str, Mapping[str, Any]]) -> str:
    head = ["player", "held-out reward", "right", "¢ a task", "¢ a solved task*", "seconds a task*"]
    rows = []
    for name, one in standings.items():
        solved = one["cents_per_solved"]
        cells = [
            text_of(_called(name)),
            _with_ends(f"{one['reward']:.3f}", _ends(one, "reward"), "{:.3f}"),
            _with_ends(f"{one['accuracy']:.1%}", _ends(one, "accuracy"), "{:.1%}"),
            _with_ends(f"{one['cents']:.2f}", _ends(one, "cents"), "{:.2f}"),
            "–" if solved is None else f"{solved:.2f}",
            f"{one['seconds']:.0f}",
        ]
        rows.append((name == POLICY, cells))
    alone = "" if len(rows) > 1 else tag("p", "No baseline can play these environments.")
    return table(head, rows) + alone


def _planes(data: ReportData) -> list[Chart | None]:
    points = [
        PlanePoint(
            _called(name), one["cents"], one["accuracy"], _ends(one, "cents"), _ends(one, "accuracy"), name == POLICY
        )
        for name, one in data.summary["standings"].items()
    ]
    about = "Up and to the left is better. The dashed line joins players that no other beats."
    if any(one.accuracy_ends for one in points):
        about += " Bars are intervals of 95 % over tasks."
    return [plane_chart("The test: accuracy and cost", about, points), _way(data)]


def _way(data: ReportData) -> Chart | None:
    """Before and after, on the tasks of the validation split, which all evaluations share."""
    rows = data.evaluations
    if len(rows) < 2:
        return None
    last = rows[-1]
    others = [name for name in data.summary["standings"] if name != POLICY and f"{name}/accuracy" in last]
    points = [PlanePoint(name, last[f"{name}/cents"], last[f"{name}/accuracy"]) for name in others]
    way = [(row[f"{POLICY}/cents"], row[f"{POLICY}/accuracy"]) for row in rows]
    about = "The policy at each evaluation, on the tasks of the validation split; the ring is where it began."
    mine = [PlanePoint(f"step {last['step']}", *way[-1], trained=True)]
    return plane_chart("Before and after", about, [*points, *mine], way, (f"step {rows[0]['step']}", ""))


def _calls(data: ReportData) -> list[Chart | None]:
    after = data.summary["standings"][POLICY]["calls"]
    first: Mapping[str, Any] = next((row for row in data.evaluations if row["step"] == 0), {})
    before = {name.removeprefix(CALLS): count for name, count in first.items() if name.startswith(CALLS)}
    keys = sorted({*after, *before}, key=lambda key: -max(after.get(key, 0), before.get(key, 0)))[:16]
    rows = [(key, [before.get(key, 0.0), after.get(key, 0.0)]) for key in keys]
    about = "By tool, the policy's own. Before: the validation split at step 0. After: the test split."
    return [bar_chart("Calls of a task", about, rows, ("before", "after"), unit="calls a task")]


def _cards(charts: Sequence[Chart | None], kind: str) -> str:
    return tag("div", *(chart.html() for chart in charts if chart is not None), class_=kind)


# -- tables ------------------------------------------------------------------------------------------------------------


def _wishes(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    head = ["wish", "tasks", "of the oracle's reward", "held-out reward", "right", "¢ a task", "oracle: right*",
            "oracle: ¢*"]  # fmt: skip
    rows = []
    for wish, one in found.items():
        mine, oracle, share = one["policy"], one["oracle"], one["of_oracle"]
        part = _with_ends(f"{share['value']:.0%}", (share["low"], share["high"]), "{:.0%}") if share else "–"
        rows.append((False, [text_of(wish), str(mine["tasks"]), part, f"{mine['reward']:.3f}",
                             f"{mine['accuracy']:.0%}", f"{mine['cents']:.2f}", f"{oracle['accuracy']:.0%}",
                             f"{oracle['cents']:.2f}"]))  # fmt: skip
    return [tag("h2", "By the user's wish"), table(head, rows)]


def _environments(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if len(found) < 2:
        return []
    made = [tag("h2", "By environment")]
    for name, standings in found.items():
        made += [tag("h3", text_of(name.replace("ToolOrchestra/", ""))), _standings(standings)]
    return made


def _probes(probes: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            False,
            [
                text_of(one["name"]),
                f"{text_of(one['left'])}: {one['left_rate']:.2f}",
                f"{text_of(one['right'])}: {one['right_rate']:.2f}",
                f"{one['shift']:+.2f}",
            ],
        )
        for one in probes
    ]
    return table(["what", "one side", "other side", "shift"], rows)


# -- episodes ----------------------------------------------------------------------------------------------------------


def _episodes(data: ReportData) -> list[str]:
    made = []
    if tested := some_tested(data.tested, SHOWN):
        link = tag("a", "all episodes of the test", href=TESTED_PAGE)
        wrong = tag("a", "those that went wrong", href=f"{TESTED_PAGE}#view=trials&outcome=wrong")
        about = f"Some that went wrong and some that went right. {link}, and {wrong}, with filters and every charge."
        made += [tag("h2", "Episodes of the test"), tag("p", about), *map(episode_html, tested)]
    if group := last_group(data.dumped):
        about = (
            f"Rollouts of one task, compared with each other. {tag('a', 'all that were kept', href='../page.html')}, "
        )
        made += [tag("h2", "A group of training"), tag("p", f"{about}by step, with rewards and reasons.")]
        made += [episode_html(line, _learnt(line["training"])) for line in group]
    return made


def _learnt(training: Mapping[str, Any]) -> str:
    """What a rollout of training got."""
    reward, advantage = training.get("reward"), training.get("advantage")
    got = "no reward" if reward is None else f"group reward {reward:.2f}"
    taught = f"taught nothing: {training.get('left_out')}" if advantage is None else f"advantage {advantage:+.2f}"
    return f"step {training.get('step')}, rollout {training.get('rollout')}: {got}, {taught}"


def _configuration(data: ReportData) -> list[str]:
    if data.configuration is None:
        return []
    dumped = tag("pre", text_of(json.dumps(data.configuration, indent=1)))
    return [tag("h2", "Configuration"), tag("details", tag("summary", "All settings of the run"), dumped)]


def _foot(data: ReportData) -> str:
    return tag(
        "footer", text_of(f"Made of {data.folder.name}/report/summary.json and {data.folder.name}/metrics.jsonl.")
    )
