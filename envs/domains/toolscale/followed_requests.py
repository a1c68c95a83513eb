"""What a scripted user can know of its requests: what it was told, and whether something was done about them.

It sees that a thing of the wanted kind was done, as a customer sees a booking in the account, and not whether it was
done rightly; it hears that a figure of the wanted kind was told, and not whether it is the right one. So nobody learns
from its answers which write or which figure is right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from toolorchestra.envs.domains.toolscale.grading import days, mentions, plain
from toolorchestra.envs.domains.toolscale.heard import without_numbering
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, Request, SqlTask


def requests_along(task: SqlTask, path: Sequence[GoldCall]) -> tuple[Request, ...]:
    """The task's requests with another of its paths as gold: one request has other calls, and those behind it move."""
    shift = len(path) - len(task.actions)
    first = next((n for n, (a, b) in enumerate(zip(task.actions, path, strict=False)) if a != b), None)
    if first is None and not shift:
        return task.requests
    requests = []
    for request in task.requests:
        own = request.actions
        if not own or (first is not None and own[-1] < first):
            requests.append(request)
        elif first is None or own[0] <= first:
            requests.append(replace(request, actions=tuple(range(own[0], own[-1] + 1 + shift))))
        else:
            requests.append(replace(request, actions=tuple(n + shift for n in own)))
    return tuple(requests)


NAMED = 3
"""Words and values of a change that is still to be made: a message with so many proposes it."""
_VALUE = re.compile(r"\w*\d(?:[\w.,:-]*\w)?")
"""A word with a figure in it, and what goes on with it."""


class EpisodeSoFar(NamedTuple):
    """What has happened in an episode."""

    calls: tuple[str, ...]
    """The names of the tools that were called with success."""
    told: tuple[str, ...]
    """The agent's earlier messages to the user."""
    writes: frozenset[str]
    """The domain's tools that change something."""
    subject: frozenset[str] = frozenset()
    """The words that the domain's policy is made of; see content."""


class _Wanted(NamedTuple):
    own: Mapping[str, int]
    """Tools that settle the request on one path, with how often each is called."""
    before: Mapping[str, int]
    """The same for the requests before it."""


