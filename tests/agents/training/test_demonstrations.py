"""Demonstrations: the best of some random routes, the same whoever looks for them, and one sequence for each."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from toolorchestra.agents.configuration.config import TrainConfig, WarmStart
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.rollout import Chat, factory_of, measured
from toolorchestra.agents.training.demonstrations import (
    BestRoute,
    demonstrations,
    find_routes,
    plan_routes,
    recorded,
    try_routes,
)
from toolorchestra.agents.training.route_values import learnt
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory

SOME = replace(preset("tiny"), warm_start=WarmStart(demonstrations=24, routes=4))


def made(config: TrainConfig, found: BestRoute) -> EpisodeFactory:
    mix = config.environments[found.env]
    return factory_of(mix.env_id, **{"diversify": "train", **mix.arguments, "split": "train"})


def test_a_route_found_solves_its_task_again() -> None:
    found = find_routes(SOME, range(24))
    assert 12 < len(found) <= 24
    for route in found:
        actions = iter(route.actions)
        episode = played(made(SOME, route), lambda _, actions=actions: next(actions), route.seed)  # type: ignore[misc]
        assert measured(episode).solved
        assert next(actions, None) is None


def test_a_task_gets_the_same_route_whoever_looks_for_it() -> None:
    whole = find_routes(SOME, range(24))
    apart = [*find_routes(SOME, range(0, 24, 2)), *find_routes(SOME, range(1, 24, 2))]
    assert sorted(apart, key=lambda f: f.seed) == whole


def test_more_tries_solve_more_tasks() -> None:
    once = replace(SOME, warm_start=WarmStart(routes=1))
    often = replace(SOME, warm_start=WarmStart(routes=8))
    assert len(find_routes(once, range(40))) < len(find_routes(often, range(40)))


def test_shared_out_over_processes_the_data_are_the_same() -> None:
    chat = Chat(load_tokenizer())
    alone = demonstrations(chat, SOME)
    shared = demonstrations(chat, replace(SOME, model=replace(SOME.model, processes=2)))
    assert [d.tokens for d in shared] == [d.tokens for d in alone]
    for datum in alone:
        assert chat.tokenizer.decode(datum.tokens).count("<tool_call>") == sum(
            a and t == chat.stop for t, a in zip(datum.tokens, datum.mask, strict=True)
        )


@contextmanager
def interrupted(whom: Callable[[BaseProcess], int]) -> Iterator[None]:
    """Ctrl-C, as soon as both processes that look for routes are there."""
    others = set(multiprocessing.active_children())

    def interrupt() -> None:
        while len(started := set(multiprocessing.active_children()) - others) < 2:
            time.sleep(0.01)
        for number in {whom(process) for process in started}:
            os.kill(number, signal.SIGINT)

    hand = threading.Thread(target=interrupt, daemon=True)
    hand.start()
    try:
        yield
    finally:
        hand.join(60)


def test_an_interrupt_is_left_to_the_process_that_shares_out() -> None:
    """A terminal sends it to them all; the first one lets the warm start end."""
    chat = Chat(load_tokenizer())
    with interrupted(lambda process: process.pid or 0):
        shared = demonstrations(chat, replace(SOME, model=replace(SOME.model, processes=2)))
    assert [d.tokens for d in shared] == [d.tokens for d in demonstrations(chat, SOME)]


def test_an_interrupt_ends_the_search_at_once() -> None:
    ages = replace(SOME, model=replace(SOME.model, processes=2), warm_start=WarmStart(demonstrations=10**7))
    chat = Chat(load_tokenizer())
    waited = threading.Timer(60, lambda: [child.kill() for child in multiprocessing.active_children()])
    waited.start()
    with pytest.raises(KeyboardInterrupt), interrupted(lambda _: os.getpid()):
        demonstrations(chat, ages)
    assert waited.is_alive()
    waited.cancel()


def test_a_missing_file_of_trajectories_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"warm_start\.trajectories: no file .*none\.jsonl"):
        recorded(Chat(load_tokenizer()), tmp_path / "none.jsonl")


ASKED = '{"role": "user", "content": "u"}'
SAID = '{"role": "assistant", "content": "hi"}'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1]", "line 2: an object with `messages`, and `tools` if any, was expected"),
        ('{"messages": ["hi"]}', "line 2: an object with `messages`"),
        (f'{{"messages": [{ASKED}, {SAID}], "tools": ["x"]}}', "line 2: an object with `messages`"),
        ('{"messages": [{"content": "hi"}]}', "line 2: message 1 needs a role and a content, both text"),
        (
            f'{{"messages": [{ASKED}, {{"role": "assistant", "content": null}}]}}',
            "message 2 needs a role and a content",
        ),
        (f'{{"messages": [{SAID}]}}', "line 2: message 1 is the assistant's; what it answers was expected"),
        ("\udcff", "is not UTF-8 text"),
    ],
)
def test_a_trajectory_that_cannot_be_learnt_from_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(f'{{"messages": [{ASKED}, {SAID}]}}\n{line}\n', encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ConfigError, match=says):
        recorded(Chat(load_tokenizer()), path)


def test_texts_of_trajectories_are_taken_as_they_stand(tmp_path: Path) -> None:
    """A line separator ends no line, an empty line is none, and a mark of the template's in what was said no turn."""
    chat, path = Chat(load_tokenizer()), tmp_path / "some.jsonl"
    said = '{"role": "assistant", "content": "a<|im_end|>b \\ud83d"}'
    path.write_text(
        f'{{"messages": [{ASKED[:-2]}\u2028"}}, {said}, {ASKED}, {SAID}], "tools": null}}\n\n', encoding="utf-8"
    )
    (datum,) = recorded(chat, path)
    learnt = [t for t, a in zip(datum.tokens, datum.mask, strict=True) if a]
    assert chat.tokenizer.decode(learnt) == "a< |im_end|>b ?<|im_end|>hi<|im_end|>"
    assert learnt.count(chat.stop) == 2


