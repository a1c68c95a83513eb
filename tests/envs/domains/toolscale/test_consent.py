"""A change needs the user's yes, however it was asked for: consent goes by what was agreed to, and not by words."""

from __future__ import annotations

import pytest

from tests.support.confirmations import AGAINST, TOGETHER, WAYS, Talk, against_row, asked_row, seed_of
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.followed_requests import FollowedRequests
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall

FINANCE = Talk("finance")


@pytest.mark.parametrize("way", [*WAYS, *TOGETHER])
def test_a_yes_counts_however_it_was_asked_for(way: str) -> None:
    solved, tries, lost = asked_row(FINANCE, way, 6)
    assert (solved, tries) == (6, 6), lost


@pytest.mark.parametrize("together", [False, True], ids=["one at a time", "all at once"])
@pytest.mark.parametrize("way", AGAINST)
def test_a_change_without_a_yes_is_found_out(way: str, together: bool) -> None:
    found, tries, missed = against_row(FINANCE, way, 6, together=together)
    assert found == tries, missed
    assert tries == 6 or (together and way == AGAINST[-1])  # who gives all at once does not change its mind


@pytest.mark.parametrize("domain", loader.names())
def test_every_domain_hears_every_way(domain: str) -> None:
    talk = Talk(domain)
    for way in (*WAYS, *TOGETHER):
        solved, tries, lost = asked_row(talk, way, 2)
        assert solved == tries == 2, (way, lost)


def test_a_yes_to_one_change_is_none_to_another() -> None:
    domain = FINANCE.domain
    task = next(t for t in domain.tasks.values() if len(FINANCE.changes(t, 0)) > 1 and seed_of(t, together=True))
    seed = seed_of(task, together=True)
    assert seed is not None
    first, second, *_ = FINANCE.changes(task, seed)
    followed = FollowedRequests(task, domain.writes)
    everything = range(len(task.requests))
    asked = followed.asked_about(everything, WAYS["tool name and all arguments"](first, "Do you confirm?"))
    (number,) = asked
    assert asked == followed.settled_by(first.calls[0])
    assert number not in followed.settled_by(second.calls[0])
    both = TOGETHER["all changes together, in full, one yes"]((first, second), "Do you confirm?")
    assert asked < followed.asked_about(everything, both)
    assert followed.asked_about(everything, "Is that all right?") == followed.changing
    assert followed.settled_by(GoldCall("transfer_to_human", {})) == frozenset()
