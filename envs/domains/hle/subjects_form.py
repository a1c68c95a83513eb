"""Owns the common form of a generated question: its header, its reference answer and its three decoys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
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


def pose(subject: str, family: Family, drafters: Sequence[Drafter], rng: random.Random, level: int) -> Question:
    """Draw the question of this level; `drafters` holds one drafter a level."""
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


def either(*drafters: Drafter) -> Drafter:
    """A drafter that draws which of these drafts."""
    return lambda rng: rng.choice(drafters)(rng)


def integer(body: str, value: int, wrong: Iterable[int], facts: tuple[Fact, ...] = ()) -> SubjectDraft:
    """A draft whose answer is an exact integer."""
    offsets = (value + sign * step for step in count(1) for sign in (1, -1))
    # The size of a count is never negative, so a negative decoy would give itself away.
    candidates = (str(number) for number in chain(wrong, offsets) if value < 0 or number >= 0)
    return SubjectDraft(body, Answer(text=str(value), kind="number"), _decoys(str(value), candidates), facts)


def decimal(body: str, value: float, unit: str, wrong: Iterable[float], facts: tuple[Fact, ...]) -> SubjectDraft:
    """A draft whose answer is a measured quantity, stated to four significant digits."""
    kept = [value]
    for number in chain(wrong, (value * factor for factor in (2.0, 0.5, 1.1, 0.9, 4.0))):
        if number > 0 and all(abs(number / other - 1.0) > DECOY_RELATIVE_DISTANCE for other in kept):
            kept.append(number)
    shown = (Decimal(f"{number:.3e}") for number in kept[: 1 + DECOYS_PER_QUESTION])
    right, *decoys = (format(number, "f") for number in shown)  # never with an exponent
    answer = Answer(text=right, kind="number", tolerance=DECIMAL_TOLERANCE, unit=unit)
    return SubjectDraft(f"{body} Answer in {unit}, to four significant digits.", answer, tuple(decoys), facts)


def fraction(body: str, value: Fraction, wrong: Iterable[Fraction]) -> SubjectDraft:
    """A draft whose answer is a probability as a fraction in lowest terms."""
    shifted = (Fraction(value.numerator, value.denominator + step) for step in count(1))
    candidates = (number for number in chain(wrong, (1 - value,), shifted) if 0 < number < 1)
    body += " Answer with a fraction in lowest terms, such as 7/36."
    return string(body, str(value), map(str, candidates))


def string(body: str, text: str, wrong: Iterable[str]) -> SubjectDraft:
    """A draft whose answer is an exact string."""
    return SubjectDraft(body, Answer(text=text, kind="exact"), _decoys(text, wrong))


def _decoys(right: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """The first three candidates that are neither right nor the same."""
    chosen: list[str] = []
    for candidate in candidates:
        if candidate not in (right, *chosen):
            chosen.append(candidate)
        if len(chosen) == DECOYS_PER_QUESTION:
            break
    return tuple(chosen)
