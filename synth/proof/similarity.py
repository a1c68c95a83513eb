"""Tasks that say the same, and how rich their language is: looked at after names and numbers are taken out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

_ID = re.compile(r"\b[A-Z]{1,4}-?[0-9][\w-]*")
_MAIL = re.compile(r"\S+@\S+")
_NUMBER = re.compile(r"\d[\d.,:/-]*")
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]+(?: [A-Z][a-z]+)*")
_WORDS = re.compile(r"<\w+>|[\w']+")
_ISO = re.compile(r"\b\d{4}-\d\d\b")
_END = re.compile(r"(?<=[.?!]) ")
FINAL = "Finally: "
JOINTS = ("I also want this: ", "Then: ", "Another thing: ", FINAL)
"""What stands between two requests of a task."""
_SHINGLE = 3
NEAR = 0.9
NEIGHBOUR = 0.5


class Likeness(NamedTuple):
    """The duplicate report of a domain."""

    tasks: int
    exact: int
    """Tasks that are the same as an earlier one in words, calls and values' places."""
    near: int
    """Tasks with the same calls as an earlier one whose words overlap by nine tenths or more."""
    example: str


class Language(NamedTuple):
    """How rich the words of tasks are."""

    tasks: int
    vocabulary: int
    distinct: float
    """Different runs of three words over all runs of three words."""
    neighboured: float
    """Share of the tasks whose runs of three words overlap with those of another by half or more."""
    iso_dates: float
    """Share of the requests' wordings that say a date as machines do."""

    def text(self) -> str:
        return (
            f"language of {self.tasks} tasks: distinct-3 {self.distinct:.3f}, {self.vocabulary} words, "
            f"{self.neighboured:.1%} with a neighbour at {NEIGHBOUR}, {self.iso_dates:.1%} of the wordings with "
            "ISO dates"
        )


def language(shapes: Iterable[Mapping[str, Any]]) -> Language:
    """Measure what tasks, of several domains perhaps, give their users to say."""
    listed = list(shapes)
    texts = [_WORDS.findall(normal(shape["user_scenario"]["instructions"]["reason_for_call"])) for shape in listed]
    runs = [[tuple(text[at : at + _SHINGLE]) for at in range(len(text) - _SHINGLE + 1)] for text in texts]
    all_runs = Counter(run for one in runs for run in one)
    wordings = [say for shape in listed for request in shape["toolscale"]["requests"] for say in request["say"]]
    return Language(
        len(listed),
        len(set().union(*texts)),
        len(all_runs) / max(1, all_runs.total()),
        _neighboured([frozenset(one) for one in runs]) / max(1, len(listed)),
        sum(bool(_ISO.search(say)) for say in wordings) / max(1, len(wordings)),
    )


def _neighboured(sets: list[frozenset[tuple[str, ...]]]) -> int:
    """How many sets overlap with another by half or more."""
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, one in enumerate(sets):
        for run in one:
            holders[run].append(place)
    found = 0
    for place, one in enumerate(sets):
        shared = Counter(other for run in one for other in holders[run] if other != place)
        found += any(n >= NEIGHBOUR * (len(one) + len(sets[other]) - n) for other, n in shared.most_common(20))
    return found


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


def asks_twice(shape: Mapping[str, Any], writes: Collection[str]) -> bool:
    """Whether a request only asks, and needs no call and tells nothing but what another needs and tells too."""
    made = [
        (action["name"], repr(sorted(action["arguments"].items())))
        for action in shape["evaluation_criteria"]["actions"]
    ]
    asked = [({made[at] for at in one["actions"]}, set(one["inform"])) for one in shape["toolscale"]["requests"]]
    only = [(own, told) for own, told in asked if told and not any(name in writes for name, _ in own)]
    return any(sum(own <= others and told <= all_told for others, all_told in asked) > 1 for own, told in only)


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
