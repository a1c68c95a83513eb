"""OrchestraEnv: making it, its options and their errors, deadlines, calls at once, rendering, what it gives away."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec

import toolorchestra  # noqa: F401 - registers the ids
from tests.playing import ADD, FREE, HLE, env_of, step, usage_of
from tests.sources import BREAK, AdderSource, adder_script
from toolorchestra.envs import factory
from toolorchestra.envs.base.actions import render, render_call
from toolorchestra.envs.base.errors import ConfigError, PriceError
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.money.prices import ORCHESTRATOR, PriceSheet, Tokens, Usage, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import register
from toolorchestra.envs.vector import OrchestraVectorEnv


def naps(*milliseconds: int) -> str:
    return render([ToolCall("nap", {"milliseconds": ms}) for ms in milliseconds])


@pytest.mark.parametrize("name", ["ToolOrchestra/HLE-v0", "toolorchestra:ToolOrchestra/HLE-v0"])
def test_gymnasium_makes_it_bare(name: str) -> None:
    env = gym.make(name, max_turns=3)
    assert type(env) is OrchestraEnv
    assert env.spec is not None
    assert env.factory.settings.max_turns == 3
    env.close()


def test_an_environment_is_made_again_from_its_spec_under_the_same_cap() -> None:
    cap = SpendCap(1.0)
    env: Any = gym.make("ToolOrchestra/HLE-v0", spend_cap=cap)
    again: Any = gym.make(env.spec)
    assert again.factory.rules.spend_cap is env.factory.rules.spend_cap is cap


def test_a_message_is_reminded_of_the_tool_that_ends_the_task_by_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    offers = [{"alias": "a-1", "model": "gpt-5", "seconds": 5}]
    path.write_text(json.dumps({"tools": [{"kind": "answer", "name": "decide", "offers": offers}]}))
    done = step(env_of(HLE, tools=path, **FREE), "I wonder.")
    assert done.info["new_messages"][-1]["content"] == "Call a tool: decide. The task ends with `decide`."


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"

    def priced(usd: int) -> OrchestraEnv:
        rows = {"qwen3-8b": {"usd_per_mtok": {"input": usd, "output": usd}}}
        path.write_text(json.dumps({"id": f"s{usd}", "date": "2026-02-03", "source": "test", "prices": rows}))
        return env_of("Adder", prices=str(path), **FREE)

    assert [priced(usd).factory.sheet.sheet_id for usd in (1, 20)] == ["s1", "s20"]
    assert env_of("Adder", prices=str(path), **FREE).factory is env_of("Adder", prices=str(path), **FREE).factory


def test_what_the_policy_used_is_billed_once_the_step_is_taken() -> None:
    env = env_of("Adder", **FREE)
    used = Usage("gpt-5", ORCHESTRATOR, Tokens(10, 0, 5))
    env.charge_policy(used)
    with pytest.raises(TypeError, match="got NoneType"):
        env.step(None)  # type: ignore[arg-type]
    assert usage_of(env.step(ADD)[4]["charges"][0]) == used
    with pytest.raises(PriceError, match="no price for 'gpt-4'"):
        env.charge_policy(Usage("gpt-4", ORCHESTRATOR))
    assert env.step(ADD)[4]["charges"][0]["estimated"]


def test_a_setting_of_the_wrong_type_is_refused_also_behind_one_that_equals_it() -> None:
    gym.make("ToolOrchestra/HLE-v0", max_turns=1)
    with pytest.raises(ConfigError, match="max_turns"):
        gym.make("ToolOrchestra/HLE-v0", max_turns=True)


def test_an_id_stands_for_one_source() -> None:
    for _ in range(2):
        register("Tests/Mine-v0", "tests.sources:AdderSource")
    with pytest.raises(ConfigError, match="is ToolOrchestra/HLE-v0 for short; take another id, such as 'Mine/HLE-v0'"):
        register("HLE-v0", "tests.sources:AdderSource")
    with pytest.raises(ConfigError, match=r"'Tests/Mine-v0' is registered for 'tests\.sources:AdderSource' already"):
        register("Tests/Mine-v0", "tests.sources:TalkerSource")


def test_a_source_defined_again_and_registered_again_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for last, defaults in ((7, {"max_turns": 7}), (9, {"max_turns": 3})):  # a notebook's cell, run twice
        again = type("CellSource", (AdderSource,), {"__module__": __name__, "system": f"cell {last}"})
        monkeypatch.setattr(sys.modules[__name__], "CellSource", again, raising=False)
        register("Tests/Cell-v0", again, **defaults)
        for arguments in ({}, {"max_turns": last}):
            env: Any = gym.make("Tests/Cell-v0", **arguments)
            assert type(env.factory.source) is again
            assert env.factory.settings.max_turns == (arguments or defaults)["max_turns"]
            assert gym.make("Tests/Cell-v0", **arguments).unwrapped.factory is env.factory  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OrchestraEnv(AdderSource), "AdderSource'>, which is a class; make one of it"),
        (lambda: OrchestraEnv(None), "got None, which lacks name, splits, draw, open"),  # type: ignore[arg-type],
        (lambda: env_of("Adder", max_turn=5), r"no argument 'max_turn'; valid: .*Did you mean 'max_turns'\?"),
        (lambda: OrchestraEnv(AdderSource(), last=5), r"no argument 'last'.*AdderSource its own arguments"),
        (lambda: env_of(HLE, tols="plain"), r"HleSource: no argument 'tols'.*Did you mean 'tools'\?"),
        (lambda: env_of("Adder", split="validation"), "adder: no split 'validation'; valid: test, train"),
        (
            lambda: env_of("Adder", prices="paper"),
            "no price sheet 'paper'; valid: paper-2025-11, recorded-2025-12, unseen-2026-01",
        ),
        (lambda: env_of("Adder", max_turns="5"), r"max_turns must be a whole number from 1 up, got '5' \(str\)"),
        (lambda: env_of("Adder", spend_cap=1.0), r"spend_cap must be a SpendCap or None, got 1\.0 \(float\)"),
        (lambda: env_of(HLE, vary="prices"), "vary is a list of tools, aliases, prices, got 'prices'"),
        (lambda: env_of("Adder", preference={"add": 1, "sub": 1}), "no preference key 'sub'; valid: add, outcome"),
        (lambda: env_of("Adder", history="all"), "no history 'all'; valid: full, state"),
        (lambda: env_of("Adder", reward=5), 'reward is "outcome", "scalar" or a mapping'),
        (lambda: env_of("Adder", reward={"cents": 1.0}), "no part of the reward 'cents'; valid: seconds, usd"),
        (
            lambda: env_of("Adder", budget="5 cents"),
            "budget must be a number of dollars above 0, or None, got '5 cents'",
        ),
        (lambda: env_of("Adder", budget=-1.0), r"budget must be a number of dollars above 0, or None, got -1\.0"),
        (lambda: env_of("Adder", render_mode="rgb_array"), "no render mode 'rgb_array'; valid: ansi, human"),
        (lambda: env_of("Nothing"), 'cannot be loaded: .*NothingSource.*write it as "package.module:Class"'),
    ],
)
def test_wrong_settings_are_refused_with_the_valid_ones(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_orchestrator_without_a_price_is_refused() -> None:
    with pytest.raises(PriceError, match=r"cannot bill \['qwen9'\]: no price for 'qwen9'; valid: .*qwen3-8b"):
        env_of("Adder", orchestrator="qwen9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "adder/train/1"}, r"no reset option 'task'; valid: .*Did you mean 'task_id'\?"),
        ({"task_id": "hle/train/1"}, "no task 'hle/train/1'; ids are adder/SPLIT/N"),
        ({"tools": ["sub"]}, "no tool 'sub'; valid: add"),
        ({"task_id": 5}, r"task_id must be a text or None, got 5 \(int\)"),
        ({"tools": "add"}, "tools is a list of the names to keep, one at least, got 'add'; None keeps all"),
        ("adder/train/1", r"reset options are a mapping, such as {'task_id': ...}, got 'adder/train/1'"),
    ],
)
def test_wrong_options_are_refused_and_change_nothing(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OrchestraVectorEnv(2, "tests.sources:AdderSource").reset(options=options)
    env = env_of("Adder", **FREE)
    episode = env.episode
    with pytest.raises(ConfigError, match=message):
        env.reset(options=options)
    assert env.episode is episode
    assert not step(env, ADD).truncated


def test_prices_that_cannot_bill_the_policy_are_refused_at_reset() -> None:
    rows = {"qwen3-8b": {"usd_per_unit": 1}}
    sheet = PriceSheet.read({"id": "s", "date": "2026-01-01", "source": "test", "prices": rows}, "s")
    other = PriceSheet.read({"id": "t", "date": "2026-01-01", "source": "test", "prices": {"m": {"free": "x"}}}, "t")
    env = env_of("Adder", **FREE)
    for prices, said in ((sheet, "sheet s sells qwen3-8b by the unit alone"), (other, "sheet t cannot bill")):
        with pytest.raises(PriceError, match=f"the orchestrator's own tokens: price {said}"):
            env.reset(options={"prices": prices})
        with pytest.raises(PriceError, match=f"the orchestrator's own tokens: price {said}"):
            env_of("Adder", prices=prices)


def test_options_choose_task_tools_preference_and_budget() -> None:
    env = OrchestraEnv(HLE)
    preference = {"outcome": 1.0, "usd": 0.5, "search-1": 0.25, "sentence": "Mind the money."}
    options = {"task_id": "hle-sim/test/7", "tools": ["search-1", "answer"], "preference": preference, "budget": 0.5}
    observation, info = env.reset(seed=1, options=options)
    assert info["task_id"] == "hle-sim/test/7"
    assert info["task"]["split"] == "test"
    assert info["budget"] == 0.5
    assert info["preference"]["weights"] == {"outcome": 1.0, "usd": 0.5, "seconds": 0.0, "search-1": 0.25}
    assert info["price_sheet"] == "paper-2025-11"
    system = observation["messages"][0]["content"]
    assert "The user's wish: Mind the money." in system
    assert "Budget: $0.5." in system
    assert [t["function"]["name"] for t in observation["tools"]] == ["search", "answer"]
    _, again = env.reset(seed=1)
    assert again["task_id"] != "hle-sim/test/7"  # options hold for one episode
    assert again["budget"] is None


def test_waiting_calls_of_a_turn_wait_together_and_are_told_in_order() -> None:
    env = env_of("Sleeper", **FREE)
    began = time.monotonic()
    done = step(env, naps(500, 10, 400, 300))
    assert time.monotonic() - began < 1.1
    told = [m["content"] for m in done.info["new_messages"][1:]]
    assert told == ["slept 500 ms", "slept 10 ms", "slept 400 ms", "slept 300 ms"]
    assert done.info["ledger"]["usd_by_role"]["tool"] == 0.04


def test_a_missed_deadline_is_a_refusal_that_the_agent_reads() -> None:
    env = env_of("Sleeper", deadline_seconds=0.25, paid=False, **FREE)
    done = step(env, naps(10_000, 1))
    told = [m["content"] for m in done.info["new_messages"][1:]]
    assert told == ["Error: nap did not answer within 0.25 s", "slept 1 ms"]
    assert not done.truncated
    assert step(env, "done").reward == 1.0


def test_a_missed_deadline_of_a_paid_backend_is_an_outage() -> None:
    done = step(env_of("Sleeper", deadline_seconds=0.25, **FREE), naps(10_000))
    assert done.info["failed"]["error"] == "Outage: nap did not answer within 0.25 s"
    assert math.isnan(done.reward)


def test_waiting_for_a_place_does_not_count_against_the_deadline() -> None:
    env = env_of("Sleeper", backend="narrow bed", max_in_flight=1, deadline_seconds=0.6, **FREE)
    told = [m["content"] for m in step(env, naps(250, 250, 250)).info["new_messages"][1:]]
    assert told == ["slept 250 ms"] * 3


def test_ansi_prints_the_transcript_with_the_bill() -> None:
    env = OrchestraEnv("tests.sources:AdderSource", render_mode="ansi", **FREE)
    assert env.render() == "(no episode)"
    env.reset(seed=0)
    step(env, ADD)
    shown = env.render()
    assert shown is not None
    assert "[tool add] 3" in shown
    assert shown.splitlines()[-1].startswith("bill after turn 1: ")
    assert "orchestrator" in shown
    assert OrchestraEnv("tests.sources:AdderSource").render() is None


def test_human_prints_live_and_in_colour(capsys: pytest.CaptureFixture[str]) -> None:
    env = env_of("Adder", render_mode="human", last=1, **FREE)
    opening = capsys.readouterr().out
    assert "tools: add" in opening
    assert "\033[" in opening
    for text in adder_script(1):
        step(env, text)
    assert "done: outcome 1" in capsys.readouterr().out
    assert env.render() is None
    env = env_of("Broken", render_mode="human", **FREE)
    step(env, BREAK)
    assert "FAILED in breaks: RuntimeError: the disk is on fire" in capsys.readouterr().out


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x9b31m"])
def test_what_is_rendered_cannot_steer_a_terminal(sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = OrchestraEnv("tests.sources:TalkerSource", render_mode="ansi", **FREE)
    env.reset(seed=0)
    step(env, f"hello {sign}")
    step(env, render_call(f"tool{sign}", {}))
    shown = env.render()
    assert shown is not None
    assert sign not in shown
    assert f"hello \\x{ord(sign[0]):02x}" in shown
    human = env_of("Talker", render_mode="human", **FREE)
    step(human, render_call(f"tool{sign}", {}))
    assert sign not in capsys.readouterr().out


def test_observations_pickle_copy_and_dump() -> None:
    env = env_of("Adder", **FREE)
    observation = step(env, ADD).observation
    for other in (pickle.loads(pickle.dumps(observation)), copy.deepcopy(observation), copy.copy(observation)):
        assert other == observation
        assert other in env.observation_space
        assert all(type(m) is Message for m in other["messages"])
    assert json.loads(json.dumps(observation))["messages"] == [dict(m) for m in observation["messages"]]
    assert pickle.loads(pickle.dumps(step(env, ADD).info))["turn"] == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"preference": Preference(usd=0.5, tools={"search-1": 0.25}, sentence="Mind the money.", kind="mine")},
        {"preference": {"outcome": 1.0, "usd": 0.5, "search-1": 0.25}},
        {"prices": load_sheet("paper-2025-11").with_factors({"gpt-5": Decimal("1.7")}, "mine"), "budget": 0.5},
    ],
)
def test_a_spec_with_objects_goes_through_json(settings: dict[str, Any]) -> None:
    env: Any = gym.make("ToolOrchestra/HLE-v0", **settings)
    text = env.spec.to_json()
    again: Any = gym.make(EnvSpec.from_json(text))
    assert again.spec.to_json() == text
    assert again.reset(seed=3) == env.reset(seed=3)
    assert again.episode.preference == env.episode.preference
    assert again.factory.sheet == env.factory.sheet
    assert again.step("hello") == env.step("hello")


def test_a_class_that_no_module_has_by_name_is_refused_as_it_is_registered() -> None:
    class Inside(AdderSource):
        pass

    with pytest.raises(ConfigError, match="define the class at the top of a module"):
        register("Tests/Inside-v0", Inside)


def test_a_folder_of_very_many_files_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_MOST_FILES", 2)
    (tmp_path / ".git").mkdir()
    for name in ("a", "b", ".git/c"):
        (tmp_path / name).touch()
    assert factory._stamp(str(tmp_path)) == factory._stamp(tmp_path)
    (tmp_path / "d").touch()
    with pytest.raises(TypeError):
        factory._stamp(tmp_path)
