"""Demonstrations: the best of some random plans, the same whoever looks for them, and one sequence for each."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from toolorchestra.agents.policies.plans import Follows
from toolorchestra.agents.rollouts.rollout import Chat, measured
from toolorchestra.agents.training.demonstrations import (
    Planner,
    _tasks,
    best_tried,
    demonstrations,
    recorded,
    try_plans,
)
from toolorchestra.agents.training.plan_values import learnt
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory

SOME = replace(preset("tiny"), warm_start=WarmStart(demonstrations=24, tries=4))


def found(config: TrainConfig, numbers: Iterable[int]) -> list[tuple[EpisodeFactory, int, Sequence[str]]]:
    """The tasks on which one of some random plans succeeds, with what was said in the best one."""
    made = [
        (factory, seed, best_tried(factory, seed, config.warm_start.tries, rng))
        for _, factory, seed, rng in _tasks(config, list(numbers))
    ]
    return [one for one in made if one[2]]


def test_a_plan_found_solves_its_task_again() -> None:
    plans = found(SOME, range(24))
    assert 12 < len(plans) <= 24
    for factory, seed, said in plans:
        texts = iter(said)
        episode = played(factory, lambda _, texts=texts: next(texts), seed)  # type: ignore[misc]
        assert measured(episode).solved
        assert next(texts, None) is None


def test_a_task_gets_the_same_plan_whoever_looks_for_it() -> None:
    whole = found(SOME, range(24))
    apart = [*found(SOME, range(0, 24, 2)), *found(SOME, range(1, 24, 2))]
    assert sorted((seed, said) for _, seed, said in apart) == [(seed, said) for _, seed, said in whole]


def test_more_tries_solve_more_tasks() -> None:
    once, often = (replace(SOME, warm_start=WarmStart(tries=tries)) for tries in (1, 8))
    assert len(found(once, range(40))) < len(found(often, range(40)))


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
    """Ctrl-C, as soon as both processes that look for plans are there."""
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


PLANNED = replace(SOME, warm_start=WarmStart(demonstrations=120, tries=6, planned=True))


def test_a_planned_start_does_better_on_another_day_than_the_best_that_were_tried() -> None:
    """For users who want a right answer and nothing else; by four random plans on each of many tasks."""
    wants = [replace(m, arguments={**m.arguments, "preference": "accurate"}) for m in SOME.environments[:1]]
    config = replace(SOME, environments=tuple(wants))
    factory, tasks, days = training(config.environments[0]), range(100), range(1, 7)
    planner = Planner(learnt([one for _, one in try_plans(config, range(800))]), factory, config.baselines)
    planned = best = 0
    for _, _, seed, rng in _tasks(config, tasks):
        plan, said = planner.plan(seed), best_tried(factory, seed, config.warm_start.tries, rng)
        for day in days:
            planned += measured(played(factory, Follows(lambda _, plan=plan: plan), seed, luck=day)).solved  # type: ignore[misc]
            texts = itertools.chain(said, itertools.repeat(said[-1] if said else ""))  # an answer may fail to come
            best += bool(said) and measured(played(factory, lambda _, told=texts: next(told), seed, luck=day)).solved  # type: ignore[misc]
    assert planned > best + 0.03 * len(tasks) * len(days)


def test_planned_over_processes_the_data_are_the_same() -> None:
    chat, watched = Chat(load_tokenizer()), []
    alone = demonstrations(chat, PLANNED, lambda what, number: watched.append((what, number)))
    shared = demonstrations(chat, replace(PLANNED, model=replace(PLANNED.model, processes=2)))
    assert [d.tokens for d in shared] == [d.tokens for d in alone]
    assert len(alone) == 120
    assert watched[-1] == ("plans made", 120)
    assert ("tasks tried", 120) in watched


def test_another_luck_is_the_same_task_with_other_draws() -> None:
    factory = training(SOME.environments[0])
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
