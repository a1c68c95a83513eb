"""What is measured of tasks: filters drop what they say; and what tasks do not say."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.domains import changed, library
from tests.synth import runs
from tests.two_texts import raises
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.models import ChatRequest
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.solvers import Arena, ModelSolver
from toolorchestra.synth.stages import domain_folder
from toolorchestra.synth.stages.pipeline import TaskFilter
from toolorchestra.synth.stages.written_parts import CHECKS


@pytest.mark.parametrize("name", sorted(path.stem for path in (specs.SHIPPED / "extra").glob("*.yaml")))
def test_every_small_spec_makes_300_proven_tasks(name: str) -> None:
    spec = specs.load(name)
    texts = specs.texts(spec.folder)
    assert [check(texts, 1) for check in CHECKS.values()] == [[]] * len(CHECKS)
    domain = domain_folder.skeleton(spec, 1)
    shapes, report = domain_folder.tasks(spec, domain, 300, 1)
    assert len(shapes) == 300
    assert not report.unused


def sieve(domain: Path) -> TaskFilter:
    """The filters over a domain's folder."""
    return TaskFilter(Arena(str(domain)), lambda _done, _of: None)


def test_what_says_nearly_the_same_is_dropped() -> None:
    folder = library()
    shapes = [task.shape for task in loader.load(folder).tasks.values()]
    again, found = {**shapes[0], "id": shapes[1]["id"]}, sieve(folder)
    assert asyncio.run(found.sift([shapes[0], again])) == [shapes[0]]
    assert found.dropped == {"near-duplicate": 1}


def test_a_task_that_a_trivial_policy_solves_is_dropped(tmp_path: Path) -> None:
    """The gold path is as it was, but the end state is the one in which nothing was done, and nothing is to be told."""
    domain = loader.load(library())
    shape = next(t.shape for t in domain.tasks.values() if not t.idle and t.requests[0].ending == "serve")
    row = json.loads(json.dumps(dict(shape)))
    row["evaluation_criteria"].update(communicate_info=[], actions=[])
    row["toolscale"].update(end_states=[DomainPlayer(domain).play(()).state], alternatives=[], identify=0)
    row["toolscale"]["requests"] = [{**r, "actions": [], "inform": []} for r in row["toolscale"]["requests"]]

    def swap(text: str) -> str:
        lines = [json.loads(line) for line in text.splitlines()]
        return "".join(json.dumps(row if line["id"] == row["id"] else line) + "\n" for line in lines)

    found = sieve(changed(tmp_path, "tasks.jsonl.gz", swap))
    assert asyncio.run(found.sift([row])) == []
    assert found.dropped == {"solved by a trivial policy": 1}


def test_filters_that_leave_too_few_tasks_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def solves(*_: object) -> bool:
        return True

    monkeypatch.setattr(Arena, "passes", solves)
    with raises(ConfigError, r"the filters left 0 tasks \(.*\); ask for more tasks, or add intents$", ""):
        runs.made(tmp_path)


def test_a_task_after_one_that_is_dropped_keeps_the_words_in_which_it_was_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole, _ = runs.honest()
    first = next(task.task_id for task in whole.domain.tasks.values() if not task.idle)

    async def solves_the_first(_arena: Arena, _solver: object, task_id: str) -> bool:
        return task_id == first

    monkeypatch.setattr(Arena, "passes", solves_the_first)
    stages = runs.copied(tmp_path / "run") / "work" / "stages.jsonl"
    *before, last = stages.read_text().splitlines(keepends=True)
    assert json.loads(last)["stage"] == "filters"
    stages.write_text("".join(before))
    rest, _ = runs.made(tmp_path / "run")
    assert whole.domain.tasks.keys() - rest.domain.tasks.keys() == {first}
    for number in whole.domain.tasks.keys() & rest.domain.tasks.keys():
        one, other = whole.domain.tasks[number], rest.domain.tasks[number]
        assert (one.requests, one.shape["user_scenario"]) == (other.requests, other.shape["user_scenario"])


def test_a_served_model_reads_tasks_and_is_paid_once(tmp_path: Path) -> None:
    folder = library()
    read: list[str] = []

    def reads(request: ChatRequest) -> str:
        read.append(repr(request.messages))
        return "I am sorry, but I cannot do this."

    paid_model = runs.paid_model(tmp_path, reads)
    arena = Arena(str(folder))
    task_id = next(task.task_id for task in arena.domain.tasks.values() if not task.idle)
    assert not asyncio.run(arena.passes(ModelSolver(paid_model), task_id))
    assert paid_model.usd_by_stage().keys() == {"reader/judge"}
    assert "expert" not in "".join(read)  # the simulated ones know the gold path
    paid = paid_model.paid
    assert not asyncio.run(arena.passes(ModelSolver(paid_model), task_id))
    assert paid_model.paid == paid > 1


@cache
def drafted() -> list[Any]:
    """The tasks of a spec."""
    spec = specs.load(runs.SPEC)
    return domain_folder.tasks(spec, domain_folder.skeleton(spec, 1), 30, 1)[0]


def test_only_the_last_request_is_said_to_be_the_final_one() -> None:
    finals = 0
    for shape in drafted():
        reason = shape["user_scenario"]["instructions"]["reason_for_call"]
        last = tuple(shape["toolscale"]["requests"][-1]["say"])
        for said in reason.split("Finally: ")[1:]:
            finals += 1
            assert said.startswith(last), reason
    assert finals


def test_no_sentence_of_a_test_is_said_elsewhere() -> None:
    said: dict[bool, set[str]] = {True: set(), False: set()}
    splits = []
    for shape in drafted():
        own = shape["toolscale"]
        splits.append(own["split"])
        said[own["split"] == "test"].update(text for request in own["requests"] for text in request["say"])
    assert not said[True] & said[False]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [24, 3, 3]
