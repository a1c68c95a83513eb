"""What routes are worth: chances that random play tells, bills at the task's prices, and the wish."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from typing import Any

import pytest

from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.rollouts.rewards import GroupReward, Measure
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training.route_values import SAME_VALUE, RouteValues, every_route, learnt
from toolorchestra.agents.training.routes import (
    MOST_PROGRAMS,
    PATIENCE,
    UNTIL_NOTHING_NEW,
    UNTIL_PRINTED,
    ExpertUse,
    FollowRoute,
    Route,
    TriedRoute,
    random_route,
    tried,
)
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import EXPERT, Tokens, Usage
from toolorchestra.envs.tools.code import PRINTED

HEADS = ("Subject: logic. Level 1 of 5.", "Subject: chemistry. Level 3 of 5.")
SKILL = {"good": 0.8, "poor": 0.3}
MADE = factory_of("HLE-v0", style="brief", shown_characters=0)


def episode(wish: str = "accurate") -> Episode:
    return factory_of("HLE-v0", style="brief", shown_characters=0, preference=wish).start(3).episode


def seen(answer: str, head: str, solved: bool) -> TriedRoute:
    return TriedRoute(Route("", 0, "", 0, answer), head, solved, {answer: ExpertUse(1, 100, 1000, 9.0)})


def test_chances_are_those_of_what_was_played() -> None:
    rng = random.Random(0)
    routes = []
    for _ in range(4000):
        answer, head = rng.choice(["good", "poor"]), rng.choice(HEADS)
        chance = SKILL[answer] * (1.0 if head == HEADS[0] else 0.5)
        routes.append(seen(answer, head, rng.random() < chance))
    values = learnt(routes)
    for head, share in zip(HEADS, (1.0, 0.5), strict=True):
        for answer, skill in SKILL.items():
            assert values.chance(head, Route("", 0, "", 0, answer)) == pytest.approx(skill * share, abs=0.05)
    assert values.usual["good"] == (100.0, 1000.0, 9.0)


def test_little_that_was_seen_changes_little() -> None:
    """One lucky play beside many is no reason to think much of somebody."""
    routes = [seen("poor", HEADS[0], number % 2 == 0) for number in range(200)]
    values = learnt([*routes, seen("lucky", HEADS[0], True)])
    assert values.chance(HEADS[0], Route("", 0, "", 0, "lucky")) < 0.75


def test_the_best_route_follows_the_wish_and_the_prices() -> None:
    """One answers well, another as well as that for little money: who wants to save gets the cheap one."""
    thrifty, careful = episode("frugal"), episode("accurate")
    head = str(thrifty.messages[1]["content"]).partition(".")[0]
    offers = {offer.alias: offer for tool in thrifty.world.toolbox for offer in tool.offers}

    def price(alias: str) -> int:
        return thrifty.sheet.price(offers[alias].model).nano_usd(
            Usage(offers[alias].model, EXPERT, Tokens(500, 0, 1000))
        )

    answering = thrifty.world.toolbox.of_kind("answer")
    assert answering
    cheap, *_, dear = sorted(answering.keys, key=price)
    weights = {f"{head}|{alias}": -9.0 for alias in offers} | {f"{head}|{cheap}": 2.0, f"{head}|{dear}": 2.5}
    values = RouteValues(weights, dict.fromkeys(offers, (500.0, 1000.0, 10.0)), {})
    assert values.best(thrifty).answer == cheap
    assert values.best(careful).answer == dear


def test_every_random_route_is_among_all_routes() -> None:
    start = MADE.start(0).episode
    every = set(every_route(start))
    rng = random.Random(1)
    for _ in range(300):
        route = random_route(start, rng)
        assert (route if route.searches else route._replace(search="")) in every


def test_a_played_route_is_told_as_it_was() -> None:
    start = MADE.start(0).episode
    search, code, answer = (start.world.toolbox.of_kind(k) for k in ("search", "enhance_reasoning", "answer"))
    assert search
    assert code
    assert answer
    route = Route(search.keys[0], 2, code.keys[0], 1, answer.keys[0])
    ended = played(MADE, FollowRoute(route), 0)
    assert ended.calls == {search.keys[0]: 2, code.keys[0]: 1, answer.keys[0]: 1}
    told = tried(route, ended)
    assert {alias: use.calls for alias, use in told.used.items()} == ended.calls
    assert told.header.startswith("Subject: ")
    spent = sum(use.seconds for use in told.used.values())
    assert spent == pytest.approx(sum(c.usage.seconds for c in ended.ledger if c.role == EXPERT), abs=1e-6)


def test_a_patient_route_stops_searching_when_nothing_new_comes() -> None:
    counts = []
    for seed in range(30):
        start = MADE.start(seed).episode
        search, answer = (start.world.toolbox.of_kind(kind) for kind in ("search", "answer"))
        assert search
        assert answer
        ended = played(MADE, FollowRoute(Route(search.keys[0], UNTIL_NOTHING_NEW, "", 0, answer.keys[0])), seed)
        counts.append(ended.calls[search.keys[0]])
    assert 1 <= min(counts) < statistics.mean(counts) < max(counts) <= PATIENCE


def test_what_a_route_earns_is_what_the_group_reward_says() -> None:
    """All routes are weighed as arrays: each as GroupReward scores its calls between the fixed players'."""
    rng = random.Random(2)
    for seed in range(12):
        start = factory_of("HLE-v0", style="brief", shown_characters=0, diversify="train").start(seed).episode
        offers = [offer.alias for tool in start.world.toolbox for offer in tool.offers]
        usual = {alias: (rng.uniform(100, 900), rng.uniform(100, 9000), rng.uniform(1, 90)) for alias in offers}
        values = RouteValues({}, usual, {}, {})
        fixed = [{alias: float(rng.randint(0, 3)) for alias in rng.sample(offers, 4)} for _ in range(2)]
        bills = values.bills(start)

        def measure(calls: dict[str, float], outcome: float = 1.0, bills: Any = bills) -> Measure:
            usd, seconds = (sum(n * bills[alias][at] for alias, n in calls.items()) for at in (0, 1))
            return Measure(outcome, usd, seconds, calls)

        def called(route: Route) -> dict[str, float]:
            counts: Counter[str] = Counter()
            for alias, n in ((route.extra, 1), (route.search, route.searches), (route.code, route.programs)):
                counts[alias] += abs(n)  # until something comes: once, where nothing is known
            counts[route.answer] += 1
            return {alias: float(n) for alias, n in counts.items() if alias and n}

        reward = GroupReward(start.preference, start.world.toolbox.keys)
        anchors = [*map(measure, fixed), measure(fixed[0], 0.0)]  # one that failed: being right counts
        best, found = values.best(start, fixed), {}
        for route in every_route(start):
            score = reward.score([measure(called(route))], anchors)[0]
            assert score is not None
            found[route] = score.total
        assert found[best] >= (1 - SAME_VALUE) * max(found.values()) - 1e-9


def test_who_is_favoured_may_be_called_besides() -> None:
    seen_extra = 0
    for seed in range(40):
        made = factory_of("HLE-v0", style="brief", shown_characters=0, preference="favour")
        start = made.start(seed).episode
        for route in every_route(start):
            if route.extra:
                seen_extra += 1
                assert route.extra in start.preference.tools
                ended = played(made, FollowRoute(route), seed)
                assert ended.calls[route.extra] >= 1
                break
    assert seen_extra > 5


def test_programs_go_on_until_one_prints_something() -> None:
    counts = []
    for seed in range(40):
        start = MADE.start(seed).episode
        code, answer = (start.world.toolbox.of_kind(kind) for kind in ("enhance_reasoning", "answer"))
        assert code
        assert answer
        ended = played(MADE, FollowRoute(Route("", 0, code.keys[-1], UNTIL_PRINTED, answer.keys[0])), seed)
        results = [str(m["content"]) for m in ended.messages if m["role"] == "tool"]
        printed = [text.startswith(PRINTED) for text in results[: ended.calls[code.keys[-1]]]]
        assert not any(printed[:-1])
        assert printed[-1] or len(printed) == MOST_PROGRAMS
        counts.append(len(printed))
    assert len(set(counts)) > 1
