"""Demonstrations: random plays, or recorded trajectories; the same whoever plays them, one sequence for each."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from toolorchestra.agents.configuration.config import ModelConfig, WarmStart
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies.baselines import RandomPolicy, baseline
from toolorchestra.agents.policies.plans import token_price
from toolorchestra.agents.rollouts.rollout import Chat, Job, factory_of, measured, siblings
from toolorchestra.agents.training.demonstrations import (
    Wanderer,
    _tasks,
    demonstrate,
    demonstrations,
    recorded,
)
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.datasets import NO_SUBJECT

SOME = replace(preset("tiny"), model=ModelConfig(), warm_start=WarmStart(demonstrations=24))
"""In this process, where nothing else is said."""


def test_random_plays_are_not_chosen_by_what_they_earn() -> None:
    """There is one for each task, and those that did not solve it are among them: about as many as of `random`."""
    chat, config = Chat(load_tokenizer()), replace(SOME, warm_start=WarmStart(demonstrations=300))
    assert len(demonstrations(chat, config)) == 300
    solved = {"shown": 0, "random": 0}
    for _, factory, seed, rng in _tasks(config, range(300)):
        for name, plays in (("shown", Wanderer(rng, "some")), ("random", baseline("random", seed))):
            solved[name] += measured(played(factory, plays, seed)).solved
    assert 20 < solved["shown"] < 120
    assert abs(solved["shown"] - solved["random"]) < 35


def test_a_random_play_calls_whom_the_sentence_names_about_half_of_the_time() -> None:
    """Three times of ten for the sentence, and else its share of three or so. Without such a name all alike."""
    factory = factory_of("ToolOrchestra/HLE-v0", preference="favour")
    named, all_ = 0, 0
    for seed in range(300):
        episode = played(factory, Wanderer(random.Random(seed), "some"), seed)
        (name,) = episode.preference.tools
        (tool,) = (one for one in episode.world.toolbox if name in one.keys)
        if len(tool.keys) > 1:
            named, all_ = named + episode.calls.get(name, 0), all_ + sum(episode.calls.get(k, 0) for k in tool.keys)
    assert 0.45 < named / all_ < 0.65


@pytest.mark.parametrize(("kind", "measure"), [("frugal", "usd"), ("fast", "seconds"), ("accurate", "")])
def test_a_random_play_calls_the_cheapest_for_who_wants_to_save_and_the_quickest_for_who_is_in_a_hurry(
    kind: str, measure: str
) -> None:
    """Three times of ten, and else their share; for who wants neither, all alike."""
    factory = factory_of("ToolOrchestra/HLE-v0", preference=kind, vary=("prices",))
    least, all_ = 0, 0
    for seed in range(300):
        episode = played(factory, Wanderer(random.Random(seed), "some"), seed)
        for tool in episode.world.toolbox:
            cost = {o.alias: o.seconds if measure == "seconds" else token_price(episode, o) for o in tool.offers}
            if cost:
                least += episode.calls.get(min(cost, key=cost.__getitem__), 0)
                all_ += sum(episode.calls.get(alias, 0) for alias in cost)
    assert (0.45 < least / all_ < 0.65) if measure else (0.2 < least / all_ < 0.45)


def test_each_subject_has_a_habit_that_nothing_but_its_name_chose() -> None:
    """Two times of five the first call is of one tool, and it is another one for other subjects and other habits. A set
    of questions that names no subject has none."""
    factory = factory_of("ToolOrchestra/HLE-v0", preference="none")
    openings = [factory.start(seed).episode for seed in range(40)]
    first = {
        habits: {
            opening.world.question.subject: Counter(
                parse(RandomPolicy(luck, habits)(opening)).calls[0].name for luck in range(100)
            ).most_common(1)[0]
            for opening in openings
        }
        for habits in ("one", "other")
    }
    assert all(50 < times < 75 for some in first.values() for _, times in some.values())  # 40, and a third of the rest
    liked = {habits: {subject: tool for subject, (tool, _) in some.items()} for habits, some in first.items()}
    assert len(set(liked["one"].values())) > 1
    assert liked["one"] != liked["other"]
    world = openings[0].world
    world.question = replace(world.question, subject=NO_SUBJECT)
    plain = Counter(parse(RandomPolicy(luck, "one")(openings[0])).calls[0].name for luck in range(300))
    assert len(plain) == 3
    assert max(plain.values()) < 130


@pytest.mark.parametrize(("kind", "asks"), [("frugal", True), ("fast", True), ("accurate", False)])
def test_where_some_tools_have_experts_who_saves_or_hurries_asks_these(kind: str, asks: bool) -> None:
    """One tool of thirty has them."""
    factory = factory_of("ToolOrchestra/ToolScale-v0", domain="restaurant", preference=kind, max_turns=12)
    calls = [played(factory, Wanderer(random.Random(seed), "some"), seed).calls for seed in range(20)]
    experts = sum(count for one in calls for name, count in one.items() if name.startswith("expert-"))
    assert (0.4 if asks else 0.0) <= experts / sum(sum(one.values()) for one in calls) < (0.6 if asks else 0.15)


@pytest.mark.parametrize("history", ["full", "state"])
def test_every_turn_of_a_play_is_shown_also_where_the_past_is_told_anew(history: str) -> None:
    factory, chat = factory_of("ToolOrchestra/HLE-v0", history=history), Chat(load_tokenizer())
    plays = [demonstrate(chat, factory, Wanderer(random.Random(seed), "some"), seed) for seed in range(8)]
    assert {len(data) == episode.turn for data, episode in plays if episode.turn > 1} == {history == "state"}
    for data, episode in plays:
        said = [m["content"] for m in episode.messages if m["role"] == "assistant"]
        shown = (token for d in data for token, counts in zip(d.tokens, d.mask, strict=True) if counts)
        assert chat.tokenizer.decode([*shown]) == "".join(f"{text}{chat.stop_text}" for text in said)


def test_where_messages_are_heard_random_plays_say_some() -> None:
    factory = factory_of("ToolOrchestra/ToolScale-v0", max_turns=12)
    said = [
        m["content"]
        for m in played(factory, Wanderer(random.Random(3), "some"), 5).messages
        if m["role"] == "assistant"
    ]
    assert {text.startswith("<tool_call>") for text in said} == {True, False}


@pytest.mark.parametrize("planned", [False, True])
def test_shared_out_over_processes_the_data_are_the_same(planned: bool) -> None:
    chat, watched = Chat(load_tokenizer()), []
    config = replace(SOME, warm_start=WarmStart(demonstrations=120 if planned else 60, planned=planned))
    alone = demonstrations(chat, config, lambda what, number: watched.append((what, number)))
    shared = demonstrations(chat, replace(config, model=replace(config.model, processes=2)))
    assert [d.tokens for d in shared] == [d.tokens for d in alone]
    assert len(alone) == config.warm_start.demonstrations
    assert watched[-1] == ("plans made" if planned else "random plays", len(alone))
    assert (("tasks tried", len(alone)) in watched) == planned
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


def test_an_interrupt_ends_the_search_at_once() -> None:
    ages = replace(SOME, model=replace(SOME.model, processes=2), warm_start=WarmStart(demonstrations=10**7))
    chat = Chat(load_tokenizer())
    waited = threading.Timer(60, lambda: [child.kill() for child in multiprocessing.active_children()])
    waited.start()
    with pytest.raises(KeyboardInterrupt), interrupted(lambda _: os.getpid()):
        demonstrations(chat, ages)
    assert waited.is_alive()
    waited.cancel()


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
    with pytest.raises(ConfigError, match="no assistant turn to learn from"):
        recorded(chat, path)


def test_siblings_have_their_own_draws_and_the_same_task() -> None:
    job = Job("HLE-v0", training(SOME.environments[0]), 5, {"preference": "cheap"})
    group = siblings(job, 4)
    assert group[0] is job
    assert [one.options for one in group[1:]] == [{"preference": "cheap", "luck": n} for n in (1, 2, 3)]
    assert {(one.seed, one.factory) for one in group} == {(5, job.factory)}
