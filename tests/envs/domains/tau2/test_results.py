"""The benchmark's results file where a played run does not reach: model users, judges, limits, solo work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.tau2_playing import needs_package
from toolorchestra.envs.domains.tau2.package import load_release
from toolorchestra.envs.domains.tau2.results import PlayedConversation, ResultsHead, results, reward_info

ENDED = {"termination": "user_stop", "user": {"kind": "scripted"}, "parts": {}}


def made(user: dict[str, Any], termination: str) -> Any:
    """A file of one episode of mock's first task."""
    release = load_release(None)
    head = ResultsHead("mock", release, datetime(2026, 1, 2, tzinfo=UTC), "", 1, 0, "my-model", user, None, 10)
    task_id, row = next(iter(release.tasks("mock").items()))
    evidence = {**ENDED, "termination": termination, "user": user}
    one = PlayedConversation("id", task_id, 0, 7, 0.0, evidence, [], 90.0, 0.5, 0.25)
    return results(head, [row], [one])


@needs_package
def test_a_model_user_is_named_with_how_it_was_asked() -> None:
    described = {"kind": "llm", "model": "gpt-4.1", "guidelines": "digest", "temperature": 1.0}
    info = made(described, "max_steps")["info"]
    assert (info["user_info"]["implementation"], info["user_info"]["llm"]) == ("user_simulator", "gpt-4.1")
    assert info["user_info"]["llm_args"] == {"temperature": 1.0}
    assert (info["agent_info"]["llm"], info["max_steps"], info["max_errors"]) == ("my-model", 0, 10)
    alone = made({"kind": "none"}, "agent_stop")["info"]
    assert alone["agent_info"]["implementation"] == "llm_agent_solo"
    assert alone["user_info"]["implementation"] == "dummy_user"


@needs_package
def test_a_limit_of_this_suite_is_one_of_steps() -> None:
    (one,) = made({"kind": "scripted"}, "cut_off")["simulations"]
    assert (one["termination_reason"], one["reward_info"]["reward_basis"]) == ("max_steps", None)
    assert one["reward_info"]["info"]["note"] == "ended early: cut_off"
    assert (one["start_time"], one["end_time"]) == ("2026-01-02T00:00:00+00:00", "2026-01-02T00:01:30+00:00")
    assert (one["agent_cost"], one["user_cost"], one["seed"]) == (0.5, 0.25, 7)


def test_every_check_stands_beside_what_it_checked() -> None:
    criteria = {"nl_assertions": ["polite", "brief"], "communicate_info": ["42"], "reward_basis": ["NL_ASSERTION"]}
    told = {**ENDED, "parts": {"NL_ASSERTION": 0.0}, "judged": [True, False], "communicated": [True]}
    info = reward_info(0.0, told, criteria)
    assert [(one["nl_assertion"], one["met"]) for one in info["nl_assertions"]] == [("polite", True), ("brief", False)]
    assert [(one["info"], one["met"]) for one in info["communicate_checks"]] == [("42", True)]
    assert (info["reward_basis"], info["reward_breakdown"]) == (["NL_ASSERTION"], {"NL_ASSERTION": 0.0})
    with pytest.raises(ValueError, match="zip"):
        reward_info(0.0, {**told, "judged": [True]}, criteria)


def test_a_recorded_run_may_bring_criteria_of_its_own() -> None:
    told = {**ENDED, "user": {"kind": "replay"}, "parts": {"DB": 1.0}, "communicated": [True, True]}
    info = reward_info(1.0, told, {"communicate_info": ["42"]})
    assert "communicate_checks" not in info
    assert info["db_check"] == {"db_match": True, "db_reward": 1.0}
    assert reward_info(1.0, ENDED, None)["reward_basis"] is None  # a task without criteria is right when it ends
