"""A scripted user corrects a confirmation that names its own details wrongly, and nobody who does what is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.followed_requests import EpisodeSoFar, requests_along
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.heard import Detail, details, wrong
from toolorchestra.envs.domains.toolscale.source import ready
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.user import PATIENCE, Mood, SqlScriptedUser


def all_of(task: SqlTask) -> tuple[Detail, ...]:
    return tuple(detail for own in details(task) for detail in own)


def confirmations(domain: SqlDomain, task: SqlTask) -> list[str]:
    return [text for text in moves(domain, task) if "Do you confirm" in text]


@pytest.mark.parametrize("name", ["ecommerce", "finance", "railway"])
def test_no_right_path_of_a_shipped_task_is_ever_corrected(name: str) -> None:
    domain = loader.load(name)
    noticed = 0
    for task in list(domain.tasks.values())[::4]:
        known = all_of(task)
        noticed += len(known)
        for number, path in enumerate((task.actions, *task.alternatives)):
            other = replace(task, actions=tuple(path), requests=requests_along(task, path)) if number else task
            assert not any(wrong(known, text) for text in confirmations(domain, other))
    assert noticed


def case() -> tuple[SqlDomain, SqlTask, Detail]:
    """A task with one request, in which the user says an amount."""
    domain = ready("finance").domain
    for task in domain.tasks.values():
        found = [detail for detail in all_of(task) if detail.label == "amount"]
        told = confirmations(domain, task)
        if len(task.requests) == len(found) == len(told) == 1 and f"amount {found[0].value}" in told[0]:
            return domain, task, found[0]
    raise AssertionError("no such task")


@pytest.mark.parametrize(
    ("said", "stated"),
    [
        ("amount 4711", "4711"),
        ("an amount of $4,711.50", "4,711.50"),
        ("Amount: **4711**", "4711"),
        ("{value} to the account, amount {value}", ""),
        ("4711 pounds", ""),  # which detail this is, is not said
        ("a fee of 4711", ""),
        ("the max amount", ""),
    ],
)
def test_what_is_noticed(said: str, stated: str) -> None:
    _, task, detail = case()
    found = wrong(all_of(task), f"I will pay {said.format(value=detail.value)}. Do you confirm?")
    assert (found.stated if found else "") == stated
    if found:
        assert (found.label, found.value) == ("amount", detail.value)


def test_the_user_corrects_confirms_when_it_is_right_and_gives_up_in_the_end() -> None:
    domain, task, detail = case()
    user = SqlScriptedUser(task, 4)
    (right,) = confirmations(domain, task)
    false = right.replace(f"amount {detail.value}", "amount 4711")
    assert false != right
    mood, progress = Mood(), EpisodeSoFar((), (), domain.writes)
    for turn in range(1, PATIENCE):
        reply = user.reply(mood, false, turn, progress)
        assert detail.value in reply.text
        assert "amount" in reply.text
        assert not reply.final
        mood = reply.mood
    confirmed = user.reply(mood, right, PATIENCE, progress)
    assert detail.value not in confirmed.text
    assert confirmed.mood.lost == 0
    assert "###OUT-OF-SCOPE###" in user.reply(mood, false, PATIENCE, progress).text
