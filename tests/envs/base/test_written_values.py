"""Values are told by what they mean, in figures or in words, and a part of a value tells nothing."""

from __future__ import annotations

import datetime
import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.domains.toolscale.grading import counts, figures, says

MONTHS = "January February March April May June July August September October November December".split()
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("4.2mm of rain", "4.2", True),
        ("25°C", "25.00", True),
        ("it is minus 5", "-5", True),
        ("it is minus 5", "5", False),
        ("EUR 204,28", "204.28", True),
        ("204,28 €", "204", False),
        ("1.234,50 EUR", "1234.5", True),
        ("rooms 11,12", "11.12", False),
        ("_204.28_ and **7**", "204.28", True),
        ("You pay nothing.", "0.00", True),
        ("Feel free to ask, nothing else.", "0", False),
        ("a fee-free account", "0", False),
        ("three items", "3", True),
        ("Twelve.", "12", True),
        ("two hundred", "2", False),
        ("10-12 days", "12", False),
        ("10:30", "30", False),
        ("2026-12-01", "12", False),
        ("2 September 2026", "2", False),
        ("7 pm", "7", False),
        ("12x", "12", False),
    ],
)
def test_numbers(text: str, value: str, said: bool) -> None:
    assert says(text, value) is said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 September 2026", True),
        ("September 2nd, 2026", True),
        ("the 2nd of Sept.", True),
        ("02.09.2026", True),
        ("2026-09-02T10:00", True),
        ("2 September 2027", False),
        ("02/09/2026", False),  # or the ninth of February,
        ("2026-09-021", False),
    ],
)
def test_dates(text: str, said: bool) -> None:
    assert says(text, "2026-09-02") is said


def test_a_date_with_slashes_is_told_when_it_can_be_read_in_one_way() -> None:
    assert says("25/04/2026", "2026-04-25")
    assert says("04/25/2026", "2026-04-25")
    assert says("04/04/2026", "2026-04-04")
    assert not says("03/04/2026", "2026-04-03")
    assert not says("03/04/2026", "2026-03-04")


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("at 7:30 pm", "19:30", True),
        ("7 PM", "19:00", True),
        ("noon", "12:00", True),
        ("12 am", "00:00", True),
        ("9:00 pm", "09:00", False),
        ("7.30", "07:30", False),
    ],
)
def test_times(text: str, value: str, said: bool) -> None:
    assert says(text, value) is said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on 2026-10-21 at 12:30", True),
        ("21 October 2026, 12:30 pm", True),
        ("2026-10-21T12:30", True),
        ("2026-10-21, and for others 12:30", False),
    ],
)
def test_a_moment_is_a_date_and_a_time_side_by_side(text: str, said: bool) -> None:
    assert says(text, "2026-10-21 12:30") is said


def test_what_is_no_number_date_or_time_is_left_to_others() -> None:
    assert says("WA-031", "WA-031") is None
    assert says("x", "Hill Street 9") is None


@given(st.dates(datetime.date(1950, 1, 1), datetime.date(2050, 1, 1)), st.integers(-3, 3))
def test_a_date_in_words_is_that_date_and_no_other(date: datetime.date, off: int) -> None:
    other = (date + datetime.timedelta(days=off)).isoformat()
    month = MONTHS[date.month - 1]
    for text in (f"on {date.day} {month} {date.year}.", f"{month} {date.day}, {date.year}", f"({date.isoformat()})"):
        assert says(text, other) is (off == 0), text
        assert not figures(text) | counts(text)


@given(st.times(), st.integers(-1, 1))
def test_a_time_of_twelve_hours_is_that_time_and_no_other(time: datetime.time, off: int) -> None:
    minutes = (time.hour * 60 + time.minute + off) % 1440
    text = f"{time.hour % 12 or 12}:{time.minute:02} {'pm' if time.hour >= 12 else 'am'}"
    assert says(f"It starts at {text}.", f"{minutes // 60:02}:{minutes % 60:02}") is (off == 0)


@given(st.decimals(-99999, 99999, places=2), st.sampled_from(["{}", "€{}", "{} €", "{}EUR", "({})", "is {}.", "_{}_"]))
def test_an_amount_is_that_amount_and_no_other(amount: decimal.Decimal, shape: str) -> None:
    text = shape.format(amount)
    if "€-" not in text:
        assert says(text, str(amount))
    assert figures(text) | counts(text) <= {float(amount)}


@given(st.integers(0, 15), st.integers(1, 16))
def test_a_count_in_words_is_that_count_and_no_other(at: int, other: int) -> None:
    assert says(f"There are {WORDS[at]} seats.", str(other)) is (at + 1 == other)


@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    for value in ("0", "12", "2026-09-02", "10:30", "2026-09-02 10:30"):
        assert says(text, value) in (True, False)
