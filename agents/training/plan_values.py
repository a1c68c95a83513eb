"""What plans are worth, learnt from random ones on many tasks: without anybody saying who is good at what.

A plan's chance is estimated from all plans on all tasks, since on one task the best of a few is often a gamble that
came off: the chance that its searches find all that is needed, counted in the plans that searched until nothing was
missing, times the chance that it then ends right, by a logistic regression on the first line of the question, who
writes the program and who answers. Its bill is what its calls use on average, at the task's prices.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from toolorchestra.agents.calibration.logistic import logistic
from toolorchestra.agents.policies.plans import (
    ANSWER,
    BROUGHT_NOTHING,
    CODE,
    SEARCH,
    UNTIL_NOTHING_MISSING,
    UNTIL_PRINTED,
    Plan,
    results,
    tool_of,
)
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import EXPERT, NANO, Tokens, Usage
from toolorchestra.envs.tools.search import NOTHING_MISSING

Numbers = np.ndarray[Any, np.dtype[np.float64]]

MOST_SEARCHES = 5
"""Searches that bring something new, which a plan waits for by number."""
MOST_BESIDES = 3
"""Searches besides, of a searcher whom the user favours."""
SAME_VALUE = 0.004
"""Plans whose value is within this share of the best one's count as equal."""
ALL_FOUND = 0.97
"""Chance from which on a plan counts as one that has found all that is needed."""
RIDGE = 10.0
_NUMBERS = range(MOST_SEARCHES + 1)


class TriedPlan(NamedTuple):
    """A plan that was played."""

    plan: Plan
    header: str
    solved: bool
    used: Mapping[str, tuple[float, float, float, float]]
    """Use by expert: calls, input tokens, output tokens with reasoning, and seconds, of all his calls together."""
    searched: int = 0
    """How often it searched."""
    found: tuple[int, ...] = ()
    """Searches of it that brought something new, by their numbers from 1."""
    nothing_missing: bool = False
    """Whether the searcher said that nothing is missing."""


def header(episode: Episode) -> str:
    """The first line of what was asked: subject and level, or subject and pattern."""
    return str(episode.messages[1]["content"]).partition("\n")[0]


def tried(plan: Plan, episode: Episode) -> TriedPlan:
    """What a played episode tells of its plan."""
    used: dict[str, tuple[float, float, float, float]] = {}
    for charge in episode.ledger:
        if charge.role == EXPERT:
            tokens, before = charge.usage.tokens, used.get(charge.tool, (0.0, 0.0, 0.0, 0.0))
            more = (1, tokens.input, tokens.output + tokens.reasoning, charge.usage.seconds)
            used[charge.tool] = tuple(a + b for a, b in zip(before, more, strict=True))  # type: ignore[assignment]
    solved = bool(episode.outcome and episode.outcome.value >= 1.0)
    search = tool_of(episode, SEARCH[0])
    told = list(results(episode, search)) if search else []
    found = tuple(n for n, text in enumerate(told, 1) if not text.startswith(BROUGHT_NOTHING))
    complete = any(text.startswith(NOTHING_MISSING) for text in told)
    return TriedPlan(plan, header(episode), solved, used, len(told), found, complete)


# -- how often it takes to search --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searching:
    """What it takes, by the header of a question, to find all that is needed."""

    enough: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """How likely no search, one that brings something, two and so on are enough; last: until nothing is missing."""
    calls: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """How many calls these take."""
    pace: Mapping[str, float] = field(default_factory=dict)
    """Pace by searcher: how many calls he takes for one of the others."""
    nothing_new: Mapping[str, float] = field(default_factory=dict)
    """How many calls it takes until one brings nothing new."""

    def chance(self, head: str, said: int) -> float:
        """Chance that all is found by what a plan says; where nothing is known of such questions, that nothing is
        needed."""
        return self.enough[head][said] if head in self.enough else 1.0

    def times(self, head: str, alias: str, said: int) -> float:
        """How often a searcher is called by what a plan says, as expected."""
        if not said:
            return 0.0
        return self.calls[head][said] * self.pace.get(alias, 1.0) if head in self.calls else float(abs(said))

    def needed(self, head: str) -> float:
        """How many searches that bring something a question needs, on average."""
        return sum(1 - chance for chance in self.enough.get(head, [1.0])[:MOST_SEARCHES])


