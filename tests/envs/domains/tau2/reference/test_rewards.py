"""Reference domains are rewarded as the reference does: by the end state and by what the user was told."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.envs.domains.tau2.reference.playing import (
    CLINIC,
    DEPOT,
    SETTINGS,
    call,
    copied,
    database_of,
    domain_of,
    made,
    plans,
    world_of,
)
from tests.support.tau2_players import FAREWELL, gold, idle, play
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.grading import database_matches
from toolorchestra.envs.domains.tau2.task import Criteria, Function, GoldAction, public_id
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.scripted import ScriptedModel
from toolorchestra.envs.testing import check_environment

pytestmark = needs_package
DOMAINS = pytest.mark.parametrize("domain", SETTINGS)
WRITES = {"rent_item", "annotate", "discard", "close_on", "book_visit", "cancel_visit"}


@DOMAINS
def test_the_reference_path_is_right_and_doing_nothing_is_wrong(domain: str) -> None:
    env = made(**SETTINGS[domain])
    tasks = plans(env)
    assert len(tasks) == {"depot": 6, "clinic": 3}[domain]
    for task_id, plan in tasks.items():
        assert play(env, task_id, gold(plan, solo=False)).reward == 1.0, task_id
        assert play(env, task_id, idle(plan, solo=False)).reward == 0.0, task_id


@DOMAINS
def test_a_write_left_out_is_wrong_and_a_read_left_out_is_not(domain: str) -> None:
    env = made(**SETTINGS[domain])
    left_out = {True: 0, False: 0}
    for task_id, plan in plans(env).items():
        assert plan.criteria is not None
        actions = plan.criteria.actions or ()
        texts = gold(plan, solo=False)
        for at, action in enumerate(actions):
            writes = action.call.name in WRITES
            reward = play(env, task_id, texts[:at] + texts[at + 1 :]).reward
            assert reward == float(not writes), (task_id, action)
            left_out[writes] += 1
    assert min(left_out.values()) >= 2


def test_another_argument_of_a_write_is_wrong() -> None:
    env = made(**SETTINGS["depot"])
    texts = [render_call("rent_item", {"member_id": "M-1", "item_id": "I-1", "days": 3}), "It is 40.5.", FAREWELL]
    assert play(env, "depot/0", texts).reward == 0.0
    texts[0] = render_call("rent_item", {"member_id": "M-1", "item_id": "I-1", "days": 2})
    assert play(env, "depot/0", texts).reward == 1.0
    assert play(env, "depot/0", [texts[0], "It is 41.", FAREWELL]).reward == 0.0


def test_calls_in_any_order_draw_the_same_ids() -> None:
    """Ids come from uuid4 and lots from random: both follow from the call, not from what was called before."""
    env = made(**SETTINGS["depot"])
    (plan,) = [plan for plan in plans(env).values() if plan.task_id == "1"]
    *texts, farewell = gold(plan, solo=False)
    extra = render_call("stamps", {})  # draws lots itself
    for order in itertools.permutations(texts):
        assert play(env, "depot/1", [*order, farewell]).reward == 1.0
        assert play(env, "depot/1", [extra, *order, extra, farewell]).reward == 1.0


def test_defaults_and_refusals_do_not_change_what_is_drawn() -> None:
    env = made(**SETTINGS["depot"])
    said = [render_call("rent_item", {"member_id": "M-1", "item_id": item, "days": 1.0}) for item in ("I-1", "I-2")]
    assert play(env, "depot/1", [*said, FAREWELL]).reward == 1.0
    refused = render_call("rent_item", {"member_id": "M-1", "item_id": "I-1", "days": 90})
    left = [render_call("rent_item", {"member_id": "M-1", "item_id": item}) for item in ("I-1", "I-2")]
    assert play(env, "depot/1", [refused, refused, left[0], refused, left[1], FAREWELL]).reward == 1.0


def test_a_record_that_was_made_and_is_gone_again_never_was() -> None:
    env = made(**SETTINGS["depot"])
    env.reset(seed=0, options={"task_id": "depot/3"})
    domain, plan = domain_of(env), world_of(env).plan
    rent = ToolCall("rent_item", {"member_id": "M-1", "item_id": "I-1", "days": 0})
    discard = ToolCall("discard", {"item_id": "I-1"})
    paths: list[tuple[ToolCall, ...]] = [(discard,), (rent, discard), (rent,)]
    for want, got in itertools.product(paths, repeat=2):
        criteria = Criteria(tuple(GoldAction("assistant", call, None) for call in want))
        free = replace(plan, agent_data={"fee_usd": 0.0}, criteria=criteria)
        state = domain.start(free)
        assert not any(state.call("assistant", call.name, call.arguments).error for call in got)
        assert database_matches(domain, free, criteria, state) == ((discard in want) == (discard in got))


def test_the_same_call_twice_makes_two() -> None:
    env = made(**SETTINGS["clinic"])
    env.reset(seed=0)
    visits = [call(env, "book_visit", patient_id="P-7", day="2025-06-02", reason="again") for _ in range(2)]
    assert visits[0] != visits[1]
    assert call(env, "count_visits", patient_id="P-7") == '"4"'


def test_a_task_may_start_from_another_database_and_from_calls() -> None:
    """initial_state as tau2 has it: data put in the database's place, then any method of the toolkit."""
    env = made(**SETTINGS["depot"])
    env.reset(seed=0, options={"task_id": "depot/4"})
    domain, plan = domain_of(env), world_of(env).plan
    begun = Function("assistant", "close_on", {"day": "2025-01-01"})
    other = replace(plan, task_id="other", agent_data={"fee_usd": 9.0, "holidays": []}, actions=(begun,))
    database = json.loads(database_of(domain.start(other).kit()))
    assert (database["fee_usd"], database["holidays"]) == (9.0, ["2025-01-01"])
    assert json.loads(database_of(domain.start(plan).kit()))["fee_usd"] == 0.5


