"""An exported tau2 domain, loaded by the installed package: its own evaluator grades as ours does."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.synth import export
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats import tau2_domain
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.stages import domain_folder

TASKS = 30


def package(folder: Path) -> ModuleType:
    """The exported folder as a package."""
    name = f"exported_{folder.name}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return importlib.import_module(f"{name}.environment")


class Package:
    """tau2's own evaluator on one exported domain."""

    def __init__(self, folder: Path) -> None:
        self.environment = package(folder)
        self.tasks = {task.id: task for task in self.environment.get_tasks()}
        self.evaluator = importlib.import_module("tau2.evaluator.evaluator_env").EnvironmentEvaluator
        self.communicate = importlib.import_module("tau2.evaluator.evaluator_communicate").CommunicateEvaluator
        self.message = importlib.import_module("tau2.data_model.message")

    def reward(self, task_id: str, calls: Sequence[GoldCall], said: Sequence[str]) -> float:
        """What it gives for these calls and words, both of its parts multiplied."""
        environment, history = self.environment.get_environment(), []
        for number, call in enumerate(calls):
            arguments = {tau2_domain.python_name(name): value for name, value in call.arguments.items()}
            one = self.message.ToolCall(id=str(number), name=call.name, arguments=arguments)
            history += [
                self.message.AssistantMessage(role="assistant", tool_calls=[one]),
                environment.get_response(one),
            ]
        history += [self.message.AssistantMessage(role="assistant", content=text) for text in said]
        task = self.tasks[task_id]
        state = self.evaluator.calculate_reward(self.environment.get_environment, task, history)
        told = self.communicate.calculate_reward(task, history)
        return float(state.reward * told.reward)


@pytest.fixture(scope="module")
def logs() -> Iterator[None]:
    pytest.importorskip(
        "tau2", reason="the package's evaluator needs it: python -m toolorchestra.envs.domains.tau2.install"
    )
    pytest.importorskip("pandas", reason="tau2's evaluator imports pandas")
    from loguru import logger

    logger.disable("tau2")
    yield
    logger.enable("tau2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, logs: None) -> tuple[SqlDomain, Package]:
    del logs
    folder = tmp_path_factory.mktemp("tau2")
    domain, _ = domain_folder.make(specs.load("public_library"), TASKS, 1, folder / "library")
    return domain, Package(export.write("tau2", [domain], folder / "exported"))


def writes(domain: SqlDomain, task: SqlTask) -> list[int]:
    """The places of the calls that change something."""
    return [place for place, action in enumerate(task.actions) if action.name in domain.writes]


def test_gold_gives_1_with_the_environments_results_and_less_gives_0(made: tuple[SqlDomain, Package]) -> None:
    domain, package_ = made
    bench = DomainPlayer(domain)
    for task in domain.tasks.values():
        assert package_.reward(task.task_id, task.actions, task.communicate) == 1.0, task.task_id
        if not task.idle:
            assert package_.reward(task.task_id, (), ()) == 0.0, task.task_id
        if task.communicate:
            assert package_.reward(task.task_id, task.actions, ()) == 0.0, task.task_id
        environment = package_.environment.get_environment()
        results = [environment.use_tool(action.name, **action.arguments) for action in task.actions]
        assert results == [called.text for called in bench.play(task.actions).called]
        assert environment.get_db_hash() in task.end_states


def test_a_write_left_out_or_with_another_argument_gives_0(made: tuple[SqlDomain, Package]) -> None:
    domain, package_ = made
    bench = DomainPlayer(domain)
    tried = 0
    for task in domain.tasks.values():
        for place in writes(domain, task):
            before, after = task.actions[:place], task.actions[place + 1 :]
            assert package_.reward(task.task_id, (*before, *after), task.communicate) == 0.0
            for _, other in bench.swaps(task.actions[place]):
                tried += 1
                assert package_.reward(task.task_id, (*before, other, *after), task.communicate) == 0.0, other
    assert tried > TASKS


def test_a_refused_call_says_why_and_changes_nothing(made: tuple[SqlDomain, Package]) -> None:
    domain, package_ = made
    bench = DomainPlayer(domain)
    calls = [
        GoldCall("find_book", {"title": "x' OR '1'='1"}),
        GoldCall("renew_loan", {"loan_id": "LO-999"}),
        GoldCall("renew_loan", {"loan_id": 5}),
        GoldCall("find_book", {}),
    ]
    for call in calls:
        environment = package_.environment.get_environment()
        message: Any = package_.message.ToolCall(id="1", name=call.name, arguments=dict(call.arguments))
        assert environment.get_response(message).error
        assert environment.get_db_hash() == "unchanged"
        assert bench.play([call]).error


def test_the_exported_folder_speaks_of_no_other_package(made: tuple[SqlDomain, Package], tmp_path: Path) -> None:
    domain, _ = made
    out = export.write("tau2", [domain], tmp_path / "again")
    for path in out.glob("*.py"):
        assert "import toolorchestra" not in path.read_text()
        assert "from toolorchestra" not in path.read_text()
    tools = package(out).get_environment().get_tools()
    assert {tool.name for tool in tools} == set(domain.tools)
    shown = {tool.name: tool.openai_schema["function"] for tool in tools}
    for name, tool in domain.tools.items():
        assert set(shown[name]["parameters"]["properties"]) == set(tool.parameters["properties"])
        assert tool.description.rstrip(".") in shown[name]["description"]


def test_a_shipped_domain_with_a_parameter_named_class_is_graded_too(tmp_path: Path, logs: None) -> None:
    del logs
    assert export.main(["railway", "--form", "tau2", "--out", str(tmp_path)]) == 0
    domain, package_ = loader.load("railway"), Package(tmp_path / "tau2" / "railway")
    booking = [t for t in domain.tasks.values() if any("class" in a.arguments for a in t.actions)][:3]
    assert booking
    for task in booking:
        assert package_.reward(task.task_id, task.actions, task.communicate) == 1.0
        place = writes(domain, task)[0]
        left_out = (*task.actions[:place], *task.actions[place + 1 :])
        assert package_.reward(task.task_id, left_out, task.communicate) == 0.0
