"""Owns the handbook: a fixed, seeded set of passages on fictional entities, and the constants that they state."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from toolorchestra.envs.base.types import Fact, Passage

_SEED = 20_417
_ELEMENTS, _PLANETS, _MOONS, _CALENDARS, _SOLIDS, _LIQUIDS = 90, 70, 60, 40, 50, 40
_GRAVITATIONAL_M3_PER_KG_S2 = 6.674e-11

_ONSETS = (
    "b",
    "br",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "k",
    "kl",
    "l",
    "m",
    "n",
    "p",
    "sk",
    "t",
    "th",
    "v",
    "w",
    "y",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ae", "ou")
_MIDDLES = ("b", "dr", "gl", "lth", "ndr", "lv", "mb", "rg", "rv", "shk", "sk", "thr", "v", "zh", "zn")
# No coda that a stemmer would cut off: two names must not meet in one stem.
_CODAS = ("k", "m", "nth", "rk", "rn", "lk", "x", "lm", "sh")

_MONTHS = range(8, 14)
_COUNTS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen"}


@dataclass(frozen=True, slots=True)
class Stated:
    """A constant and where the handbook states it."""

    value: float
    fact: Fact


@dataclass(frozen=True, slots=True)
class Element:
    """A fictional chemical element."""

    name: str
    atomic_mass_g_per_mol: Stated


@dataclass(frozen=True, slots=True)
class Material:
    """A fictional solid or liquid."""

    name: str
    density_kg_per_m3: Stated
    specific_heat_j_per_kg_k: Stated


@dataclass(frozen=True, slots=True)
class Calendar:
    """A fictional calendar without leap days."""

    name: str
    month_days: tuple[int, ...]
    fact: Fact

    @property
    def year_days(self) -> int:
        """Length of every year."""
        return sum(self.month_days)


@dataclass(frozen=True, slots=True)
class Planet:
    """A fictional planet and the calendar that is kept on it."""

    name: str
    gravity_m_per_s2: Stated
    calendar: Calendar
    calendar_fact: Fact


@dataclass(frozen=True, slots=True)
class Moon:
    """An invented moon of the handbook. Questions of astronomy ask for dates of its phases; `fact` is the passage that
    a search finds."""

    name: str
    planet: Planet
    cycle_hundredth_days: int
    """Time from full moon to full moon; in hundredths, so that dates are computed without rounding."""
    fact: Fact


@dataclass(frozen=True, slots=True)
class Contents:
    """Every entity of the handbook and every passage."""

    elements: tuple[Element, ...]
    solids: tuple[Material, ...]
    liquids: tuple[Material, ...]
    calendars: tuple[Calendar, ...]
    planets: tuple[Planet, ...]
    moons: tuple[Moon, ...]
    passages: tuple[Passage, ...]


@lru_cache(maxsize=1)
def contents() -> Contents:
    """The whole handbook, the same in every process."""
    rng = random.Random(_SEED)
    names = _names(rng)
    passages: list[Passage] = []
    elements = tuple(_element(rng, next(names), passages) for _ in range(_ELEMENTS))
    solids = tuple(_solid(rng, next(names) + "ite", passages) for _ in range(_SOLIDS))
    liquids = tuple(_liquid(rng, next(names) + "ol", passages) for _ in range(_LIQUIDS))
    calendars = tuple(_calendar(rng, next(names).capitalize() + "ian", passages) for _ in range(_CALENDARS))
    planets = tuple(
        _planet(rng, next(names).capitalize(), calendars[index % _CALENDARS], passages) for index in range(_PLANETS)
    )
    moons = tuple(_moon(rng, next(names).capitalize(), planet, passages) for planet in planets[:_MOONS])
    return Contents(elements, solids, liquids, calendars, planets, moons, tuple(passages))


def handbook() -> tuple[Passage, ...]:
    """All passages of the handbook."""
    return contents().passages


def _names(rng: random.Random) -> Iterator[str]:
    seen: set[str] = set()
    while True:
        parts = (_ONSETS, _VOWELS, _MIDDLES, _VOWELS, _CODAS)
        name = "".join(rng.choice(part) for part in parts)
        if name not in seen:
            seen.add(name)
            yield name


def _uneven(rng: random.Random, low: int, high: int, places: int) -> float:
    """A number whose last decimal is not 0, so that no whole number in a question can give it away."""
    scale: int = 10**places
    scaled = rng.randrange(low * scale, high * scale)
    return (scaled + (scaled % 10 == 0)) / scale


def _element(rng: random.Random, name: str, passages: list[Passage]) -> Element:
    mass = _uneven(rng, 21, 240, 2)
    stated = f"The atomic mass of {name} is {mass:.2f} g/mol."
    look = rng.choice(
        ("dull grey metal", "brittle blue solid", "soft silvery metal", "pale violet powder", "heavy gas")
    )
    use = rng.choice(("lamp filaments", "marine alloys", "glazes", "relay contacts", "optical glass"))
    sentences = (
        f"{name.capitalize()} is a chemical element, known as a {look}.",
        stated,
        f"Its melting point is {_uneven(rng, 300, 2900, 1):.1f} K, and it is used in {use}.",
    )
    passages.append(_passage("element", name, sentences))
    return Element(name, Stated(mass, Fact(stated, f"{name} atomic mass")))


def _solid(rng: random.Random, name: str, passages: list[Passage]) -> Material:
    origin = rng.choice(("quarried in thin beds", "sintered from ash", "grown in pressure vessels", "cast in slabs"))
    return _material(rng, "solid", name, (2_000, 12_000), (f"solid material {origin}", passages))


def _liquid(rng: random.Random, name: str, passages: list[Passage]) -> Material:
    origin = rng.choice(("pressed from seed pods", "distilled from brine", "drawn from deep wells", "made from tar"))
    return _material(rng, "liquid", name, (620, 1_650), (f"clear liquid {origin}", passages))


def _material(
    rng: random.Random, kind: str, name: str, densities: tuple[int, int], entry: tuple[str, list[Passage]]
) -> Material:
    description, passages = entry
    density = _uneven(rng, *densities, 1)
    heat = _uneven(rng, 140, 1_900, 1)
    density_stated = f"The density of {name} is {density:.1f} kg/m³."
    heat_stated = f"The specific heat capacity of {name} is {heat:.1f} J/(kg K)."
    sentences = [density_stated, heat_stated]
    rng.shuffle(sentences)
    passages.append(_passage(kind, name, (f"{name.capitalize()} is a {description}.", *sentences)))
    return Material(
        name,
        Stated(density, Fact(density_stated, f"{name} density")),
        Stated(heat, Fact(heat_stated, f"{name} specific heat capacity")),
    )


def _calendar(rng: random.Random, name: str, passages: list[Passage]) -> Calendar:
    days = tuple(rng.randint(21, 48) for _ in range(rng.choice(_MONTHS)))
    listed = ", ".join(map(str, days[:-1])) + f" and {days[-1]}"
    stated = f"The months of the {name} calendar have, in order, {listed} days."
    feast = rng.choice(("the spring thaw", "the first harvest", "the longest night", "the return of the herds"))
    sentences = (
        f"The {name} calendar divides the year into {_COUNTS[len(days)]} months and has no leap days.",
        stated,
        f"Each {name} year opens with a feast for {feast}.",
    )
    passages.append(_passage("calendar", name, sentences))
    return Calendar(name, days, Fact(stated, f"{name} calendar months in order days"))


def _planet(rng: random.Random, name: str, calendar: Calendar, passages: list[Passage]) -> Planet:
    radius_km = rng.randint(2_200, 9_800)
    density = _uneven(rng, 2_900, 7_200, 1)
    exact = 4.0 / 3.0 * math.pi * _GRAVITATIONAL_M3_PER_KG_S2 * density * radius_km * 1_000.0
    hundredths = round(exact * 100.0)
    gravity = (hundredths + (hundredths % 10 == 0)) / 100.0
    gravity_stated = f"The surface gravity of {name} is {gravity:.2f} m/s²."
    calendar_stated = f"Dates on {name} are given in the {calendar.name} calendar."
    ground = rng.choice(("basalt plains", "salt deserts", "shallow seas", "glaciers", "broken highlands"))
    sentences = (
        f"{name} is a planet of {ground} with a radius of {radius_km} km and a mean density of {density:.1f} kg/m³.",
        gravity_stated,
        calendar_stated,
    )
    passages.append(_passage("planet", name, sentences))
    return Planet(
        name,
        Stated(gravity, Fact(gravity_stated, f"{name} planet surface gravity")),
        calendar,
        Fact(calendar_stated, f"{name} planet dates calendar"),
    )


def _moon(rng: random.Random, name: str, planet: Planet, passages: list[Passage]) -> Moon:
    cycle = round(_uneven(rng, 9, 70, 2) * 100)
    stated = f"From one full moon to the next, {name} takes {cycle / 100:.2f} days."
    sentences = (
        f"{name} is a moon of {planet.name}.",
        stated,
        f"The radius of {name} is {rng.randint(180, 2_100)} km.",
    )
    passages.append(_passage("moon", name, sentences))
    return Moon(name, planet, cycle, Fact(stated, f"{name} moon full cycle days"))


def _passage(kind: str, name: str, sentences: tuple[str, ...]) -> Passage:
    return Passage(f"handbook/{kind}/{name.lower()}", f"{name.capitalize()} ({kind})", " ".join(sentences))