class FollowedRequests:
    """A task's requests as its user follows them. `writes` names the tools that change something."""

    __slots__ = ("_along", "_changes", "_own", "_task", "_wanted", "_writes", "changing", "verbs", "words")

    def __init__(self, task: SqlTask, writes: frozenset[str]) -> None:
        self._task = task
        self._writes = writes
        self._along = tuple((path, requests_along(task, path)) for path in (task.actions, *task.alternatives))
        wanted = (_wanted_along(path, requests, writes) for path, requests in self._along)
        self._wanted: tuple[tuple[_Wanted, ...], ...] = tuple(zip(*wanted, strict=True))
        numbers = range(len(task.requests))
        self.changing = frozenset(n for n in numbers if any(wanted.own for wanted in self._wanted[n]))
        """The requests that change something."""
        self.words = tuple(map(self._words_of, numbers))
        """The words that a proposal to settle each request is likely to share; see content."""
        self._changes = tuple(map(self._changes_of, numbers))
        spoken = (" ".join(map(spoken_call, self._calls_of(n))) for n in numbers)
        self.verbs = tuple(frozenset(words.lower().replace("_", " ").split()) for words in spoken)
        """The words that the calls which change something are made of, whole and in lower case, for each request."""
        self._own: dict[frozenset[int], dict[int, list[set[str]]]] = {}

    def _paths(self, number: int) -> Iterator[list[GoldCall]]:
        """The calls that settle a request, on each path."""
        for path, requests in self._along:
            yield [path[at] for at in requests[number].actions]

    def _ways(self, number: int) -> Iterator[list[GoldCall]]:
        """Requests that change something."""
        for calls in self._paths(number):
            yield [call for call in calls if call.name in self._writes]

    def _calls_of(self, number: int) -> Iterator[GoldCall]:
        return chain.from_iterable(self._ways(number))

    def _words_of(self, number: int) -> frozenset[str]:
        request = self._task.requests[number]
        parts = [*request.say, request.intent.replace("_", " "), *(fact.value for fact in request.facts)]
        if request.first:
            parts += [*request.first.say, *request.first.then]
        parts += map(spoken_call, chain.from_iterable(self._paths(number)))
        return content(" ".join(parts)) - _WEEKDAYS

    def _changes_of(self, number: int) -> frozenset[frozenset[str]]:
        """The words of the changes that a request needs, one set for each that has two or more."""
        found = {content(spoken_call(call)) for call in self._calls_of(number)}
        found |= {content(" ".join(map(spoken_call, way))) for way in self._ways(number)}
        return frozenset(change for change in found if len(change) > 1)

    def leaves_a_trace(self, number: int) -> bool:
        """Whether the user can notice that a request is settled; one that is to be refused leaves no trace."""
        return bool(self._task.requests[number].inform) or all(wanted.own for wanted in self._wanted[number])

    def undone(self, number: int, progress: EpisodeSoFar) -> bool:
        """Whether something that the request needs has not been done."""
        made = Counter(progress.calls)
        return not any(
            all(made[name] >= count + wanted.before.get(name, 0) for name, count in wanted.own.items())
            for wanted in self._wanted[number]
        )

    def untold(self, number: int, progress: EpisodeSoFar, text: str) -> list[str]:
        """What the request asks for and neither this message nor one before it tells."""
        said = (text, *progress.told)
        return [info for info in self._task.requests[number].inform if not any(mentions(one, info) for one in said)]

    def settled(self, number: int, progress: EpisodeSoFar, text: str) -> bool:
        """Whether the user knows that a request is settled."""
        return (
            self.leaves_a_trace(number)
            and not self.undone(number, progress)
            and not self.untold(number, progress, text)
        )

    def settled_out_of_turn(self, number: int, progress: EpisodeSoFar) -> bool:
        """Whether a request was settled before the user came to it. What is only to be told may have been said of
        another."""
        return all(wanted.own for wanted in self._wanted[number]) and self.settled(number, progress, "")

    def settled_now(self, first: int, progress: EpisodeSoFar, text: str, calls: int) -> bool:
        """Whether a message settles one of the requests from the first on, which was not after so many calls."""
        then, later = progress._replace(calls=progress.calls[:calls]), range(first, len(self._task.requests))
        return any(self.settled(n, progress, text) and not self.settled(n, then, "") for n in later)

    def named(self, number: int, text: str, progress: EpisodeSoFar) -> bool:
        """Whether a text names a change that a request needs and that has not been made: three of its words and values,
        or all where there are fewer."""
        return self.undone(number, progress) and self._named(number, text)

    def _named(self, number: int, text: str) -> bool:
        said = content(text)
        return any(len(said & change) >= min(NAMED, len(change)) for change in self._changes[number])

    def settled_by(self, made: GoldCall) -> frozenset[int]:
        """The requests that a change is for: those with a call of the tool whose arguments are most like its own; none
        where nobody wants it."""
        alike: dict[int, int] = {}
        for number in self.changing:
            for call in self._calls_of(number):
                if call.name == made.name:
                    same = sum(made.arguments.get(name) == value for name, value in call.arguments.items())
                    alike[number] = max(same, alike.get(number, 0))
        return frozenset(number for number, same in alike.items() if same == max(alike.values()))

    def asked_about(self, shown: Collection[int], text: str) -> frozenset[int]:
        """The changes that a yes to a question is for: all that the user has asked for by now, unless the question
        spells one of them out, with all values that are its own, and says nothing of another."""
        open_ = self.changing.intersection(shown)
        if len(open_) < 2:
            return open_
        if open_ not in self._own:
            self._own[open_] = self._own_values(open_)
        own = self._own[open_]
        spelt = [
            n for n in open_ if self._named(n, text) and any(all(mentions(text, v) for v in way) for way in own[n])
        ]
        if not spelt:
            return open_
        rest, others = content(text), open_.difference(spelt)
        for number in spelt:  # but for its words, and those of its arguments' names
            names = " ".join(name.replace("_", " ") for call in self._calls_of(number) for name in call.arguments)
            rest -= self.words[number] | content(names)
        named = (n for n in others if rest & self.words[n] or any(mentions(text, v) for way in own[n] for v in way))
        return frozenset([*spelt, *named])

    def _own_values(self, numbers: Collection[int]) -> dict[int, list[set[str]]]:
        """The values of each request on each path that no other request has."""
        values = {
            n: [{str(v) for call in way for v in call.arguments.values()} for way in self._ways(n)] for n in numbers
        }
        others = {n: [way for other in numbers if other != n for way in values[other]] for n in numbers}
        return {n: [way.difference(*others[n]) for way in values[n]] for n in numbers}

    def change(self, number: int) -> frozenset[str]:
        """All words and values of the changes that a request needs."""
        return frozenset().union(*self._changes[number])

    def news(self, number: int, text: str) -> str:
        """What of a text the user has not said itself: its own figures are no answer, nor are the numbers of a list."""
        request = self._task.requests[number]
        first = request.first
        own = [*request.say, *(fact.value for fact in (*self._task.facts, *request.facts))]
        own += [*first.say, *first.then] if first else []
        said = {value for part in own for value in _VALUE.findall(part)}
        known, figures = {day.value[1:] for part in own for day in days(part)}, plain(without_numbering(text))
        for day in sorted(days(figures), key=lambda day: -day.start):  # its dates, in other words or figures
            if day.value[1:] in known:
                figures = figures[: day.start] + figures[day.end :]
        return _VALUE.sub(lambda found: "" if found[0] in said else found[0], figures)


