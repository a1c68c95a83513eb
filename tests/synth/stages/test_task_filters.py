"""What is measured of tasks: stronger solvers pass more, filters drop what they say; and what tasks do not say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.domains import changed, library
from tests.synth import runs
from tests.two_texts import raises
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.solvers import SCRIPTED, Arena, ModelSolver, Solver, named
from toolorchestra.synth.stages import domain_folder, pipeline
from toolorchestra.synth.stages.pipeline import SynthesisRun, TaskFilter
from toolorchestra.synth.stages.stage_values import Band, SynthesisSettings
from toolorchestra.synth.stages.written_parts import CHECKS
from toolorchestra.synth.storage import StageStore


def run_of(folder: Path, settings: SynthesisSettings, solvers: Sequence[Solver] = ()) -> SynthesisRun:
    """A run of the spec of a parking."""
    spec = specs.load("parking")
    work = StageStore(folder / "work", resume=False)
    return SynthesisRun(spec, settings, work, folder / "out", solvers)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pipeline.Made:
    """A domain with all that can be had: filtered."""
    settings = SynthesisSettings(tasks=12, band=Band(0.1, 0.95, 4))
    return asyncio.run(pipeline.make(run_of(tmp_path_factory.mktemp("made"), settings, named(["strong", "weak"]))))


def sieve(tmp_path: Path, domain: Path, solvers: Sequence[Solver], band: Band) -> TaskFilter:
    """The filters over a domain's folder."""
    return TaskFilter(Arena(str(domain)), run_of(tmp_path, SynthesisSettings(band=band), solvers))


@pytest.mark.parametrize("name", sorted(path.stem for path in (specs.SHIPPED / "extra").glob("*.yaml")))
def test_every_small_spec_makes_300_proven_tasks(name: str) -> None:
    spec = specs.load(name)
    texts = specs.texts(spec.folder)
    assert [check(texts, 1) for check in CHECKS.values()] == [[]] * len(CHECKS)
    domain = domain_folder.skeleton(spec, 1)
    shapes, report = domain_folder.tasks(spec, domain, 300, 1)
    assert len(shapes) == 300
    assert not report.unused


def test_filters_drop_by_reason(tmp_path: Path) -> None:
    folder = library()
    shapes = [task.shape for task in loader.load(folder).tasks.values()]
    again = {**shapes[0], "id": shapes[1]["id"]}
    easy = sieve(tmp_path / "easy", folder, [SCRIPTED["oracle"]], Band(0.0, 0.9, 2))
    assert asyncio.run(easy.sift([shapes[0], again])) == []
    assert easy.dropped == {"near-duplicate": 1, "pass@2 above the band": 1}
    hard = sieve(tmp_path / "hard", folder, [SCRIPTED["idle"]], Band(0.5, 1.0, 2))
    assert asyncio.run(hard.sift(shapes[:1])) == []
    assert hard.dropped == {"pass@2 below the band": 1}
    assert (hard.tried, hard.passed) == (1, {"idle": 0})


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

    found = sieve(tmp_path / "run", changed(tmp_path, "tasks.jsonl.gz", swap), [], Band())
    assert asyncio.run(found.sift([row])) == []
    assert found.dropped == {"solved by a trivial policy": 1}


def test_kept_tasks_lie_in_the_band(made: pipeline.Made) -> None:
    filters = next(tally for tally in made.tallies if tally.stage == "filters")
    assert any(note.startswith("tries passed (SIMULATED where scripted): strong ") for note in filters.notes)


def test_filters_that_leave_too_few_tasks_say_what_to_widen(tmp_path: Path) -> None:
    settings = SynthesisSettings(tasks=10, band=Band(0.49, 0.51, 1))
    with raises(ConfigError, r"the filters left \d tasks \(.*\); widen band, or add intents$", "a wider --band"):
        runs.made(tmp_path, settings=settings, solvers=named(["strong"]))


def test_a_served_model_may_be_the_solver(tmp_path: Path) -> None:
    folder = library()
    paid_model = runs.paid_model(tmp_path, lambda request: "I am sorry, but I cannot do this.")
    arena = Arena(str(folder))
    task_id = next(task.task_id for task in arena.domain.tasks.values() if not task.idle)
    assert asyncio.run(arena.passes(ModelSolver(paid_model), task_id, 2)) == 0
    assert paid_model.usd_by_stage().keys() == {"filters/solver"}
    paid = paid_model.paid
    assert asyncio.run(arena.passes(ModelSolver(paid_model), task_id, 2)) == 0
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
