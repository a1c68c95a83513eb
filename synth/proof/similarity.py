"""Tasks of a domain that say the same: compared after names and numbers are taken out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_ID = re.compile(r"\b[A-Z]{1,4}-?[0-9][\w-]*")
_MAIL = re.compile(r"\S+@\S+")
_NUMBER = re.compile(r"\d[\d.,:/-]*")
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]+(?: [A-Z][a-z]+)*")
_END = re.compile(r"(?<=[.?!]) ")
FINAL = "Finally: "
JOINTS = ("I also want this: ", "Then: ", "Another thing: ", FINAL)
"""What stands between two requests of a task."""
_SHINGLE = 3
NEAR = 0.9


class Likeness(NamedTuple):
    """The duplicate report of a domain."""

    tasks: int
    exact: int
    """Tasks that are the same as an earlier one in words, calls and values' places."""
    near: int
    """Tasks with the same calls as an earlier one whose words overlap by nine tenths or more."""
    example: str


def normal(text: str) -> str:
    """The text without ids, addresses, numbers and names."""
    text = " ".join(text.split())
    for pattern, mark in ((_MAIL, "<mail>"), (_ID, "<id>"), (_NAME, "<name>"), (_NUMBER, "<n>")):
        text = pattern.sub(mark, text)
    return " ".join(text.lower().split())


def words(shape: Mapping[str, Any]) -> str:
    """What a task says to its user, normalised: its sentences in no order, without the words that join requests."""
    told = shape["user_scenario"]["instructions"]
    reason = told["reason_for_call"]
    for joint in JOINTS:
        reason = reason.replace(joint, "")
    sentences = sorted(normal(sentence) for sentence in _END.split(reason))
    return " ".join([*sentences, normal(f"{told.get('known_info') or ''} {told.get('unknown_info') or ''}")])


def calls(shape: Mapping[str, Any]) -> str:
    """The gold calls' names and which arguments they have, in no order."""
    actions = shape["evaluation_criteria"]["actions"]
    return ";".join(sorted(f"{a['name']}({','.join(sorted(a['arguments']))})" for a in actions))


def form(shape: Mapping[str, Any]) -> str:
    """What two tasks share that differ in names and numbers alone."""
    requests = shape.get("toolscale", {}).get("requests", [])
    # The same words with another branch, where the right answer depends on the data, are another task.
    branches = (f" {request['intent']}={request['branch']}" for request in requests if request.get("branch"))
    return f"{words(shape)} => {calls(shape)}{''.join(sorted(branches))}"


def compare(shapes: Iterable[Mapping[str, Any]]) -> Likeness:
    """Compare all tasks of a domain."""
    listed = list(shapes)
    seen: dict[str, str] = {}
    by_calls: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    exact = near = 0
    example = ""
    for shape in listed:
        key, said = form(shape), words(shape)
        if key in seen:
            exact += 1
            example = example or f"{shape['id']} says what {seen[key]} says"
        runs = shingles(said)
        group = by_calls[calls(shape)]
        if key not in seen and any(overlap(runs, other) >= NEAR for _, other in group):
            near += 1
        group.append((shape["id"], runs))
        seen.setdefault(key, shape["id"])
    return Likeness(len(listed), exact, near, example)


def shingles(text: str) -> frozenset[str]:
    """All runs of three words that follow each other in a text; the whole text where it is shorter."""
    split = text.split()
    return frozenset(" ".join(split[i : i + _SHINGLE]) for i in range(max(1, len(split) - _SHINGLE + 1)))


def overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Shared runs over all runs."""
    return len(a & b) / max(1, len(a | b))