def searching(plays: Sequence[TriedPlan]) -> Searching:
    """What is counted in the plans that searched until nothing was missing: how many searches that bring something each
    kind of question takes, so how likely any smaller number is enough, and how often a searcher is called for that."""
    by_head: dict[str, list[TriedPlan]] = defaultdict(list)
    for one in plays:
        if one.plan.searches == UNTIL_NOTHING_MISSING and one.searched:
            by_head[one.header].append(one)
    enough, calls = {}, {}
    for head, some in by_head.items():
        counts = [[one.nothing_missing and len(one.found) <= number for one in some] for number in _NUMBERS]
        enough[head] = [*map(fmean, counts), fmean(one.nothing_missing for one in some)]
        until = [[_until(one, number) for one in some] for number in _NUMBERS]
        calls[head] = [*map(fmean, until), fmean(one.searched for one in some)]
    took: Counter[str] = Counter()
    usual: dict[str, float] = defaultdict(float)
    for head, some in by_head.items():
        for one in some:
            took[one.plan.search] += one.searched
            usual[one.plan.search] += calls[head][UNTIL_NOTHING_MISSING]
    pace = {alias: took[alias] / usual[alias] for alias in took}
    first = {head: fmean(_first_without(one) for one in some) for head, some in by_head.items()}
    return Searching(enough, calls, pace, first)


def _until(one: TriedPlan, number: int) -> int:
    """Calls until so many brought something; all, where fewer did."""
    return 0 if not number else one.found[number - 1] if number <= len(one.found) else one.searched


def _first_without(one: TriedPlan) -> int:
    """The first search that brought nothing new; the last, where all did."""
    return next((n for n in range(1, one.searched + 1) if n not in one.found), one.searched)


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanValues:
    """What was learnt of one environment."""

    weights: Mapping[str, float]
    """Weights of what tells how likely a plan ends right that has found all that is needed."""
    usual: Mapping[str, tuple[float, float, float]]
    """Use by expert: input and output tokens and seconds of a call."""
    searching: Searching = field(default_factory=Searching)
    """What it takes to find all that is needed."""
    unfound: float = 0.0
    """How likely a plan ends right that has not found all."""
    programs: Mapping[str, float] = field(default_factory=dict)
    """Number of programs by subject and writer: how many programs it takes until one prints something."""

    def best(self, episode: Episode, baselines: Sequence[Mapping[str, float]] = ()) -> Plan:
        """The plan with the highest expected reward at the task's prices, under the user's preference; the cheapest of
        those that come near it. `baselines`: the calls of those between which the reward is scaled; else all plans."""
        every = _EveryPlan(episode, self, baselines)
        values, usd = every.values(), every.sums[:, _USD]
        near = np.flatnonzero(values >= (1 - SAME_VALUE) * values.max())
        return every.plan(int(near[usd[near].argmin()]))

    def usual_calls(self, episode: Episode, plan: Plan) -> Mapping[str, float]:
        """What a baseline calls that always plays a plan until nothing new comes, as expected."""
        searches = self.searching.nothing_new.get(header(episode), 1.0)
        return {alias: n for alias, n in ((plan.search, searches), (plan.code, 1.0), (plan.answer, 1.0)) if alias}

    def bills(self, episode: Episode) -> Mapping[str, tuple[float, float]]:
        """Dollars and seconds of a call, by expert."""
        found = {}
        for tool in episode.world.toolbox:
            for offer in tool.offers:
                read, written, seconds = self.usual.get(offer.alias, (0.0, 0.0, 0.0))
                usage = Usage(offer.model, EXPERT, Tokens(round(read), 0, round(written)))
                found[offer.alias] = episode.sheet.price(offer.model).nano_usd(usage) / NANO, seconds
        return found


class _Part(NamedTuple):
    """One way to do a part of a plan: whom it calls, how often, and what the names of its features are."""

    alias: str
    said: int
    """What the plan says: a number, or until when."""
    calls: tuple[tuple[str, float], ...]
    """Calls of each, as expected."""
    names: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    """Experts who are called before, because the user favours them."""


