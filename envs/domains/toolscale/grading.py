"""The parts of the outcome: right end state, needed information told, entities of the gold path touched, and the rules
of process kept where the domain's verdict has some."""

from __future__ import annotations

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
    """The rules of process that were broken, in words."""

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
    ids = [touched([called]) for called in calls]
    seen = set().union(*ids)
    keys = session.database.keys
    gaps = [sorted((needed - seen) & keys) for needed in task.once(_needed)]
    fewest = min(gaps, key=len)
    rules = broken(session.database.domain, task, list(zip(calls, ids, strict=True)), unasked)
    return SqlVerdict(state in task.end_states, not untold, not fewest, (*untold, *fewest), rules)


def _needed(task: SqlTask) -> tuple[set[str], ...]:
    """The ids that each path works on."""
    return tuple(entities(path) for path in (task.actions, *task.alternatives))


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
    return _stands_in(_spaced(info), _spaced(text)) if said is None else said


@lru_cache(maxsize=1024)
def _spaced(text: str) -> str:
    return " ".join(values.plain(text).lower().split())


def _stands_in(info: str, text: str) -> bool:
    """Whether it stands in the text and is no part of a longer word ("fish" in "shellfish") or number ("Hill Street 9"
    in 91)."""
    if not info:
        return True
    at = text.find(info)
    while at >= 0:
        end = at + len(info)
        if not _goes_on(info[0], text[at - 1 : at]) and not _goes_on(info[-1], text[end : end + 1]):
            return True
        at = text.find(info, at + 1)
    return False


def _goes_on(edge: str, beside: str) -> bool:
    """Whether a character makes the word or number longer whose edge is beside it."""
    if edge.isdecimal():
        return beside.isdecimal()
    return edge.isalpha() and beside.isalnum() and not beside.isdecimal()