@DOMAINS
def test_the_conformance_test_passes(domain: str) -> None:
    settings = {"user": "scripted", "split": "base", "trust_code": True, "abandoned": 200, **SETTINGS[domain]}
    report = check_environment("ToolOrchestra/Tau2-v0", **settings)
    assert report.episodes > 10


def test_domains_of_a_folder_mix() -> None:
    env = made(reference=str(DEPOT.parent), domain="all")
    assert {env.reset(seed=seed)[1]["task"]["domain"] for seed in range(4)} == {"depot"}  # the only one with tasks
    env = made(**{**CLINIC, "domain": "clinic"})
    assert env.reset(seed=0)[1]["task"]["domain"] == "clinic"


def test_a_model_plays_the_customer_and_is_billed() -> None:
    def customer(request: ChatRequest) -> str:
        last = str(request.messages[-1]["content"])
        return "That is all. ###STOP###" if "anything else" in last else "Hello, cancel my visit V-1."

    env = made(**{**CLINIC, "user": "llm", "user_model": (ScriptedModel(customer), "gpt-5-mini")})
    last = play(env, f"clinic/{public_id('c2')}", gold(plans(env)[f"clinic/{public_id('c2')}"], solo=False))
    assert last.reward == 1.0
    assert last.info["ledger"]["usd_by_role"]["user"] > 0
    assert last.info["outcome"]["evidence"]["user"]["model"] == "gpt-5-mini"


def test_a_date_of_something_else_is_not_the_clock(tmp_path: Path) -> None:
    folder = copied(DEPOT, tmp_path / "depot")
    text = "The founding date is 1999-01-01. Today is 2030-02-03, and the current time is 2031-01-01 10:00:00."
    (folder / "policy.md").write_text(text, encoding="utf-8")
    env = made(reference=str(folder))
    env.reset(seed=0)
    assert domain_of(env).toolkit.clock == "2030-02-03"
