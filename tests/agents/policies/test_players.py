"""Every player plays what it says it can, alike at each time, and by what an agent may see alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.evaluation.played_episodes import PlayedEpisode, Standing, evaluate, whole_digest
from tests.agents.evaluation.played_episodes import standing as of_records
from tests.tau2_playing import needs_package
from toolorchestra.agents.policies.base import Player, PlayerOptions
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.policies.knn_and_skillbook import (
    FIRST_SEED,
    Expectations,
    FittedPlayer,
    fitted,
    words,
)
from toolorchestra.agents.policies.oracle import _OraclePlans
from toolorchestra.agents.policies.plans import can_follow, plans
from toolorchestra.agents.policies.players import FITTED, NAMES, ORACLES, playable, player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.base.types import Answer, Message
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import Gates, advance

FEW = PlayerOptions(fit_tasks=8)
OFFLINE = tuple(name for name in NAMES if name != "chat")
PLACES = {
    "HLE": ("HLE-v0", {}),
    "FRAMES": ("FRAMES-v0", {}),
    "plain": ("HLE-v0", {"tools": "plain"}),
    "basic": ("FRAMES-v0", {"tools": "basic"}),
    "varied": ("HLE-v0", {"diversify": "heldout"}),
    "ToolScale": ("ToolScale-v0", {"max_turns": 8}),
}


def place(name: str, **more: object) -> EpisodeFactory:
    env_id, arguments = PLACES[name]
    return factory_of(env_id, **{"split": "test", "preference": "none", **arguments, **more})


def played(made: EpisodeFactory, who: Player, tasks: int = 3, at_once: int = 4) -> list[PlayedEpisode]:
    return asyncio.run(evaluate(made, who.move, 11, tasks, at_once))


def standing(made: EpisodeFactory, name: str, tasks: int, options: PlayerOptions | None = None) -> Standing:
    return of_records([one.record for one in played(made, player(name, made, options=options), tasks, 16)])


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", OFFLINE)
def test_a_player_plays_what_it_says_it_can(name: str, where: str) -> None:
    made = place(where)
    if refused := playable(name, made):
        with pytest.raises(ConfigError) as caught:
            player(name, made)
        assert str(caught.value) == refused
        assert name != "random"
        assert where in ("ToolScale", "basic")
        return
    who = player(name, made, 3, FEW)
    assert (who.name, who.simulated) == (name, True)
    got = played(made, who)
    assert [one.failure for one in got] == [""] * 3
    again = player(name, made, 3, FEW)
    assert whole_digest(played(made, again, at_once=1)) == whole_digest(got)
    assert all(one.record.turns for one in got)


@needs_package
def test_random_plays_a_service_too() -> None:
    made = factory_of("Tau2-v0", domain="mock", user="scripted", split="base", max_turns=6, preference="none")
    got = played(made, player("random", made, 1), 2)
    assert [one.failure for one in got] == [""] * 2
    assert playable("cascade", made).startswith("policy 'cascade' routes questions among experts; tau2-mock is none")


def test_unknown_names_and_players_that_cannot_play_are_refused() -> None:
    made = place("HLE")
    with pytest.raises(ConfigError, match=r"no policy 'skilbook'; valid: .* Did you mean 'skillbook'"):
        player("skilbook", made)
    with pytest.raises(ConfigError, match=r"^no folder 'runs/mine'; name the folder of a run of training, or a policy"):
        player("runs/mine", made)
    with pytest.raises(ConfigError, match="'chat' asks a model: name its endpoint"):
        player("chat", made)
    with pytest.raises(ConfigError, match="tool configuration 'basic' has no expert that could be asked"):
        player("knn", place("basic"))
    with pytest.raises(ConfigError, match=r"cost_weight must be a number from 0 up, got -1"):
        PlayerOptions(cost_weight=-1)
    with pytest.raises(ConfigError, match=r"no sampler 'vllm'; valid: "):
        PlayerOptions(sampler="vllm")  # type: ignore[arg-type]


def own_player(name: str, factory: EpisodeFactory, seed: int, options: PlayerOptions) -> Player:
    """A player of somebody else's, made by the same words."""
    del options
    return player("cheap", factory, seed) if name.endswith("own_player") else player(name, factory)