def test_runs_that_did_not_solve_their_task_are_left_out(tmp_path: Path) -> None:
    chat, path, said = Chat(load_tokenizer()), tmp_path / "some.jsonl", list[str]()
    outcomes = ['{"value": 1.0}', '{"value": 0.4}', "null", '{"value": null}']
    rows = [f'{{"messages": [{ASKED}, {SAID}], "outcome": {outcome}}}' for outcome in outcomes]
    path.write_text("\n".join([*rows, f'{{"messages": [{ASKED}, {SAID}]}}']))
    assert len(recorded(chat, path, said.append)) == 2
    assert said == ["warm start: 3 runs that did not solve their task are left out"]
    path.write_text("\n".join(rows[1:]))
    with pytest.raises(ConfigError, match="no assistant turn to learn from; 3 runs that did not solve"):
        recorded(chat, path)


def test_what_does_well_on_several_days_does_better_on_another() -> None:
    """The route that did best once was often lucky: its tools did better that day than they mostly do."""

    def solved(plays: int) -> int:
        config = replace(SOME, warm_start=WarmStart(routes=12, plays=plays))
        again = 0
        for route in find_routes(config, range(60)):
            actions = iter(route.actions)
            factory = made(config, route)
            episode = played(factory, lambda _, told=actions: next(told), route.seed, luck=9)  # type: ignore[misc]
            again += measured(episode).solved
        return again

    assert solved(3) > solved(1)


PLANNED = replace(SOME, warm_start=WarmStart(demonstrations=120, routes=6, planned=True))


def test_planned_routes_do_better_on_another_day_than_the_best_that_were_tried() -> None:
    """For users who want a right answer and nothing else; by four random routes on each of many tasks."""
    wants = [replace(m, arguments={**m.arguments, "preference": "accurate"}) for m in SOME.environments[:1]]
    config = replace(SOME, environments=tuple(wants))
    tasks = range(100)
    values = {0: learnt([one for _, one in try_routes(config, range(800))])}

    def solved_again(routes: list[BestRoute]) -> float:
        factory = training(config.environments[0])
        again = []
        for route, day in itertools.product(routes, range(1, 7)):
            actions = itertools.chain(
                route.actions, itertools.repeat(route.actions[-1] if route.actions else "")
            )  # an answer may fail to come
            again_said = route.policy() if route.route else lambda _, told=actions: next(told)  # type: ignore[misc]
            episode = played(factory, again_said, route.seed, luck=day)
            again.append(measured(episode).solved)
        return sum(again) / 6 / len(tasks)

    assert solved_again(plan_routes(values, config, tasks)) > solved_again(find_routes(config, tasks)) + 0.03


def test_planned_over_processes_the_data_are_the_same() -> None:
    chat, watched = Chat(load_tokenizer()), []
    alone = demonstrations(chat, PLANNED, lambda what, number: watched.append((what, number)))
    shared = demonstrations(chat, replace(PLANNED, model=replace(PLANNED.model, processes=2)))
    assert [d.tokens for d in shared] == [d.tokens for d in alone]
    assert len(alone) == 120
    assert watched[-1] == ("routes planned", 120)
    assert ("tasks tried", 120) in watched


def test_words_of_the_wish_are_left_out_of_what_is_shown_and_nothing_else() -> None:
    chat = Chat(load_tokenizer())
    whole, thin = (
        demonstrations(chat, replace(SOME, warm_start=replace(SOME.warm_start, drop_words=share)))
        for share in (0.0, 0.9)
    )
    assert len(whole) == len(thin)
    fewer = 0
    for one, other in zip(whole, thin, strict=True):
        (wish, rest), (left, same) = (chat.tokenizer.decode(d.tokens).split("\n", 2)[1:] for d in (one, other))
        assert same == rest
        assert set(left.split()) <= set(wish.split())
        fewer += left != wish
        told, again = ([t for t, counts in zip(d.tokens, d.mask, strict=True) if counts] for d in (one, other))
        assert told == again
    assert fewer > len(whole) / 2
    with pytest.raises(ConfigError, match=r"warm_start\.drop_words"):
        WarmStart(drop_words=1.5)


def test_another_luck_is_the_same_task_with_other_draws() -> None:
    factory = made(SOME, BestRoute(0, 0, ()))
    outcomes = set()
    for luck in range(6):
        started = factory.start(5, luck=luck)
        first = factory.start(5)
        assert started.observation == first.observation
        assert started.info == first.info
        episode = played(factory, baseline("cheapest", 5), 5, luck=luck)
        assert episode.ledger.summary() == played(factory, baseline("cheapest", 5), 5, luck=luck).ledger.summary()
        outcomes.add(episode.ledger.summary()["usd"])
    assert len(outcomes) > 3
    plain = played(factory, baseline("cheapest", 5), 5)
    assert plain.ledger.summary() == played(factory, baseline("cheapest", 5), 5, luck=0).ledger.summary()
