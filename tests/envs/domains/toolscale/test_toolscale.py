"""ToolScale through the environment: users, experts, splits, variants, and what the outcome says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.domains import library, with_tool
from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.domains.toolscale import grading, loader
from toolorchestra.envs.domains.toolscale import user as scripted
from toolorchestra.envs.domains.toolscale.followed_requests import EpisodeSoFar
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.grading import mentions, touched
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlTask
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.envs.domains.toolscale.user import Mood, SqlModelUser, SqlScriptedUser
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.models import ChatRequest, ScriptedModel
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools.tool_config import Half
from toolorchestra.synth.proof.domain_player import DomainPlayer

LIBRARY = str(library())


def env(spend_cap: SpendCap | None = None, **arguments: Any) -> OrchestraEnv:
    source = ToolScaleSource(**{"domain": LIBRARY, **arguments})
    return OrchestraEnv(source, preference="none", spend_cap=spend_cap)


def task_with(holds: Callable[[SqlTask], bool]) -> SqlTask:
    return next(task for task in ready(LIBRARY).domain.tasks.values() if holds(task))


def played(made: OrchestraEnv, task: SqlTask, leave_out: str = "", seed: int = 3) -> tuple[float, dict[str, Any]]:
    """The oracle's conversation without the calls of one tool; it insists that all is done to a user that asks back."""
    made.reset(seed=seed, options={"task_id": f"toolscale/library/{task.task_id}"})
    for move in (*moves(ready(LIBRARY).domain, task), "It has been done."):
        if leave_out and any(call.name == leave_out for call in parse(move).calls):
            continue
        _, reward, terminated, _, info = made.step(move)
        if terminated:
            return reward, info
    raise AssertionError("the conversation did not end")


def test_the_outcome_names_each_part() -> None:
    task = task_with(lambda t: [r.intent for r in t.requests] == ["renew"])
    reward, info = played(env(), task)
    assert (reward, info["outcome"]["evidence"]["missing"]) == (1.0, ())
    reward, info = played(env(), task, leave_out="renew_loan")
    evidence = info["outcome"]["evidence"]
    assert reward == 0.0
    assert (evidence["execution"], evidence["fidelity"]) == (False, True)
    assert evidence["completeness"]  # the loan was listed, so it was touched
    reward, info = played(env(), task, leave_out="list_loans")
    assert reward == 1.0  # an agent that knows the loan's id need not list


def test_what_was_not_touched_is_missing() -> None:
    task = task_with(lambda t: t.idle and t.identify == 1)
    reward, info = played(env(), task, leave_out="find_member")
    assert reward == 1.0  # the member is in the arguments of list_loans
    made = env()
    made.reset(seed=1, options={"task_id": f"toolscale/library/{task.task_id}"})
    for _ in range(9):
        _, reward, terminated, _, info = made.step("I am sorry, but I cannot do that.")
        if terminated:
            break
    assert terminated
    assert (reward, info["outcome"]["evidence"]["completeness"]) == (0.0, False)


def test_every_right_path_is_right_whatever_it_touches() -> None:
    domain = ready("ecommerce").domain
    bench = DomainPlayer(domain)
    several = [task for task in domain.tasks.values() if task.alternatives]
    assert several
    verdicts = [bench.judged(task, path) for task in several for path in task.alternatives]
    assert [verdict for verdict in verdicts if not verdict.value] == []


def test_a_figure_counts_as_it_came_before_the_changes_that_follow_it() -> None:
    read, pay = GoldCall("get_balance", {}), GoldCall("pay", {"amount": 3})
    shown = [Called(read.name, read.arguments, {"balance": balance}, "") for balance in (10, 7)]
    paid = Called(pay.name, pay.arguments, {}, "")
    for before, after, found in (((), (pay,), ["10"]), ((pay,), (), ["7"])):
        place = grading._ShownField(read, ("balance",), before, after)
        assert [*grading._as_it_came([place], [shown[0], paid, shown[1]])] == found


