"""Charts as SVG that take their colours from the page's style: lines over steps, stacked parts, bars.

Each is drawn 360 wide, so that on a phone its letters are about as large as the page's. Legends are lists below the
drawing. A long run is drawn through MOST_POINTS points at most, each the mean of the steps that it stands for, so the
size of a page does not grow with the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from toolorchestra.agents.reports.svg import Room, label, path, plain, scale, tag, text_of, ticks, whole_ticks

WIDTH, HEIGHT = 360, 220
MOST_POINTS = 240
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    """Step and value."""
    colour: str = "c0"
    """A class of the page's style."""
    dashed: bool = False
    band: Sequence[tuple[float, float, float]] = ()
    """Step, and the ends of the value's interval."""
    faint: Sequence[Point] = ()
    """Single values behind a smoothed line."""


@dataclass(frozen=True)
class Chart:
    """A drawing with its title, what is to be known of it, and its legend."""

    title: str
    about: str
    drawing: str
    legend: Sequence[tuple[str, str, bool]] = ()
    """Name, colour, and whether its line is dashed."""

    def html(self) -> str:
        """As a card of a page."""
        rows = "".join(
            tag("li", tag("span", class_=f"key {colour}{' dashed' if dashed else ''}"), text_of(name))
            for name, colour, dashed in self.legend
        )
        legend = tag("ul", rows, class_="legend") if rows else ""
        about = tag("p", text_of(self.about), class_="about") if self.about else ""
        return tag("figure", tag("h3", text_of(self.title)), about, self.drawing, legend, class_="card")


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """As many points at most, each the mean of its neighbours."""
    if len(points) <= most:
        return list(points)
    edges = [round(place * len(points) / most) for place in range(most + 1)]
    parts = [points[start:end] for start, end in pairwise(edges)]
    return [(statistics.fmean(x for x, _ in part), statistics.fmean(y for _, y in part)) for part in parts]


def smoothed(points: Sequence[Point], window: int) -> list[Point]:
    """Each value as the mean of `window` steps around it; of fewer at the ends."""
    half, made = window // 2, []
    for place, (x, _) in enumerate(points):
        around = points[max(0, place - half) : place + half + 1]
        made.append((x, statistics.fmean(y for _, y in around)))
    return made


def line_chart(
    title: str,
    about: str,
    lines: Sequence[Line],
    *,
    unit: str,
    value: Callable[[float], str] = plain,
    x_name: str = "step",
) -> Chart | None:
    """Lines over steps. `unit` is what the upright axis counts. None where no line has a point."""
    drawn = [one for one in lines if one.points]
    if not drawn:
        return None
    every = [y for one in drawn for _, y in (*one.points, *one.faint)]
    every += [end for one in drawn for _, *ends in one.band for end in ends]
    steps = [x for one in drawn for x, _ in one.points]
    named = ticks(min(every), max(every))
    room = Room(46, 24, WIDTH - 10, HEIGHT - 40)
    x = scale(min(steps), max(steps), room.left + 4, room.right - 4)
    y = scale(named[0], named[-1], room.bottom, room.top)
    parts = [
        _axes(room, [(y(one), value(one)) for one in named], unit),
        _steps(room, x, min(steps), max(steps), x_name),
    ]
    parts += [_band(one, x, y) for one in drawn if one.band]
    parts += [_dots(one, x, y) for one in drawn]
    parts += [_line(one, x, y) for one in drawn]
    ends = "; ".join(f"{one.name}: {value(one.points[0][1])} to {value(one.points[-1][1])}" for one in drawn)
    legend = [(one.name, one.colour, one.dashed) for one in drawn] if len(drawn) > 1 else []
    return Chart(title, about, _picture(f"{title}. {ends}", HEIGHT, parts), legend)


