"""Owns the checks of the HLE-like subjects and their handbook."""

from __future__ import annotations

import random
import re
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import permutations

import pytest

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.handbook import contents
from toolorchestra.envs.domains.hle.source import SUBJECTS
from toolorchestra.envs.domains.hle.subjects_form import LEVELS
from toolorchestra.envs.retrieval.bm25 import Bm25

every_case = pytest.mark.parametrize(("subject", "level"), [(s, level) for s in SUBJECTS for level in LEVELS])
FACTS_PER_LEVEL = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
NEEDS_HANDBOOK = ("physics", "chemistry", "calendar astronomy")


@cache
def draw(subject: str, level: int) -> list[Question]:
    return [SUBJECTS[subject](random.Random(seed), level) for seed in range(100)]


def body(question: Question) -> str:
    return question.text.split("\n", 1)[1]


def integers(question: Question) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", body(question))]


def numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}


def modal_share(questions: list[Question]) -> float:
    """Share of the questions that the best single guess answers, tolerance included."""
    tolerance = questions[0].answer.tolerance
    if not tolerance:
        return max(Counter(question.answer.text for question in questions).values()) / len(questions)
    values = [float(question.answer.text) for question in questions]
    hits = (sum(abs(guess - value) <= tolerance * abs(value) for value in values) for guess in values)
    return max(hits) / len(values)


@every_case
def test_form_and_decoys(subject: str, level: int) -> None:
    for question in draw(subject, level):
        answer = question.answer
        assert question.text.startswith(f"Subject: {subject}. Level {level} of 5.\n")
        assert len(question.text) < 800
        assert (question.subject, question.difficulty) == (subject, float(level))
        assert question.computable == (question.family != "logic")
        assert "e" not in answer.text
        assert len({answer.text, *question.decoys}) == 4
        if answer.kind == "number":
            right = float(answer.text)
            assert answer.tolerance or abs(right) < 2**53
            assert all(abs(float(decoy) - right) > 2 * answer.tolerance * abs(right) for decoy in question.decoys)


@every_case
def test_the_same_each_time_varied_and_not_guessable(subject: str, level: int) -> None:
    questions = draw(subject, level)
    assert questions[:9] == [SUBJECTS[subject](random.Random(seed), level) for seed in range(9)]
    assert len({question.text for question in questions}) >= len(questions) - 3
    assert len({body(question)[:8] for question in questions}) >= 2
    assert modal_share(questions) < 0.05


@every_case
def test_facts(subject: str, level: int) -> None:
    text = "\n".join(passage.text for passage in contents().passages)
    for question in draw(subject, level):
        assert len(question.facts) == (FACTS_PER_LEVEL[level] if subject in NEEDS_HANDBOOK else 0)
        known = body(question)
        for fact in question.facts:
            assert fact.sentence in text
            assert fact.sentence not in question.text
            assert not numbers(fact.sentence) & numbers(body(question))
            assert fact.query.split()[0] in known
            known += fact.sentence


@pytest.mark.parametrize("subject", NEEDS_HANDBOOK)
def test_queries_find_their_passages(subject: str) -> None:
    index = Bm25(contents().passages)
    for level in LEVELS:
        for fact in {fact for question in draw(subject, level) for fact in question.facts}:
            assert fact.sentence in index.find(fact.query, 1)[0].passage.text


def test_number_theory_by_scanning() -> None:
    for question in draw("number theory", 3):
        p, a, e, b = integers(question)[:4]
        power = a**e
        assert [x for x in range(p) if (power - b * x) % p == 0] == [int(question.answer.text)]
    for question in draw("number theory", 4):
        a, e, p, b, c, q = integers(question)[:6]
        assert next(x for x in range(a**e % p, p * q, p) if (b * x - c) % q == 0) == int(question.answer.text)
    for question in draw("number theory", 5):
        a, e, p, b, c, q, f, _, s, k, d, r = integers(question)[:12]
        start = next(x for x in range(a**e % p, p * q, p) if (b * x - c) % q == 0)
        x = next(x for x in range(start, p * q * s, p * q) if (x - f * f) % s == 0)
        assert (x**k + d * x - int(question.answer.text)) % r == 0


@pytest.mark.parametrize("level", LEVELS)
def test_clues_leave_one_ordering(level: int) -> None:
    for question in draw("logic", level)[:8]:
        clues = question.text.split("known that: ")[1].split(". Answer")[0].split("; ")
        letters = sorted(question.answer.text.split(", "))
        fits = [row for row in permutations(letters) if all(satisfied(clue, "".join(row)) for clue in clues)]
        assert [", ".join(row) for row in fits] == [question.answer.text]


def satisfied(clue: str, row: str) -> bool:
    names: list[str] = re.findall(r"\b[A-G]\b", clue)
    places: list[int] = [row.index(name) for name in names]
    number = [int(digits) for digits in re.findall(r"\d", clue)]
    if "exactly if" in clue:
        left, right = clue.split(" exactly if ")
        return satisfied(left, row) == satisfied(right, row)
    if "in place" in clue:
        return row[number[0] - 1] == names[0]
    if "left of" in clue:
        return places[0] < places[1]
    if "somewhere between" in clue:
        return sorted(places)[1] == places[0]
    if "between" in clue:
        return abs(places[0] - places[1]) - 1 == number[0]
    return (names[0] + names[1] in row or names[1] + names[0] in row) != ("not" in clue)


def test_chemistry_from_the_stated_masses() -> None:
    for question in draw("chemistry", 3):
        first, second = (Fraction(re.findall(r"\d+\.\d+", fact.sentence)[0]) for fact in question.facts)
        n, m, grams = integers(question)[:3]
        expected = float(grams / (n * first + m * second) * n * first)
        assert float(question.answer.text) == pytest.approx(expected, rel=5e-4)
