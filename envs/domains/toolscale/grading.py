"""The three parts of the outcome: right end state, needed information told, entities of the gold path touched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.domains.toolscale.database import Session
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlTask
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called

_CURRENCY = "(?:AUD|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|NOK|NZD|PLN|SEK|USD)"
_NUMBER = re.compile(
    # No part of a word, a range or a version; a currency may touch it.
    rf"(?:(?<=\b{_CURRENCY})|(?<![\w.-]))"
    r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
    rf"(?={_CURRENCY}\b|(?!\w|\.\d))"
)
_DIGIT, _LETTER, _NOTHING = r"\d", r"[^\W\d_]", r"(?!)"
_ID = "_id"


class SqlVerdict(NamedTuple):
    """What holds of an episode's end."""

    execution: bool
    """The database ended as after a gold path."""
    fidelity: bool
    """The user was told all that had to be told, in messages of the agent's."""
    completeness: bool
    """Every entity that the gold path works on stands in the arguments or results of successful calls."""
    missing: tuple[str, ...]
    """What was not told, then what was not touched."""

    @property
    def value(self) -> float:
        return float(self.execution and self.fidelity and self.completeness)


def judge(task: SqlTask, session: Session, calls: Sequence[Called], told: Sequence[str]) -> SqlVerdict:
    """Judge an episode by its end state, its successful calls and the agent's messages to the user."""
    state = digest(session)
    untold = [info for info in task.communicate if not any(mentions(text, info) for text in told)]
    seen = touched(calls)
    paths = [task.actions, *task.alternatives]
    known = session.database.keys
    gaps = [sorted(entities(path) & known - seen) for path in paths]
    fewest = min(gaps, key=len)
    return SqlVerdict(state in task.end_states, not untold, not fewest, (*untold, *fewest))


def mentions(text: str, info: str) -> bool:
    """Whether a text says it: a number as a number (12.5 in "$12.50"), anything else in whole words, in any case."""
    wanted = _as_number(info)
    if wanted is None:
        return _in_words(" ".join(info.lower().split())).search(" ".join(text.lower().split())) is not None
    return any(_as_number(found) == wanted for found in _NUMBER.findall(_with_hyphens(text)))


@lru_cache(maxsize=4096)
def _in_words(info: str) -> re.Pattern[str]:
    """The text where it is no part of a longer word ("fish" in "shellfish") or number ("Hill Street 9" in 91)."""
    return re.compile(f"(?<!{_more(info[:1])}){re.escape(info)}(?!{_more(info[-1:])})")


def _more(edge: str) -> str:
    """What would go on with the word or number that a character stands in; nothing does with other characters."""
    return _DIGIT if edge.isdecimal() else _LETTER if edge.isalpha() else _NOTHING


def _as_number(text: str) -> float | None:
    plain = _with_hyphens(text)
    return float(plain.replace(",", "")) if _NUMBER.fullmatch(plain) else None


def _with_hyphens(text: str) -> str:
    """With the minus sign as it stands in float()'s numbers."""
    return text.replace("\u2212", "-")


def entities(path: Iterable[GoldCall]) -> set[str]:
    """The ids among a path's arguments, those of rows that the path itself made included."""
    return {
        value
        for action in path
        for name, value in action.arguments.items()
        if name.endswith(_ID) and isinstance(value, str)
    }


def touched(calls: Iterable[Called]) -> set[str]:
    """Every id in the arguments and results of calls."""
    seen: set[str] = set()
    for called in calls:
        _collect(called.arguments, seen)
        _collect(called.value, seen)
    return seen


def _collect(value: Any, seen: set[str]) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            if isinstance(part, str):
                if name.endswith(_ID):
                    seen.add(part)
            elif part is not None:
                _collect(part, seen)
    elif isinstance(value, list):
        for part in value:
            _collect(part, seen)
