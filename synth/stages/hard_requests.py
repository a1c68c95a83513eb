"""What makes a request hard, as its intent declares it: each kind is checked on the draft and leaves wrong ways behind,
which must give 0.

candidates   several things fit at first sight, and a condition in the words tells them apart
computed     a value stands neither in the words nor in a result: it has to be computed
branches     what is right depends on what is found
first        the user does not stay with its first words
followed_by  the same goal in later requests
Long results are tools with a parameter `page`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.grading import mentions
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats.intent_templates import BRANCH, Rejected, Templates, action, named, plain
from toolorchestra.synth.proof.domain_player import DomainPlayer

_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w-]|\.\d)")
_TOKEN = re.compile(r"[\w.@+-]+")
ELEMENTS = ("distractors", "arithmetic", "branches", "user", "goal", "paging", "refusals")
"""What makes a task hard for the right reasons. A task has an element where its number is above 0."""
MOST_EASY_REQUESTS = 2
MANY_REQUESTS = 4


def level(vector: Mapping[str, int]) -> str:
    """easy: no element and at most two requests; hard: two elements or more, or one in four requests or more; else
    medium."""
    elements = sum(vector[name] > 0 for name in ELEMENTS)
    if not elements:
        return "easy" if vector["requests"] <= MOST_EASY_REQUESTS else "medium"
    return "hard" if elements > 1 or vector["requests"] >= MANY_REQUESTS else "medium"


def hardness(
    requests: Sequence[Mapping[str, Any]], made: Sequence[Called], candidates: Sequence[int], computed: int
) -> dict[str, Any]:
    """The vector of a draft whose gold path gave these results."""
    vector = {
        "requests": len(requests),
        "depth": depth(requests, made),
        "distractors": sum(number - 1 for number in candidates),
        "arithmetic": computed,
        "branches": sum("branch" in request for request in requests),
        "user": sum("first" in request for request in requests),
        "goal": sum("." in request["intent"] for request in requests),
        "paging": sum(isinstance(page := c.arguments.get("page"), int) and page > 1 for c in made),
        "refusals": sum(request["ending"] == "refuse" for request in requests),
    }
    return {"level": level(vector), **vector}


def depth(requests: Sequence[Mapping[str, Any]], made: Sequence[Called]) -> int:
    """The longest chain of calls of which each takes an argument from a result of the one before."""
    said: set[str] = set()
    for request in requests:
        first = request.get("first", {})
        for text in (*request["say"], *first.get("say", ()), *first.get("then", ())):
            said.update(_TOKEN.findall(text))
    chains: list[tuple[int, frozenset[str]]] = []
    longest = 0
    for called in made:
        wanted = {str(value) for value in called.arguments.values()} - said
        own = 1 + max((length for length, told in chains if wanted & told), default=0)
        chains.append((own, frozenset(_TOKEN.findall(called.text))))
        longest = max(longest, own)
    return longest


# -- the kinds ---------------------------------------------------------------------------------------------------------

Values = Mapping[str, Any]
Shape = dict[str, Any]
MOST_CANDIDATES = 3
"""Wrong ways that are kept of a request's candidates; as many of its numbers."""
HARD = ("candidates", "computed", "branches", "first", "followed_by")
HARD_WEIGHT = 20.0
"""Weight of an intent with such a part, where it says none: it is used about three times as often as a plain one."""


def weight(intent: Mapping[str, Any]) -> float:
    """How much an intent is wanted in a draft."""
    default = HARD_WEIGHT if any(intent.get(key) for key in HARD) else 1.0
    return float(intent.get("weight", default))


def parts(intent: Mapping[str, Any], values: Values) -> Iterator[Mapping[str, Any]]:
    """The requests of an intent: its own and those that follow, each with the branch that is right for these values."""
    for number, part in enumerate((intent, *intent.get("followed_by", ())), 1):
        name = intent["intent"] if number == 1 else f"{intent['intent']}.{number}"
        if not part.get("branches"):
            yield {**part, "intent": name}
            continue
        taken = str(values.get(BRANCH))
        if taken not in part["branches"]:
            known = ", ".join(part["branches"])
            raise ConfigError(f"intent {name}: the draw's column {BRANCH!r} says {taken!r}; there are branches {known}")
        yield {**part, **part["branches"][taken], "intent": name, BRANCH: taken}


