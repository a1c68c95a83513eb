"""The questions on physics, chemistry and calendar astronomy, whose constants only the handbook states."""

from __future__ import annotations

import math
import random
from itertools import accumulate
from typing import Final, NamedTuple

from toolorchestra.envs.domains.hle.handbook import Calendar, Element, Material, Planet, contents
from toolorchestra.envs.domains.hle.subjects_form import SubjectDraft, decimal, either, integer

_OXYGEN_G_PER_MOL = 16.0


def _planet(rng: random.Random) -> tuple[Planet, float]:
    planet = rng.choice(contents().planets)
    return planet, planet.gravity_m_per_s2.value


def _solid(rng: random.Random) -> tuple[Material, float]:
    solid = rng.choice(contents().solids)
    return solid, solid.density_kg_per_m3.value


def _liquid(rng: random.Random) -> tuple[Material, float]:
    liquid = rng.choice(contents().liquids)
    return liquid, liquid.density_kg_per_m3.value


def _sphere_m3(radius_cm: int) -> float:
    return 4.0 / 3.0 * math.pi * (radius_cm / 100.0) ** 3


def _weight(rng: random.Random) -> SubjectDraft:
    (planet, gravity), mass_kg = _planet(rng), rng.randint(11, 900)
    body = (
        f"A crate with a mass of {mass_kg} kg stands on the surface of the planet {planet.name}. "
        "What is its weight there?"
    )
    wrong = (mass_kg * 9.81, mass_kg / gravity, mass_kg * gravity / 1_000)
    return decimal(body, mass_kg * gravity, "N", wrong, (planet.gravity_m_per_s2.fact,))


def _block_mass(rng: random.Random) -> SubjectDraft:
    (solid, density), litres = _solid(rng), rng.randint(11, 900)
    body = f"What is the mass of a solid block of {solid.name} with a volume of {litres} litres?"
    value = density * litres / 1_000
    return decimal(body, value, "kg", (value * 10, litres * 1.0, value / 10), (solid.density_kg_per_m3.fact,))


def _fall_speed(rng: random.Random) -> SubjectDraft:
    (planet, gravity), height_m = _planet(rng), rng.randint(3, 900)
    body = (
        f"A stone is dropped from rest from a height of {height_m} m above the ground of the planet {planet.name}, "
        "which has no air. How fast is it when it lands?"
    )
    wrong = (math.sqrt(gravity * height_m), math.sqrt(2 * 9.81 * height_m), 2 * gravity * height_m)
    return decimal(body, math.sqrt(2 * gravity * height_m), "m/s", wrong, (planet.gravity_m_per_s2.fact,))


def _swings(rng: random.Random) -> SubjectDraft:
    (planet, gravity), length_cm, swings = _planet(rng), rng.randint(20, 900), rng.randint(3, 60)
    body = (
        f"A simple pendulum of length {length_cm} cm makes small swings on the planet {planet.name}. "
        f"How long do {swings} full periods take?"
    )
    period_s = 2 * math.pi * math.sqrt(length_cm / 100 / gravity)
    wrong = (swings * period_s / 2, swings * period_s * 10, swings * period_s * math.sqrt(gravity / 9.81))
    return decimal(body, swings * period_s, "s", wrong, (planet.gravity_m_per_s2.fact,))


def _column_pressure(rng: random.Random) -> SubjectDraft:
    (planet, gravity), (liquid, density) = _planet(rng), _liquid(rng)
    depth_m, floor_m2 = rng.randint(2, 90), rng.randint(3, 60)
    body = (
        f"On the planet {planet.name} a tank is filled with {liquid.name} to a depth of {depth_m} m. Its flat floor "
        f"has an area of {floor_m2} m². With what force does the liquid alone press on the floor?"
    )
    value = density * gravity * depth_m * floor_m2 / 1_000
    facts = (planet.gravity_m_per_s2.fact, liquid.density_kg_per_m3.fact)
    return decimal(body, value, "kN", (value / 2, value / gravity * 9.81, value * 1_000 / density), facts)


