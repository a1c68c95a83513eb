"""Tau2-v0's users, experts and judges: models behind one seam, billed under their roles; outages are failures."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tau2_players import FAREWELL, replay_all
from tests.tau2_playing import (
    RECORDINGS,
    SOURCE,
    env_of,
    judged,
    needs_package,
    needs_recordings,
    released,
    told,
    world_of,
)  # fmt: skip
from toolorchestra.envs.base.actions import parse, render, render_call
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.task import Done
from toolorchestra.envs.domains.tau2.world import MOST_EMPTY_REPLIES, read_recordings, write_recordings
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.models import ChatRequest, Completion, ScriptedModel
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.vector import OrchestraVectorEnv

pytestmark = needs_package
AIRPLANE = "[service_issue]airplane_mode_on[PERSONA:None]"
ITEM = "gpt-5-mini"


class Waiting:
    """A scripted model that really waits, and notes what it was asked."""

    suspends = True

    def __init__(self, reply: Callable[[ChatRequest], str]) -> None:
        self._model = ScriptedModel(reply, seconds=2.0)
        self.asked: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.asked.append(request)
        await asyncio.sleep(0.001)
        return await self._model.complete(request)


def customer(request: ChatRequest) -> str:
    """Opens, does what it is told on its phone, and leaves when asked for more."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return f"It says: {last['content']}"
    if "airplane" in last["content"].lower():
        return f"I will do that now. {render_call('toggle_airplane_mode', {})}"
    return "That is all. ###STOP###" if "anything else" in last["content"] else "My phone has no service."


def test_a_model_plays_the_customer_with_the_benchmarks_guidelines() -> None:
    model = Waiting(customer)
    env = env_of("telecom", (model, ITEM), AIRPLANE)
    assert env.episode is not None
    opening = ["Hi! How can I help you today?", "My phone has no service."]
    assert [m["content"] for m in env.episode.messages[1:]] == opening
    env.step(render_call("get_customer_by_phone", {"phone_number": "555-123-2002"}))
    _, _, _, _, info = env.step("Please turn airplane mode off.")
    assert [m["role"] for m in info["new_messages"]] == ["assistant", "user"]
    assert told(info)[0].startswith("It says: Airplane Mode is now OFF")
    assert "toggle_airplane_mode" not in json.dumps(env.episode.observation["messages"][1:])
    charges = [(c["role"], c["item"]) for c in info["charges"]]
    assert charges.count(("user", ITEM)) == 2  # the call, and the words after it
    first, second, third = model.asked
    system = first.messages[0]["content"]
    assert system.startswith("# User Simulation Guidelines")
    assert "<scenario>\nInstructions:\n" in system
    assert "Domain: telecom" in system
    assert (first.purpose, first.role, first.model) == ("user", "user", ITEM)
    assert "toggle_airplane_mode" in [tool["function"]["name"] for tool in first.tools]
    assert [m["role"] for m in second.messages] == ["system", "user", "assistant", "user"]
    assert "customer_id" not in json.dumps(second.messages[1:])  # the agent's tools are the agent's
    assert [m["role"] for m in third.messages][-2:] == ["assistant", "tool"]
    _, reward, terminated, _, info = env.step(FAREWELL)
    assert (reward, terminated) == (1.0, True)
    described = info["outcome"]["evidence"]["user"]
    assert (described["kind"], described["model"], described["guidelines"][:7]) == ("llm", ITEM, "sha256:")


def test_the_spend_cap_goes_with_each_request_of_user_expert_and_judge(tmp_path: Path) -> None:
    cap, asked = SpendCap(1.0), {}

    def noted(request: ChatRequest) -> str:
        asked.setdefault(request.role, []).append(request.bill.cap)
        said = {"user": "Thanks! ###STOP###", "expert": FAREWELL, "judge": '{"met": [true, true]}'}
        return said[request.role] if len(asked["user"]) > 1 or request.role != "user" else "Hello."

    model = ScriptedModel(noted)
    env = env_of(
        "airline", (model, ITEM), "900", tasks_path=released(tmp_path, [TWICE_JUDGED]),
        judge=(model, "gpt-5"), experts={"expert-1": (model, "gpt-5")}, spend_cap=cap,
    )  # fmt: skip
    assert env.step(CALL)[1] == 1.0
    assert asked == {"user": [cap, cap], "expert": [cap], "judge": [cap]}