def stack_chart(title: str, about: str, parts: Sequence[tuple[str, Sequence[Point]]], *, unit: str) -> Chart | None:
    """Parts of a whole over steps, one upon the other."""
    thin = [(name, thinned(points)) for name, points in parts if any(y for _, y in points)]
    if not thin:
        return None
    steps = [x for x, _ in thin[0][1]]
    floor, layers = [0.0] * len(steps), []
    for place, (name, points) in enumerate(thin):
        top = [low + y for low, (_, y) in zip(floor, points, strict=True)]
        layers.append((name, f"c{place % 8}", floor, top))
        floor = top
    named = ticks(0.0, max(floor))
    room = Room(46, 24, WIDTH - 10, HEIGHT - 40)
    x, y = scale(steps[0], steps[-1], room.left + 4, room.right - 4), scale(named[0], named[-1], room.bottom, room.top)
    drawn = [_axes(room, [(y(one), plain(one)) for one in named], unit), _steps(room, x, steps[0], steps[-1], "step")]
    drawn += [_layer(steps, low, top, colour, x, y) for _, colour, low, top in layers]
    return Chart(title, about, _picture(title, HEIGHT, drawn), [(name, colour, False) for name, colour, _, _ in layers])


def bar_chart(
    title: str, about: str, rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], *, unit: str
) -> Chart | None:
    """For each row a bar of each name, lying, so that long names of rows fit."""
    if not rows:
        return None
    most = ticks(0.0, max([value for _, values in rows for value in values] + [1e-9]))
    step, top = 10 * len(names) + 8, 8
    height = top + step * len(rows) + 40
    room = Room(118, top, WIDTH - 14, height - 40)
    x = scale(0.0, most[-1], room.left, room.right)
    parts = [_upright(x(one), room, plain(one)) for one in most]
    parts.append(label((room.left + room.right) / 2, height - 6, unit, "middle"))
    for place, (name, values) in enumerate(rows):
        y = top + place * step + 4
        parts.append(label(room.left - 6, y + 5 * len(names) + 4, name[:17], "end", class_="name"))
        for number, value in enumerate(values):
            width = max(0.0, x(value) - room.left)
            parts.append(tag("rect", x=room.left, y=float(y + 10 * number), width=width, height=9, class_=f"c{number}"))
    about_bars = f"{title}. " + "; ".join(f"{name}: {', '.join(map(plain, values))}" for name, values in rows)
    return Chart(title, about, _picture(about_bars, height, parts), [(n, f"c{k}", False) for k, n in enumerate(names)])


# -- parts of a chart --------------------------------------------------------------------------------------------------


def _picture(about: str, height: float, parts: Sequence[str]) -> str:
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=about)


def _axes(room: Room, named: Sequence[tuple[float, str]], unit: str) -> str:
    rules = [tag("line", x1=room.left, x2=room.right, y1=y, y2=y, class_="rule") for y, _ in named]
    words = [label(room.left - 6, y + 4, name, "end") for y, name in named]
    return "".join([*rules, *words, label(2, 12, unit)])


def _steps(room: Room, x: Callable[[float], float], first: float, last: float, name: str) -> str:
    named = whole_ticks(first, last) or [first]
    words = [label(x(one), room.bottom + 16, plain(one), "middle") for one in named]
    return "".join([*words, label((room.left + room.right) / 2, room.bottom + 34, name, "middle")])


def _upright(x: float, room: Room, name: str) -> str:
    rule = tag("line", x1=x, x2=x, y1=room.top, y2=room.bottom, class_="rule")
    return rule + label(x, room.bottom + 16, name, "middle")


def _band(one: Line, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    above = [(x(step), y(high)) for step, _, high in one.band]
    below = [(x(step), y(low)) for step, low, _ in reversed(one.band)]
    return path([*above, *below], class_=f"band {one.colour}")


def _dots(one: Line, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return "".join(tag("circle", cx=x(a), cy=y(b), r=1.4, class_=f"faint {one.colour}") for a, b in thinned(one.faint))


def _line(one: Line, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    points = [(x(a), y(b)) for a, b in thinned(one.points)]
    made = path(points, class_=f"line {one.colour}{' dashed' if one.dashed else ''}")
    if one.dashed or len(points) > 12:
        return made
    return made + "".join(tag("circle", cx=a, cy=b, r=3, class_=f"dot {one.colour}") for a, b in points)


def _layer(
    steps: Sequence[float],
    low: Sequence[float],
    top: Sequence[float],
    colour: str,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    above = [(x(step), y(value)) for step, value in zip(steps, top, strict=True)]
    below = [(x(step), y(value)) for step, value in zip(reversed(steps), reversed(low), strict=True)]
    return path([*above, *below], class_=f"layer {colour}")