def _sphere_weight(rng: random.Random) -> SubjectDraft:
    (planet, gravity), (solid, density), radius_cm = _planet(rng), _solid(rng), rng.randint(4, 60)
    body = (
        f"A solid sphere of {solid.name} has a radius of {radius_cm} cm. What does it weigh on the surface of the "
        f"planet {planet.name}?"
    )
    value = _sphere_m3(radius_cm) * density * gravity
    facts = (solid.density_kg_per_m3.fact, planet.gravity_m_per_s2.fact)
    return decimal(body, value, "N", (value / gravity, value * 0.75, value * 8), facts)


def _spring(rng: random.Random) -> SubjectDraft:
    (planet, gravity), (solid, density) = _planet(rng), _solid(rng)
    edge_cm, holes, stiffness = rng.randint(10, 40), rng.randint(2, 30), rng.randint(150, 900)
    body = (
        f"A cube of {solid.name} with edges of {edge_cm} cm, of whose volume {holes} % has been drilled away, hangs at "
        f"rest from a spring of stiffness {stiffness} N/cm on the planet {planet.name}. "
        "By how much is the spring stretched?"
    )
    value = (edge_cm / 100) ** 3 * (1 - holes / 100) * density * gravity / stiffness
    facts = (solid.density_kg_per_m3.fact, planet.gravity_m_per_s2.fact)
    return decimal(body, value, "cm", (value / (1 - holes / 100), value / gravity, value * 100), facts)


def _heating(rng: random.Random) -> SubjectDraft:
    (planet, gravity), solid = _planet(rng), rng.choice(contents().solids)
    drops, height_m, lost = rng.randint(20, 90), rng.randint(11, 90), rng.randint(5, 60)
    body = (
        f"On the planet {planet.name} a block of {solid.name} is lifted and dropped {drops} times from a height of "
        f"{height_m} m. At each impact {lost} % of the energy leaves the block; all the rest warms it. By how much "
        "does its temperature rise in all, without other losses?"
    )
    capacity = solid.specific_heat_j_per_kg_k
    value = drops * gravity * height_m * (1 - lost / 100) / capacity.value
    wrong = (value / (1 - lost / 100), value / drops, value * lost / (100 - lost))
    return decimal(body, value, "K", wrong, (planet.gravity_m_per_s2.fact, capacity.fact))


def _sinking(rng: random.Random) -> SubjectDraft:
    (planet, gravity), (solid, density), (liquid, thin) = _planet(rng), _solid(rng), _liquid(rng)
    depth_m, holes = rng.randint(3, 90), rng.randint(3, 15)
    body = (
        f"A ball of {solid.name}, of whose volume {holes} % is closed empty cavities, is released at rest in deep "
        f"{liquid.name} on the planet {planet.name}. Without drag or added mass, how fast is it after sinking "
        f"{depth_m} m?"
    )

    def speed(mean: float, fluid: float) -> float:
        return math.sqrt(2 * gravity * (1 - fluid / mean) * depth_m)

    mean_density = density * (1 - holes / 100)
    value = speed(mean_density, thin)
    facts = (solid.density_kg_per_m3.fact, liquid.density_kg_per_m3.fact, planet.gravity_m_per_s2.fact)
    return decimal(body, value, "m/s", (speed(mean_density, 0.0), value / math.sqrt(2), value**2), facts)


def _spring_in_liquid(rng: random.Random) -> SubjectDraft:
    (planet, gravity), (solid, density), (liquid, thin) = _planet(rng), _solid(rng), _liquid(rng)
    radius_cm, under, stiffness = rng.randint(8, 30), rng.randint(20, 90), rng.randint(150, 900)
    body = (
        f"On the planet {planet.name} a solid sphere of {solid.name} with a radius of {radius_cm} cm hangs at rest "
        f"from a spring of stiffness {stiffness} N/cm, with {under} % of its volume immersed in {liquid.name}. "
        "By how much is the spring stretched?"
    )
    scale = _sphere_m3(radius_cm) * gravity / stiffness
    value = scale * (density - thin * under / 100)
    facts = (solid.density_kg_per_m3.fact, liquid.density_kg_per_m3.fact, planet.gravity_m_per_s2.fact)
    return decimal(body, value, "cm", (scale * density, scale * (density - thin), value * 100), facts)


