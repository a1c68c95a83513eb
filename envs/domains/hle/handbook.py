"""Owns the handbook: a fixed, seeded set of passages on fictional entities, and the constants that they state."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from toolorchestra.envs.base.types import Fact, Passage

_SEED = 20_417
_ELEMENTS, _PLANETS, _MOONS, _CALENDARS, _SOLIDS, _LIQUIDS = 90, 70, 60, 40, 50, 40
_GRAVITATIONAL_M3_PER_KG_S2 = 6.674e-11

_ONSETS = "b br d dr f g gr h k kl l m n p sk t th v w y z".split()
_VOWELS = "a e i o u ae ou".split()
_MIDDLES = "b dr gl lth ndr lv mb rg rv shk sk thr v zh zn".split()
# No coda that a stemmer would cut off: two names must not meet in one stem.
_CODAS = "k m nth rk rn lk x lm sh".split()

_MONTHS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen"}


class Stated(NamedTuple):
    """A constant and where the handbook states it."""

    value: float
    fact: Fact


class Element(NamedTuple):
    """A fictional chemical element."""

    name: str
    passage: Passage
    atomic_mass_g_per_mol: Stated


class Material(NamedTuple):
    """A fictional solid or liquid."""

    name: str
    passage: Passage
    density_kg_per_m3: Stated
    specific_heat_j_per_kg_k: Stated


class Calendar(NamedTuple):
    """A fictional calendar without leap days."""

    name: str
    passage: Passage
    month_days: tuple[int, ...]
    fact: Fact

    @property
    def year_days(self) -> int:
        """Length of every year."""
        return sum(self.month_days)


class Planet(NamedTuple):
    """A fictional planet and the calendar that is kept on it."""

    name: str
    passage: Passage
    gravity_m_per_s2: Stated
    calendar: Calendar
    calendar_fact: Fact


class Moon(NamedTuple):
    """An invented moon of the handbook. Questions of astronomy ask for dates of its phases; `fact` is the passage that
    a search finds."""

    name: str
    passage: Passage
    planet: Planet
    cycle_hundredth_days: int
    """Time from full moon to full moon; in hundredths, so that dates are computed without rounding."""
    fact: Fact


class Contents(NamedTuple):
    """Every entity of the handbook and every passage."""

    elements: tuple[Element, ...]
    solids: tuple[Material, ...]
    liquids: tuple[Material, ...]
    calendars: tuple[Calendar, ...]
    planets: tuple[Planet, ...]
    moons: tuple[Moon, ...]
    passages: tuple[Passage, ...]


@cache
def contents() -> Contents:
    """The whole handbook, the same in every process."""
    rng = random.Random(_SEED)
    names = _names(rng)
    elements = tuple(_element(rng, next(names)) for _ in range(_ELEMENTS))
    solids = tuple(_solid(rng, next(names) + "ite") for _ in range(_SOLIDS))
    liquids = tuple(_liquid(rng, next(names) + "ol") for _ in range(_LIQUIDS))
    calendars = tuple(_calendar(rng, next(names).capitalize() + "ian") for _ in range(_CALENDARS))
    planets = tuple(_planet(rng, next(names).capitalize(), calendars[index % _CALENDARS]) for index in range(_PLANETS))
    moons = tuple(_moon(rng, next(names).capitalize(), planet) for planet in planets[:_MOONS])
    tables = (elements, solids, liquids, calendars, planets, moons)
    return Contents(*tables, tuple(entity.passage for table in tables for entity in table))


def _names(rng: random.Random) -> Iterator[str]:
    seen: set[str] = set()
    while True:
        name = "".join(rng.choice(part) for part in (_ONSETS, _VOWELS, _MIDDLES, _VOWELS, _CODAS))
        if name not in seen:
            seen.add(name)
            yield name


def _uneven(rng: random.Random, low: int, high: int, places: int) -> float:
    """A number whose last decimal is not 0, so that no whole number in a question can give it away."""
    scale: int = 10**places
    scaled = rng.randrange(low * scale, high * scale)
    return (scaled + (scaled % 10 == 0)) / scale


def _element(rng: random.Random, name: str) -> Element:
    mass = _uneven(rng, 21, 240, 2)
    stated = f"The atomic mass of {name} is {mass:.2f} g/mol."
    looks = ("dull grey metal", "brittle blue solid", "soft silvery metal", "pale violet powder", "heavy gas")
    look = rng.choice(looks)
    use = rng.choice(("lamp filaments", "marine alloys", "glazes", "relay contacts", "optical glass"))
    text = (
        f"{name.capitalize()} is a chemical element, known as a {look}. {stated} "
        f"Its melting point is {_uneven(rng, 300, 2900, 1):.1f} K, and it is used in {use}."
    )
    return Element(name, _passage("element", name, text), Stated(mass, Fact(stated, f"{name} atomic mass")))


def _solid(rng: random.Random, name: str) -> Material:
    origin = rng.choice(("quarried in thin beds", "sintered from ash", "grown in pressure vessels", "cast in slabs"))
    return _material(rng, "solid", name, (2_000, 12_000), f"solid material {origin}")


def _liquid(rng: random.Random, name: str) -> Material:
    origin = rng.choice(("pressed from seed pods", "distilled from brine", "drawn from deep wells", "made from tar"))
    return _material(rng, "liquid", name, (620, 1_650), f"clear liquid {origin}")


def _material(rng: random.Random, kind: str, name: str, densities: tuple[int, int], looks: str) -> Material:
    density, heat = _uneven(rng, *densities, 1), _uneven(rng, 140, 1_900, 1)
    density_stated = f"The density of {name} is {density:.1f} kg/m³."
    heat_stated = f"The specific heat capacity of {name} is {heat:.1f} J/(kg K)."
    sentences = [density_stated, heat_stated]
    rng.shuffle(sentences)
    return Material(
        name,
        _passage(kind, name, " ".join([f"{name.capitalize()} is a {looks}.", *sentences])),
        Stated(density, Fact(density_stated, f"{name} density")),
        Stated(heat, Fact(heat_stated, f"{name} specific heat capacity")),
    )


def _calendar(rng: random.Random, name: str) -> Calendar:
    days = tuple(rng.randint(21, 48) for _ in range(rng.choice(list(_MONTHS))))
    listed = ", ".join(map(str, days[:-1])) + f" and {days[-1]}"
    stated = f"The months of the {name} calendar have, in order, {listed} days."
    feast = rng.choice(("the spring thaw", "the first harvest", "the longest night", "the return of the herds"))
    text = (
        f"The {name} calendar divides the year into {_MONTHS[len(days)]} months and has no leap days. {stated} "
        f"Each {name} year opens with a feast for {feast}."
    )
    return Calendar(name, _passage("calendar", name, text), days, Fact(stated, f"{name} calendar months in order days"))


def _planet(rng: random.Random, name: str, calendar: Calendar) -> Planet:
    radius_km = rng.randint(2_200, 9_800)
    density = _uneven(rng, 2_900, 7_200, 1)
    exact = 4.0 / 3.0 * math.pi * _GRAVITATIONAL_M3_PER_KG_S2 * density * radius_km * 1_000.0
    hundredths = round(exact * 100.0)
    gravity = (hundredths + (hundredths % 10 == 0)) / 100.0
    gravity_stated = f"The surface gravity of {name} is {gravity:.2f} m/s²."
    calendar_stated = f"Dates on {name} are given in the {calendar.name} calendar."
    ground = rng.choice(("basalt plains", "salt deserts", "shallow seas", "glaciers", "broken highlands"))
    text = (
        f"{name} is a planet of {ground} with a radius of {radius_km} km and a mean density of {density:.1f} kg/m³. "
        f"{gravity_stated} {calendar_stated}"
    )
    return Planet(
        name,
        _passage("planet", name, text),
        Stated(gravity, Fact(gravity_stated, f"{name} planet surface gravity")),
        calendar,
        Fact(calendar_stated, f"{name} planet dates calendar"),
    )


def _moon(rng: random.Random, name: str, planet: Planet) -> Moon:
    cycle = round(_uneven(rng, 9, 70, 2) * 100)
    stated = f"From one full moon to the next, {name} takes {cycle / 100:.2f} days."
    text = f"{name} is a moon of {planet.name}. {stated} The radius of {name} is {rng.randint(180, 2_100)} km."
    return Moon(name, _passage("moon", name, text), planet, cycle, Fact(stated, f"{name} moon full cycle days"))


def _passage(kind: str, name: str, text: str) -> Passage:
    return Passage(f"handbook/{kind}/{name.lower()}", f"{name.capitalize()} ({kind})", text)
