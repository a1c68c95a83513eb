"""The scripted user tells apart what an agent may say, and goes by what it knows of its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import REPOSITORY
from tests.support.confirmations import Talk, seed_of
from tests.support.phrasings import HALVES, KINDS, PhrasedOracle
from tests.support.phrasings import load as load_bank
from toolorchestra.envs.domains.toolscale import heard
from toolorchestra.envs.domains.toolscale import user as scripted
from toolorchestra.envs.domains.toolscale.followed_requests import EpisodeSoFar
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.user import PATIENCE, Mood, SqlScriptedUser
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.synth.proof.solvers import TRIVIAL, Arena, Scripted

BANKS = {
    name: load_bank(REPOSITORY / "tests" / "data" / f"agent_phrasings{name}.json")
    for name in ("", "_second", "_third", "_fourth")
}
FINANCE = ready("finance").domain


def task_with(holds: Callable[[SqlTask], bool], domain: SqlDomain = FINANCE) -> SqlTask:
    return next(task for task in domain.tasks.values() if holds(task))


def one_write(task: SqlTask) -> bool:
    """One request, of a user that must be told a number and for which one write is made."""
    (first, *others) = task.requests
    writes = [task.actions[n].name for n in first.actions if task.actions[n].name in FINANCE.writes]
    return not others and first.ending == "serve" and len(writes) == 1 and len(first.inform) == 1


TASK = task_with(one_write)
WRITE = next(action.name for action in TASK.actions if action.name in FINANCE.writes)
INFO = TASK.requests[0].inform[0]


def progress(*calls: str, told: tuple[str, ...] = ()) -> EpisodeSoFar:
    return EpisodeSoFar(calls, told, FINANCE.writes)


def one_of(sentences: tuple[str, ...], text: str, task: SqlTask = TASK) -> bool:
    """Whether a text is one of these sentences, with or without the request."""
    user = SqlScriptedUser(task, 4)
    return text in {s.format(say=user.said(0)) if "{say}" in s else s for s in sentences}


@pytest.mark.parametrize(
    "text", ["One moment please, I am looking into this for you.", "Let me check.", "Thanks, noted."]
)
def test_it_waits_when_nothing_has_been_done_yet(text: str) -> None:
    user = SqlScriptedUser(TASK, 4)
    reply = user.reply(Mood(), text, 1, progress())
    assert one_of(scripted.WAITS, reply.text)
    assert not reply.final


@pytest.mark.parametrize(
    "ending", ["Please confirm.", "Please reply YES and I will do it.", "OK?", "Say the word, yes or no."]
)
def test_it_confirms_in_any_form(ending: str) -> None:
    user = SqlScriptedUser(TASK, 4)
    plan = next(text for text in moves(FINANCE, TASK) if "Do you confirm" in text)
    reply = user.reply(Mood(), plan.replace("Do you confirm (yes/no)?", ending), 1, progress())
    assert one_of(scripted.YES, reply.text)


@pytest.mark.parametrize(
    ("text", "denies"),
    [
        ("That's a no from me, sorry.", True),
        ("I am afraid it is a no.", True),
        ("I will book a no smoking room for you.", False),
        ("I will make sure that nothing is missed, and then come back to you.", False),
        ("I'll let our kitchens know that you can't have mustard. May I go ahead?", False),
        ("It is no longer needed.", False),
    ],
)
def test_what_only_sounds_like_a_no_denies_nothing(text: str, denies: bool) -> None:
    assert heard.read(text).denies is denies


@pytest.mark.parametrize(
    "text",
    [
        "I have checked whether there's any room for manoeuvre; unfortunately there isn't any.",
        "I checked whether an exception was possible, and sadly it's not.",
        "I looked whether there is an exception, there is none.",
        "I'm sorry, that option is no longer open to you.",
        "I'm afraid the answer has to be no.",
        "I am going to have to say no.",
        "I'd love to help, but my hands are tied.",
        "It's still too early for that.",
        "That is outside what I am permitted to do.",
        "That ship has sailed, I'm afraid.",
        "You are past the deadline for this.",
    ],
)
def test_a_refusal_is_heard_in_any_words(text: str) -> None:
    task = task_with(lambda t: t.requests[0].ending == "refuse" and not t.requests[0].inform and len(t.requests) > 1)
    calls = tuple(action.name for action in task.actions[: task.identify + 1])
    user = SqlScriptedUser(task, 4)
    asked = user.reply(Mood(objected=True), text, 3, progress(*calls))
    assert asked.mood.request == 1, asked.text


def test_it_confirms_nothing_that_it_does_not_want() -> None:
    user = SqlScriptedUser(TASK, 4)
    foreign = "I will order a birthday cake with strawberries and candles for Saturday. Do you confirm?"
    assert one_of(scripted.NOT_THAT, user.reply(Mood(), foreign, 1, progress()).text)
    offer = "I am sorry, we cannot do this. Would you like me to order a cake instead?"
    assert not one_of(scripted.YES, user.reply(Mood(), offer, 1, progress()).text)


def test_it_asks_back_once_when_told_that_all_is_done_before_it_is() -> None:
    user = SqlScriptedUser(TASK, 4)
    first = user.reply(Mood(), "It has been done. Anything else?", 1, progress())
    assert one_of(scripted.DOUBTS_DONE, first.text)
    untold = user.reply(Mood(), "It has been done. Anything else?", 1, progress(WRITE))
    assert one_of(scripted.DOUBTS_TOLD, untold.text)
    assert user.reply(first.mood, "Yes, it has been done.", 2, progress()).final


def test_its_doubts_do_not_say_which_figure_is_right() -> None:
    user = SqlScriptedUser(TASK, 4)
    wrong = f"It has been done. The result is {float(INFO) + 7}."
    assert user.reply(Mood(), wrong, 1, progress(WRITE)) == user.reply(
        Mood(), wrong.replace(str(float(INFO) + 7), INFO), 1, progress(WRITE)
    )


@pytest.mark.parametrize("text", ["{info}", "Here: {info}", "Was {info} what you needed?", "So {info}. OK?"])
def test_it_knows_by_itself_that_a_request_is_settled(text: str) -> None:
    user = SqlScriptedUser(TASK, 4)
    assert user.reply(Mood(), text.format(info=INFO), 1, progress(WRITE)).final
    assert not user.reply(Mood(), text.format(info=INFO), 1, progress()).final


def test_it_reveals_only_what_it_is_asked() -> None:
    fact = next(fact for fact in TASK.facts if fact.value)
    user = SqlScriptedUser(TASK, 4)
    name = fact.asked[0]
    for text in (
        f"What is your {name}?",
        f"I need your {name}.",
        f"{name.capitalize()}, please.",
        f"Please confirm your {name}.",
    ):
        assert fact.value in user.reply(Mood(), text, 1, progress()).text, text
    for text in (
        f"I found you by your {name}.",
        f"Your {name} has been noted. One moment.",
        f"We wrote to your {name}.",
    ):
        assert fact.value not in user.reply(Mood(), text, 1, progress()).text, text


def test_handing_over_is_believed_when_it_has_been_done() -> None:
    user = SqlScriptedUser(TASK, 4)
    text = "I am transferring you to a colleague."
    waits = user.reply(Mood(), text, 1, progress())
    assert not waits.final
    assert user.reply(Mood(handed_over=True), text, 1, progress()).text == scripted.TRANSFER
    assert user.reply(waits.mood, text, 2, progress()).text == scripted.TRANSFER


def test_what_was_said_of_an_earlier_request_does_not_answer_a_later_one() -> None:
    task = task_with(lambda t: len(t.requests) == 2 and all(r.inform and r.ending == "serve" for r in t.requests))
    user = SqlScriptedUser(task, next(s for s in range(50) if not SqlScriptedUser(task, s)._together))
    values = " and ".join(value for request in task.requests for value in request.inform)
    calls = tuple(action.name for action in task.actions)
    first = user.reply(Mood(), f"It is done: {values}.", 1, progress(*calls))
    assert not first.final
    told = (f"It is done: {values}.",)
    assert not user.reply(first.mood, "Done.", 2, progress(*calls, told=told)).final
    assert user.reply(first.mood, f"Done: {values}.", 2, progress(*calls, told=told)).final


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_answered_the_same_twice(text: str, done: bool) -> None:
    now = progress(WRITE) if done else progress()
    first = SqlScriptedUser(TASK, 3).reply(Mood(), text, 2, now)
    assert first.text
    assert first == SqlScriptedUser(TASK, 3).reply(Mood(), text, 2, now)


def test_a_talk_that_leads_nowhere_ends() -> None:
    for text in (
        "Hm.",
        "What is your shoe size?",
        "One moment.",
        "Banana?",
        "Done.",
        "You are being transferred to us.",
    ):
        user, mood = SqlScriptedUser(TASK, 3), Mood()
        for turn in range(2 * PATIENCE):
            reply = user.reply(mood, text, turn, progress())
            mood = reply.mood
            if reply.final:
                break
        assert reply.final, text


@pytest.mark.parametrize(
    ("bank", "half"),
    [("", HALVES[0]), ("", HALVES[1]), ("_second", HALVES[1]), ("_fourth", HALVES[1])],
)
def test_an_oracle_in_other_words_loses_next_to_nothing(bank: str, half: str) -> None:
    own = [one for one in BANKS[bank] if one.half == half]
    solver, solved, tries = PhrasedOracle("phrased", own, KINDS), 0, 0
    for name in ("finance", "medicine", "railway"):
        arena = Arena(name)
        for task_id in list(arena.domain.tasks)[::30]:
            tries += 1
            solved += asyncio.run(arena.play(solver, task_id, 0)).solved
    assert solved >= tries - 1  # all banks over all domains lose less than 1 %: python -m tests.support.phrasings


def test_it_follows_an_agent_that_takes_the_requests_in_another_order() -> None:
    solved, tries = 0, 0
    for name in ("finance", "sport"):
        talk = Talk(name)
        for task in list(talk.domain.tasks.values())[::14]:
            seed = seed_of(task, together=True)
            if seed is not None and len(task.requests) > 1 and all(r.ending == "serve" for r in task.requests):
                tries += 1
                solved += talk.play(task, seed, talk.backwards(task)).solved
    assert tries > 10
    assert solved >= 0.9 * tries


@pytest.mark.parametrize("solver", [*TRIVIAL, Scripted("first-request", requests=1)], ids=lambda solver: solver.name)
def test_nothing_becomes_solvable_without_the_work(solver: Scripted) -> None:
    arena = Arena("sport")
    for task_id, task in list(arena.domain.tasks.items())[::9]:
        reads_and_refuses = all(r.ending == "refuse" for r in task.requests[1:]) or task.idle
        if not (reads_and_refuses and solver.name == "first-request") and not task.idle:
            assert not asyncio.run(arena.play(solver, task_id, 0)).solved


def test_a_write_in_silence_is_found_out() -> None:
    env = OrchestraEnv(ToolScaleSource("finance"), preference="none")
    env.reset(seed=3, options={"task_id": f"toolscale/finance/{TASK.task_id}"})
    for move in moves(FINANCE, TASK):
        if "settled" in move:
            break
        env.step(move)
    *_, info = env.step("Anything else?")
    assert INFO not in json.dumps(info["new_messages"])
    assert "###STOP###" not in info["new_messages"][-1]["content"]
    _, reward, terminated, _, _ = env.step(f"It is {INFO}.")
    assert terminated
    assert reward == 1.0
