"""What plans are worth: chances that random play tells, bills at the task's prices, and the preference."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies import plans
from toolorchestra.agents.policies.plans import (
    MOST_PROGRAMS,
    PATIENCE,
    UNTIL_NOTHING_MISSING,
    UNTIL_PRINTED,
    Follows,
    Plan,
    random_plan,
    results,
)
from toolorchestra.agents.rollouts.grpo import GroupReward, Measure
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training.plan_values import (
    SAME_VALUE,
    PlanValues,
    TriedPlan,
    _EveryPlan,
    features,
    learnt,
    tried,
)
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import EXPERT
from toolorchestra.envs.tools import Tool
from toolorchestra.envs.tools.code import PRINTED
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

HEADS = ("Subject: logic. Level 1 of 5.", "Subject: chemistry. Level 3 of 5.")
SKILL = {"good": 0.8, "poor": 0.3}
MADE = factory_of("HLE-v0", style="brief", shown_characters=0)


def follows(plan: Plan) -> Follows:
    return Follows(lambda _: plan)


def kinds(start: Episode) -> list[Tool]:
    """Who searches, writes programs and answers."""
    found = [start.world.toolbox.of_kind(kind) for kind in ("search", "enhance_reasoning", "answer")]
    return [tool for tool in found if tool]


def every_plan(start: Episode) -> Iterator[Plan]:
    """All plans that are compared with each other."""
    every = _EveryPlan(start, PlanValues({}, {}), ())
    return (every.plan(number) for number in range(len(every.sums)))


def chance_of(values: PlanValues, head: str, answer: str) -> float:
    """That a plan ends right which only answers."""
    told = sum(values.weights.get(name, 0.0) for name in features(head, Plan("", "", answer, 0, 0)))
    return 1 / (1 + math.exp(-told))


def seen(answer: str, head: str, solved: bool) -> TriedPlan:
    return TriedPlan(Plan("", "", answer, 0, 0), head, solved, {answer: (1, 100, 1000, 9.0)})


def test_chances_are_those_of_what_was_played() -> None:
    rng = random.Random(0)
    plays = []
    for _ in range(4000):
        answer, head = rng.choice(["good", "poor"]), rng.choice(HEADS)
        chance = SKILL[answer] * (1.0 if head == HEADS[0] else 0.5)
        plays.append(seen(answer, head, rng.random() < chance))
    values = learnt(plays)
    for head, share in zip(HEADS, (1.0, 0.5), strict=True):
        for answer, skill in SKILL.items():
            assert chance_of(values, head, answer) == pytest.approx(skill * share, abs=0.05)
    assert values.usual["good"] == (100.0, 1000.0, 9.0)


def test_a_played_plan_is_told_as_it_was() -> None:
    start = MADE.start(0).episode
    search, code, answer = kinds(start)
    plan = Plan(search.keys[0], code.keys[0], answer.keys[0], 2, 1)
    ended = played(MADE, follows(plan), 0)
    assert ended.calls == {search.keys[0]: 2, code.keys[0]: 1, answer.keys[0]: 1}
    told = tried(plan, ended)
    assert {alias: use[0] for alias, use in told.used.items()} == ended.calls
    assert told.header.startswith("Subject: ")
    spent = sum(use[3] for use in told.used.values())
    assert spent == pytest.approx(sum(c.usage.seconds for c in ended.ledger if c.role == EXPERT), abs=1e-6)


def facts_of(start: Episode) -> Sequence[Any]:
    assert isinstance(start.world, QaWorld)
    return start.world.question.facts


def search_results(ended: Episode) -> list[str]:
    return list(results(ended, ended.world.toolbox.of_kind("search")))


def searched_until(said: int, seeds: range) -> list[list[str]]:
    """What the searches of such plays brought."""
    made = []
    for seed in seeds:
        start = MADE.start(seed).episode
        search, answer = (start.world.toolbox.of_kind(kind) for kind in ("search", "answer"))
        assert search
        assert answer
        plan = Plan(search.keys[0], "", answer.keys[0], said, 0)
        made.append(search_results(played(MADE, follows(plan), seed)))
    return made


def test_a_patient_plan_searches_until_nothing_is_missing() -> None:
    """A search that brings nothing new does not end it: its query was a poor one."""
    failed_between = 0
    for told in searched_until(UNTIL_NOTHING_MISSING, range(300)):
        assert told[-1].startswith(NOTHING_MISSING) or len(told) == PATIENCE
        assert not any(text.startswith(NOTHING_MISSING) for text in told[:-1])
        failed_between += any(text.startswith(NOTHING_NEW) for text in told[:-1])
    assert failed_between > 3


def test_patience_ends_a_search_that_does_not_find_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PATIENCE", 2)
    told = searched_until(UNTIL_NOTHING_MISSING, range(30))
    assert max(map(len, told)) == 2
    assert any(not texts[-1].startswith(NOTHING_MISSING) for texts in told)


def test_nobody_searches_where_nothing_is_needed() -> None:
    """The chance of a plan is not a matter of how often it searches, where all is said in the question."""
    rng = random.Random(5)
    plays = []
    for seed in range(1500):
        plan = random_plan(MADE.start(seed).episode, rng)
        plays.append(tried(plan, played(MADE, follows(plan), seed)))
    values = learnt(plays)
    plain = needy = 0
    frugal = factory_of("HLE-v0", style="brief", shown_characters=0, preference="frugal")
    for seed in range(2000, 2100):
        start = frugal.start(seed).episode
        plan = values.best(start)
        if facts_of(start):
            needy += 1
            assert plan.searches, start.messages[1]["content"]
        else:
            plain += 1
            assert not plan.searches, start.messages[1]["content"]
    assert plain > 20
    assert needy > 20


def test_what_a_plan_earns_is_what_the_group_reward_says() -> None:
    """All plans are weighed as arrays: each as GroupReward scores its calls between the fixed players'."""
    rng = random.Random(2)
    for seed in range(12):
        start = factory_of("HLE-v0", style="brief", shown_characters=0, diversify="train").start(seed).episode
        offers = [offer.alias for tool in start.world.toolbox for offer in tool.offers]
        usual = {alias: (rng.uniform(100, 900), rng.uniform(100, 9000), rng.uniform(1, 90)) for alias in offers}
        values = PlanValues({}, usual)
        fixed = [{alias: float(rng.randint(0, 3)) for alias in rng.sample(offers, 4)} for _ in range(2)]
        bills = values.bills(start)
        searchers = [offer.alias for tool in start.world.toolbox if tool.kind == "search" for offer in tool.offers]

        def measure(calls: dict[str, float], outcome: float = 1.0, bills: Any = bills) -> Measure:
            usd, seconds = (sum(n * bills[alias][at] for alias, n in calls.items()) for at in (0, 1))
            return Measure(outcome, usd, seconds, calls)

        def called(plan: Plan, searchers: list[str] = searchers) -> dict[str, float]:
            counts: Counter[str] = Counter(plan.besides)
            first = sum(alias in searchers for alias in plan.besides)  # these searches count
            counts[plan.search] += max(0, abs(plan.searches) - first)  # until something comes: once
            counts[plan.code] += abs(plan.programs)
            counts[plan.answer] += 1
            return {alias: float(n) for alias, n in counts.items() if alias and n}

        reward = GroupReward(start.preference, start.world.toolbox.keys)
        baselines = [*map(measure, fixed), measure(fixed[0], 0.0)]  # one that failed: being right counts
        best, found = values.best(start, fixed), {}
        for plan in every_plan(start):
            score = reward.score([measure(called(plan))], baselines)[0]
            assert score is not None
            found[plan] = score.total
        assert found[best] >= (1 - SAME_VALUE) * max(found.values()) - 1e-9


