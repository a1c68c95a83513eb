"""What is measured of tasks: harder is harder, stronger solvers pass more, filters drop what they say, costs hold."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.domains import changed, library
from tests.synth import runs
from tests.two_texts import raises
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import hub_rows, loader
from toolorchestra.envs.domains.toolscale.known_costs import known
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.synth import compare_solvers, generate
from toolorchestra.synth.authors.given_spec import GrammarAuthor
from toolorchestra.synth.formats import export, task_variants
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.hard_checks import fault
from toolorchestra.synth.proof.solvers import GRADED, SCRIPTED, Arena, ModelSolver
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages import domain_folder, harder_tasks, pipeline
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.stages.task_filters import Band, TaskFilter
from toolorchestra.synth.stages.written_parts import CHECKS
from toolorchestra.synth.storage.stage_store import StageStore


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pipeline.Made:
    """A domain with all that can be had: evolved, filtered, with costs and variants."""
    folder = tmp_path_factory.mktemp("made")
    spec = specs.load("parking")
    settings = SynthesisSettings(tasks=20, evolve=1, solvers=("strong", "weak"), band=Band(0.1, 0.95, 4), variants=2)
    author = GrammarAuthor(spec, specs.texts(spec.folder))
    run = pipeline.SynthesisRun(
        author, settings, StageStore(folder / "work", resume=False), folder / "out", spec.digest
    )
    return asyncio.run(pipeline.make(run))


@pytest.mark.parametrize("name", sorted(path.stem for path in (specs.SHIPPED / "extra").glob("*.yaml")))
def test_every_small_spec_makes_300_proven_tasks(name: str) -> None:
    spec = specs.load(name)
    texts = specs.texts(spec.folder)
    assert [check(texts, 1) for check in CHECKS.values()] == [[]] * len(CHECKS)
    domain, _ = domain_folder.skeleton(spec, 1)
    shapes, report = domain_folder.tasks(spec, domain, 300, 1)
    assert len(shapes) == 300
    assert not report.unused


@pytest.mark.parametrize("name", loader.names())
def test_stronger_solvers_pass_more_in_every_shipped_domain(name: str) -> None:
    assert compare_solvers.measure(name, 45, 2).faults == []


def test_solvers_that_do_not_differ_are_a_fault() -> None:
    same = compare_solvers.Passed("x", 8, {name: 0.5 for name in SCRIPTED}, {})
    assert any("strong passes 50.0%" in told or "oracle passes 50.0%" in told for told in same.faults)
    assert any("idle passes 50.0%" in told for told in same.faults)


def test_harder_tasks_measure_harder_and_are_proven() -> None:
    spec = specs.load("gym_studio")
    domain, _ = domain_folder.skeleton(spec, 2)
    shapes, _ = domain_folder.tasks(spec, domain, 25, 2)
    done = harder_tasks.evolve(spec, DomainPlayer(domain), shapes, 1, random.Random(2))
    changed = [(a, b) for a, b in zip(shapes, done.shapes, strict=True) if a is not b]
    assert sum(done.harder.values()) == len(changed) > 10
    assert all(harder_tasks.hardness(b) > harder_tasks.hardness(a) for a, b in changed)
    bench = DomainPlayer(domain)
    assert [fault(bench, loader.task(b)) for _, b in changed] == [("", "")] * len(changed)
    level = sum(k * n for k, n in done.after.items()) / 25
    assert level > sum(k * n for k, n in done.before.items()) / 25


def test_filters_drop_by_reason(tmp_path: Path) -> None:
    folder = library()
    domain = loader.load(folder)
    shapes = [task.shape for task in domain.tasks.values()]
    again = {**shapes[0], "id": shapes[1]["id"]}
    sieve = TaskFilter(Arena(str(folder)), [SCRIPTED["oracle"]], Band(0.0, 0.9, 2))
    sifted = asyncio.run(sieve.sift([shapes[0], again]))
    assert sifted.kept == []
    assert sifted.dropped == {"near-duplicate": 1, "pass@2 above the band": 1}
    hard = asyncio.run(TaskFilter(Arena(str(folder)), [SCRIPTED["idle"]], Band(0.5, 1.0, 2)).sift(shapes[:1]))
    assert hard.dropped == {"pass@2 below the band": 1}
    assert hard.passes == {shapes[0]["id"]: {"idle": 0}}


@pytest.mark.parametrize(("solver", "share"), [("oracle", 1.0), ("idle", 0.0)])
def test_the_bounds_of_a_band_are_inside_it(solver: str, share: float) -> None:
    folder = library()
    shape = next(task.shape for task in loader.load(folder).tasks.values() if not task.idle)
    sieve = TaskFilter(Arena(str(folder)), [SCRIPTED[solver]], Band(share, share, 2))
    assert asyncio.run(sieve.sift([shape])).kept == [shape]


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

    sieve = TaskFilter(Arena(str(changed(tmp_path, "tasks.jsonl.gz", swap))), [], Band())
    assert asyncio.run(sieve.sift([row])).dropped == {"solved by a trivial policy": 1}


def test_a_band_that_nothing_fits_is_refused() -> None:
    with pytest.raises(ConfigError, match="low <= high"):
        Band(0.9, 0.1)


def test_kept_tasks_lie_in_the_band_and_their_costs_are_those_of_a_solution(made: pipeline.Made) -> None:
    found = known(loader.read(made.domain.folder))
    assert list(found) == list(made.domain.tasks)
    assert list(found.values()) == list(made.known)
    for one in found.values():
        assert one.setting.tries == 4
        assert 0.1 <= sum(one.pass_rates.values()) / 2 <= 0.95
        assert sum(one.calls.values()) - len(one.lookups) == len(one.kept)
        assert len(one.kept) <= len(made.domain.tasks[one.task_id].actions)
        assert one.usd > 0
    gold = sum(len(task.actions) for task in made.domain.tasks.values())
    assert sum(len(one.kept) for one in found.values()) < gold
    passed = {name: sum(one.passes[name] for one in found.values()) for name in ("strong", "weak")}
    assert passed["strong"] > passed["weak"]


def test_variants_play_through_the_environment(made: pipeline.Made) -> None:
    lines = gzip.decompress((made.domain.folder / task_variants.FILE).read_bytes()).decode().splitlines()
    variants = [task_variants.Variant(**json.loads(line)) for line in lines]
    assert len(variants) == 2 * len(made.domain.tasks)
    assert len({tuple(v.tools) for v in variants}) > 5
    assert len(task_variants.sheets(variants)) > 5
    env = OrchestraEnv(ToolScaleSource(str(made.domain.folder)))
    for one in variants[:6]:
        task_id = f"toolscale/{made.domain.name}/{one.task_id}"
        options = {"task_id": task_id, "tools": one.tools, "preference": task_variants.wish(one)}
        observation, info = env.reset(seed=1, options=options)
        assert {tool["function"]["name"] for tool in observation["tools"]} == set(one.tools)
        assert info["preference"]


def test_a_line_separator_in_an_instruction_ends_no_line(made: pipeline.Made, tmp_path: Path) -> None:
    one = task_variants.augment(made.domain, 1, 1).variants[0]._replace(instruction="Be\u2028cheap.")
    (tmp_path / task_variants.FILE).write_bytes(task_variants.packed([one]))
    assert export.variants(replace(made.domain, folder=tmp_path)) == {one.task_id: [one]}


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("reachable", {"tools": ["find_driver"]}),
        ("priced", {"aliases": {"expert-1": "gpt-5", "expert-2": "gpt-5"}}),
        ("priced", {"prices": {}}),
        ("weighed", {"preference": {"no_such_tool": 1.0}}),
        ("weighed", {"preference": {}}),
        ("agreeing", {"preference": {"outcome": 1.0, "call_expert": 1.0}, "instruction": "Be quick."}),
        ("agreeing", {"preference": {"outcome": 1.0}, "instruction": "I like call_expert best."}),
    ],
)
def test_a_variant_that_breaks_a_rule_is_found(made: pipeline.Made, rule: str, change: dict[str, object]) -> None:
    task = next(task for task in made.domain.tasks.values() if task.identify)
    good = task_variants.variant(made.domain, task, 0, "train", random.Random(1))._replace(
        preference={"outcome": 1.0}, instruction="Be right."
    )
    assert task_variants.fault(made.domain, task, good) == ("", "")
    assert task_variants.fault(made.domain, task, good._replace(**change))[0] == rule


def test_of_several_tools_that_are_not_named_the_first_is_said(made: pipeline.Made) -> None:
    task = next(iter(made.domain.tasks.values()))
    plain = task_variants.variant(made.domain, task, 0, "train", random.Random(1))._replace(instruction="Be right.")
    names = list(made.domain.tools)
    for first in names:
        one = plain._replace(preference=dict.fromkeys([first, *names], 1.0))
        assert (
            task_variants.agreeing(made.domain, task, one) == f"the instruction does not name {first}, which is weighed"
        )


def test_exports_read_back(made: pipeline.Made, tmp_path: Path) -> None:
    out = export.write("tau2", made.domain, tmp_path / "tau2")
    rows = list(hub_rows.tasks(out / "tasks.json"))
    assert [row["id"] for row in rows] == list(made.domain.tasks)
    assert "toolscale" not in rows[0]
    splits = json.loads((out / "split_tasks.json").read_text())
    assert sorted(splits["train"] + splits["validation"] + splits["test"]) == sorted(splits["base"])
    lines = (export.write("rows", made.domain, tmp_path / "rows") / "train.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    fields = "index category problem answer tools model_mapping tool_pricing pref_vec example".split()
    assert list(row) == fields
    assert row["category"] == "func_call"
    assert set(row["model_mapping"].values()) <= set(row["tool_pricing"])
    assert "accuracy" in row["pref_vec"]
    assert row["tool_pricing"]["Qwen/Qwen3-8B"]["input_tokens_per_million"] == pytest.approx(2e-7)
    assert len(lines) == 2 * len(splits["train"])
    hub = export.write("hf", made.domain, tmp_path / "hf")
    assert loader.read(hub / "domain", verify=True).name == "parking"
    shown = (hub / "README.md").read_text()
    assert made.domain.manifest["content_hash"] in shown
    assert "SIMULATED" in shown
    kept = sum(len((hub / "data" / f"{s}.jsonl").read_text().splitlines()) for s in ("train", "validation", "test"))
    assert kept == len(made.domain.tasks)


@pytest.mark.parametrize("form", export.FORMATS)
def test_an_export_replaces_an_export_and_nothing_else(made: pipeline.Made, tmp_path: Path, form: str) -> None:
    out = export.write(form, made.domain, tmp_path / "mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert export.write(form, made.domain, out) == out
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / "data").mkdir(exist_ok=True)
    (out / "data" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"data/thesis\.txt|data in it"):
        export.write(form, made.domain, out)
    assert (out / "data" / "thesis.txt").read_text() == "years of work"
    assert before.items() <= {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}.items()


@pytest.mark.parametrize("form", export.FORMATS)
def test_an_export_that_was_changed_or_only_looks_like_one_is_replaced_when_that_is_said(
    made: pipeline.Made, tmp_path: Path, form: str
) -> None:
    out = export.write(form, made.domain, tmp_path / "mine")
    name, *_ = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.json*") if path.name != export.MARK)
    fresh = (out / name).read_bytes()
    (out / name).write_text("years of work")
    said = f": export {form} writes this folder anew, and {name} in it was changed since .* or say overwrite=True"
    with raises(ConfigError, said, "another --out, or --overwrite"):
        export.write(form, made.domain, out)
    assert (out / name).read_text() == "years of work"
    other = tmp_path / "other"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text("years of work")
    with pytest.raises(ConfigError, match="was not written by an export"):
        export.write(form, made.domain, other)
    for place in (out, other):
        assert (export.write(form, made.domain, place, overwrite=True) / name).read_bytes() == fresh
    assert not list(tmp_path.glob(".*"))


def test_a_folder_in_the_exports_place_stops_the_generator_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.hf").mkdir()
    (tmp_path / "mine.hf" / "thesis.txt").write_text("x")
    asked = ["--spec", "synth/specs/extra/parking.yaml", "--out", str(tmp_path / "mine"), "--export", "hf"]
    assert generate.main(asked) == 2
    assert "thesis.txt" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()
    assert (tmp_path / "mine.hf" / "thesis.txt").exists()


def test_a_link_or_file_in_the_exports_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "else")
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with raises(ConfigError, ": export rows makes this folder, and it is a file or a link; move it away$", ""):
            export.check_place("rows", tmp_path / name)


def test_filters_that_leave_too_few_tasks_say_what_to_widen(tmp_path: Path) -> None:
    settings = SynthesisSettings(tasks=10, solvers=("strong",), band=Band(0.49, 0.51, 1))
    with raises(ConfigError, r"the filters left \d tasks \(.*\); widen band, or add intents$", "a wider --band"):
        runs.made(tmp_path, settings=settings)


def test_a_served_model_may_be_the_solver(tmp_path: Path) -> None:
    folder = library()
    paid_model = runs.paid_model(tmp_path, lambda request: "I am sorry, but I cannot do this.")
    arena = Arena(str(folder))
    task_id = next(task.task_id for task in arena.domain.tasks.values() if not task.idle)
    assert asyncio.run(arena.passes(ModelSolver(paid_model, "served"), task_id, 2)) == 0
    assert paid_model.usd_by_stage().keys() == {"filters/solver"}
    paid = paid_model.paid
    assert asyncio.run(arena.passes(ModelSolver(paid_model, "served"), task_id, 2)) == 0
    assert paid_model.paid == paid > 1


def test_graded_solvers_are_named_from_strong_to_weak() -> None:
    assert [solver.slips for solver in GRADED] == sorted(solver.slips for solver in GRADED)