def _wanted_along(path: Sequence[GoldCall], requests: Sequence[Request], writes: frozenset[str]) -> list[_Wanted]:
    wanted: list[_Wanted] = []
    before: Counter[str] = Counter()
    for request in requests:
        own = Counter(path[at].name for at in request.actions if path[at].name in writes)
        wanted.append(_Wanted(own, Counter(before)))
        before += own
    return wanted


_WORD = re.compile(r"[a-z0-9]{3,}")
_START = 5
_COMMON = frozenset(
    word[:_START]
    for word in """about after again agree all alright also and any anything approve are before can cannot case change
    confirm confirmation consent continue correct could customer details did does doing done everything fine first
    following for from get give going ahead good happy have help here how just know let like may moment need next not
    note now okay once one only order please plan proceed ready reply request right say sentence shall should sorry sum
    sure take thank thanks that the them then there these they thing this through to type understanding want wait was
    way what when where whether which will wish with word would yes you your
    """.split()
)


@lru_cache(maxsize=1024)
def content(text: str) -> frozenset[str]:
    """The beginnings of the words and numbers of a text that say what it is about."""
    return frozenset([word[:_START] for word in _WORD.findall(text.lower())]) - _COMMON


_WEEKDAYS = content("monday tuesday wednesday thursday friday saturday sunday")
"""The days that dates are said with, which say nothing of a matter."""


def spoken_call(action: GoldCall) -> str:
    """A call's name and values as words."""
    return " ".join([action.name.replace("_", " "), *map(str, action.arguments.values())])


@lru_cache(maxsize=64)
def spoken_names(tools: frozenset[str]) -> tuple[frozenset[str], ...]:
    """The words of each tool's name."""
    return tuple(content(name.replace("_", " ")) for name in tools)


_KINDS = (
    (
        re.compile(r"\d{4}-\d\d-\d\d.*"),
        re.compile(r"\d{4}-\d\d-\d\d|\b\d\d?(?:st|nd|rd|th|\.)? \w{3,9}\b|\w{3,9} \d\d?\b"),
    ),
    (re.compile(r"\d\d?:\d\d"), re.compile(r"\d[:.]\d\d|\d ?[ap]\.?m")),
    (re.compile(r"[-\d.,]+"), re.compile(r"\d")),
    (re.compile(r"[A-Z]+[- ]?\d+"), re.compile(r"[A-Z]+[- ]?\d")),
)


def alike(text: str, info: str) -> bool:
    """Whether a text holds something of the kind of a value: a date, a time, a number, a code."""
    return any(kind.fullmatch(info) and found.search(text) for kind, found in _KINDS)
