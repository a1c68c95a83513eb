"""A picture of the accuracy-cost plane for a page of documentation: players with intervals in both directions, the
front, and costs on a log scale; light and dark, as PNG and as SVG. `toolorchestra compare FOLDER... --picture FILE`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.comparison import NamedRun
from toolorchestra.agents.evaluation.rows import MANIFEST, EvaluationRow
from toolorchestra.agents.evaluation.statistics import mean_interval, share_of
from toolorchestra.agents.evaluation.summary import tally, tasks_of
from toolorchestra.agents.reports.plane_chart import PlanePoint, front_of
from toolorchestra.envs.base.errors import ConfigError

WIDTH, HEIGHT = 8.0, 4.6
"""Inches, of 150 points in the PNG."""


@dataclass(frozen=True)
class Theme:
    """The colours of a light or a dark picture."""

    paper: str
    ink: str
    soft: str
    rule: str
    mark: str
    front: str


THEMES: Mapping[str, Theme] = {
    "light": Theme("#ffffff", "#171a1f", "#59616e", "#e3e7ec", "#2563c9", "#c25e00"),
    "dark": Theme("#0d1117", "#e8eaee", "#a2abb8", "#272e38", "#6ea8ff", "#ffa657"),
}


@dataclass(frozen=True)
class FrontPicture:
    """What a picture shows: its title, a line about it and the points."""

    title: str
    about: str
    points: tuple[PlanePoint, ...]


def front_picture(runs: Sequence[NamedRun], folders: Sequence[Path], note: str = "") -> FrontPicture:
    """Of runs on one environment and split. Failed trials have no outcome: their players are left out, and named."""
    rows = [(run, row) for run in runs for row in run.rows]
    grounds = sorted({(row.env, row.split) for _, row in rows})
    if len(grounds) != 1:
        told = ", ".join(" ".join(ground) for ground in grounds) or "no trial"
        raise ConfigError(f"a picture is of one environment and split, but these runs have {told}; name fewer folders")
    players: dict[str, list[EvaluationRow]] = {}
    for run, row in rows:
        players.setdefault(row.policy if len(runs) == 1 else f"{row.policy} ({run.name})", []).append(row)
    points = {name: _point(name, some) for name, some in players.items()}
    unknown = [name for name, point in points.items() if point is None]
    shown = tuple(point for point in points.values() if point is not None)
    if not shown:
        raise ConfigError(
            "no policy of these runs has an outcome for each of its trials; go on with the runs, resume=True, until "
            "all of them have ended",
            command_line="toolorchestra evaluate with --resume",
        )
    (env, split), tasks = grounds[0], len({row.task for _, row in rows})
    about = f"{tasks} tasks of the {split} split, bars are intervals of 95 %"
    about += "; simulated experts and latencies" if _simulated(folders) else ""
    about += f"; trials of {', '.join(unknown)} failed" if unknown else ""
    about += f"; {note}" if note else ""
    return FrontPicture(f"{env}: accuracy and cost", about, shown)


def _point(name: str, rows: Sequence[EvaluationRow]) -> PlanePoint | None:
    """A player's means over tasks with their intervals; None where an outcome is not known."""
    by_task = tasks_of(rows).values()
    share = share_of([tally(some) for some in by_task])
    cents = [sum(100 * row.agent_usd for row in some) / len(some) for some in by_task]
    ends = mean_interval(cents)
    if share.value is None or ends is None or not sum(cents):
        return None
    right = (share.interval.low, share.interval.high)
    return PlanePoint(name, sum(cents) / len(cents), share.value, (ends.low, ends.high), right)


def _simulated(folders: Sequence[Path]) -> bool:
    """Whether all manifests say so."""
    paths = [folder / MANIFEST for folder in folders]
    return all(path.is_file() and json.loads(path.read_text(encoding="utf-8")).get("simulated") for path in paths)