def test_ids_are_touched_at_any_depth_of_arguments_and_results() -> None:
    arguments = {"loan_id": "LO-1", "copies": [{"copy_id": "CO-1", "note": "XX-1"}]}
    results = [{"member_id": "ME-1", "due": None, "fines": [{"fine_id": "FI-1", "paid": {"payment_id": "PA-1"}}]}]
    seen = touched([Called("renew_loan", arguments, results, "")])
    assert seen == {"LO-1", "CO-1", "ME-1", "FI-1", "PA-1"}


@pytest.mark.parametrize(
    ("text", "info", "said"),
    [
        ("Shelf  q-12, please", "Q-12", True),
        ("Item LO-014", "14", False),
        ("It holds shellfish.", "fish", False),
        ("Our branch in Hill Street 91", "Hill Street 9", False),
        ("Our branch: **Hill Street 9**.", "Hill Street 9", True),
        ("due 2026-04-20T10:00", "2026-04-20", True),
        ("It leaves from King\u2019s Cross.", "King's Cross", True),
    ],
)
def test_numbers_are_told_as_numbers_and_texts_in_whole_words(text: str, info: str, said: bool) -> None:
    assert mentions(text, info) is said


def test_the_user_says_what_it_does_not_know_and_objects_once() -> None:
    task = task_with(lambda t: any(r.pushback for r in t.requests[:1]))
    user, progress = SqlScriptedUser(task, 5), EpisodeSoFar((), (), ready(LIBRARY).domain.writes)
    unknown = user.reply(Mood(), "What is your member number?", 1, progress).text
    assert "ME-" not in unknown
    assert "member number" in unknown
    first = user.reply(Mood(), "I am sorry, I cannot do this.", 2, progress)
    assert first.text == task.requests[0].pushback
    assert user.reply(first.mood, "I am sorry, I cannot do this.", 3, progress).text != first.text


def test_an_expert_writes_the_turn() -> None:
    task = task_with(lambda t: [r.intent for r in t.requests] == ["renew"])
    script = iter(moves(ready(LIBRARY).domain, task))
    model = ScriptedModel(lambda request: next(script))
    made = env(backends=model)
    made.reset(seed=2, options={"task_id": f"toolscale/library/{task.task_id}"})
    for _ in range(10):
        _, reward, terminated, _, info = made.step(render_call("call_expert", {"expert": "expert-2"}))
        if terminated:
            break
    assert terminated
    assert reward == 1.0
    assert info["calls"] == {"expert-2": info["turn"]}
    assert info["ledger"]["usd_by_role"]["expert"] > 0


def test_the_spend_cap_goes_with_each_request_of_user_and_expert() -> None:
    cap, asked = SpendCap(1.0), []

    def reply(request: ChatRequest) -> str:
        asked.append((request.role, request.bill.cap))
        return "Who are you?" if request.role == "expert" else '{"message": "I", "agrees_to": [], "takes_back": []}'

    model = ScriptedModel(reply)
    made = env(cap, user=SqlModelUser(model, "gpt-5-mini"), backends=model)
    made.reset(seed=2)
    made.step(render_call("call_expert", {"expert": "expert-1"}))
    assert asked == [("expert", cap), ("user", cap)]


def test_an_expert_is_billed_though_the_user_it_talks_to_is_away() -> None:
    def away(request: ChatRequest) -> str:
        request.bill.add(Usage(request.model, "user", Tokens(7, 0, 0, 0)))
        raise Outage("503 from the user's endpoint")

    made = env(user=SqlModelUser(ScriptedModel(away), "gpt-5-mini"), backends=ScriptedModel(lambda _: "Hello?"))
    made.reset(seed=2)
    _, _, _, _, info = made.step(render_call("call_expert", {"expert": "expert-1"}))
    assert "503" in info["failed"]["error"]
    assert [charge["role"] for charge in info["charges"]] == ["orchestrator", "expert", "user"]


def test_an_expert_cannot_call_experts() -> None:
    made = env(backends=ScriptedModel(lambda request: render_call("call_expert", {"expert": "expert-1"})))
    made.reset(seed=2)
    _, _, _, _, info = made.step(render_call("call_expert", {"expert": "expert-1"}))
    assert "cannot call another" in info["new_messages"][-1]["content"]