def outage_at(number: int) -> Callable[[ChatRequest], str]:
    """A customer whose model breaks down at its n-th completion."""
    left = [number]

    def reply(request: ChatRequest) -> str:
        left[0] -= 1
        if left[0] < 0:
            raise ConnectionError("503 from the user's endpoint")
        return customer(request)

    return reply


@pytest.mark.parametrize("number", [0, 2])
def test_an_outage_of_the_users_model_is_a_failure_and_never_reward_0(number: int) -> None:
    env = env_of("telecom", (Waiting(outage_at(number)), ITEM), AIRPLANE)
    _, reward, terminated, truncated, info = env.step("Please turn airplane mode off.")
    assert math.isnan(reward)
    assert (terminated, truncated, info["truncated_by"], info["outcome"]) == (False, True, "failed", {})
    assert "503 from the user's endpoint" in info["failed"]["error"]
    assert [c["role"] for c in info["charges"]].count("user") == number  # what was spent before it broke down


@pytest.mark.parametrize("error", [Outage, ToolError])
def test_what_a_model_that_breaks_down_was_paid_is_billed(error: type[Outage | ToolError]) -> None:
    def breaks(request: ChatRequest) -> str:
        if request.role == "user" and len(request.messages) > 2:
            request.bill.add(Usage(request.model, request.role, Tokens(7, 0, 0, 0)))
            raise error("away")
        return "Hello?"

    model = ScriptedModel(breaks)
    env = env_of("airline", (model, ITEM), "0", experts={"expert-1": (model, "gpt-5")})
    _, _, _, _, info = env.step(CALL)
    assert "away" in info["failed"]["error"]
    assert [charge["role"] for charge in info["charges"]][-2:] == ["expert", "user"]


@pytest.mark.parametrize("said", ["I pressed <tool_call> but", "<think>hm", "<tool_call>{</tool_call>"])
def test_what_the_benchmark_takes_as_words_is_words(said: str) -> None:
    env = env_of("telecom", (ScriptedModel(lambda _: said), ITEM), AIRPLANE)
    assert env.episode is not None
    assert env.episode.messages[-1] == {"role": "user", "content": said}
    _, reward, terminated, truncated, info = env.step("hello")
    assert (reward, terminated, truncated, told(info)) == (0.0, False, False, [said])


@pytest.mark.parametrize("said", ["", "<think>hm</think>"])
def test_a_customer_that_says_nothing_is_asked_again_and_then_it_is_the_users_error(said: str) -> None:
    asked: list[int] = []

    def silent(request: ChatRequest) -> str:
        asked.append(request.attempt)
        return said if len(request.messages) > 2 else "Hello."

    env = env_of("airline", (ScriptedModel(silent), ITEM), "0")
    _, reward, _, truncated, info = env.step("hello")
    assert (reward, truncated, info["truncated_by"], info["failed"]) == (0.0, True, "user_error", {})
    assert len(asked) == len(set(asked)) == 1 + MOST_EMPTY_REPLIES
    assert [charge["role"] for charge in info["charges"]].count("user") == 1 + MOST_EMPTY_REPLIES


@pytest.mark.parametrize("move", ["", "<tool_call>{", render_call("calculate", {"expression": "1"})])
def test_a_customer_that_stops_with_its_first_message_ends_it_at_the_next_move(move: str) -> None:
    model = ScriptedModel(lambda _: "Never mind. ###STOP###")
    env = env_of("airline", (model, ITEM), "0")
    _, reward, terminated, _, info = env.step(move)
    assert (reward, terminated) == (1.0, True)
    evidence = info["outcome"]["evidence"]
    assert (evidence["termination"], evidence["errors"]) == ("user_stop", 0)