class HardRequests:
    """Gathers what makes one draft hard."""

    def __init__(self, bench: DomainPlayer, templates: Templates) -> None:
        self._bench, self._templates = bench, templates
        self._wrong: list[Shape] = []
        self._computed: list[str] = []
        self._candidates: list[int] = []
        self._numbers = 0
        self._place = 0

    def note(
        self,
        part: Mapping[str, Any],
        values: Values,
        request: Shape,
        made: Sequence[GoldCall],
        called: Sequence[Called],
    ) -> None:
        """One request, with the calls before it and its own. Raises Rejected where it is not what it declares."""
        gold = [c.action for c in called]
        where = f"intent {request['intent']}"
        ways: list[tuple[str, Sequence[GoldCall]]] = []
        if candidates := part.get("candidates"):
            ways += self._other_candidates(candidates, values, gold, request["intent"])
        for column in part.get("computed", ()):
            ways += self._uncomputed(named(values, column, where), request, gold, called)
        for name, branch in part.get("branches", {}).items():
            if name != part[BRANCH]:
                ways.append(("branch", self._tried(branch.get("actions", part["actions"]), values, made)))
        if (first := part.get("first")) and first.get("values"):
            others = {key: named(values, other, where) for key, other in first["values"].items()}
            swapped = {**values, **others}
            ways.append(("first_said", self._tried(part["actions"], swapped, made)))
        for kind, calls in ways:
            if [*calls] == gold:
                raise Rejected(f"its {kind} is no other", f"{request['intent']}: {calls}", request["intent"])
            rows = [[call.name, dict(call.arguments)] for call in calls]
            self._wrong.append({"kind": kind, "request": self._place, "calls": rows})
        self._computed += [info for info in request["inform"] if not any(mentions(c.text, info) for c in called)]
        self._place += 1

    def _other_candidates(
        self, candidates: Mapping[str, Any], values: Values, gold: Sequence[GoldCall], intent: str
    ) -> Iterator[tuple[str, Sequence[GoldCall]]]:
        where = f"intent {intent}"
        right = named(values, candidates["column"], where)
        others = self._templates.others(candidates, values, where)
        if not others:
            raise Rejected("one candidate alone", f"{intent}: {right!r}", intent)
        self._candidates.append(1 + len(others))
        for other in others[:MOST_CANDIDATES]:
            if (swapped := _with(gold, right, other)) != [*gold]:
                yield "candidate", swapped

    def _uncomputed(
        self, value: Any, request: Shape, gold: Sequence[GoldCall], called: Sequence[Called]
    ) -> Iterator[tuple[str, Sequence[GoldCall]]]:
        first = request.get("first", {})
        words = [*request["say"], *first.get("say", ()), *first.get("then", ())]
        words += [fact["value"] for fact in request["facts"] if fact.get("value")]
        read = []
        for one in called:
            if value in one.arguments.values():
                break
            read.append(one.text)
        if any(mentions(text, plain(value)) for text in (*words, *read)):
            raise Rejected("nothing to compute", f"{request['intent']}: {value!r} is said", request["intent"])
        self._numbers += 1
        seen = [number for text in (*words[:1], *read) for number in _NUMBER.findall(text)]
        made = 0
        numbers = [int(float(text)) for text in seen] if isinstance(value, int) else list(map(float, seen))
        for number in dict.fromkeys(numbers if isinstance(value, int | float) else seen):
            swapped = _with(gold, value, number)
            if number != value and swapped != [*gold] and made < MOST_CANDIDATES:
                made += 1
                yield "uncomputed", swapped

    def _tried(self, rows: Sequence[Any], values: Values, made: Sequence[GoldCall]) -> list[GoldCall]:
        """What an agent would call that has this in mind, up to the first refusal."""
        done: list[Called] = []
        tried: list[GoldCall] = []
        with self._bench.session() as session:
            self._bench.made(session, made)
            for row in rows:
                try:
                    tried.append(action(row, values, done, "a wrong way"))
                    done.append(self._bench.call(session, tried[-1]))
                except (ConfigError, ToolError):
                    break  # what it needs was not found, or it was refused
        return tried

    def shape(self, requests: Sequence[Shape], made: Sequence[Called]) -> Shape:
        """What the task says of it."""
        return {
            "computed": list(dict.fromkeys(self._computed)),
            "wrong": self._wrong,
            "hardness": hardness(requests, made, self._candidates, self._numbers + len(set(self._computed))),
        }


def _with(calls: Sequence[GoldCall], value: Any, other: Any) -> list[GoldCall]:
    return [
        GoldCall(c.name, {key: other if kept == value else kept for key, kept in c.arguments.items()}) for c in calls
    ]
