"""A call is all or nothing, and no episode feels another: whatever a toolkit does to its database."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envs.domains.tau2.reference.playing import (
    CLINIC,
    DEPOT,
    call,
    database_of,
    domain_of,
    made,
    shared_of,
    world_of,
)
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.tau2.reference.change_tracking import SavedState, duplicate
from toolorchestra.envs.domains.tau2.reference.tables import Lent, TrackedTable
from toolorchestra.envs.vector import OrchestraVectorEnv

pytestmark = needs_package
LONG = "a note that is a good deal longer than forty characters"
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
    for _ in range(2):
        before, served = database_of(env), world_of(env).state.kits[0].served
        refused = call(env, "rent_item", member_id="M-2", item_id="I-2", days=3)  # sets the status, then finds no money
        assert refused == "Error: The balance does not cover that"
        assert call(env, "annotate", member_id="M-1", note=LONG, tags=["x"]).startswith("Error: A note has")
        assert call(env, "rent_item", member_id="M-1", item_id="I-3") == "Error: The item is out"
        assert call(env, "stop_everything") == "Error: the depot closes"
        kit = world_of(env).state.kits[0]
        assert (database_of(env), kit.served, kit.log) == (before, served, ["short"] * served)
        call(env, "annotate", member_id="M-1", note="short", tags=[])  # then once more, on records of its own
        call(env, "rent_item", member_id="M-1", item_id="I-2" if served else "I-1")


def test_episodes_do_not_feel_each_other() -> None:
    one, two = made(reference=str(DEPOT)), made(reference=str(DEPOT))
    for env in (one, two):
        env.reset(seed=0)
    shared, before = shared_of(one), database_of(two)
    call(one, "rent_item", member_id="M-1", item_id="I-1")  # found by iterating, then changed
    call(one, "annotate", member_id="M-1", note="hello", tags=["vip"])
    call(one, "close_on", day="2025-05-05")
    call(one, "discard", item_id="I-3")
    assert (shared_of(one), database_of(two)) == (shared, before)
    assert "hello" in database_of(one)
    assert "I-3" not in json.loads(database_of(one))["items"]
    assert json.loads(database_of(two))["members"]["M-1"]["notes"] == ["pays in time"]
    one.reset(seed=0)
    assert database_of(one) == before


def test_records_within_records_and_lists_are_kept_apart() -> None:
    one, two = made(**CLINIC), made(**CLINIC)
    for env in (one, two):
        env.reset(seed=0)
    shared = shared_of(one)
    call(one, "cancel_visit", visit_id="V-1", reason=None)
    call(one, "book_visit", patient_id="P-7", day="2025-06-02", reason="again")
    assert shared_of(one) == shared == database_of(two)
    assert call(two, "cancel_visit", visit_id="V-1", reason=None) == "The patient owes 15"


@pytest.mark.parametrize("settings_", [{"reference": str(DEPOT)}, CLINIC], ids=["depot", "clinic"])
def test_hostile_arguments_are_contained(settings_: dict[str, Any]) -> None:
    """Through every text parameter of every tool. What a write may write is written; nothing else changes."""
    env = made(max_turns=5000, max_steps=None, max_errors=None, **settings_)
    env.reset(seed=0)
    state, shared = world_of(env).state, shared_of(env)
    for tool in domain_of(env).tools:
        texts = [name for name, part in tool.parameters["properties"].items() if part.get("type") == "string"]
        for name in texts:
            for hostile in HOSTILE:
                others = {other: "M-1" for other in tool.parameters["required"] if other != name}
                before = database_of(env)
                answer = state.call("assistant", tool.name, {**others, name: hostile})
                assert not answer.error or database_of(env) == before
    assert shared_of(env) == shared


def test_the_calculator_cannot_hang() -> None:
    env = made(reference=str(DEPOT))
    env.reset(seed=0)
    assert call(env, "calculate", expression="9**9**9").startswith("Error: ")
    assert call(env, "calculate", expression="(1+2)*3") == "9.0"


def test_512_environments_at_once() -> None:
    env = OrchestraVectorEnv(
        512,
        "toolorchestra.envs.domains.tau2.source:Tau2Source",
        reference=str(DEPOT), trust_code=True, user="scripted", split="base", preference="none",
    )  # fmt: skip
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


# -- the tables by themselves ------------------------------------------------------------------------------------------

KEYS = st.sampled_from("abcd")
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            "get change scan scan_all set alias delete pop clear setdefault update merge copy deep refuse".split()
        ),
        KEYS,
        st.integers(0, 3),
    ),
    max_size=12,
)


def _do(table: Any, deed: str, key: str, number: int) -> Any:
    """One deed on a table or on a plain dict."""
    simple = {
        "get": lambda: table.get(key, number),
        "change": lambda: table[key]["list"].append(number),
        "scan": lambda: next(iter(table.values()))["inner"].update(n=number),
        "scan_all": lambda: [record["list"].append(number) for _, record in table.items()],
        "set": lambda: table.__setitem__(key, {"list": [number], "inner": {}}),
        "alias": lambda: table.__setitem__(key, table["a"]),
        "delete": lambda: table.__delitem__(key),
        "pop": lambda: table.pop(key),
        "clear": lambda: table.clear() if number == 0 else None,
        "setdefault": lambda: table.setdefault(key, {"list": [], "inner": {}})["list"].append(number),
        "update": lambda: table.update({key: {"list": [number], "inner": {"u": 1}}}),
        "merge": lambda: {**table}[key]["list"].insert(0, number),
        "copy": lambda: table.copy()[key]["list"].clear(),
        "deep": lambda: copy.deepcopy(table)[key]["list"].append(99),
        "refuse": lambda: 1 // 0,
    }
    return simple[deed]()


@settings(deadline=None, max_examples=300)
@given(st.lists(DEEDS, max_size=5))
def test_a_table_does_what_a_dict_that_is_copied_for_each_call_does(calls: list[list[tuple[str, str, int]]]) -> None:
    pristine = {key: {"list": [index], "inner": {"n": 0}} for index, key in enumerate("abc")}
    lent = Lent(copy.deepcopy(pristine))
    table, other, plain = TrackedTable(lent), TrackedTable(lent), copy.deepcopy(pristine)
    for deeds in calls:
        saved, failed = copy.deepcopy(plain), [False, False]
        for place, held in enumerate((table, plain)):
            try:
                for deed in deeds:
                    _do(held, *deed)
            except (KeyError, ZeroDivisionError, StopIteration):
                failed[place] = True
        assert failed[0] == failed[1]
        if failed[0]:
            table.undo()
            plain = saved
        else:
            table.commit(table.settle())
            plain = {key: duplicate(record) for key, record in plain.items()}  # calls do not share records
        assert dict(dict.items(table)) == plain
        assert [*dict.keys(table)] == [*plain]
    assert dict(dict.items(other)) == pristine == lent.records
    assert not any(seal.broken() for seal in lent.seals.values())
    untouched = {key for key in {*plain, *pristine} if plain.get(key) == pristine.get(key)}
    assert {key for key in {*plain, *pristine} if key not in table.own} <= untouched


def test_a_seal_sees_what_equality_does_not() -> None:
    value: dict[str, Any] = {"n": 1, "flags": {"a": True}, "set": {1}, "list": [1.0]}
    for change in (
        lambda: value.update(n=1.0),
        lambda: value["flags"].update(b=value["flags"].pop("a")),
        lambda: value["set"].add(2),
        lambda: value["list"].__setitem__(0, True),
    ):
        seal, before = SavedState(value), repr(value)
        assert not seal.broken()
        change()
        assert seal.broken()
        seal.restore()
        assert repr(value) == before


def test_random_calls_do_what_a_toolkit_of_its_own_does() -> None:
    """Against the same toolkit over a database of its own, copied for every call."""
    env = made(reference=str(DEPOT))
    env.reset(seed=0)
    rng = random.Random(7)
    toolkit = domain_of(env).toolkit
    values = {"member_id": ["M-1", "M-2", "M-9"], "item_id": ["I-1", "I-2", "I-3", "I-9"], "note": ["hi", LONG]}
    values |= {"tags": [[], ["x"]], "day": ["2025-01-01"], "email": ["ada@example.org", "-"], "days": [1, 9]}
    refused = 0
    for _ in range(20):
        env.reset(seed=0)
        state, own = world_of(env).state, toolkit.kind(duplicate(toolkit.master.model))
        for _ in range(12):
            tool = rng.choice([t for t in toolkit.tools if t.name not in ("stamps", "stop_everything")])
            names = [n for n in tool.parameters["properties"] if n in values]
            if len(names) < len(tool.parameters["required"]):
                continue
            arguments = {name: rng.choice(values[name]) for name in names}
            answer = state.call("assistant", tool.name, arguments)
            kept = copy.deepcopy(vars(own))
            try:
                getattr(own, tool.name)(**copy.deepcopy(arguments))
            except (ValueError, KeyError, IndexError, RuntimeError):
                vars(own).update(kept)
                assert answer.error
                refused += 1
            else:
                assert not answer.error
            mine, theirs = json.loads(database_of(env)), own.db.model_dump()
            for part in ("items", "members", "holidays", "hours"):
                assert json.dumps(mine[part]) == json.dumps(
                    json.loads(json.dumps(theirs[part], sort_keys=True, default=_text))
                )
            assert len(mine["rentals"]) == len(theirs["rentals"])
    assert refused > 20


def _text(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)