def test_a_customers_own_words_beside_its_calls_are_its_own_and_calls_of_one_message_stay_together() -> None:
    calls = [ToolCall("check_status_bar", {}), ToolCall("toggle_airplane_mode", {})]
    moves = iter(["Hello.", render(calls, "Let me see. "), "I did both. ###STOP###"])
    model = Waiting(lambda _: next(moves))
    env = env_of("telecom", (model, ITEM), AIRPLANE)
    assert env.step("Please turn airplane mode off.")[2]
    made, *outputs = model.asked[-1].messages[-3:]
    assert made["content"].startswith("Let me see.\n<tool_call>")
    assert parse(made["content"]).calls == tuple(calls)
    assert [m["role"] for m in outputs] == ["tool", "tool"]
    assert "Let me see" not in str(env.episode and env.episode.messages)
    assert world_of(env).recording("x", 1.0).user_turns()[1].beside == "Let me see."


def test_a_customer_that_never_stops_calling_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolorchestra.envs.domains.tau2.world.MAX_STEPS", 1000)
    calls = render_call("check_status_bar", {})
    model = ScriptedModel(lambda r: calls if len(r.messages) > 2 else "Hi.")
    env = env_of("telecom", (model, ITEM), AIRPLANE)
    _, reward, _, _, info = env.step("Please look at your phone.")
    assert math.isnan(reward)
    assert "without saying a word" in info["failed"]["error"]


def test_a_vector_talks_to_waiting_users_all_at_once() -> None:
    model = Waiting(customer)
    env = OrchestraVectorEnv(16, SOURCE, domain="telecom", user=(model, ITEM), split="base", preference="none")
    observations, _ = env.reset(seed=0)
    assert all(o["messages"][-1]["content"] == "My phone has no service." for o in observations)
    _, rewards, terminations, *_ = env.step([FAREWELL] * 16)
    assert terminations.all()
    assert not rewards.any()
    env.close()


def test_the_scripted_user_follows_its_rules() -> None:
    env = env_of("telecom", "scripted", AIRPLANE)
    assert env.episode is not None
    assert env.episode.messages[-1]["content"].startswith("My phone has been showing 'No Service'")

    def hears(text: str) -> str:
        return told(env.step(text)[4])[0]

    assert hears("What is your phone number?") == "I am John Smith with phone number 555-123-2002."
    assert hears("Shall I look into it?") == "Yes."
    assert hears("Please run check_status_bar() now.").startswith("Status Bar")
    assert hears("Please run set_network_mode_preference('4g_5g_preferred').").startswith("Preferred Network Mode")
    assert hears("ok(thanks)") == "Please go on."
    world = world_of(env)
    assert [entry.call.name for entry in world.log if isinstance(entry, Done)] == [
        "check_status_bar",
        "set_network_mode_preference",
    ]
    for _ in range(7):
        assert hears("Hm.") == "Please go on."
    _, _, terminated, _, info = env.step("Hm.")
    assert terminated
    assert info["outcome"]["evidence"]["user"] == {"kind": "scripted"}
    _, _, terminated, *_ = env_of("airline", "scripted", "0").step("YOU ARE BEING TRANSFERRED TO A HUMAN AGENT.")
    assert terminated


@pytest.mark.parametrize(
    "said",
    [
        "toggle_data(" + "-" * 100_000 + "1)",
        "toggle_data(a" + ".a" * 50_000 + ")",
        "toggle_data({[1]: 2})",
        "check_app_status(...)",
        "check_app_status(b'x')",
        "check_app_status({1, 2})",
        "check_app_status(1j)",
        "check_app_status(1e999)",
        "check_app_status([...])",
    ],
    ids=["deep", "long", "unhashable", *"abcdef"],
)
def test_what_only_looks_like_a_request_is_left_alone(said: str) -> None:
    env = env_of("telecom", "scripted", AIRPLANE)
    observation, _, terminated, truncated, _ = env.step(f"Please do this: {said}")
    assert (observation["messages"][-1]["content"], terminated, truncated) == ("Please go on.", False, False)


