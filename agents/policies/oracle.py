"""The planner that knows the question, its facts, everybody's skill and the user's preference: what evaluations are
held to.

It plans by expectation and never looks at what calls will bring. Which facts are missing it knows without asking, and
in held-out evaluations what the baselines paid and how often they called a favoured tool. No agent can know either.
What a program printed it reads as an agent does: how likely that is right follows from the skills of those who wrote
programs, and from whether they agree. A plan says who searches, who writes the program, who answers, and how often a
tool that the user favours is called besides. Each turn every plan is weighed as the reward weighs it, and the first
call of the best one is made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from toolorchestra.agents.policies.expected import programs_run
from toolorchestra.agents.policies.plans import answering, last_result, question_world, results, tool_of, uses
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.models.simulated import Skill, computed_in, facts_in
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, EXPERT, NANO, REWARDED_ROLES, Tokens, Usage
from toolorchestra.envs.tools import Offer, Tool
from toolorchestra.envs.tools.question_material import gathered
from toolorchestra.envs.tools.search import NOTHING_MISSING

MOST_SEARCHES = 12
MOST_PROGRAMS = 4
FOUND_TOKENS = 350
"""What the documents of one search add to later prompts, about."""
SAME_VALUE = 0.004
"""Plans this close in their value count as equal; the cheaper one is taken."""


class ExpectedBill(NamedTuple):
    """What a plan is expected to come to, the calls before it included."""

    usd: float
    seconds: float
    calls: Mapping[str, float]


class Prospect(NamedTuple):
    """What a plan comes to from here."""

    first: str
    """The call to make now."""
    chance: float
    """The chance of a right answer."""
    bill: ExpectedBill


@dataclass(frozen=True)
class Scale:
    """What bills are measured between: the cheapest and the most expensive that somebody had on this task."""

    usd: tuple[float, float]
    seconds: tuple[float, float]
    most_calls: Mapping[str, float]

    @classmethod
    def over(cls, bills: Sequence[Any], most_calls: Mapping[str, float]) -> Scale:
        """The scale of bills, or of whatever else has `usd` and `seconds`."""
        usd, seconds = [bill.usd for bill in bills], [bill.seconds for bill in bills]
        return cls((min(usd), max(usd)), (min(seconds), max(seconds)), most_calls)

    def value(self, plan: Prospect, preference: Preference) -> float:
        """The expected reward: an answer that is not right earns nothing."""
        saved, sooner = _saved(plan.bill.usd, *self.usd), _saved(plan.bill.seconds, *self.seconds)
        earned = preference.outcome + (preference.usd * saved + preference.seconds * sooner)
        for key, weight in preference.tools.items():
            most = max(self.most_calls.get(key, 0.0), 1.0)
            earned += weight * min(1.0, plan.bill.calls.get(key, 0.0) / most)
        return plan.chance * earned


def _saved(spent: float, least: float, most: float) -> float:
    low, high = min(least, spent), max(most, spent)
    return (high - spent) / (high - low) if high > low else 0.0


class Oracle:
    """Plays by the best plan. Without a scale, bills are measured between the plans that there are.

    With `knows_luck` it also knows how the question suits whom, which nobody can know before asking, and whether a
    computed result is right. What it then reaches is beyond any policy: the task oracle.

    Where it `is_told` it finds out as an agent does that nothing is missing: it searches until a searcher says so.
    """

    def __init__(self, scale: Scale | None = None, *, knows_luck: bool = False, is_told: bool = False) -> None:
        self._scale, self._knows_luck, self._is_told = scale, knows_luck, is_told

    def __call__(self, episode: Episode) -> str:
        world = question_world(episode)
        ask, submit = tool_of(episode, "ask"), tool_of(episode, "submit")
        if ask is not None and uses(episode, ask) and submit is not None:
            return render_call(submit.name, {"answer": last_result(episode)})
        most_calls = self._scale.most_calls if self._scale else {}
        planner = _OraclePlans(episode, world, most_calls, knows_luck=self._knows_luck, is_told=self._is_told)
        plans = list(planner.plans())
        scale = self._scale or Scale.over([plan.bill for plan in plans], {})
        valued = [(scale.value(plan, episode.preference), -plan.bill.usd, plan.first) for plan in plans]
        best = max(valued)[0]
        return max((one for one in valued if one[0] >= best - SAME_VALUE), key=lambda one: one[1])[2]


@dataclass(frozen=True)
class _PlanPart:
    """Some calls of a plan, together."""

    first: str = ""
    usd: float = 0.0
    seconds: float = 0.0
    turns: float = 0.0
    calls: tuple[tuple[str, float], ...] = ()
    skill: Skill | None = None
    """The skill of who writes the program."""

    def __add__(self, other: _PlanPart) -> _PlanPart:
        """Both, this one first."""
        return _PlanPart(
            self.first or other.first,
            self.usd + other.usd,
            self.seconds + other.seconds,
            self.turns + other.turns,
            self.calls + other.calls,
            self.skill or other.skill,
        )


_NOTHING = _PlanPart()


class _OraclePlans:
    """The plans of one moment of an episode."""

    def __init__(
        self,
        episode: Episode,
        world: QaWorld,
        most_calls: Mapping[str, float],
        *,
        knows_luck: bool,
        is_told: bool = False,
    ) -> None:
        self._episode, self._world, self._question = episode, world, world.question
        self._knows_luck = knows_luck
        shown = gathered(world)
        self._facts = facts_in(self._question, shown)
        self._missing = [f for f in self._question.facts if f.sentence not in shown]
        self._tokens = (len(shown) + len(self._question.text)) // CHARACTERS_PER_TOKEN
        self._turns = episode.rules.limits.turns - episode.turn
        self._most_calls = most_calls
        self._ending = answering(episode)
        self._search, self._code = tool_of(episode, "search"), tool_of(episode, "enhance_reasoning")
        told = any(text.startswith(NOTHING_MISSING) for text in results(episode))
        self._asks = is_told and self._search is not None and bool(self._question.facts) and not told
        """Whether it has yet to hear from a searcher that nothing is missing."""
        self._computed = self._known_result(shown) if knows_luck else self._believed_result()

    def _known_result(self, shown: str) -> float | None:
        """Whether the last computed result is right; None where there is none."""
        return {"": None, "right": 1.0, "wrong": 0.0}[computed_in(self._question, shown)]

    def _believed_result(self) -> float | None:
        """How likely the last computed result is right, by the skills of those who wrote programs and by whether their
        results agree. Nobody prints the same wrong result as another but by chance."""
        programs = [(self._works(run.writer), run.printed) for run in programs_run(self._episode)]
        results = [printed for _, printed in programs if printed]
        if not results or not self._question.computable:
            return None
        wrong_ones = max(1, len(self._question.decoys))

        def likelihood(right: str) -> float:
            """How likely all that was printed is, were this the right result."""
            found = 1.0
            for works, printed in programs:
                if printed and printed == right:
                    found *= works
                else:
                    found *= (1 - works) / 2 / (wrong_ones if printed else 1)
            return found

        seen = set(results)
        unseen = max(0, wrong_ones + 1 - len(seen)) * likelihood("")
        total = sum(likelihood(result) for result in seen) + unseen
        return likelihood(results[-1]) / total if total else 0.0

    def _works(self, writer: Skill) -> float:
        known = writer if self._knows_luck else writer.without_luck()
        return known.code_chance(self._question, self._facts)

    def plans(self) -> Iterator[Prospect]:
        """Prospects that fit into the turns that are left; at the least, to ask somebody at once."""
        found = False
        answers = list(self._answers())
        for searching, writing, extra in itertools.product(
            self._searches(), list(self._programs()), list(self._favours())
        ):
            turns = searching.turns + writing.turns + extra.turns + 1 + (self._ending.kind == "ask")
            if turns > self._turns and turns > 2:
                continue
            facts = 1.0 if searching.turns else self._facts
            for answer, skill in answers:
                found = True
                yield self._together(searching, writing, extra, answer, self._chance(skill, facts, writing, extra))
        if not found:
            for answer, skill in answers:
                chance = self._chance(skill, self._facts, _NOTHING, _NOTHING)
                yield self._together(_NOTHING, _NOTHING, _NOTHING, answer, chance)

    def _together(
        self, searching: _PlanPart, writing: _PlanPart, extra: _PlanPart, answer: _PlanPart, chance: float
    ) -> Prospect:
        whole = searching + extra + writing + answer
        calls: dict[str, float] = {key: float(n) for key, n in self._episode.calls.items()}
        for key, times in whole.calls:
            calls[key] = calls.get(key, 0.0) + times
        ledger = self._episode.ledger
        usd = ledger.nano_usd_of(REWARDED_ROLES) / NANO + whole.usd
        return Prospect(whole.first, chance, ExpectedBill(usd, ledger.seconds + whole.seconds, calls))

    def _chance(self, answerer: Skill, facts: float, writing: _PlanPart, extra: _PlanPart) -> float:
        question = self._question
        right, wrong, plain = (answerer.answer_chance(question, facts, state) for state in ("right", "wrong", ""))
        believed = self._computed
        now = plain if believed is None else believed * right + (1 - believed) * wrong
        writer = writing.skill or extra.skill
        if writer is None:
            return now
        works = writer.code_chance(question, facts)
        # Of programs that do not work half print something wrong and half print nothing.
        return works * right + (1 - works) * (wrong + now) / 2

    def _searches(self) -> Iterator[_PlanPart]:
        """Search not at all, or until the last fact is found; who has to be told goes on until then."""
        if not self._missing and not self._asks:
            yield _NOTHING
            return
        plain = tool_of(self._episode, "local_search", "web_search")
        if plain is not None and self._missing and self._episode.turn < MOST_SEARCHES:
            call = render_call(plain.name, {"query": self._missing[0].query})
            yield _PlanPart(call, turns=len(self._missing))
        elif self._search is not None and uses(self._episode, self._search) < MOST_SEARCHES:
            for offer in self._search.offers:
                times = len(self._missing) / self._skill(offer).query_chance(self._question) + self._asks
                yield self._part(self._search, offer, "query", math.ceil(times), times)
            if self._asks and uses(self._episode, self._search):
                return
        yield _NOTHING

    def _programs(self) -> Iterator[_PlanPart]:
        """Nobody, or one of those who write programs."""
        yield _NOTHING
        code = self._code
        if code is None or not self._question.computable or self._computed == 1.0:
            return
        if uses(self._episode, code) < MOST_PROGRAMS:
            for offer in code.offers:
                yield replace(self._part(code, offer, "code", 1, 1.0), skill=self._skill(offer))

    def _favours(self) -> Iterator[_PlanPart]:
        """None of the tools that the user favours besides, some of them, or all: each as often as anybody called it."""
        wanted = [part for tool in (self._search, self._code) if tool for part in self._favoured(tool)]
        for count in range(len(wanted) + 1):
            for chosen in itertools.combinations(wanted, count):
                yield sum(chosen, _NOTHING)

    def _favoured(self, tool: Tool) -> Iterator[_PlanPart]:
        preference = self._episode.preference.tools
        for offer in tool.offers:
            due = max(self._most_calls.get(offer.alias, 0.0), 1.0) - self._episode.calls.get(offer.alias, 0)
            if preference.get(offer.alias) and due > 0:
                writes = tool.kind == "enhance_reasoning"
                part = self._part(tool, offer, "code" if writes else "query", math.ceil(due), due)
                computes = writes and self._question.computable
                yield replace(part, skill=self._skill(offer) if computes else None)

    def _answers(self) -> Iterator[tuple[_PlanPart, Skill]]:
        for offer in self._ending.offers:
            yield self._part(self._ending, offer, "answer", 1, 1.0), self._skill(offer)

    def _skill(self, offer: Offer) -> Skill:
        known = self._world.skills[offer.model]
        return known if self._knows_luck else known.without_luck()

    def _part(self, tool: Tool, offer: Offer, purpose: Purpose, turns: float, times: float) -> _PlanPart:
        skill = self._skill(offer)
        found = len(self._missing) if purpose != "query" else len(self._missing) / 2
        tokens = Tokens(round(self._tokens + found * FOUND_TOKENS), 0, round(skill.output_tokens[purpose]))
        usd = self._episode.sheet.price(offer.model).nano_usd(Usage(offer.model, EXPERT, tokens)) / NANO
        call = render_call(tool.name, {"model": offer.alias})
        return _PlanPart(call, times * usd, times * skill.seconds[purpose], turns, ((offer.alias, times),))
