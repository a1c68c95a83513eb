"""Patterns of schemas: they mean what Python's re means, and no text can make a search go on for ever."""

from __future__ import annotations

import random
import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolorchestra.envs.base.bounded_regex import Pattern, Steps, TooMuchWork, pattern
from toolorchestra.envs.base.errors import ConfigError

MANY = 10**7
_ATOMS = [
    *r"a b . ^ $ é \d \w \W \s \b \B \A \Z [ab] [^a] [^\s] [a-c\d-] [\]^] \. -".split(),
    *r"(?!) (?=a) (?!ab) (?<=a) (?<!b) (?i:A) (?s:.) (?m:^) (?m:$) (?a:\w) (?:) (?i:[^É])".split(),
    "\n",
]
_PATTERNS = st.recursive(
    st.sampled_from(_ATOMS),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, st.sampled_from("* + ? {2} {1,3} {2,} *? {0,2}?".split())).map(
            lambda two: f"({two[0]}){two[1]}"
        )
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.lists(st.text("aab1 \nAÉé_-.", max_size=6), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_a_pattern_means_what_python_means_by_it(source: str, texts: list[str]) -> None:
    made = Pattern(source)
    for text in texts:
        assert made.search(text, Steps(MANY)) == (re.search(source, text) is not None)


@pytest.mark.parametrize(
    "source", ["^(a+)+$", "^(a|a)*$", "(a*)*b", "(.*)(.*)(.*)(.*)b", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_patterns_that_make_python_try_for_ever_are_searched_for_at_once(source: str) -> None:
    started = time.monotonic()
    assert not Pattern(source).search("a" * 3000 + "!", Steps(200_000))
    assert time.monotonic() - started < 5


def test_a_search_pays_for_its_steps() -> None:
    assert pattern("a") is pattern("a")
    steps = Steps(1000)
    assert pattern("b$").search("a" * 200 + "b", steps)
    assert 0 < steps.left < 1000
    with pytest.raises(TooMuchWork):
        pattern("b$").search("a" * 2000, steps)


def test_a_look_around_cannot_hide_its_work() -> None:
    with pytest.raises(TooMuchWork):
        Pattern("(?=(a|a)*b)c").search("a" * 5000, Steps(100_000))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("(", r"the pattern '\(' cannot be read: missing \)"),
        (r"\p{L}", "cannot be read: bad escape"),
        ("(" * 3000 + ")" * 3000, "cannot be read"),
        (r"(a)\1", "holds a back reference, which cannot be searched for in bounded time"),
        ("(a)(?(1)b|c)", "holds a back reference"),
        ("(?>a+)b", "holds an atomic group"),
        ("a++", "holds a possessive repeat"),
        ("a{5001}", "larger than 5000 steps once its repeats are written out"),
        ("((a{60}){60}){60}", "larger than 5000 steps"),
        ("(?=a{3000})(?=b{3000})", "larger than 5000 steps"),
    ],
    ids=lambda text: text[:20],
)
def test_what_cannot_be_searched_for_is_refused(source: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Pattern(source)


def test_what_python_warns_of_is_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pattern("[[a]").search("[", Steps(MANY))


@pytest.mark.parametrize(
    "source", [r"^\d{3}-[A-Z]{2}$", "^(ab|cd)+$", "é", r"^[^\s@]+@[^\s@]+\.[a-z]{2,}$", "", "(?i)^q"]
)
def test_an_example_has_the_pattern(source: str) -> None:
    for seed in range(5):
        text = Pattern(source).example(random.Random(seed))
        assert text is not None
        assert re.search(source, text)


def test_there_is_no_example_of_the_impossible() -> None:
    assert Pattern("a^b").example(random.Random(1)) is None
