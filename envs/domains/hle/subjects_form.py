"""Owns the common form of a generated question: its header, its reference answer and its three decoys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain, count
from typing import Literal, NamedTuple

from toolorchestra.envs.base.types import Answer, Fact, Question

LEVELS = (1, 2, 3, 4, 5)
DECOYS_PER_QUESTION = 3
DECIMAL_TOLERANCE = 0.005
# A decoy nearer than this to the right value could be read as a rounding of it.
DECOY_RELATIVE_DISTANCE = 0.02

Family = Literal["math", "science", "code", "logic"]


class SubjectDraft(NamedTuple):
    """One question before its header is known."""

    body: str
    answer: Answer
    decoys: tuple[str, ...]
    facts: tuple[Fact, ...] = ()


Drafter = Callable[[random.Random], SubjectDraft]


def pose(rng: random.Random, subject: str, family: Family, level: int, drafters: Sequence[Drafter]) -> Question:
    """Draw the question of this level; `drafters` holds one drafter a level."""
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {LEVELS}, got {level!r}; pass an integer from LEVELS")
    draft = drafters[level - 1](rng)
    return Question(
        text=f"Subject: {subject}. Level {level} of {LEVELS[-1]}.\n{draft.body}",
        answer=draft.answer,
        subject=subject,
        family=family,
        difficulty=float(level),
        facts=draft.facts,
        computable=family != "logic",
        decoys=draft.decoys,
    )


def either(rng: random.Random, *drafters: Drafter) -> SubjectDraft:
    """The draft of one drafter drawn at random."""
    return rng.choice(drafters)(rng)


def integer(body: str, value: int, wrong: Iterable[int], facts: tuple[Fact, ...] = ()) -> SubjectDraft:
    """A draft whose answer is an exact integer."""
    offsets = (value + sign * step for step in count(1) for sign in (1, -1))
    # The size of a count is never negative, so a negative decoy would give itself away.
    candidates = (number for number in chain(wrong, offsets) if value < 0 or number >= 0)
    decoys = _distinct(str(value), map(str, candidates))
    return SubjectDraft(body, Answer(text=str(value), kind="number"), decoys, facts)


def decimal(body: str, value: float, unit: str, wrong: Iterable[float], facts: tuple[Fact, ...]) -> SubjectDraft:
    """A draft whose answer is a measured quantity, stated to four significant digits."""
    kept = [value]
    for number in chain(wrong, (value * factor for factor in (2.0, 0.5, 1.1, 0.9, 4.0))):
        if number > 0 and all(abs(number / other - 1.0) > DECOY_RELATIVE_DISTANCE for other in kept):
            kept.append(number)
    right, *decoys = (four_significant_digits(number) for number in kept[: 1 + DECOYS_PER_QUESTION])
    answer = Answer(text=right, kind="number", tolerance=DECIMAL_TOLERANCE, unit=unit)
    return SubjectDraft(body, answer, tuple(decoys), facts)


def fraction(body: str, value: Fraction, wrong: Iterable[Fraction]) -> SubjectDraft:
    """A draft whose answer is a probability as a fraction in lowest terms."""
    shifted = (Fraction(value.numerator, value.denominator + step) for step in count(1))
    candidates = (number for number in chain(wrong, (1 - value,), shifted) if 0 < number < 1)
    return SubjectDraft(body, Answer(text=str(value), kind="exact"), _distinct(str(value), map(str, candidates)))


def string(body: str, text: str, wrong: Iterable[str]) -> SubjectDraft:
    """A draft whose answer is an exact string."""
    return SubjectDraft(body, Answer(text=text, kind="exact"), _distinct(text, wrong))


def four_significant_digits(value: float) -> str:
    """`value` in plain notation, never with an exponent."""
    return format(Decimal(f"{value:.3e}"), "f")


def _distinct(right: str, candidates: Iterable[str]) -> tuple[str, ...]:
    return tuple(_first_new(iter(candidates), right))


def _first_new(candidates: Iterator[str], right: str) -> Iterator[str]:
    seen = {right}
    for candidate in candidates:
        if candidate not in seen:
            seen.add(candidate)
            yield candidate
        if len(seen) > DECOYS_PER_QUESTION:
            return