class _Compound(NamedTuple):
    first: Element
    second: Element
    atoms: tuple[int, int]
    first_g: float
    second_g: float

    def __str__(self) -> str:
        n, m = self.atoms
        return f"{n} atoms of {self.first.name} and {m} of {self.second.name}"

    @property
    def molecule_g_per_mol(self) -> float:
        return self.first_g + self.second_g


def _compound(rng: random.Random, elements: list[Element]) -> _Compound:
    first, second = elements[:2]
    n, m = rng.randint(2, 7), rng.randint(2, 7)
    masses = n * first.atomic_mass_g_per_mol.value, m * second.atomic_mass_g_per_mol.value
    return _Compound(first, second, (n, m), *masses)


def _amount(rng: random.Random) -> SubjectDraft:
    element, mmol = rng.choice(contents().elements), rng.randint(12, 990)
    mass = element.atomic_mass_g_per_mol
    task = rng.choice(
        (
            f"What is the mass of {mmol} mmol of the element {element.name}?",
            f"A sample contains {mmol} mmol of atoms of the element {element.name} and nothing else. What is its mass?",
        )
    )
    value = mass.value * mmol / 1_000
    wrong = (value * 10, mmol / mass.value, value / 2)
    return decimal(f"{task}", value, "g", wrong, (mass.fact,))


def _oxide(rng: random.Random) -> SubjectDraft:
    element, sample_g = rng.choice(contents().elements), rng.randint(12, 990)
    mass = element.atomic_mass_g_per_mol
    n, m = rng.randint(2, 6), rng.randint(3, 14)
    task = rng.choice(
        (
            f"An oxide has {n} atoms of {element.name} and {m} of oxygen (16.00 g/mol) per molecule. "
            f"How much oxygen is bound in {sample_g} g of it?",
            f"Each molecule of an oxide holds {n} atoms of {element.name} and {m} atoms of oxygen (16.00 g/mol). "
            f"What mass of oxygen do {sample_g} g of the oxide contain?",
        )
    )
    oxygen_g, metal_g = m * _OXYGEN_G_PER_MOL, n * mass.value
    value = sample_g * oxygen_g / (oxygen_g + metal_g)
    wrong = (sample_g - value, sample_g * m / (n + m), sample_g * oxygen_g / (oxygen_g + mass.value))
    return decimal(f"{task}", value, "g", wrong, (mass.fact,))


def _share(rng: random.Random) -> SubjectDraft:
    elements = rng.sample(contents().elements, 2)
    compound, sample_g = _compound(rng, elements), rng.randint(12, 990)
    task = rng.choice(
        (
            f"A compound has {compound} per molecule. How much {compound.first.name} is bound in {sample_g} g of it?",
            f"Each molecule of a compound holds {compound}. "
            f"What mass of {compound.first.name} is needed to make {sample_g} g of it?",
        )
    )
    value = sample_g * compound.first_g / compound.molecule_g_per_mol
    wrong = (sample_g - value, sample_g * compound.atoms[0] / sum(compound.atoms), sample_g / compound.atoms[0])
    facts = tuple(element.atomic_mass_g_per_mol.fact for element in elements)
    return decimal(f"{task}", value, "g", wrong, facts)


def _limited(rng: random.Random) -> SubjectDraft:
    elements = rng.sample(contents().elements, 2)
    compound, loss = _compound(rng, elements), rng.randint(5, 40)
    a_g, b_g = rng.randint(40, 990), rng.randint(40, 990)
    names = elements[0].name, elements[1].name
    task = rng.choice(
        (
            f"{a_g} g of {names[0]} reacts with {b_g} g of {names[1]} until one of them is used up; the only product "
            f"has {compound} per molecule. {loss} % of the product is then lost. What mass of product is left?",
            f"From {a_g} g of {names[0]} and {b_g} g of {names[1]} as much as possible is made of a compound with "
            f"{compound} per molecule, but {loss} % of that compound is spilt. What mass of the compound remains?",
        )
    )
    per_mol, kept = compound.molecule_g_per_mol, 1 - loss / 100
    amounts_mol = a_g / compound.first_g, b_g / compound.second_g
    wrong = (max(amounts_mol) * per_mol * kept, min(amounts_mol) * per_mol, (a_g + b_g) * kept)
    facts = tuple(element.atomic_mass_g_per_mol.fact for element in elements)
    return decimal(f"{task}", min(amounts_mol) * per_mol * kept, "g", wrong, facts)