@needs_recordings
def test_a_recorded_user_has_no_words_beyond_its_recording() -> None:
    env = OrchestraEnv(SOURCE, domain="telecom", user="replay", split="recorded", recordings=str(RECORDINGS))
    source = env.factory.source
    task_id = next(i for i in source.ids("recorded") if not source.recording(i).solo)
    _, info = env.reset(options={"task_id": task_id})
    assert info["task"]["user"] == "replay"
    assert env.episode is not None
    first = next(m for m in source.recording(task_id).messages if m["role"] == "user")
    assert env.episode.messages[-1]["content"] == first["content"]
    while True:
        _, reward, terminated, truncated, info = env.step("And then?")
        if terminated or truncated:
            break
    assert terminated or math.isnan(reward)


def test_an_episode_with_a_model_can_be_recorded_and_replayed_without_it(tmp_path: Path) -> None:
    env = env_of("telecom", (ScriptedModel(customer), ITEM), AIRPLANE)
    texts = [
        render_call("get_customer_by_phone", {"phone_number": "555-123-2002"}),
        "Please turn airplane mode off.",
        f"psst {render_call('get_details_by_id', {'id': 'L1002'})}",
        FAREWELL,
    ]
    rewards = [env.step(text)[1] for text in texts]
    assert rewards == [0.0, 0.0, 0.0, 1.0]
    file = str(tmp_path / "runs.jsonl")
    write_recordings(file, [world_of(env).recording("mine", 1.0)])
    for corrected in (False, True):
        (run,) = replay_all(file, corrected=corrected)
        assert (run.agrees, run.outputs, run.outputs_equal) == (True, 3, 3)


def test_a_recorded_run_takes_as_many_steps_as_it_took(tmp_path: Path) -> None:
    """The calls of one message, the user's or the agent's, are one message again."""
    looks = [render_call("get_customer_by_phone", {"phone_number": f"555-123-200{n}"}) for n in (1, 2)]
    checks = "check_status_bar() check_network_status() check_sim_status() check_apn_settings()"
    texts = ["".join(looks), f"Please run {checks}.", FAREWELL]
    file = str(tmp_path / "runs.jsonl")
    live = env_of("telecom", "scripted", AIRPLANE)
    last = [live.step(text) for text in texts][-1]
    write_recordings(file, [world_of(live).recording("mine", 0.0)])
    again = OrchestraEnv(SOURCE, domain="telecom", user="replay", split="recorded", recordings=file, preference="none")
    again.reset(seed=0)
    replayed = [again.step(text) for text in texts][-1]
    for name, value in {"termination": "user_stop", "steps": 9}.items():
        assert [step[-1]["outcome"]["evidence"][name] for step in (last, replayed)] == [value, value]


def test_recorded_runs_that_cannot_be_told_apart_or_read_are_refused(tmp_path: Path) -> None:
    env = env_of("airline", "scripted", "0")
    env.step("One\u2028two\x85three.")  # separators that end no line
    run = world_of(env).recording("mine", 0.0)
    file = tmp_path / "runs.jsonl"
    write_recordings(str(file), [run])
    assert read_recordings(str(file))["mine"].messages == run.messages
    write_recordings(str(file), [run, run])
    with pytest.raises(ConfigError, match="two runs have one sim_id, 'mine'"):
        read_recordings(str(file))
    packed = gzip.compress(file.read_bytes())
    for number, data in enumerate((packed[:-9], packed[:10] + b"\xff" * 40, b"\xff")):
        damaged = tmp_path / f"damaged-{number}"
        damaged.write_bytes(data)
        with pytest.raises(ConfigError, match="recorded runs as JSON lines expected"):
            read_recordings(str(damaged))