def test_splits_are_disjoint_and_difficulties_are_kept() -> None:
    source = ToolScaleSource("finance")
    ids = [source.ids("finance", split) for split in ("train", "validation", "test", "heldout")]
    assert [len(part) for part in ids] == [315, 45, 45, 45]
    assert len(set().union(*ids)) == 450


def test_a_parameter_may_have_any_name(tmp_path: Path) -> None:
    parameters = {name: {"type": "integer"} for name in ("context", "runner", "self")}
    returns = {"row": "SELECT :context + :runner + :self AS total"}
    domain = with_tool(tmp_path, name="add", kind="read", parameters=parameters, returns=returns)
    made = env(domain=str(domain.folder))
    made.reset(seed=1)
    observation = made.step(render_call("add", {"context": 1, "runner": 2, "self": 3}))[0]
    assert observation["messages"][-1]["content"] == '{"total": 6}'


def test_domains_mix() -> None:
    made = gym.make("ToolOrchestra/ToolScale-v0")
    drawn = {made.reset(seed=seed)[1]["task"]["domain"] for seed in range(30)}
    assert drawn == {name for name in loader.names() if not loader.load(name).held_out}


def test_halves_share_no_set_of_tools_no_price_schedule_and_no_wording() -> None:
    seen: dict[str, list[set[Any]]] = {}
    for half in ("train", "heldout"):
        made = OrchestraEnv(ToolScaleSource("railway", diversify=half), preference="none")
        tools, sheets, words = seen.setdefault(half, [set(), set(), set()])
        for seed in range(60):
            observation, info = made.reset(seed=seed)
            task = ready("railway").domain.tasks[info["task_id"].rpartition("/")[2]]
            tools.add(frozenset(tool["function"]["name"] for tool in observation["tools"]))
            sheets.add(info["price_sheet"])
            said = observation["messages"][-1]["content"]
            say = (task.requests[0].first or task.requests[0]).say
            assert any(text in said for text in (say[:-1] if half == "train" else say[-1:]))
            words.add(
                next(greeting for greeting in sorted(scripted.GREETINGS, reverse=True) if said.startswith(greeting))
            )
    for train, heldout in zip(seen["train"], seen["heldout"], strict=True):
        assert train
        assert heldout
        assert not train & heldout
    assert len(seen["heldout"][0]) > 40


def test_all_that_a_held_out_user_says_is_kept_from_training() -> None:
    task = task_with(lambda t: len(t.requests) > 1 and any(fact.value for fact in t.facts))
    fact = next(fact for fact in task.facts if fact.value)
    turns = (f"Could you tell me your {fact.asked[0]}?", "Do you confirm (yes/no)?", "Banana?", "It has been done.")
    said: dict[Half | None, set[str]] = {}
    progress = EpisodeSoFar((), (), ready(LIBRARY).domain.writes)
    for half in (None, "train", "heldout"):
        users = [SqlScriptedUser(task, seed, half) for seed in range(300)]
        said[half] = {user.reply(Mood(), text, 1, progress).text for user in users for text in turns}
    assert not said["train"] & said["heldout"]
    assert said["train"] < said[None]
    assert said["heldout"]


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ({"domain": "finances"}, "Did you mean 'finance'"),
        ({"diversify": "test"}, "no diversify 'test'"),
    ],
)
def test_wrong_arguments_are_explained(arguments: dict[str, Any], seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolScaleSource(**arguments)
    assert seen in str(caught.value)


@pytest.mark.parametrize("task_id", ["toolscale/library/9999", "hle-sim/train/1"])
def test_unknown_tasks_are_explained(task_id: str) -> None:
    with pytest.raises(ConfigError, match="no task"):
        env().reset(seed=1, options={"task_id": task_id})


def test_simulated_experts_solve_more_the_stronger_they_are() -> None:
    solved = {"expert-1": 0.0, "expert-3": 0.0}
    for alias in solved:
        made = env()
        for number in ready(LIBRARY).domain.tasks:
            made.reset(seed=int(number), options={"task_id": f"toolscale/library/{number}"})
            over, reward = False, 0.0
            while not over:
                _, reward, terminated, truncated, _ = made.step(render_call("call_expert", {"expert": alias}))
                over = terminated or truncated
            solved[alias] += reward
    assert solved["expert-1"] > solved["expert-3"]