def write_front(picture: FrontPicture, out: Path) -> list[Path]:
    """`OUT-light.png`, `OUT-dark.png` and the same as SVG. The same rows make the same files."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise ConfigError("a picture needs matplotlib, which is not installed: pip install matplotlib") from None
    out.parent.mkdir(parents=True, exist_ok=True)
    made = []
    with pyplot.rc_context({"svg.hashsalt": "toolorchestra", "font.family": "DejaVu Sans", "font.size": 10}):
        for name, theme in THEMES.items():
            figure = _figure(pyplot, picture, theme)
            for kind, told in (("png", {"Software": None}), ("svg", {"Date": None})):
                made.append(out.with_name(f"{out.name}-{name}.{kind}"))
                figure.savefig(made[-1], dpi=150, facecolor=theme.paper, metadata=told)
            pyplot.close(figure)
    return made


def _figure(pyplot: Any, picture: FrontPicture, theme: Theme) -> Any:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axis = pyplot.subplots(figsize=(WIDTH, HEIGHT), facecolor=theme.paper)
    axis.set_facecolor(theme.paper)
    axis.set_xscale("log")
    for one in picture.points:
        _draw_point(axis, one, theme)
    front = front_of(picture.points)
    places = [(one.cents, one.accuracy) for one in front]
    edge = axis.get_xlim()[1]
    axis.step([*(x for x, _ in places), edge], [*(y for _, y in places), places[-1][1]], where="post", lw=1.3,
              ls=(0, (4, 3)), color=theme.front, zorder=1)  # fmt: skip
    axis.set_xlim(right=edge)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axis.set_xlabel("cents a task (log scale)", color=theme.soft)
    axis.set_ylabel("right answers", color=theme.soft)
    axis.tick_params(colors=theme.soft, which="both", length=0)
    axis.grid(color=theme.rule, lw=0.8)
    axis.set_axisbelow(True)
    for spine in axis.spines.values():
        spine.set_visible(False)
    figure.text(0.02, 0.955, picture.title, color=theme.ink, fontsize=13, fontweight="bold", va="center")
    figure.text(0.02, 0.9, picture.about, color=theme.soft, fontsize=9, va="center")
    figure.subplots_adjust(left=0.1, right=0.98, top=0.86, bottom=0.13)
    _draw_names(figure, axis, picture.points, theme)
    return figure


def _draw_point(axis: Any, one: PlanePoint, theme: Theme) -> None:
    ends = {"xerr": one.cents_ends, "yerr": one.accuracy_ends}
    means = {"xerr": one.cents, "yerr": one.accuracy}
    bars = {name: [[means[name] - pair[0]], [pair[1] - means[name]]] for name, pair in ends.items() if pair}
    axis.errorbar(one.cents, one.accuracy, **bars, fmt="o", ms=7, color=theme.mark, ecolor=theme.mark, elinewidth=1.4,
                  capsize=0, zorder=3)  # fmt: skip


def _draw_names(figure: Any, axis: Any, points: Sequence[PlanePoint], theme: Theme) -> None:
    """Each name at the first place around its point where it covers no point, bar or other name, and is nearer to its
    point than to another."""
    from matplotlib.transforms import Bbox

    figure.canvas.draw()
    taken = [Bbox(bounds) for one in points for bounds in _covered(axis, one)]
    marks = [axis.transData.transform((one.cents, one.accuracy)) for one in points]
    for one in points:
        at = (one.cents, one.accuracy)
        for right, up in _around():
            sides = {
                "ha": ("left", "center", "right")[1 - (right > 0) + (right < 0)],
                "va": "bottom" if up > 0 else "top",
            }
            text = axis.annotate(one.name, at, xytext=(right, up), textcoords="offset points", color=theme.ink, **sides)
            box = text.get_window_extent()
            inside = axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and axis.bbox.y0 <= box.y0
            mine = _far(box, axis.transData.transform(at))
            if inside and not any(box.overlaps(other) for other in taken) and all(mine <= _far(box, x) for x in marks):
                break
            text.remove()
        else:  # over something, but not over the edge
            left = axis.transData.transform(at)[0] < (axis.bbox.x0 + axis.bbox.x1) / 2
            sides = {"ha": "left" if left else "right", "va": "bottom"}
            aside = (7 if left else -7, 7)
            text = axis.annotate(one.name, at, xytext=aside, textcoords="offset points", color=theme.ink, **sides)
        taken.append(text.get_window_extent())


def _far(box: Any, point: Sequence[float]) -> float:
    """How far a point is from a box."""
    (x, y) = point
    return math.hypot(max(box.x0 - x, 0.0, x - box.x1), max(box.y0 - y, 0.0, y - box.y1))


def _around() -> Iterator[tuple[int, int]]:
    """Offsets in points, near ones first; 0: in the middle above or below."""
    for far in (6, 12, 20, 30, 45, 60):
        yield from ((far, far), (-far, far), (far, -far), (-far, -far), (0, far), (0, -far))


def _covered(axis: Any, one: PlanePoint) -> Iterator[list[tuple[float, float]]]:
    """What a point and its bars cover, as corners on the screen."""
    x, y = axis.transData.transform((one.cents, one.accuracy))
    yield [(x - 6, y - 6), (x + 6, y + 6)]
    if one.cents_ends and one.accuracy_ends:
        left, below = axis.transData.transform((max(one.cents_ends[0], 1e-9), one.accuracy_ends[0]))
        right, above = axis.transData.transform((one.cents_ends[1], one.accuracy_ends[1]))
        yield [(left, y - 1), (right, y + 1)]
        yield [(x - 1, below), (x + 1, above)]
