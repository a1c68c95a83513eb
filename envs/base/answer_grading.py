"""Whether an answer is right, by rule: exact, numeric with tolerance and unit, or normalised text. No model asked."""

from __future__ import annotations

import re
import string
import unicodedata
from fractions import Fraction
from functools import lru_cache

from toolorchestra.envs.base.types import Answer

LONGEST = 2000
"""Characters of an answer that are read; right answers are short."""
_NUMBER = re.compile(
    r"([-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d+)?|[-+]?\.\d+)(?:e([-+]?\d{1,3}))?(?:\s*/\s*(\d+))?",
    re.IGNORECASE,
)
_RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
_LETTER = r"(?<![^\W\d_])[^\W\d_](?![^\W\d_])"
_MEANT = re.compile(
    r"[/^#%°♭⌈⌉⌊⌋⟨⟩‖]"
    r"|(?<=\w)\*(?=\w)"  # not Markdown's
    rf"|(?:(?<=[\d)])|(?<={_LETTER}))!+|(?<!\w)!(?=[\w(=])"  # n! and !p, not "Paris!"
    rf"|(?<=(?<!'){_LETTER})'+(?!'*\s*\w)"  # f'(x), not "O'Brien", "Guns N' Roses" or 'A'
    r"|(?<!\\)(?:[(\[]|(?<!^\w)[)\]])"  # not LaTeX's, nor that of "b) Paris"
    r"|(?<![\w)\]}])-(?=[^\s-])"  # a sign, no hyphen or dash
    rf"|-(?=[(\[])|(?<=[)\]])-(?=\d|{_LETTER})"
    rf"|(?:(?<=[\d)\]!'|] )|(?<={_LETTER} ))-(?= )"  # x - 1, not "Paris - France"
    rf"|(?<= )-(?= (?:[\d(\[|√-]|{_LETTER}))"
    r"|(?<![^\W\d])\.(?=\d)"  # a decimal point, not that of "No.5"
)
"""What is more than punctuation in a text, beside the signs of mathematics and money: x+1 is not x-1, nor -5 m 5 m, nor
[0,1) (0,1]. Where it may be either, it is meant: the judge tells, where there is one."""
_SIGNS = ("Sm", "Sc")
"""Unicode's categories of mathematical signs and of currencies."""
_ONE_SIGN = str.maketrans("’′–", "''-")
_BRACKETED = re.compile(r"(?<![-/^√'\\])(?<![-/^√'] )(?:\([^()\[\]]*\)|\[[^()\[\]]*\])(?![\w^(\[!'])")
_PROSE = re.compile(r"[\w\s.,;:'\"“”&]*")
_THOUSANDS = re.compile(r"(?<![\d,.(\[])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)")
_INITIAL = re.compile(r"\b([^\W\d_])\.\s?(?=[^\W\d_]\.)")
_HYPHEN = re.compile(r"(?<=\w)[-−–](?=\w)")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_LEAD = re.compile(r"^(?:the\s+)?(?:final\s+)?answer\s*(?:is\b\s*[:=]?|[:=])\s*", re.IGNORECASE)
_BOLD = re.compile(r"(?<![\w)*])\*\*(?!\s)([^*\n]+)(?<!\s)\*\*(?![\w(*])")
"""Markdown's; 2**3**4 is none."""


def final_answer(text: str) -> str:
    """What a reply gives as its answer: the last \\boxed{}, the last <answer> tag, or the text itself."""
    text = text.strip()
    start = text.rfind("\\boxed{")
    if start >= 0:
        inner = _balanced(text, start + len("\\boxed{"))
        if inner is not None:
            return inner.strip()
    start = text.rfind("<answer>")
    if start >= 0:
        return text[start + len("<answer>") :].partition("</answer>")[0].strip()
    return _LEAD.sub("", _BOLD.sub(r"\1", text)).strip()


def _balanced(text: str, at: int) -> str | None:
    depth = 1
    for index in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[at:index]
    return None


def is_right(answer: Answer, given: str) -> bool:
    """Compare a reply with the reference."""
    given = final_answer(given)[:LONGEST]
    if not given:
        return False
    accepted = (answer.text, *answer.aliases)
    if answer.kind == "quasi":
        return any(_quasi(text, given) for text in accepted)
    if answer.kind == "number":
        return any(_same_number(text, given, answer) for text in accepted)
    if answer.kind == "text":
        return any(not _readings(text).isdisjoint(_readings(given)) for text in accepted)
    return _compact(given) in {_compact(text) for text in accepted}


