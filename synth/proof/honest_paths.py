"""Ids are told before they are used: what an agent could have known at each call of a path.

An agent reads an id in the policy, in the user's words or in the result of an earlier call. A path that uses one that
nothing has said knows the answer; it cannot be imitated, and what it saves by that is no saving. Lookups are reads that
say such ids: calls that the domain's paths make, and those that take one id, as "list this customer's orders" does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlTask
from toolorchestra.envs.domains.toolscale.grading_ids import entities
from toolorchestra.synth.proof.task_checks import DomainPlayer

DEEPEST = 3
"""A lookup may need an id that another lookup says, and so on, so many times."""
_TOKEN = re.compile(r"[\w-]+")


class Lookup(NamedTuple):
    """A read that is made just before a call of a path."""

    before: int
    """The place of that call."""
    call: GoldCall


@lru_cache(maxsize=4096)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(_TOKEN.findall(text))


class SaidIds:
    """What has been said in an episode, as far as ids go."""

    __slots__ = ("_said",)

    def __init__(self, *texts: str) -> None:
        self._said: set[str] = set()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        self._said |= _tokens(text)

    def missing(self, call: GoldCall) -> list[str]:
        """The ids among a call's arguments that nothing has said."""
        return sorted(value for value in entities([call]) if value not in self._said and not self._in_parts(value))

    def _in_parts(self, value: str) -> bool:
        parts = _TOKEN.findall(value)
        return parts != [value] and bool(parts) and self._said.issuperset(parts)


def told_at_first(bench: DomainPlayer, task: SqlTask) -> SaidIds:
    """What the policy says, and the user when it is asked."""
    facts = [*task.facts, *(fact for request in task.requests for fact in request.facts)]
    return SaidIds(bench.domain.policy, *(say for r in task.requests for say in r.say), *(fact.value for fact in facts))


def untold(bench: DomainPlayer, task: SqlTask, path: Sequence[GoldCall]) -> list[tuple[int, str]]:
    """The places of a path at which an id is used that nothing has said, with the id."""
    said, found = told_at_first(bench, task), []
    with bench.session() as session:
        for place, call in enumerate(path):
            found += [(place, value) for value in said.missing(call)]
            try:
                said.add(bench.call(session, call).text)
            except ToolError:
                continue
            for value in entities([call]):
                said.add(value)
    return found


class Lookups:
    """Reads by what they say of the seed rows: those that the domain's paths make, and those that take one id."""

    def __init__(self, bench: DomainPlayer) -> None:
        self._bench = bench
        self._saying: dict[str, list[tuple[int, str, GoldCall]]] = {}
        seen = set()
        with bench.session() as session:
            for call in _reads(bench):
                key = json.dumps([call.name, dict(call.arguments)], sort_keys=True)
                if key in seen:
                    continue
                seen.add(key)
                try:
                    text = bench.call(session, call).text
                except ToolError:
                    continue
                for token in _tokens(text):
                    self._saying.setdefault(token, []).append((len(text), key, call))
        for found in self._saying.values():
            found.sort(key=lambda one: one[:2])

    def for_path(self, task: SqlTask, path: Sequence[GoldCall]) -> tuple[Lookup, ...]:
        """The reads that a path lacks; ids that no read says stay as they are."""
        said, found = told_at_first(self._bench, task), []
        with self._bench.session() as session:
            for place, call in enumerate(path):
                for value in said.missing(call):
                    for lookup in self._that_say(value, said, DEEPEST):
                        found.append(Lookup(place, lookup))
                        said.add(self._bench.call(session, lookup).text)
                try:
                    said.add(self._bench.call(session, call).text)
                except ToolError:
                    continue
                for value in entities([call]):
                    said.add(value)
        return tuple(found)

    def _that_say(self, value: str, said: SaidIds, depth: int) -> list[GoldCall]:
        """Calls that lead to an id, the last of which says it; the shortest results first."""
        best: list[GoldCall] = []
        for _, _, call in self._saying.get(value, ()):
            lead: list[GoldCall] = []
            for needed in said.missing(call):
                before = self._that_say(needed, said, depth - 1) if depth > 1 and needed != value else []
                if not before:
                    break
                lead += [one for one in before if one not in lead]
            else:
                if not best or len(lead) + 1 < len(best):
                    best = [*lead, call]
                if not lead:
                    break
        return best


def _reads(bench: DomainPlayer) -> Iterator[GoldCall]:
    for task in bench.domain.tasks.values():
        for path in (task.actions, *task.alternatives):
            for call in path:
                if bench.domain.tools[call.name].kind == "read":
                    yield call
    for tool in bench.domain.tools.values():
        needed = tool.parameters.get("required", [])
        if tool.kind == "read" and len(needed) == 1 and needed[0].endswith("_id"):
            for value in bench.values(needed[0]):
                if isinstance(value, str):
                    yield GoldCall(tool.name, {needed[0]: value})