def test_a_file_written_again_is_read_again_and_one_without_runs_of_the_domain_is_refused(tmp_path: Path) -> None:
    def replaying(domain: str) -> OrchestraEnv:
        return OrchestraEnv(SOURCE, domain=domain, user="replay", split="recorded", recordings=str(file))

    file = tmp_path / "runs.jsonl"
    env = env_of("airline", "scripted", "0")
    env.step("One.")
    for sim_id in ("one", "another"):
        write_recordings(str(file), [world_of(env).recording(sim_id, 0.0)])
        for domain in ("airline", "all"):
            assert replaying(domain).reset(seed=0)[1]["task_id"] == f"airline/0@{sim_id}"
    with pytest.raises(
        ConfigError, match=r"runs\.jsonl' has no run of 'telecom'; it has some of airline: give domain="
    ):
        replaying("telecom")
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"runs\.jsonl' has no run of 'all'; it is empty"):
        replaying("all")


@needs_recordings
@pytest.mark.parametrize("cut_after", ["assistant", "tool"])
def test_a_recorded_run_that_was_cut_off_is_worth_0_and_no_failure(tmp_path: Path, cut_after: str) -> None:
    rows = map(json.loads, gzip.decompress(RECORDINGS.read_bytes()).decode().splitlines())
    row = next(row for row in rows if row["domain"] == "telecom" and not row["solo"])
    users = [k for k, m in enumerate(row["messages"]) if m["role"] == cut_after and m.get("requestor") != "assistant"]
    last = next(k for k in users[3:] if "tool_calls" not in row["messages"][k])
    row |= {"messages": row["messages"][: last + 1], "termination_reason": "max_steps", "reward": 0.0}
    row["reward_breakdown"] = None
    row["messages"].append({"role": "assistant", "content": "", "tool_calls": []})
    file = tmp_path / "cut.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    (run,) = replay_all(str(file))
    assert run.reward == 0.0


def expert_env(reply: Callable[[ChatRequest], str], domain: str = "airline", user: str = "scripted", **settings: Any):  # type: ignore[no-untyped-def]
    model = Waiting(reply)
    experts = {"expert-1": (model, "gpt-5"), "expert-2": (ScriptedModel(reply), ITEM)}
    task = "0" if domain == "airline" else AIRPLANE
    return model, env_of(domain, user, task, experts=experts, **settings)


CALL = render_call("call_expert", {"expert": "expert-1"})


def test_an_expert_moves_for_one_step_and_is_billed() -> None:
    move = render_call("get_user_details", {"user_id": "emma_kim_9957"})
    model, env = expert_env(lambda _: move)
    _, _, terminated, _, info = env.step(CALL)
    assert not terminated
    assert told(info)[0].startswith(f'expert-1 moved:\n{move}\n{{"user_id": "emma_kim_9957"')
    assert [(c["role"], c["item"], c["tool"]) for c in info["charges"]][1] == ("expert", "gpt-5", "expert-1")
    (asked,) = model.asked
    assert (asked.purpose, asked.role) == ("move", "expert")
    assert {"get_user_details", "call_expert"} & {tool["function"]["name"] for tool in asked.tools} == {
        "get_user_details"
    }
    assert [m["role"] for m in asked.messages] == ["system", "assistant", "user"]
    assert env.step(FAREWELL)[4]["calls"] == {"expert-1": 1}


def test_calls_beside_an_experts_move_come_in_their_order_and_its_words_are_said() -> None:
    _, env = expert_env(lambda _: render_call("get_user_details", {"user_id": "emma_kim_9957"}))
    env.step(render_call("list_all_airports", {}) + CALL + render_call("list_all_airports", {}))
    named = [entry.call.name for entry in world_of(env).log if isinstance(entry, Done)]
    assert named == ["list_all_airports", "get_user_details", "list_all_airports"]
    _, env = expert_env(lambda _: FAREWELL)
    assert env.step(CALL)[1:3] == (1.0, True)


