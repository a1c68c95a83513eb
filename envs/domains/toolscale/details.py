"""What a user notices in a confirmation: a number, date or id of its own request that is named with another value.

The details are arguments of the request's calls whose values stand in all of the user's own wordings or in its facts. A
detail that the confirmation leaves out, or that it does not name by the argument's words, goes unnoticed; so does a
value that some right path of the task gives the same argument. So nobody is corrected who does what is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolorchestra.envs.domains.toolscale.domain import Request, SqlTask
from toolorchestra.envs.domains.toolscale.grading import mentions

_SHAPES = tuple(
    re.compile(shape) for shape in (r"\d{4}-\d\d-\d\d", r"[a-z]{1,4}-?\d[\w-]*", r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
)
"""Dates, ids, numbers, of a text in lower case."""
_BETWEEN = r"(?:\s|[:=$€£*`\"']|\b(?:is|of|to|now)\b){1,12}"


class Detail(NamedTuple):
    """An argument as the user knows it."""

    label: str
    value: str
    stated: re.Pattern[str]
    """The label and a value behind it, in lower case."""
    right: frozenset[str]
    """The argument's values on the task's right paths, and those of arguments whose names end like its own: "from
    account id" is no "account id"."""


class Wrong(NamedTuple):
    """What a confirmation says instead."""

    label: str
    value: str
    stated: str


def details(task: SqlTask) -> tuple[tuple[Detail, ...], ...]:
    """For each request of a task, the details of it that the user watches for in a confirmation."""
    right: dict[str, set[str]] = {}
    for path in (task.actions, *task.alternatives):
        for action in path:
            for name, value in action.arguments.items():
                right.setdefault(name, set()).add(str(value))
    return tuple(tuple(_details(task, request, right)) for request in task.requests)


def _details(task: SqlTask, request: Request, right: dict[str, set[str]]) -> Iterator[Detail]:
    for number in request.actions:
        for name, value in task.actions[number].arguments.items():
            text = str(value)
            shape = next((shape for shape in _SHAPES if shape.fullmatch(text.lower())), None)
            if shape is None or isinstance(value, bool):
                continue
            if all(mentions(say, text) for say in request.say) or any(text == fact.value for fact in request.facts):
                alike = (right[other] for other in right if f"_{other}".endswith(f"_{name}"))
                label = name.replace("_", " ").lower()
                stated = re.compile(rf"\b{re.escape(label)}{_BETWEEN}({shape.pattern})")
                yield Detail(label, text, stated, frozenset().union(*alike))


def wrong(known: Sequence[Detail], text: str) -> Wrong | None:
    """The first detail that a text names with a wrong value and does not say."""
    heard = text.lower()
    for detail in known:
        if detail.label not in heard or mentions(text, detail.value):
            continue
        for found in detail.stated.finditer(heard):
            if not any(mentions(found[1], value) for value in detail.right):
                return Wrong(detail.label, detail.value, found[1])
    return None