_USD, _SECONDS = 0, 1


class _EveryPlan:
    """All plans of an episode at once, as arrays over (search, program, answer)."""

    def __init__(self, episode: Episode, values: PlanValues, baselines: Sequence[Mapping[str, float]]) -> None:
        self._values, self._baselines, self._head = values, baselines, header(episode)
        self._preference, bills = episode.preference, values.bills(episode)
        self.parts = _parts(episode, values)
        self._shape = tuple(map(len, self.parts))
        self._favoured = tuple(self._preference.tools)
        paid = [{alias: bill[at] for alias, bill in bills.items()} for at in (_USD, _SECONDS)]
        self._counts: list[Mapping[str, float]] = [*paid, *({key: 1.0} for key in self._favoured)]
        """What a call of each expert adds to each of the sums."""
        columns = [
            [[sum(times * count.get(alias, 0.0) for alias, times in one.calls) for one in part] for part in self.parts]
            for count in self._counts
        ]
        self.sums = np.stack([self._spread(column) for column in columns], axis=1)
        """Sums of each plan: dollars, seconds, and calls of each favoured tool."""

    def plan(self, number: int) -> Plan:
        """The plan with this number."""
        at = np.unravel_index(number, self._shape)
        search, code, answer = (part[int(n)] for part, n in zip(self.parts, at, strict=True))
        return Plan(search.alias, code.alias, answer.alias, search.said, code.said, search.besides + code.besides)

    def _spread(self, numbers: Sequence[Sequence[float]]) -> Numbers:
        """The sum over all combinations of a number of each part, flat."""
        total: Numbers = np.zeros(self._shape)
        for axis, some in enumerate(numbers):
            total += np.asarray(some, float).reshape([-1 if k == axis else 1 for k in range(len(self._shape))])
        return total.ravel()

    def _chances(self) -> Numbers:
        weights = self._values.weights
        told = [[sum(weights.get(name, 0.0) for name in one.names) for one in part] for part in self.parts]
        searches, writing, answers = self.parts
        pairs = [[weights.get(_pair(code.alias, answer.alias), 0.0) for answer in answers] for code in writing]
        base = sum(weights.get(name, 0.0) for name in ("always", self._head))
        total: Numbers = self._spread(told).reshape(self._shape) + np.asarray(pairs)[None] + base
        found = np.array([self._values.searching.chance(self._head, one.said) for one in searches])[:, None, None]
        chances: Numbers = found / (1 + np.exp(-total)) + (1 - found) * self._values.unfound
        return chances.ravel()

    def values(self) -> Numbers:
        """The expected reward of each, as GroupReward scores a right answer."""
        preference = self._preference
        weights = [preference.usd, preference.seconds, *preference.tools.values()]
        signs = [-1.0, -1.0, *(1.0 for _ in self._favoured)]
        reward: Numbers = np.full(len(self.sums), float(preference.outcome))  # being right counts where everybody is
        for at, (weight, sign) in enumerate(zip(weights, signs, strict=True)):
            mine = sign * self.sums[:, at]
            low, high = self._ends(at, sign, mine)
            reward += weight * np.divide(mine - low, high - low, out=np.zeros_like(mine), where=high > low)
        return self._chances() * reward

    def _ends(self, at: int, sign: float, mine: Numbers) -> tuple[Numbers, Numbers]:
        if not self._baselines:
            return np.full_like(mine, mine.min()), np.full_like(mine, mine.max())
        count = self._counts[at]
        ends = [sign * sum(n * count.get(alias, 0.0) for alias, n in calls.items()) for calls in self._baselines]
        if at not in (_USD, _SECONDS) and self._favoured[at - 2] in {one.alias for one in self.parts[0]}:
            # Somebody else may let a favoured searcher find all that is needed.
            ends.append(self._values.searching.needed(self._head))
        return np.minimum(mine, min(ends)), np.maximum(mine, max(ends))


