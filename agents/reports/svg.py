"""Parts of a drawing in SVG: elements with escaped texts, scales, and the numbers that an axis names."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolorchestra.envs.base.marks import clean

Scale = Callable[[float], float]


def text_of(value: object) -> str:
    """A text for HTML, as an attribute's value too: escaped, and without characters that no page can show."""
    return html.escape(clean(str(value)))


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element. Children are markup already; attributes are texts, and one that is None is left out. `class_` is
    written as class, `text_anchor` as text-anchor."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text_of(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{told}>{''.join(children)}</{name}>"


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def label(x: float, y: float, words: object, anchor: str = "start", **attributes: object) -> str:
    """A text in a drawing."""
    return tag("text", text_of(words), x=float(x), y=float(y), text_anchor=anchor, **attributes)


def path(points: Sequence[tuple[float, float]], **attributes: object) -> str:
    """A path element: straight lines from each point to the next."""
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), **attributes)


@dataclass(frozen=True)
class Room:
    """Where the data of a drawing are: between left and right, and top and bottom."""

    left: float
    top: float
    right: float
    bottom: float


def scale(low: float, high: float, first: float, last: float, *, log: bool = False) -> Scale:
    """A function that turns values into places in a drawing: `low` into `first`, `high` into `last`, by logarithms with
    `log`."""
    of: Callable[[float], float] = math.log10 if log else float
    start, size = of(low), (of(high) - of(low)) or 1.0
    return lambda value: first + (of(value) - start) / size * (last - first)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from below the lowest value to above the highest, for an axis."""
    if not high > low:
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def whole_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """The same of steps, of which there are no halves, within the ends."""
    found = ticks(low, high, most)
    return [one for one in found if float(one).is_integer() and low <= one <= high]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, or fewer where there are many."""
    decades = math.log10(high / low)
    sizes = (1,) if decades > 3 else (1, 3) if decades > 1.5 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    made = [size * 10.0**power for power in powers for size in sizes]
    return [one for one in made if low * 0.999 <= one <= high * 1.001]


def plain(value: float) -> str:
    """A number of an axis: three digits, and no zeros behind them."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
