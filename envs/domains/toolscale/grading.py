"""The parts of the outcome: right end state, needed information told, entities of the gold path touched, and the rules
of process kept where the domain's verdict has some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from toolorchestra.envs.base import values
from toolorchestra.envs.domains.toolscale.database import Session
from toolorchestra.envs.domains.toolscale.domain import SqlTask
from toolorchestra.envs.domains.toolscale.grading_ids import entities, touched
from toolorchestra.envs.domains.toolscale.process_rules import broken
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called

_DIGIT, _LETTER, _NOTHING = r"\d", r"[^\W\d_]", r"(?!)"


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
    broken: tuple[str, ...] = ()
    """The rules of process that were broken, in words. Version 1 has none."""

    @property
    def process(self) -> bool:
        """The rules of process were kept."""
        return not self.broken

    @property
    def value(self) -> float:
        return float(self.execution and self.fidelity and self.completeness and self.process)


def judge(
    task: SqlTask, session: Session, calls: Sequence[Called], told: Sequence[str], unasked: Sequence[str] = ()
) -> SqlVerdict:
    """Judge an episode by its end state, its successful calls, the agent's messages to the user, and the writes that
    the user had not agreed to."""
    state = digest(session)
    untold = [info for info in task.communicate if not _is_told(task, info, told)]
    seen = touched(calls)
    paths = [task.actions, *task.alternatives]
    known = session.database.keys
    gaps = [sorted(entities(path) & known - seen) for path in paths]
    fewest = min(gaps, key=len)
    rules = broken(session.database.domain, task, calls, unasked)
    return SqlVerdict(state in task.end_states, not untold, not fewest, (*untold, *fewest), rules)


def _is_told(task: SqlTask, info: str, told: Sequence[str]) -> bool:
    """Whether a message says it. Where the user's own request holds the number in words ("every five weeks"), only
    figures count: an agent that repeats the request tells nothing."""
    asked = task.shape["user_scenario"]["instructions"]["reason_for_call"]
    in_words = not mentions(asked, info)
    return any(mentions(text, info, in_words=in_words) for text in told)


def mentions(text: str, info: str, *, in_words: bool = True) -> bool:
    """Whether a text says it: numbers, dates and times by value (12.5 in "$12.50", see values.py), anything else in
    whole words, in any case. `in_words=False` hears numbers in figures alone."""
    said = values.says(text, info, in_words=in_words)
    return _in_words(_spaced(info)).search(_spaced(text)) is not None if said is None else said


def _spaced(text: str) -> str:
    return " ".join(values.plain(text).lower().split())


@lru_cache(maxsize=4096)
def _in_words(info: str) -> re.Pattern[str]:
    """The text where it is no part of a longer word ("fish" in "shellfish") or number ("Hill Street 9" in 91)."""
    return re.compile(f"(?<!{_more(info[:1])}){re.escape(info)}(?!{_more(info[-1:])})")


def _more(edge: str) -> str:
    """What would go on with the word or number that a character stands in; nothing does with other characters."""
    return _DIGIT if edge.isdecimal() else _LETTER if edge.isalpha() else _NOTHING
