"""Owns the checks of grading by rule: numbers with units and tolerance, exact and normalised texts, hostile replies."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.base.answer_grading import final_answer, is_right
from toolorchestra.envs.base.types import Answer
from toolorchestra.envs.domains.frames.encyclopaedia import build
from toolorchestra.envs.domains.frames.patterns import PATTERNS
from toolorchestra.envs.domains.hle.source import SUBJECTS
from toolorchestra.envs.domains.hle.subjects_form import LEVELS

SOON_SECONDS = 1.0


def number(text: str, tolerance: float = 0.0, unit: str = "") -> Answer:
    return Answer(text, "number", tolerance, unit)


FINAL: dict[str, str] = {
    "42": "42",
    "": "",
    r"So \boxed{42}.": "42",
    r"\boxed{1} and then \boxed{ 2 }": "2",
    r"\boxed{a{b}c} tail": "a{b}c",
    r"<answer>7</answer> or \boxed{8}": "8",
    "<answer>7</answer>": "7",
    "<answer>never closed": "never closed",
    "The answer is 42": "42",
    "the final answer is 42": "42",
    "Final answer = 42": "42",
    "The answer to that is 42": "The answer to that is 42",
}


@pytest.mark.parametrize("reply", FINAL)
def test_final_answer(reply: str) -> None:
    assert final_answer(reply) == FINAL[reply]


RIGHT_TEXTS: list[tuple[Answer, list[str]]] = [
    (Answer("Anna Berg"), ["anna  BERG", "The Anna-Berg.", "<answer>Anna Berg</answer>"]),
    (Answer("The Old Mill"), ["old mill"]),
    (Answer("Straße"), ["STRASSE"]),
    (Answer("Anna", aliases=("Dr Berg", "A. B.")), ["dr. berg"]),
    (Answer("A"), ["A."]),
    (Answer("x+1"), ["x + 1"]),
    (Answer("-5 m"), ["−5 m."]),
    (Answer("10⁻⁵ mol"), ["$10^{-5}$ mol"]),
    (Answer("1990-1995"), ["1990–1995"]),
    (Answer("Paris"), ["Paris!", "(Paris)", "[Paris]", "- Paris"]),
    (Answer("Mona Lisa"), ["the 'Mona Lisa'", "“Mona Lisa”", "Mona-Lisa", "Mona - Lisa"]),
    (Answer("A"), ["(A)", "A)", "'A'", "[A]."]),
    (Answer("B. Paris"), ["b) Paris", "(B) Paris"]),
    (Answer("Paris, France"), ["Paris (France)", "(Paris, France)", "Paris - France"]),
    (Answer("Anna Berg, 1990"), ["Anna Berg (1990)"]),
    (Answer("Symphony No. 40, in 1788"), ["Symphony No. 40 (in 1788)"]),
    (Answer("Guns N' Roses"), ["guns n’ roses", "Guns N Roses"]),
    (Answer("1,000"), ["1000", "$1,000"]),
    (Answer("12345678.5"), ["12,345,678.5"]),
    (Answer("100, 200, 300"), ["100,200,300"]),
    (Answer("U.S.A."), ["USA", "U. S. A."]),
    (Answer("J.K. Rowling"), ["JK Rowling", "J. K. Rowling", "J K Rowling"]),
    (Answer("x - 1"), ["x-1", "x−1", "x – 1", r"\(x-1\)"]),
    (Answer("f'(x)"), ["f′(x)", "f’( x )"]),
    (Answer("[0,1)"), ["[ 0, 1 )"]),
    (Answer("iron(III) oxide"), ["Iron (III) oxide"]),
    (Answer("B-52"), ["B 52"]),
    (Answer("3, 1, 2", "exact"), ["3,1,2"]),
    (Answer("x+y", "exact", aliases=("y+x",)), ["y + x"]),
]
RIGHT_NUMBERS: list[tuple[Answer, list[str]]] = [
    (
        number("42"),
        ["42", " 42. ", "42.0", "**Answer:** 42", "The answer is **42**.", r"\boxed{42}", "84/2", "420E-1", "４２"],
    ),
    (number("-3"), ["−3"]),
    (number("0.5"), ["1/2"]),
    (number("1/3"), ["2/6"]),
    (number("1234567"), ["1,234,567"]),
    (number("1234.5"), ["1,234.5"]),
    (number("0"), ["0e999"]),
    (number("1e999"), ["10e998"]),
    (number("9.81", 0.01), ["9.8"]),
    (number("-100", 0.01), ["-99"]),
    (number("5", unit="m"), ["5m."]),
    (number("5", unit="m/s^2"), ["5 m/s²"]),
    (number("5", unit="m³"), ["5 m³"]),
    (number("5", unit="N·m"), ["5 N*m"]),
    (number("5e3", unit="eV"), ["5000 eV"]),
    (Answer("5", "number", aliases=("7",)), ["7.0"]),
]


@pytest.mark.parametrize(("answer", "replies"), [*RIGHT_NUMBERS, *RIGHT_TEXTS], ids=str)
def test_right_answers(answer: Answer, replies: list[str]) -> None:
    assert [reply for reply in replies if not is_right(answer, reply)] == []


WRONG_TEXTS: list[tuple[Answer, list[str]]] = [
    (Answer("Anna Berg"), ["", "Anna", "not Anna Berg", "Berg Anna"]),
    (Answer("A"), ["?!"]),
    (Answer("+"), ["-"]),
    (Answer("Anna", aliases=("Dr Berg",)), ["Dr Dahl"]),
    (Answer("x - 1"), ["x + 1"]),
    (Answer("-5 m"), ["5 m"]),
    (Answer("10⁵ years"), ["105 years"]),
    (Answer("3.5"), ["3, 5"]),
    (Answer("x < 3"), ["x > 3"]),
    (Answer("H+"), ["H"]),
    (Answer("10²", "exact"), ["102"]),
    (Answer("3,1,2", "exact"), ["312"]),
    (Answer("the abc", "exact"), ["abc"]),
]
OPPOSITE = (
    "√2|2", "x ≤ 5|x ≥ 5", "A ∩ B|A ∪ B", "∀x P(x)|∃x P(x)", "¬p|p", "5!|5", "n! - 1|n - 1", "!p|p", "x != 5|x = 5",
    "[0,1)|(0,1]", "[0,1)|[0,1]", "(0, 1)|0, 1", "(1,234)|1234", "x ∈ S|x ∉ S", "p ∧ q|p ∨ q", "p → q|p ← q", "∞|-∞",
    "1 - x|1 x", "sin x - cos x|sin x cos x", "x – 1|x 1", "–5 m|5 m", "f'(x)|f(x)", "f''(x)|f'(x)", "C'|C", "⌊x⌋|⌈x⌉",
    "(x+1)/2|x+1/2", "1/(2x)|1/2x", "(-1)^n|-1^n", "(ab)²|ab²", "(ab)!|ab!", "a - (b - c)|a - b - c", "x-(y)|x(y)",
    "(x+1)-(y+2)|(x+1)(y+2)", "(x+1)-y|(x+1)y", "(1 2)(3 4)|(1 2 3 4)", "50%|50", "€5|$5", "B♭|B", "3,5|35",
)  # fmt: skip


@pytest.mark.parametrize("pair", [*(pair.split("|") for pair in OPPOSITE), ["|x|", "x"]], ids="~".join)
def test_signs_of_mathematics_are_no_punctuation(pair: list[str]) -> None:
    one, other = pair
    assert is_right(Answer(one), one)
    assert not is_right(Answer(one), other)
    assert not is_right(Answer(other), one)


WRONG_NUMBERS: list[tuple[Answer, list[str]]] = [
    (number("42"), ["", "42.0000001", "x = 42", "**42** or **43**", "42 or 43", "41-42", "42%", "42/0", "42^1", "nan"]),
    (number("314"), ["3,14"]),
    (number("12345"), ["12,345,"]),
    (number("1000"), ["1,0000"]),
    (number("105"), ["10⁵"]),
    (number("52"), ["5²"]),
    (number("1"), ["1½"]),
    (number("9.81", 0.01), ["9.7"]),
    (number("100", 0.01), ["101.0001"]),
    (number("0", 0.01), ["0.0001"]),
    (number("5", unit="m"), ["5 m/s"]),
    (number("5", unit="m²"), ["5 m"]),
    (number("nonsense"), ["nonsense"]),
]


@pytest.mark.parametrize(("answer", "replies"), [*WRONG_NUMBERS, *WRONG_TEXTS], ids=str)
def test_wrong_answers(answer: Answer, replies: list[str]) -> None:
    assert [reply for reply in replies if is_right(answer, reply)] == []


_FRACTIONS = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**4)


@given(_FRACTIONS, _FRACTIONS, st.sampled_from([0.0, 1e-6, 0.001, 0.01, 0.5]))
def test_tolerance_is_relative_and_exact(want: Fraction, got: Fraction, tolerance: float) -> None:
    near = want * (1 + Fraction(str(tolerance)))
    for value in (got, near, near + Fraction(1, 10**12), want):
        expected = abs(value - want) <= abs(want) * Fraction(str(tolerance))
        answer = number(f"{want.numerator}/{want.denominator}", tolerance)
        assert is_right(answer, f"{value.numerator}/{value.denominator}") == expected


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_one_number_in_many_spellings(value: Decimal) -> None:
    answer = number(str(value))
    for spelling in (
        f"{value:f}",
        f"{value:,f}",
        f"{value:,f}".replace(",", "_"),
        f"{value:e}",
        f"<answer>{value:f}</answer>",
    ):
        assert is_right(answer, spelling), spelling
        assert not is_right(number(f"{value + 1:f}"), spelling)


@pytest.mark.parametrize("name", [*SUBJECTS, *PATTERNS])
def test_reference_answers_are_right_and_decoys_wrong(name: str) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        question = SUBJECTS[name](rng, rng.choice(LEVELS)) if name in SUBJECTS else PATTERNS[name](build(0), rng)
        answer = question.answer
        for text in (answer.text, *answer.aliases):
            for reply in (text, f"The answer is {text}.", rf"\boxed{{{text}}}", f"<answer>{text} </answer>"):
                assert is_right(answer, reply), (answer, reply)
        if answer.unit:
            assert is_right(answer, f"{answer.text} {answer.unit}")
            assert not is_right(answer, f"{answer.text} parsecs")
        for decoy in question.decoys:
            assert not is_right(answer, decoy)


HOSTILE: dict[str, str] = {
    "huge exponent": "1e999999999999",
    "many digits": "9" * 1_000_000,
    "digits that unfold": "⑳" * 5_000,
    "letters that unfold": "ﷺ" * 100_000,
    "many groups": "1" + ",000" * 300_000,
    "many brackets": "(" * 500_000,
    "many words in brackets": "(" + "aa " * 500_000,
    "many initials": "a." * 500_000,
    "many quotes": "a" + "'" * 500_000,
    "many calls": "n!" * 500_000,
    "many slashes": "1/" * 500_000,
    "many blanks after the": "the" + " " * 1_000_000 + "final" + " " * 1_000_000,
    "many closed boxes": r"\boxed{1}" * 100_000,
    "deep box": r"\boxed{" + "{" * 500_000 + "}" * 500_000,
    "combining": "e" + "\u0301" * 500_000,
    "raised": "10" + "⁵" * 1_000_000,
    "other digits": "𝟒𝟐",
    "circled": "④②",
    "point alone": ".",
}
KINDS: list[Answer] = [
    number("42"),
    number("1e997", 0.5, "m"),
    Answer("42", "exact"),
    Answer("42"),
    Answer("A", aliases=("",)),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_replies_are_wrong_soon(name: str) -> None:
    for answer in KINDS[:4]:
        start = time.process_time()
        right = is_right(answer, HOSTILE[name])
        assert time.process_time() - start < SOON_SECONDS
        assert not right or name in ("other digits", "circled")