def _two_stages(rng: random.Random) -> SubjectDraft:
    elements = rng.sample(contents().elements, 3)
    compound, loss, third = _compound(rng, elements), rng.randint(5, 40), elements[2]
    a_g, b_g, c_g, c_atoms = *(rng.randint(40, 990) for _ in range(3)), rng.randint(2, 7)
    names = [element.name for element in elements]
    task = rng.choice(
        (
            f"{a_g} g of {names[0]} reacts with {b_g} g of {names[1]} until one is used up, giving only compound P "
            f"with {compound} per molecule. {loss} % of P is lost. The rest reacts with {c_g} g of {names[2]} until "
            f"one is used up; each molecule of P takes up {c_atoms} atoms of {names[2]} to form Q. What mass of Q is "
            "made?",
            f"As much P as possible, with {compound} per molecule, is made from {a_g} g of {names[0]} and {b_g} g of "
            f"{names[1]}; {loss} % of it is spilt. Then each molecule of P binds {c_atoms} atoms of {names[2]} to form "
            f"Q, until P or the {c_g} g of {names[2]} at hand are used up. What mass of Q results?",
        )
    )
    third_g = c_atoms * third.atomic_mass_g_per_mol.value
    made_mol = min(a_g / compound.first_g, b_g / compound.second_g)
    kept_mol, third_mol = made_mol * (1 - loss / 100), c_g / third_g
    per_mol = compound.molecule_g_per_mol + third_g
    value = min(kept_mol, third_mol) * per_mol
    wrong = (max(kept_mol, third_mol) * per_mol, min(made_mol, third_mol) * per_mol, value - third_g * kept_mol)
    facts = tuple(element.atomic_mass_g_per_mol.fact for element in elements)
    return decimal(f"{task}", value, "g", wrong, facts)


PHYSICS: Final = (
    either(_weight, _block_mass),
    either(_fall_speed, _swings),
    either(_column_pressure, _sphere_weight),
    either(_spring, _heating),
    either(_sinking, _spring_in_liquid),
)
CHEMISTRY: Final = (_amount, _oxide, _share, _limited, _two_stages)


# Below the shortest month, so that a day named in a question never equals a month's length.
_LATEST_DAY = 20
_RULES = "Days, months and years count from 1 and there are no leap days."
_CODE = "Answer with the integer 100·m + d for day d of month m."


def _day_of_year(calendar: Calendar, month: int, day: int) -> int:
    return sum(calendar.month_days[: month - 1]) + day


def _date_code(calendar: Calendar, elapsed_days: int) -> int:
    """100·month + day of the date that many days after day 1 of month 1 of some year."""
    rest = elapsed_days % calendar.year_days
    starts = [0, *accumulate(calendar.month_days)]
    month = max(index for index, start in enumerate(starts) if start <= rest)
    return 100 * (month + 1) + rest - starts[month] + 1


def _date(rng: random.Random, calendar: Calendar) -> tuple[int, int]:
    return rng.randint(3, len(calendar.month_days)), rng.randint(1, _LATEST_DAY)


def _position_in_year(rng: random.Random) -> SubjectDraft:
    calendar = rng.choice(contents().calendars)
    month, day = _date(rng, calendar)
    texts = (
        f"Day 1 of a year in the {calendar.name} calendar is the first day of its first month. "
        f"Which day of the year is day {day} of month {month}? Answer with an integer.",
        f"In the {calendar.name} calendar the year opens with day 1 of the first month. "
        f"Count the days from then up to and including day {day} of month {month}. Answer with an integer.",
    )
    value = _day_of_year(calendar, month, day)
    mean = calendar.year_days * (month - 1) // len(calendar.month_days) + day
    return integer(
        rng.choice(texts), value, (value - 1, _day_of_year(calendar, month - 1, day), mean), (calendar.fact,)
    )


