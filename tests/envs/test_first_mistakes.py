"""Mistakes of somebody's first hour: each message says what was expected, what came, and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra as to
from toolorchestra.envs.base import errors
from toolorchestra.envs.base.actions import OPEN, render_call
from toolorchestra.envs.base.errors import ConfigError, install, no_such
from toolorchestra.envs.base.openai_messages import from_openai
from toolorchestra.envs.domains.source import SPLITS, TaskWorld
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.envs.tools import Toolbox, ToolContext, tool
from toolorchestra.envs.vector import OrchestraVectorEnv
from toolorchestra.envs.wrappers import Routing, read_trajectories

FRAMES = "ToolOrchestra/FRAMES-v0"
TOOLSCALE = "ToolOrchestra/ToolScale-v0"


def made(env_id: str = FRAMES, **arguments: Any) -> gym.Env[Any, Any]:
    return gym.make(env_id, **arguments)


def reset(**options: Any) -> object:
    return made().reset(options=options)


def billed(usage: Any) -> object:
    env = made()
    env.reset(seed=1)
    return env.unwrapped.charge_policy(usage)  # type: ignore[attr-defined]


def tool_of_text() -> object:
    @tool(bills="tavily/search")
    def look(context: ToolContext) -> str:
        """Look."""
        return str(context)

    return look


class Desk:
    def look(self, text: str) -> str:
        return text


def unresolved(parcel: Parcel) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(parcel)


def source_of_texts() -> object:
    class Texts(to.Source):
        def tasks(self) -> list[str]:
            return ["a question"]

    return Texts().task_ids("train")


class Unanswered(to.Source):
    """One of its tasks has no answer."""

    def tasks(self) -> list[to.Task]:
        return [to.Task("Which box?", "red"), to.Task("Which hat?", None)]


class GradesItself(Unanswered):
    """Its world is its own."""

    def world(self, task: to.Task, toolbox: Toolbox) -> to.World:
        return TaskWorld(task, toolbox, self.system)


def source_without_tasks() -> object:
    class Nothing(to.Source):
        pass

    return Nothing().task_ids("train")


REFUSED: list[tuple[Callable[[], object], str]] = [
(lambda: made(tools=["search"]), 'Single tools are kept at reset: reset(options={"tools": [...]})'),
(lambda: made(TOOLSCALE, tools=["search"]), "Give it to reset: reset(options={'tools': ...})"),
(lambda: made(task_id="frames-sim/test/5"), "Give it to reset: reset(options={'task_id': ...})"),
(lambda: made(seed=3), "Give it to reset: reset(seed=3)"),
(lambda: made(index="indexes/mine"), "A file says it: backends='my.toml'"),
(lambda: reset(split="test"), "It is an argument of gym.make: gym.make(id, split=...)"),
(lambda: reset(seed=3), "Give it beside the options: reset(seed=3)"),
    # preferences and prices,
(lambda: made(preference=["frugal"]), "got ['frugal']; for example preference='frugal', or preference={'outcome'"),
(lambda: made(preference="please be cheap"), "A sentence of your own comes with weights: {'usd': 1.0, 'sentence'"),
(lambda: billed({"input": 3}), 'charge_policy takes a Usage, such as Usage("qwen3-8b", "orchestrator", Tokens('),
    # backends and data: what Python is given, not what the command line is,
(lambda: made(backends="none.toml"), 'no file of backends \'none.toml\'; write one, such as:\n[endpoints.local]'),
(lambda: made(dataset="q.jsonl"), 'no data set file \'q.jsonl\'; give a .jsonl, '),
(lambda: made(TOOLSCALE, user="gpt-5"), "Or name the model that plays it, with backends=FILE"),
    # vectors,
(
        lambda: OrchestraVectorEnv(2, "none:None", autoreset_mode="never"),
        "no autoreset_mode 'never'; valid: Disabled, NextStep, SameStep.",
    ),
    # tools and recordings,
(tool_of_text, "bills is a list of items, got 'tavily/search'; write ('tavily/search',)"),
(lambda: Toolbox([print]), "a toolbox is a list of tools, got <built-in function print>"),  # type: ignore[list-item],
(lambda: to.tool("search"), "@tool makes a Tool of a function, got 'search'; write @tool above its def"),
(lambda: tool(Desk.look), "look: nobody gives self; make the Tool of an object's method, as in tool(mine.look)"),
(lambda: tool(unresolved), "unresolved: an annotation cannot be resolved: name 'Parcel' is not defined; define"),
(lambda: tool(partial(unresolved, 1)), "@tool makes a Tool of a function, got functools.partial("),
(lambda: to.mcp_tools(3), "mcp is a command line or an address, such as 'uvx mcp-server-time', got 3"),  # type: ignore[arg-type]
    # what the functions of the package itself are given,
(lambda: to.make(to.Source), "an environment is named by its id, such as 'HLE-v0', got <class"),  # type: ignore[arg-type]
(lambda: to.make("HLE-v1"), "no environment 'HLE-v1'; valid: FRAMES-v0, GAIA-v0, HLE-v0, "),
(lambda: to.check_environment("HEL-v0"), "no environment 'HEL-v0'; valid: FRAMES-v0, "),
(lambda: to.register(to.Source, "Mine-v0"), "such as register('Coins-v0', Coins), got <class"),  # type: ignore[arg-type]
(lambda: to.evaluate("HLE-v0", policies=["random"]), "no argument of evaluate() 'policies'; valid: "),
(lambda: to.evaluate("HLE-v0", tasks="2"), "tasks must be a whole number, got '2' (str)"),
(lambda: to.evaluate("HLE-v0", tasks=0), "tasks: a whole number from 1 up expected, got 0"),
(lambda: to.evaluate("HLE-v0", spend_cap="5"), "spend_cap must be a number or None, got '5' (str)"),
(lambda: to.evaluate(made(), "random"), "an environment is named by its id"),  # type: ignore[arg-type]
(lambda: to.evaluate("HLE-v0", print), "a policy is a name, a run's folder or what load_policy gave"),  # type: ignore[arg-type]
(lambda: to.train(step=5), "no setting of a training 'step'; valid: "),
(lambda: to.train(steps="5"), "steps must be a whole number, got '5' (str)"),
(lambda: to.train(5), "config is a TrainConfig or a preset's name, such as 'tiny', got 5"),  # type: ignore[arg-type]
(lambda: to.train(environments={"HLE-v0": {}}), "environments is a list of at least one EnvMix(id), of toolorchestra."),
(lambda: to.load_policy("oracel"), "no policy 'oracel'; valid: "),
(lambda: to.load_policy(None), "a policy is named by a text or a run's folder, such as 'oracle', got None"),  # type: ignore[arg-type]
(lambda: to.load_policy("oracle", temprature=1), "Did you mean 'temperature'?"),
(lambda: to.load_policy("oracle").solve("How many?", seed="3"), "seed is a whole number, got '3'"),
(lambda: to.load_policy("oracle", env="HLE-v0"), "made by make(id); got 'HLE-v0'"),  # type: ignore[arg-type]
(lambda: to.load_policy("oracle").act("HLE-v0"), "made by make(id); got 'HLE-v0'"),  # type: ignore[arg-type]
(lambda: to.compare(), "compare takes folders of evaluations, such as compare('runs/a', 'runs/b'), got ()"),
(lambda: to.compare(["runs/a"]), "such as compare('runs/a', 'runs/b'), got (['runs/a'],)"),  # type: ignore[arg-type]
(source_of_texts, "tasks() gives Tasks, such as Task(question, answer), got 'a question'"),
(lambda: Unanswered().task_ids("train"), "unanswered: the task 'Which hat?' has no answer, and nothing could be"),
(source_without_tasks, "Nothing does not list its tasks: write `def tasks(self)`, which gives a Task for each"),
(lambda: list(read_trajectories("none.jsonl")), "no file of trajectories 'none.jsonl'; RecordTrajectories("),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "says"), REFUSED, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_what_is_said(mistake: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        mistake()


def test_a_task_without_an_answer_is_for_a_world_of_ones_own_and_for_what_is_asked() -> None:
    assert sum(len(GradesItself().task_ids(split)) for split in SPLITS) == 2
    scene = Unanswered().asked("Which hat?", 0, load_sheet("paper-2025-11"), None)
    assert scene.world.opening()[0]["content"] == "Which hat?"


def test_an_action_that_is_no_text_is_told_what_makes_one() -> None:
    env = made()
    env.reset(seed=1)
    asked = {"name": "search", "arguments": {"model": "search-1"}}
    message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": asked}]}
    with pytest.raises(TypeError, match=r"render_call\(name, arguments\), of toolorchestra\.envs\.base\.actions"):
        env.step(asked)
    with pytest.raises(
        TypeError, match=r"such as render_call\('search', {'model': 'search-1'}\); got 'search' and 'sear"
    ):
        render_call("search", "search-1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"from_openai\(message\), of toolorchestra\.envs\.base\.openai_messages"):
        env.step(message)
    with pytest.raises(TypeError, match=rf"toolorchestra\.envs\.wrappers\.{Routing.__name__}"):
        env.step(3)
    # and both do what the message promises
    for text in (render_call(**asked), from_openai(message)):
        env.reset(seed=1)
        assert env.step(text)[4]["ledger"]["usd_by_role"]["expert"] > 0
    vector = OrchestraVectorEnv(2, "toolorchestra.envs.domains.frames.source:FramesSource")
    vector.reset(seed=1)
    with pytest.raises(TypeError, match=r"environment 1 got dict: .*render_call\(name, arguments\)"):
        vector.step(["hello", asked])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"actions are a list of texts, one for each environment; got 'xx' \(str\)"):
        vector.step("xx")
    with pytest.raises(TypeError, match=r"reset\(seed=3\), reset\(options=.*; got reset\(3\)"):
        env.reset(3)  # type: ignore[misc]


@pytest.mark.parametrize("written", ['search(model="search-1")', '{"name": "search", "arguments": {}}'])
def test_a_call_in_another_grammar_is_answered_with_the_grammar(written: str) -> None:
    env = made()
    env.reset(seed=1)
    told = env.step(written)[4]["new_messages"][-1]["content"]
    assert told.endswith(f'Write a call as {OPEN}{{"name": "TOOL", "arguments": {{"KEY": "VALUE"}}}}</tool_call>.')
    assert OPEN not in env.step("What do you think?")[4]["new_messages"][-1]["content"]


@pytest.mark.parametrize(("name", "hint"), [("frames", " Did you mean 'ToolOrchestra/FRAMES-v0'?"), ("v0", "")])
def test_a_part_of_one_name_is_guessed(name: str, hint: str) -> None:
    said = no_such("environment", name, ["ToolOrchestra/FRAMES-v0", "ToolOrchestra/HLE-v0"])
    assert said == f"no environment {name!r}; valid: ToolOrchestra/FRAMES-v0, ToolOrchestra/HLE-v0.{hint}"


def test_an_extra_is_named_as_it_is_installed_here() -> None:
    """By the installed copy's name, and by the clone's folder where the code is only read from one."""
    assert install("models") == 'pip install "toolorchestra[models]"'
    code = f"import runpy; print(runpy.run_path({errors.__file__!r})['install']('models'))"
    bare = [sys.executable, "-I", "-S", "-c", code]  # without the folder where installed packages are
    done = subprocess.run(bare, capture_output=True, text=True, check=True)
    assert done.stdout == 'pip install ".[models]" in the folder of the clone\n'


def test_a_package_that_a_model_lacks_is_told_with_its_extra() -> None:
    code = "import sys; sys.modules['tokenizers'] = None; from toolorchestra.agents.configuration.config import *; "
    code += "from toolorchestra.agents.training.build import *; base_chat(ModelConfig())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "training needs tokenizers, which is not installed: pip install" in done.stderr.splitlines()[-1]


def test_engines_without_torch_say_how_to_install_it() -> None:
    code = "import sys; sys.modules['torch'] = None; import toolorchestra.agents.engines.local"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: engines need torch, which is not installed: pip install torch==")
    assert last.endswith('then pip install "toolorchestra[train]"')


def test_an_id_of_ones_own_needs_no_namespace() -> None:
    """And one of Gymnasium's, which has no tasks, is refused as before."""
    to.register("Toy-v7", "tests.support.toy:AdderSource")
    assert to.make("Toy-v7").reset(seed=0)[0]["tools"]
    with pytest.raises(ConfigError, match="no environment 'CartPole-v1'"):
        to.make("CartPole-v1")