def _same_number(reference: str, given: str, answer: Answer) -> bool:
    want, got = _read_number(reference), _read_number(given)
    if want is None or got is None:
        return False
    if got[1] and answer.unit and _unit(got[1]) != _unit(answer.unit):
        return False
    if got[1] and not answer.unit:
        return False
    return got[0] == want[0] or abs(got[0] - want[0]) <= abs(want[0]) * Fraction(str(answer.tolerance))


@lru_cache(1024)
def _read_number(text: str) -> tuple[Fraction, str] | None:
    """Value and what follows it; None when the text does not start with a number."""
    text = _folded(text).strip().strip("$").strip()
    found = _NUMBER.match(text)
    if not found:
        return None
    mantissa, exponent, under = found.groups()
    value = Fraction(mantissa.replace(",", "").replace("_", ""))
    if exponent:
        value *= Fraction(10) ** int(exponent)
    if under:
        if not int(under):
            return None
        value /= int(under)
    return value, text[found.end() :].strip().rstrip(".").strip()


def _unit(text: str) -> str:
    return "".join(_folded(text).replace("·", "*").split())


def _folded(text: str) -> str:
    # Exponents first: NFKC would make 105 of 10⁵ and m2 of m².
    return unicodedata.normalize("NFKC", _RAISED.sub(lambda found: f"^{found[0]}", text)).replace("−", "-")


def _readings(text: str) -> set[str]:
    """What a text may be equal to: as it stands, and with 1,000 as 1000, U.S.A. as USA and x-1 as x - 1."""
    joined = _INITIAL.sub(r"\1", _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text))
    return {_plain(one) for one in {text, _HYPHEN.sub(" - ", joined)}}


def _plain(text: str) -> str:
    folded = "".join(c for c in _folded(text).casefold() if not unicodedata.combining(c)).translate(_ONE_SIGN)
    folded = _BRACKETED.sub(_unbracketed, " ".join(folded.split()))
    meant = {at for found in _MEANT.finditer(folded) for at in range(*found.span())}
    meant |= {at for at, c in enumerate(folded) if unicodedata.category(c) in _SIGNS and c != "$"}  # LaTeX's
    spaced = (f" {c} " if at in meant else c if c.isalnum() else " " for at, c in enumerate(folded))
    words = "".join(spaced)
    # An answer that is nothing but an article or a mark ("A", "+") is kept: all of those would be equal.
    return " ".join(_ARTICLES.sub(" ", words).split()) or words.strip() or folded.strip()


def _unbracketed(found: re.Match[str]) -> str:
    """Brackets mean nothing around one word, or around prose: no list that begins or ends with an operand."""
    inner = found[0][1:-1]
    words = _BETWEEN.sub(" ", inner).split()
    said = [len(word) > 1 and not any(map(str.isdigit, word)) for word in words]
    prose = all(said[:1] + said[-1:]) if _BETWEEN.search(inner) else any(said) or len(words) == 1
    return f" {inner}" if prose and _PROSE.fullmatch(inner) else found[0]


def _compact(text: str) -> str:
    return "".join(_folded(text).casefold().rstrip(".").split())


# -- GAIA's quasi-exact match, as its leaderboard has it ---------------------------------------------------------------


_BETWEEN = re.compile("[,;]")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _quasi(reference: str, given: str) -> bool:
    """A number equals a number without $, % and commas. A list is compared element by element, as numbers, or as texts
    with their punctuation. Any other text is compared without punctuation. Case and spaces do not count."""
    if _float(reference) is not None:
        return _float(_digits(given)) == _float(reference)
    if not _BETWEEN.search(reference):
        letters = _dense(reference).translate(_NO_PUNCTUATION)
        return letters != "" and _dense(given).translate(_NO_PUNCTUATION) == letters
    wanted, found = _BETWEEN.split(reference), _BETWEEN.split(given)
    return len(wanted) == len(found) and all(
        _dense(one) == _dense(want) if _float(want) is None else _float(_digits(one)) == _float(want)
        for want, one in zip(wanted, found, strict=True)
    )


def _digits(text: str) -> str:
    return re.sub("[$%,]", "", text)


def _dense(text: str) -> str:
    return re.sub(r"\s", "", text).lower()


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