def test_who_is_favoured_may_be_called_besides() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        made = factory_of("HLE-v0", style="brief", shown_characters=0, preference="favour")
        start = made.start(seed).episode
        longest = max(every_plan(start), key=lambda plan: len(plan.besides))
        if not longest.besides:
            continue
        (alias,) = set(longest.besides)
        assert alias in start.preference.tools
        kind = next(tool.kind for tool in start.world.toolbox if alias in tool.keys)
        others = longest._replace(search="", searches=0, code="", programs=0)
        ended = played(made, follows(others), seed)
        assert ended.calls == {alias: len(longest.besides), longest.answer: 1}
        seen[kind] += 1
    assert set(seen) == {"search", "enhance_reasoning"}


def test_programs_go_on_until_one_prints_something() -> None:
    counts = []
    for seed in range(40):
        start = MADE.start(seed).episode
        _, code, answer = kinds(start)
        ended = played(MADE, follows(Plan("", code.keys[-1], answer.keys[0], 0, UNTIL_PRINTED)), seed)
        printed = [text.startswith(PRINTED) for text in results(ended, code)]
        assert not any(printed[:-1])
        assert printed[-1] or len(printed) == MOST_PROGRAMS
        counts.append(len(printed))
    assert len(set(counts)) > 1


def test_a_plan_that_counts_its_searches_keeps_turns_for_its_program_and_its_answer() -> None:
    made = factory_of("HLE-v0", style="brief", shown_characters=0, max_turns=3)
    for seed in range(5):
        who = [tool.keys[0] for tool in kinds(made.start(seed).episode)]
        assert played(made, follows(Plan(*who, searches=5, programs=1)), seed).calls == dict.fromkeys(who, 1)