def test_a_player_of_ones_own_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = place("HLE")
    (tmp_path / "player_in_one_file.py").write_text(f"from {__name__} import own_player\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert player("player_in_one_file:own_player", made).name == "cheap"
    assert player("tests.agents.policies.test_players:own_player", made).name == "cheap"
    with pytest.raises(ConfigError, match="module 'json' has no attribute 'nothing'; write it as \"module:maker\""):
        player("json:nothing", made)
    with pytest.raises(ConfigError, match="No module named 'jsn'; write it as"):
        player("jsn:nothing", made)
    with pytest.raises(ConfigError, match=r"cannot be loaded: .* no attribute 'nobody'"):
        player("tests.agents.policies.test_players:nobody", made)
    with pytest.raises(ConfigError, match="has a name, `simulated` and an async move"):
        player("tests.agents.policies.test_players:wrong_player", made)


def wrong_player(*_: object) -> object:
    """Makes what is no player."""
    return object()


# What they may know


async def _moves_twice(made: EpisodeFactory, who: Player, seed: int) -> int:
    """Plays an episode; at each turn the move must be the same over another hidden answer."""
    episode, gates, turns = made.start(seed).episode, Gates(), 0
    world = episode.world
    assert isinstance(world, QaWorld)
    while not episode.over:
        move = await who.move(episode)
        hidden = world.question
        world.question = replace(hidden, answer=Answer("quite another"), decoys=("a", "b"), facts=(), difficulty=0.1)
        assert await who.move(episode) == move
        world.question = hidden
        await advance(episode, move.text, gates, move.usage)
        turns += 1
    return turns


@pytest.mark.parametrize("preference", ["none", "accurate", "frugal"])
def test_the_oracle_does_not_know_whether_a_computed_result_is_right(preference: str) -> None:
    """Unlike the task oracle, which sees it and sends for another program."""
    made = place("HLE", preference=preference)
    programs, other = 0, 0
    for seed in range(60):
        episode, gates = made.start(seed).episode, Gates()
        world = episode.world
        assert isinstance(world, QaWorld)
        hidden = world.question
        while not episode.over:
            moves = {name: baseline(name)(episode) for name in ("oracle", "task-oracle")}
            wrong = Answer("quite another") if world.results else hidden.answer
            world.question = replace(hidden, answer=wrong)
            assert baseline("oracle")(episode) == moves["oracle"]
            other += baseline("task-oracle")(episode) != moves["task-oracle"]
            world.question = hidden
            programs += bool(world.results)
            asyncio.run(advance(episode, moves["oracle"], gates))
    assert programs > 10
    assert other > 3


def test_the_oracle_trusts_results_that_agree() -> None:
    """Of two programs by one who is right half of the time: agreeing results are likely right."""
    made = place("HLE", preference="none")
    for seed in range(200):
        episode = made.start(seed).episode
        world = episode.world
        assert isinstance(world, QaWorld)
        works = world.skills["gpt-5"].without_luck().code_chance(world.question, 1.0)
        if not world.question.facts and world.question.computable and 0.4 < works < 0.8:
            break
    else:
        pytest.fail("no such question")
    told = [_after(made, seed, printed)._computed for printed in ((), ("7",), ("7", "8"), ("7", "7"))]
    assert told[0] is None
    assert told[1] is not None
    assert told[2] is not None
    assert told[3] is not None
    assert works < told[1] < told[3]
    assert told[2] < told[1]
    assert told[3] > 0.8


def _after(made: EpisodeFactory, seed: int, printed: tuple[str, ...]) -> _OraclePlans:
    """The planner behind programs of reasoner-1, who is gpt-5."""
    episode = made.start(seed).episode
    assert isinstance(episode.world, QaWorld)
    call = '<tool_call>{"name": "enhance_reasoning", "arguments": {"model": "reasoner-1"}}</tool_call>'
    for text in printed:
        episode.messages = (
            *episode.messages,
            Message(role="assistant", content=call),
            Message(role="tool", content=f"Output: {text}"),
        )
    return _OraclePlans(episode, episode.world, {}, knows_luck=False)


@pytest.mark.parametrize("where", ["HLE", "FRAMES", "plain"])
@pytest.mark.parametrize("name", [name for name in OFFLINE if name not in ORACLES])
def test_no_move_follows_from_the_hidden_answer(name: str, where: str) -> None:
    made = place(where)
    for seed in range(4):
        assert asyncio.run(_moves_twice(made, player(name, made, 0, FEW), seed))


# What the routers learn


def test_a_fit_says_what_it_cost_and_is_kept_under_all_that_it_depends_on(tmp_path: Path) -> None:
    options = PlayerOptions(fit_tasks=3, fit_folder=str(tmp_path))
    made = place("FRAMES")
    first = asyncio.run(FittedPlayer("knn", made, 0, options).prepare())
    assert first.episodes == 3 * len(first.plans) == sum(first.plays)
    assert (first.failed, len(first.tasks)) == (0, 3)
    train = factory_of("FRAMES-v0", preference="none")
    assert [task.text for task in first.tasks] == [_text(train, FIRST_SEED + k) for k in range(3)]
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    assert asyncio.run(fitted(made, 0, options)) is first
    others = [place("FRAMES", prices="unseen-2026-01"), place("HLE"), place("FRAMES", max_turns=9)]
    assert len({asyncio.run(fitted(one, 0, options)).digest for one in (*others, made)}) == 4
    assert asyncio.run(fitted(made, 1, options)).digest != first.digest
    assert file.stat().st_mtime_ns == written


def _text(made: EpisodeFactory, seed: int) -> str:
    return str(made.start(seed).observation["messages"][1]["content"])


def test_a_kept_fit_is_read_again_and_a_broken_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = PlayerOptions(fit_tasks=2, fit_folder=str(tmp_path))
    made = place("HLE")
    first = asyncio.run(fitted(made, 5, options))
    monkeypatch.setattr("toolorchestra.agents.policies.knn_and_skillbook._KNOWN", {})
    again = asyncio.run(fitted(made, 5, options))
    assert again is not first
    assert again == first
    monkeypatch.setattr("toolorchestra.agents.policies.knn_and_skillbook._KNOWN", {})
    (file,) = tmp_path.iterdir()
    file.write_text('{"plans": [], "used": [1], "plays": [], "tasks": []}')
    with pytest.raises(ConfigError, match=r"fit-.*json is not what was learnt .*remove it"):
        asyncio.run(fitted(made, 5, options))


def test_bills_are_told_at_the_prices_of_the_episode() -> None:
    made = place("HLE")
    fit = asyncio.run(fitted(made, 0, FEW))
    train = factory_of("HLE-v0", preference="none").start(0).episode
    costlier = factory_of("HLE-v0", prices="unseen-2026-01").start(0).episode
    numbers = range(len(fit.plans))
    mean = sum(fit.usd_of(k, train) * fit.plays[k] for k in numbers)
    assert mean == pytest.approx(fit.usd, rel=1e-6)  # at the prices that were paid, to rounding
    assert all(fit.usd_of(k, costlier) != fit.usd_of(k, train) for k in numbers)


def test_what_the_tools_lack_is_not_planned() -> None:
    made = place("HLE")
    fit = asyncio.run(fitted(made, 0, FEW))
    episode = made.start(0, {"tools": ["reasoner-3", "answer-3"]}).episode
    able = [plan for plan in fit.plans if can_follow(plan, episode)]
    assert len(able) == len(plans(episode)) == 2
    who = FittedPlayer("skillbook", made, 0, FEW)
    with pytest.raises(ConfigError, match="skillbook has learnt nothing yet"):
        who.choose(episode)
    asyncio.run(who.prepare())
    assert who.choose(episode) in able
    (call,) = parse(asyncio.run(who.move(episode)).text).calls
    assert call.arguments["model"] in ("reasoner-3", "answer-3")


def test_what_was_learnt_on_some_tools_is_used_on_others_by_the_notes() -> None:
    varied = place("varied")
    fit = asyncio.run(fitted(varied, 0, PlayerOptions(fit_tasks=12)))
    assert fit.failed == 0
    assert sum(fit.plays) < len(fit.plans) * 12  # not all were offered at each task
    who = FittedPlayer("knn", varied, 0, PlayerOptions(fit_tasks=12))
    asyncio.run(who.prepare())
    behind = set()
    for seed in range(20):
        episode = varied.start(seed).episode
        plan = who.choose(episode)
        (tool,) = (tool for tool in episode.world.toolbox if tool.kind == "answer")
        behind |= {(plan.answer, offer.model) for offer in tool.offers if offer.note == plan.answer}
    assert behind
    assert len({note for note, _ in behind}) == len(behind)  # a note means one model, whatever its alias


def test_experts_that_were_never_played_are_taken_by_price() -> None:
    made = place("HLE")
    who = FittedPlayer("skillbook", made, 0, FEW)
    asyncio.run(who.prepare())
    episode = place("HLE", style="brief").start(0).episode  # which shows no notes, so that aliases are the names
    chosen = who.choose(episode)
    assert chosen == plans(episode)[-1]
    assert chosen[:3] == ("search-1", "reasoner-1", "answer-1")


def test_a_spend_cap_ends_the_learning_and_no_fit_is_kept(tmp_path: Path) -> None:
    cap = SpendCap(0.05)
    made = place("HLE", spend_cap=cap)
    who = FittedPlayer("knn", made, 0, PlayerOptions(fit_tasks=20, fit_folder=str(tmp_path)))
    with pytest.raises(Outage, match="the spend cap was used up while plans were learnt"):
        asyncio.run(who.prepare())
    assert cap.used_up
    assert not list(tmp_path.glob("*.json"))
    assert played(made, who) == []


def test_like_questions_are_near() -> None:
    assert words("[Logic] What is 137 + 2?") == ["logic", "what", "is", "#3", "#1"]
    fit = asyncio.run(fitted(place("HLE"), 0, PlayerOptions(fit_tasks=30)))
    known = Expectations(fit)
    for task in fit.tasks:
        nearest = known._nearest(task.text)
        assert nearest[0][1].subject == task.subject
        assert nearest[0][0] == pytest.approx(1.0)


@pytest.mark.parametrize("env", ["HLE", "FRAMES"])
def test_routers_beat_random_and_cost_less_than_the_strongest(env: str) -> None:
    made, options = place(env), PlayerOptions(fit_tasks=40)
    random, strongest = (standing(made, who, 100) for who in ("random", "strongest"))
    for name in (*FITTED, "cascade"):
        mine = standing(made, name, 100, options)
        assert mine.accuracy > random.accuracy + 0.1
        assert mine.cents < 0.7 * strongest.cents


def test_a_weight_on_cost_makes_them_cheaper() -> None:
    made = place("HLE")
    careless, thrifty = (standing(made, "knn", 60, PlayerOptions(fit_tasks=20, cost_weight=w)) for w in (0.0, 2.0))
    assert thrifty.cents < careless.cents / 2