def _parts(episode: Episode, values: PlanValues) -> tuple[Sequence[_Part], ...]:
    """What there is to choose from: for the search, the program and the answer."""
    head = header(episode)
    keys = [tool.keys if (tool := tool_of(episode, kinds[0])) else () for kinds in (SEARCH, CODE, ANSWER)]

    def search(alias: str, said: int, besides: tuple[str, ...]) -> _Part:
        times = values.searching.times(head, alias, said)
        first = ((besides[0], float(len(besides))),) if besides else ()
        return _Part(alias, said, (*first, (alias, max(0.0, times - len(besides)))), (), besides)

    def writing(alias: str, said: int, besides: tuple[str, ...]) -> _Part:
        times = values.programs.get(_answer_name(head, alias), 1.0) if said == UNTIL_PRINTED else float(said)
        first = tuple((one, 1.0) for one in besides)
        return _Part(alias, said, (*first, (alias, times)), _code_names(head, alias, said), besides)

    def besides(aliases: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
        yield ()
        for alias in aliases:
            if alias in episode.preference.tools:
                yield from ((alias,) * n for n in range(1, most + 1))

    counts = (*range(1, MOST_SEARCHES + 1), UNTIL_NOTHING_MISSING)
    searches = [("", 0), *itertools.product(keys[0], counts)]
    programs = [("", 0), *itertools.product(keys[1], (1, UNTIL_PRINTED))]
    return (
        [search(*one, more) for more in besides(keys[0], MOST_BESIDES) for one in searches],
        [writing(*one, more) for more in besides(keys[1], 1) for one in programs],
        [_Part(alias, 1, ((alias, 1.0),), (_answer_name(head, alias),)) for alias in keys[2]],
    )


def features(head: str, plan: Plan) -> tuple[str, ...]:
    """What tells how likely a plan is to end right."""
    of_code, pair = _code_names(head, plan.code, plan.programs), _pair(plan.code, plan.answer)
    return ("always", head, *of_code, _answer_name(head, plan.answer), pair)


def _code_names(head: str, alias: str, programs: int) -> tuple[str, ...]:
    return f"{head}|programs {programs}", f"{head.partition('.')[0]}|program {alias}"


def _answer_name(head: str, alias: str) -> str:
    """A subject and an expert."""
    return f"{head.partition('.')[0]}|{alias}"


def _pair(code: str, answer: str) -> str:
    return f"{code}|{answer}"


# -- learning them -----------------------------------------------------------------------------------------------------


def learnt(plays: Sequence[TriedPlan]) -> PlanValues:
    """What all plans that were tried tell."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    programs: dict[str, list[float]] = defaultdict(list)
    for one in plays:
        for alias, use in one.used.items():
            sums[alias] = [a + b for a, b in zip(sums[alias], use, strict=True)]
        if one.plan.programs == UNTIL_PRINTED and one.plan.code in one.used:
            programs[_answer_name(one.header, one.plan.code)].append(one.used[one.plan.code][0])
    usual = {alias: (read / n, written / n, seconds / n) for alias, (n, read, written, seconds) in sums.items()}
    found = searching(plays)
    chances = [one.nothing_missing or found.chance(one.header, one.plan.searches) for one in plays]
    complete = [one for one, chance in zip(plays, chances, strict=True) if chance >= ALL_FOUND]
    wanting = [one.solved for one, chance in zip(plays, chances, strict=True) if chance <= 1 - ALL_FOUND]
    means = {name: fmean(some) for name, some in programs.items()}
    return PlanValues(_regression(complete), usual, found, fmean(wanting or [0.0]), means)


def _regression(plays: Sequence[TriedPlan]) -> Mapping[str, float]:
    """The weight of each feature. Plans that look alike are one row."""
    times: Counter[tuple[str, ...]] = Counter()
    right: Counter[tuple[str, ...]] = Counter()
    for one in plays:
        look = features(one.header, one.plan)
        times[look] += 1
        right[look] += one.solved
    columns = {name: at for at, name in enumerate(dict.fromkeys(name for look in times for name in look))}
    rows = np.zeros((len(times), len(columns)), np.float32)
    for at, look in enumerate(times):
        rows[at, [columns[name] for name in look]] = 1.0
    seen, solved = (np.array([counts[look] for look in times], np.float32) for counts in (times, right))
    weights = logistic(rows, solved, seen, RIDGE)
    return {name: float(weights[at]) for name, at in columns.items()}
