"""Values are told by what they mean, in figures or in words, and a part of a value tells nothing."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.domains.toolscale.grading import counts, figures, says

MONTHS = "January February March April May June July August September October November December".split()
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()


SAYS: list[tuple[str, str]] = [
    ("4.2mm of rain", "4.2"), ("25°C", "25.00"), ("it is minus 5", "-5"), ("EUR 204,28", "204.28"),
    ("1.234,50 EUR", "1234.5"), ("_204.28_ and **7**", "204.28"), ("You pay nothing.", "0.00"), ("Twelve.", "12"),
    ("at 7:30 pm", "19:30"), ("7 PM", "19:00"), ("noon", "12:00"), ("12 am", "00:00"),
    *((text, "2026-09-02") for text in ("September 2nd, 2026", "the 2nd of Sept.", "02.09.2026", "2026-09-02T10:00")),
    ("25/04/2026", "2026-04-25"), ("04/25/2026", "2026-04-25"), ("04/04/2026", "2026-04-04"),
    *((text, "2026-10-21 12:30") for text in ("on 2026-10-21 at 12:30", "21 October 2026, 12:30 pm")),
]  # fmt: skip
SAYS_OTHER: list[tuple[str, str]] = [
    ("it is minus 5", "5"), ("204,28 €", "204"), ("rooms 11,12", "11.12"), ("Feel free to ask, nothing else.", "0"),
    ("a fee-free account", "0"), ("two hundred", "2"), ("10-12 days", "12"), ("10:30", "30"), ("2026-12-01", "12"),
    ("2 September 2026", "2"), ("7 pm", "7"), ("12x", "12"), ("9:00 pm", "09:00"), ("7.30", "07:30"),
    *((text, "2026-09-02") for text in ("2 September 2027", "02/09/2026", "2026-09-021")),
    ("03/04/2026", "2026-04-03"), ("03/04/2026", "2026-03-04"),  # a date that can be read in two ways
    ("2026-10-21, and for others 12:30", "2026-10-21 12:30"),
]  # fmt: skip


def test_a_value_is_told_by_what_it_means() -> None:
    assert [row for row in SAYS if says(*row) is not True] == []
    assert [row for row in SAYS_OTHER if says(*row) is not False] == []


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


@given(st.integers(0, 15), st.integers(1, 16))
def test_a_count_in_words_is_that_count_and_no_other(at: int, other: int) -> None:
    assert says(f"There are {WORDS[at]} seats.", str(other)) is (at + 1 == other)