@pytest.mark.parametrize("move", [CALL, "<tool_call>{</tool_call>", ""])
def test_a_move_that_cannot_be_played_is_told_and_billed(move: str) -> None:
    _, env = expert_env(lambda _: move)
    _, _, terminated, _, info = env.step(CALL)
    assert not terminated
    assert told(info)[0].startswith("Error: expert-1 made a move that cannot be played")
    assert info["ledger"]["usd_by_role"]["expert"] > 0


def test_an_expert_of_an_agent_that_works_alone_may_end_it_but_talk_to_nobody() -> None:
    _, env = expert_env(lambda _: "Hello?", "telecom", "none")
    assert "nobody listens" in told(env.step(CALL)[4])[0]
    _, env = expert_env(lambda _: render_call("done", {}), "telecom", "none")
    assert env.step(CALL)[2]


TWICE_JUDGED = judged(nl_assertions=["The agent is kind.", "The agent is brief."])


@pytest.mark.parametrize(
    ("verdict", "reward"),
    [
        ('{"met": [true, true]}', 1.0),
        ('Well: {"met": [true, false]}.', 0.0),
        ('<think>{"met": [false, false]}?</think>{"met": [true, true]}', 1.0),
        ('{"met": [true, true]}\nBecause {both} hold.', 1.0),
        ('Expectation {1}: {"met": [false, true]} at first, {"met": [true, true]} in the end, {"sure": 1}.', 1.0),
    ],
)
def test_a_judge_decides_what_is_said_in_natural_language(tmp_path: Path, verdict: str, reward: float) -> None:
    judge = Waiting(lambda _: verdict)
    env = env_of("airline", "scripted", "900", tasks_path=released(tmp_path, [TWICE_JUDGED]), judge=(judge, "gpt-5"))
    _, got, terminated, _, info = env.step(FAREWELL)
    assert (got, terminated) == (reward, True)
    assert info["outcome"]["evidence"]["parts"] == {"DB": 1.0, "NL_ASSERTION": reward}
    assert info["ledger"]["usd_by_role"]["judge"] > 0
    assert FAREWELL in judge.asked[0].messages[-1]["content"]
    assert judge.asked[0].role == "judge"


@pytest.mark.parametrize(
    "verdict", ["", '<think>{"met": [true, true]}</think>', '{"met": [true]}', '{"met": ["true", "true"]}']
)
def test_a_verdict_that_cannot_be_read_is_an_outage_and_never_a_pass(tmp_path: Path, verdict: str) -> None:
    judge = ScriptedModel(lambda _: verdict)
    env = env_of("airline", "scripted", "900", tasks_path=released(tmp_path, [TWICE_JUDGED]), judge=(judge, "gpt-5"))
    _, reward, _, truncated, info = env.step(FAREWELL)
    assert math.isnan(reward)
    assert truncated
    assert "the judge must reply" in info["failed"]["error"]
    assert "judge" in info["ledger"]["usd_by_role"]


def test_a_task_that_needs_a_judge_is_refused_without_one(tmp_path: Path) -> None:
    plain = {**TWICE_JUDGED, "id": "901", "evaluation_criteria": {"actions": []}}
    path = released(tmp_path, [plain, TWICE_JUDGED])
    with pytest.raises(ConfigError, match=r"1 of 2 tasks of airline .* are graded by assertions .*: give judge="):
        env_of("airline", "scripted", "900", tasks_path=path)
    path = released(tmp_path / "other", [judged(nl_assertions=[])])
    evidence = env_of("airline", "scripted", "900", tasks_path=path).step(FAREWELL)[4]["outcome"]["evidence"]
    assert evidence["parts"] == {"DB": 1.0, "NL_ASSERTION": 1.0}