def _interval(rng: random.Random) -> SubjectDraft:
    calendar = rng.choice(contents().calendars)
    (month, day), (last_month, last_day) = _date(rng, calendar), _date(rng, calendar)
    year = rng.randint(101, 800)
    last_year = year + rng.randint(2, 60)
    texts = (
        f"In the {calendar.name} calendar, how many days lie from day {day} of month {month} of year {year} to day "
        f"{last_day} of month {last_month} of year {last_year}, counting the last day but not the first?",
        f"An observer slept from noon on day {day} of month {month} of year {year} to noon on day {last_day} of "
        f"month {last_month} of year {last_year} of the {calendar.name} calendar. How many days was that?",
    )
    years = last_year - year
    within = _day_of_year(calendar, last_month, last_day) - _day_of_year(calendar, month, day)
    value = years * calendar.year_days + within
    wrong = (value + 1, value - 2 * within, value - calendar.year_days)
    return integer(f"{rng.choice(texts)} {_RULES} Answer with an integer.", value, wrong, (calendar.fact,))


def _full_moon_day(rng: random.Random) -> SubjectDraft:
    calendar, moon = rng.choice(contents().calendars), rng.choice(contents().moons)
    cycles = rng.randint(60, 900)
    texts = (
        f"The moon {moon.name} is exactly full as a year of the {calendar.name} calendar begins. {cycles} full "
        "cycles later it is full again. Which day of the then current year is that?",
        f"A year of the {calendar.name} calendar begins at an instant when the moon {moon.name} is full. After "
        f"{cycles} further cycles, full moon to full moon, on which day of the year in progress does the last fall?",
    )
    elapsed = cycles * moon.cycle_hundredth_days // 100
    value = elapsed % calendar.year_days + 1
    wrong = (
        value - 1,
        (elapsed + moon.cycle_hundredth_days // 100) % calendar.year_days + 1,
        cycles * (moon.cycle_hundredth_days // 100) % calendar.year_days + 1,
    )
    return integer(f"{rng.choice(texts)} {_RULES} Answer with an integer.", value, wrong, (calendar.fact, moon.fact))


def _other_calendar(rng: random.Random) -> SubjectDraft:
    first, second = rng.sample(contents().calendars, 2)
    month, day = _date(rng, first)
    year = rng.randint(101, 800)
    texts = (
        f"Day 1 of month 1 of year 1 was one and the same day in the {first.name} and the {second.name} calendar. "
        f"Which {second.name} date is day {day} of month {month} of year {year} of the {first.name} calendar?",
        f"The {first.name} and the {second.name} calendar were started on the same day, as day 1 of month 1 of "
        f"year 1. Convert day {day} of month {month} of {first.name} year {year} to a {second.name} day and month.",
    )
    elapsed = (year - 1) * first.year_days + _day_of_year(first, month, day) - 1
    value = _date_code(second, elapsed)
    wrong = (_date_code(second, elapsed + 1), _date_code(second, elapsed + first.year_days), 100 * month + day)
    return integer(f"{rng.choice(texts)} {_RULES} {_CODE}", value, wrong, (first.fact, second.fact))


def _full_moon_date(rng: random.Random) -> SubjectDraft:
    moon = rng.choice(contents().moons)
    planet, calendar = moon.planet, moon.planet.calendar
    month, day = _date(rng, calendar)
    year, cycles = rng.randint(101, 800), rng.randint(60, 900)
    texts = (
        f"On the planet {planet.name}, by the calendar kept there, the moon {moon.name} was exactly full as day {day} "
        f"of month {month} of year {year} began. On which date does full moon number {cycles} after that one fall?",
        f"Dates here follow the calendar of the planet {planet.name}. Its moon {moon.name} was full at the very start "
        f"of day {day} of month {month} of year {year}. Give the date of full moon number {cycles} after that one.",
    )
    start = _day_of_year(calendar, month, day) - 1
    elapsed = start + cycles * moon.cycle_hundredth_days // 100
    wrong = (
        _date_code(calendar, elapsed + 1),
        _date_code(calendar, elapsed - moon.cycle_hundredth_days // 100),
        _date_code(calendar, elapsed - start),
    )
    facts = (planet.calendar_fact, calendar.fact, moon.fact)
    return integer(f"{rng.choice(texts)} {_RULES} {_CODE}", _date_code(calendar, elapsed), wrong, facts)


CALENDAR_ASTRONOMY: Final = (_position_in_year, _interval, _full_moon_day, _other_calendar, _full_moon_date)
