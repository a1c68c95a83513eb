"""Owns the questions on calendar astronomy, whose calendars and moons only the handbook describes."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Final

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.handbook import Calendar, contents
from toolorchestra.envs.domains.hle.subjects_form import SubjectDraft, integer, pose

# Below the shortest month, so that a day named in a question never equals a month's length.
_LATEST_DAY = 20
_RULES = "Days, months and years count from 1 and there are no leap days."
_CODE = "Answer with the integer 100·m + d for day d of month m."


def calendar_astronomy(rng: random.Random, level: int) -> Question:
    """Dates, intervals and full moons in fictional calendars."""
    return pose(rng, "calendar astronomy", "science", level, _CALENDAR_ASTRONOMY)


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
    body = rng.choice(
        (
            f"Day 1 of a year in the {calendar.name} calendar is the first day of its first month. "
            f"Which day of the year is day {day} of month {month}? Answer with an integer.",
            f"In the {calendar.name} calendar the year opens with day 1 of the first month. "
            f"Count the days from then up to and including day {day} of month {month}. Answer with an integer.",
        )
    )
    value = _day_of_year(calendar, month, day)
    mean = calendar.year_days * (month - 1) // len(calendar.month_days) + day
    return integer(body, value, (value - 1, _day_of_year(calendar, month - 1, day), mean), (calendar.fact,))


def _interval(rng: random.Random) -> SubjectDraft:
    calendar = rng.choice(contents().calendars)
    (month, day), (last_month, last_day) = _date(rng, calendar), _date(rng, calendar)
    year = rng.randint(101, 800)
    last_year = year + rng.randint(2, 60)
    body = rng.choice(
        (
            f"In the {calendar.name} calendar, how many days lie from day {day} of month {month} of year {year} to day "
            f"{last_day} of month {last_month} of year {last_year}, counting the last day but not the first?",
            f"An observer slept from noon on day {day} of month {month} of year {year} to noon on day {last_day} of "
            f"month {last_month} of year {last_year} of the {calendar.name} calendar. How many days was that?",
        )
    )
    years = last_year - year
    within = _day_of_year(calendar, last_month, last_day) - _day_of_year(calendar, month, day)
    value = years * calendar.year_days + within
    wrong = (value + 1, value - 2 * within, value - calendar.year_days)
    return integer(f"{body} {_RULES} Answer with an integer.", value, wrong, (calendar.fact,))


def _full_moon_day(rng: random.Random) -> SubjectDraft:
    calendar, moon = rng.choice(contents().calendars), rng.choice(contents().moons)
    cycles = rng.randint(60, 900)
    body = rng.choice(
        (
            f"The moon {moon.name} is exactly full as a year of the {calendar.name} calendar begins. {cycles} full "
            "cycles later it is full again. Which day of the then current year is that?",
            f"A year of the {calendar.name} calendar begins at an instant when the moon {moon.name} is full. After "
            f"{cycles} further cycles, full moon to full moon, on which day of the year in progress does the last "
            "fall?",
        )
    )
    elapsed = cycles * moon.cycle_hundredth_days // 100
    value = elapsed % calendar.year_days + 1
    wrong = (
        value - 1,
        (elapsed + moon.cycle_hundredth_days // 100) % calendar.year_days + 1,
        cycles * (moon.cycle_hundredth_days // 100) % calendar.year_days + 1,
    )
    return integer(f"{body} {_RULES} Answer with an integer.", value, wrong, (calendar.fact, moon.fact))


def _other_calendar(rng: random.Random) -> SubjectDraft:
    first, second = rng.sample(contents().calendars, 2)
    month, day = _date(rng, first)
    year = rng.randint(101, 800)
    body = rng.choice(
        (
            f"Day 1 of month 1 of year 1 was one and the same day in the {first.name} and the {second.name} calendar. "
            f"Which {second.name} date is day {day} of month {month} of year {year} of the {first.name} calendar?",
            f"The {first.name} and the {second.name} calendar were started on the same day, as day 1 of month 1 of "
            f"year 1. Convert day {day} of month {month} of {first.name} year {year} to a {second.name} day and month.",
        )
    )
    elapsed = (year - 1) * first.year_days + _day_of_year(first, month, day) - 1
    value = _date_code(second, elapsed)
    wrong = (_date_code(second, elapsed + 1), _date_code(second, elapsed + first.year_days), 100 * month + day)
    return integer(f"{body} {_RULES} {_CODE}", value, wrong, (first.fact, second.fact))


def _full_moon_date(rng: random.Random) -> SubjectDraft:
    moon = rng.choice(contents().moons)
    planet, calendar = moon.planet, moon.planet.calendar
    month, day = _date(rng, calendar)
    year, cycles = rng.randint(101, 800), rng.randint(60, 900)
    body = rng.choice(
        (
            f"On the planet {planet.name}, by the calendar kept there, the moon {moon.name} was exactly full as day "
            f"{day} of month {month} of year {year} began. On which date does full moon number {cycles} after that one "
            "fall?",
            f"Dates here follow the calendar of the planet {planet.name}. Its moon {moon.name} was full at the very "
            f"start of day {day} of month {month} of year {year}. Give the date of full moon number {cycles} after "
            "that one.",
        )
    )
    start = _day_of_year(calendar, month, day) - 1
    elapsed = start + cycles * moon.cycle_hundredth_days // 100
    wrong = (
        _date_code(calendar, elapsed + 1),
        _date_code(calendar, elapsed - moon.cycle_hundredth_days // 100),
        _date_code(calendar, elapsed - start),
    )
    facts = (planet.calendar_fact, calendar.fact, moon.fact)
    return integer(f"{body} {_RULES} {_CODE}", _date_code(calendar, elapsed), wrong, facts)


_CALENDAR_ASTRONOMY: Final = (_position_in_year, _interval, _full_moon_day, _other_calendar, _full_moon_date)
