"""The accuracy-cost plane as SVG: players with intervals in both directions, the front, and the way of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from toolorchestra.agents.reports.charts import Chart, Point
from toolorchestra.agents.reports.svg import Room, Scale, label, log_ticks, path, plain, scale, tag, text_of, ticks

WIDTH, HEIGHT = 360, 300
LETTER = 6.6
"""Width of a letter of a name, on average."""


@dataclass(frozen=True)
class PlanePoint:
    """One policy in the plane of accuracy and cost, with its intervals."""

    name: str
    cents: float
    accuracy: float
    cents_ends: tuple[float, float] | None = None
    accuracy_ends: tuple[float, float] | None = None
    trained: bool = False
    """Whether it is what the report is about."""


class Box(NamedTuple):
    """A rectangle that something takes up in the drawing: a corner, width and height."""

    x: float
    y: float
    w: float
    h: float

    def meets(self, other: Box) -> bool:
        """Whether both share some place."""
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )


def plane_chart(
    title: str, about: str, points: Sequence[PlanePoint], way: Sequence[Point] = (), names: tuple[str, str] = ("", "")
) -> Chart | None:
    """Players on the plane; `way` is a path of cents and accuracy, from before the training to its end."""
    shown = [one for one in points if one.cents > 0]
    if not shown:
        return None
    way = [(cents, accuracy) for cents, accuracy in way if cents > 0]
    room = Room(44, 22, WIDTH - 10, HEIGHT - 40)
    x, y, axes = _scales(shown, way, room)
    taken = [_around(x(one.cents), y(one.accuracy), 7) for one in shown]
    taken += [_around(x(cents), y(accuracy), 5) for cents, accuracy in way]
    taken += [box for one in shown for box in _covered(one, x, y)] + _front_boxes(shown, x, y, room)
    parts = [axes, _front(shown, x, y, room), *(_whiskers(one, x, y) for one in shown)]
    parts += [_way(way, x, y)] if len(way) > 1 else []
    parts += [_point(one, x, y) for one in shown]
    order = sorted(shown, key=lambda one: not one.trained)
    parts += [_name(one.name, x(one.cents), y(one.accuracy), taken, room, strong=one.trained) for one in order]
    if len(way) > 1:
        ends = zip(names, (way[0], way[-1]), strict=True)
        parts += [_name(words, x(c), y(a), taken, room, strong=True) for words, (c, a) in ends if words]
    words = "; ".join(f"{one.name}: {one.accuracy:.1%} at {one.cents:.3g} ¢" for one in shown)
    svg = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{title}. {words}")
    return Chart(title, about, svg)


def front_of(points: Sequence[PlanePoint]) -> list[PlanePoint]:
    """Players that no other beats: none is as accurate and as cheap, and better in one of the two."""
    made: list[PlanePoint] = []
    for one in sorted(points, key=lambda one: (one.cents, -one.accuracy)):
        if not made or one.accuracy > made[-1].accuracy:
            made.append(one)
    return made


def _scales(points: Sequence[PlanePoint], way: Sequence[Point], room: Room) -> tuple[Scale, Scale, str]:
    cents = [one.cents for one in points] + [c for c, _ in way]
    cents += [end for one in points if one.cents_ends for end in one.cents_ends if end > min(cents) / 4]
    low, high = min(cents) / 1.4, max(cents) * 1.4
    right = [one.accuracy for one in points] + [a for _, a in way]
    right += [end for one in points if one.accuracy_ends for end in one.accuracy_ends]
    named = [one for one in ticks(min(right), max(right)) if -1e-9 <= one <= 1 + 1e-9]
    bottom, top = min([*named, *right]), max([*named, *right])
    x = scale(low, high, room.left, room.right, log=True)
    y = scale(bottom, top, room.bottom, room.top)
    parts = [label(2, 12, "accuracy, %")]
    for one in named:
        parts.append(tag("line", x1=room.left, x2=room.right, y1=y(one), y2=y(one), class_="rule"))
        parts.append(label(room.left - 6, y(one) + 4, plain(100 * one), "end"))
    for one in log_ticks(low, high):
        parts.append(tag("line", x1=x(one), x2=x(one), y1=room.top, y2=room.bottom, class_="rule"))
        parts.append(label(x(one), room.bottom + 16, plain(one), "middle"))
    parts.append(label((room.left + room.right) / 2, room.bottom + 34, "cents a task (log scale)", "middle"))
    return x, y, "".join(parts)


def _covered(one: PlanePoint, x: Scale, y: Scale) -> list[Box]:
    """By its whiskers."""
    made = []
    if one.accuracy_ends:
        low, high = map(y, one.accuracy_ends)
        made.append(Box(x(one.cents) - 1, high, 2, low - high))
    if one.cents_ends and one.cents_ends[0] > 0:
        left, right = map(x, one.cents_ends)
        made.append(Box(left, y(one.accuracy) - 1, right - left, 2))
    return made


def _front_boxes(points: Sequence[PlanePoint], x: Scale, y: Scale, room: Room) -> list[Box]:
    """Where the front goes."""
    front = front_of(points)
    ends = [*(x(one.cents) for one in front[1:]), room.right]
    flat = [Box(x(one.cents), y(one.accuracy) - 1, end - x(one.cents), 2) for one, end in zip(front, ends, strict=True)]
    return flat + [Box(x(b.cents) - 1, y(b.accuracy), 2, y(a.accuracy) - y(b.accuracy)) for a, b in pairwise(front)]


def _front(points: Sequence[PlanePoint], x: Scale, y: Scale, room: Room) -> str:
    corners: list[Point] = []
    for one in front_of(points):
        if corners:
            corners.append((x(one.cents), corners[-1][1]))
        corners.append((x(one.cents), y(one.accuracy)))
    return path([*corners, (room.right, corners[-1][1])], class_="front")


def _whiskers(one: PlanePoint, x: Scale, y: Scale) -> str:
    made, kind = "", f"whisker {_colour(one)}"
    if one.accuracy_ends:
        low, high = one.accuracy_ends
        made += tag("line", x1=x(one.cents), x2=x(one.cents), y1=y(low), y2=y(high), class_=kind)
    if one.cents_ends and one.cents_ends[0] > 0:
        low, high = one.cents_ends
        made += tag("line", x1=x(low), x2=x(high), y1=y(one.accuracy), y2=y(one.accuracy), class_=kind)
    return made


def _way(way: Sequence[Point], x: Scale, y: Scale) -> str:
    places = [(x(cents), y(accuracy)) for cents, accuracy in way]
    dots = "".join(tag("circle", cx=a, cy=b, r=2.5, class_="dot c0") for a, b in places[1:-1])
    ends = tag("circle", cx=places[0][0], cy=places[0][1], r=4.5, class_="hollow c0")
    ends += tag("circle", cx=places[-1][0], cy=places[-1][1], r=5, class_="dot c0")
    return path(places, class_="line c0") + dots + ends


def _point(one: PlanePoint, x: Scale, y: Scale) -> str:
    told = tag("title", text_of(f"{one.name}: {one.accuracy:.1%} at {one.cents:.3g} ¢ a task"))
    return tag("circle", told, cx=x(one.cents), cy=y(one.accuracy), r=6.0 if one.trained else 4.0,
               class_=f"dot {_colour(one)}")  # fmt: skip


def _colour(one: PlanePoint) -> str:
    return "c0" if one.trained else "c7"


def _around(x: float, y: float, r: float) -> Box:
    return Box(x - r, y - r, 2 * r, 2 * r)


def _name(words: str, x: float, y: float, taken: list[Box], room: Room, *, strong: bool) -> str:
    """At the first place around its point where it touches nothing and is not cut off."""
    width, height = len(words) * LETTER + 4, 14.0
    places = [
        (x + dx if dx > 0 else x - width + dx, y + dy)
        for far in (6, 14, 24)
        for dx, dy in (
            (far, -7 - far),
            (-far, -7 - far),
            (far, far - 6),
            (-far, far - 6),
            (far + 2, -7),
            (-far - 2, -7),
        )
    ]
    boxes = [Box(a, b, width, height) for a, b in places]
    inside = [
        box
        for box in boxes
        if box.x >= room.left
        and box.x + width <= room.right
        and box.y >= room.top - 8
        and box.y + height <= room.bottom
    ]
    box = next((one for one in inside if not any(one.meets(other) for other in taken)), (inside or boxes)[0])
    taken.append(box)
    return label(box.x + 2, box.y + 11, words, class_="name strong" if strong else "name")
