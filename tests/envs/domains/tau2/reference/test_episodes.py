"""A call is all or nothing, and no episode feels another: whatever a toolkit does to its database."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.envs.domains.tau2.reference.playing import (
    DEPOT,
    LONG,
    SETTINGS,
    call,
    copied,
    database_of,
    domain_of,
    edited,
    made,
    state_of,
)
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.vector import OrchestraVectorEnv

pytestmark = needs_package
Call = tuple[str, dict[str, Any]]
HOSTILE = (
    "", " ", "\x00", "'; DROP TABLE members; --", "{{7*7}}", "${7*7}", "%s%s%n", "../../etc/passwd", "__class__",
    "M-1\n", "m-1", "M-1 ", "\u202eM-1", "M\u20111", "NaN", "null", "None", "True", "[]", "{}", "-1", "1e309",
    "0" * 5000, "9" * 400, "\ud800", "🦆" * 2000, "<tool>", "</tool_response>", "__import__('os').system('true')",
    "a" * 100_000, "\u0000M-1", "R-1", "I-1;I-2", "*", ".*", "(" * 3000, "\\", '"', "'", "`id`",
    "javascript:alert(1)", "\r\n\r\n",
)  # fmt: skip


def test_a_call_that_raises_leaves_nothing_behind() -> None:
    env = made(reference=str(DEPOT))
    env.reset(seed=0)
    for served in range(2):
        before = database_of(env)
        refused = call(env, "rent_item", member_id="M-2", item_id="I-2", days=3)  # sets the status, then finds no money
        assert refused == "Error: The balance does not cover that"
        assert call(env, "annotate", member_id="M-1", note=LONG, tags=["x"]).startswith("Error: A note has")
        assert call(env, "rent_item", member_id="M-1", item_id="I-3") == "Error: The item is out"
        assert call(env, "stop_everything") == "Error: the depot closes"
        kit = state_of(env).kit()
        assert (database_of(env), kit.served, kit.log) == (before, served, ["short"] * served)
        call(env, "annotate", member_id="M-1", note="short", tags=[])
        call(env, "rent_item", member_id="M-1", item_id="I-2" if served else "I-1")


def test_what_was_made_before_a_refusal_is_the_same_after_it() -> None:
    """Ids, lots and times too, though the calls are made again."""
    refused: Call = ("rent_item", {"member_id": "M-1", "item_id": "I-3"})
    close: Call = ("close_on", {"day": "2025-01-01"})
    rent: Call = ("rent_item", {"member_id": "M-1", "item_id": "I-1", "days": 0})
    calls = [rent, close, ("discard", {"item_id": "I-2"}), close]
    ends = []
    for path in (calls, [step for pair in calls for step in (pair, refused)]):
        env = made(reference=str(DEPOT))
        env.reset(seed=0)
        answers = [call(env, name, **arguments) for name, arguments in path]
        ends.append(([answer for answer in answers if not answer.startswith("Error: ")], database_of(env)))
    assert ends[0] == ends[1]
    assert len(ends[0][0]) == 4


def test_an_answer_that_cannot_be_shown_is_a_refusal(tmp_path: Path) -> None:
    folder = edited(copied(DEPOT, tmp_path / "depot"), "return gone.name", "return {gone.name}")
    env = made(reference=str(folder))
    env.reset(seed=0)
    before = database_of(env)
    assert call(env, "discard", item_id="I-1") == "Error: Unsupported type: <class 'set'>"
    assert database_of(env) == before


def test_a_toolkit_keeps_its_kind_of_database(tmp_path: Path) -> None:
    folder = edited(copied(DEPOT, tmp_path / "depot"), "return self.db.holidays", "self.db = None\n        return []")
    env = made(reference=str(folder))
    env.reset(seed=0)
    before = database_of(env)
    assert call(env, "close_on", day="2025-01-01") == "Error: the toolkit's db must stay a DepotDB, got NoneType"
    assert database_of(env) == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("seen.append(day) if day not in seen else self._refuse('seen')", "seen;"),
        ("seen.append(day); self.db.holidays.append(str(len(seen)))", r"it gave \[.*\] and gives \[.*\];"),
    ],
)
def test_a_toolkit_that_cannot_be_made_again_fails_the_episode(line: str, told: str, tmp_path: Path) -> None:
    folder = edited(copied(DEPOT, tmp_path / "depot"), "IMPORTED_AT =", "seen = []\nIMPORTED_AT =")
    edited(folder, "self.db.holidays = sorted", f"{line}\n        self.db.holidays = sorted")
    env = made(reference=str(folder))
    env.reset(seed=0)
    assert "Error" not in call(env, "close_on", day="2025-01-01")
    assert call(env, "rent_item", member_id="M-1", item_id="I-3") == "Error: The item is out"
    *_, info = env.step(render_call("get_member", {"member_id": "M-1"}))
    assert re.search(f"close_on cannot be made again as it was: {told} a toolkit may keep", info["failed"]["error"])


def test_episodes_do_not_feel_each_other() -> None:
    one, two = made(reference=str(DEPOT)), made(reference=str(DEPOT))
    for env in (one, two):
        env.reset(seed=0)
    before = database_of(two)
    call(one, "rent_item", member_id="M-1", item_id="I-1")  # found by iterating, then changed
    call(one, "annotate", member_id="M-1", note="hello", tags=["vip"])
    call(one, "close_on", day="2025-05-05")
    call(one, "discard", item_id="I-3")
    assert database_of(two) == before
    assert "hello" in database_of(one)
    assert "I-3" not in json.loads(database_of(one))["items"]
    two.reset(seed=0)
    assert database_of(two) == before
    one.reset(seed=0)
    assert database_of(one) == before


def test_records_within_records_and_lists_are_kept_apart() -> None:
    one, two = made(**SETTINGS["clinic"]), made(**SETTINGS["clinic"])
    for env in (one, two):
        env.reset(seed=0)
    before = database_of(two)
    call(one, "cancel_visit", visit_id="V-1", reason=None)
    call(one, "book_visit", patient_id="P-7", day="2025-06-02", reason="again")
    assert database_of(one) != before == database_of(two)
    assert call(two, "cancel_visit", visit_id="V-1", reason=None) == "The patient owes 15"


@pytest.mark.parametrize("domain", SETTINGS)
def test_hostile_arguments_are_contained(domain: str) -> None:
    """Through every text parameter of every tool. What a write may write is written; nothing else changes."""
    env = made(**SETTINGS[domain])
    env.reset(seed=0)
    pristine = database_of(env)
    for tool in domain_of(env).tools:
        texts = [name for name, part in tool.parameters["properties"].items() if part.get("type") == "string"]
        for name in texts:
            env.reset(seed=0)
            for hostile in HOSTILE:
                others = {other: "M-1" for other in tool.parameters["required"] if other != name}
                before = database_of(env)
                answer = state_of(env).call("assistant", tool.name, {**others, name: hostile})
                assert not answer.error or database_of(env) == before
    env.reset(seed=0)
    assert database_of(env) == pristine


def test_the_calculator_cannot_hang() -> None:
    env = made(reference=str(DEPOT))
    env.reset(seed=0)
    assert call(env, "calculate", expression="9**9**9").startswith("Error: ")
    assert call(env, "calculate", expression="(1+2)*3") == "9.0"


def test_512_environments_at_once() -> None:
    source = "toolorchestra.envs.domains.tau2.source:Tau2Source"
    env = OrchestraVectorEnv(
        512, source, reference=str(DEPOT), trust_code=True, user="scripted", split="base", preference="none"
    )
    try:
        env.reset(seed=0)
        rent = render_call("rent_item", {"member_id": "M-1", "item_id": "I-1"})
        look = render_call("get_member", {"member_id": "M-1"})
        env.step([rent if i % 2 else look for i in range(512)])
        observations = env.step([look] * 512)[0]
        balances = [json.loads(o["messages"][-1]["content"])["balance_usd"] for o in observations]
        assert balances == [45.0 if i % 2 else 50.0 for i in range(512)]
    finally:
        env.close()
