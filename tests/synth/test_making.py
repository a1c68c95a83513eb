"""Specs become proven domains, the same bytes each time; what is wrong with a spec is said with file and line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.domains import LIBRARY, library
from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.sqldomain import loader
from toolorchestra.envs.sqldomain.domain import Action, Task
from toolorchestra.synth import likeness, prove
from toolorchestra.synth import spec as specs
from toolorchestra.synth.bench import CHECKS, Bench, fault
from toolorchestra.synth.making import make, rebuilt
from toolorchestra.synth.words import LISTS

ROOT = Path(__file__).parents[2]


def test_the_same_spec_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    assert rebuilt(specs.load(LIBRARY), library(), tmp_path / "again")
    make(specs.load(LIBRARY), 30, 2, tmp_path / "other")
    assert (tmp_path / "other" / "rows.jsonl.gz").read_bytes() != (library() / "rows.jsonl.gz").read_bytes()


@pytest.mark.parametrize("name", loader.names())
def test_shipped_tasks_are_proven_and_two_processes_agree(name: str) -> None:
    """A sample of each domain; `python synth/prove.py` proves all tasks."""
    sample = -(-500 // len(loader.names()))
    proofs = prove.prove([name], sample=sample, jobs=2, rebuild=False)
    assert sum(proof.tasks for proof in proofs if proof.what == "tasks") == sample
    assert [line for line in prove.report(proofs, [name]) if line.startswith("FAULT")] == []


def _task() -> tuple[Bench, Task]:
    bench = Bench(loader.read(library()))
    found = next(t for t in bench.domain.tasks.values() if [r.intent for r in t.requests] == ["renew"])
    return bench, found


def test_a_good_task_passes_every_check() -> None:
    assert fault(*_task()) == ("", "")


@pytest.mark.parametrize("check", ["gold", "nothing", "told", "dropped", "swapped"])
def test_each_check_catches_its_fault(check: str) -> None:
    bench, task = _task()
    read, listed, write = task.actions
    unchanged = replace(task, end_states=("unchanged",))
    broken = {
        "gold": replace(task, actions=(read, listed, Action("renew_loan", {"loan_id": "LO-999"}))),
        "nothing": replace(unchanged, actions=(), communicate=(), requests=task.requests),
        "told": replace(task, communicate=(task.facts[0].value,)),
        "dropped": replace(task, end_states=(*task.end_states, "unchanged"), communicate=()),
        "swapped": replace(
            task,
            communicate=(),
            end_states=tuple(bench.play([read, listed, other]).state for other in (write, *_others(bench, write))),
            alternatives=tuple((read, listed, other) for other in _others(bench, write)),
        ),
    }[check]
    assert CHECKS[check](bench, broken)


def _others(bench: Bench, write: Action) -> list[Action]:
    return [other for _, other in bench.swaps(write)]


def test_duplicates_are_found_though_names_and_numbers_differ() -> None:
    shapes = [task.shape for task in loader.read(library()).tasks.values()]
    assert likeness.compare(shapes).exact == 0
    first = shapes[0]
    said = first["user_scenario"]["instructions"]
    renamed = {**said, "reason_for_call": said["reason_for_call"], "known_info": (said["known_info"] or "") + " "}
    twin = {**first, "id": "twin", "user_scenario": {"instructions": renamed}}
    assert likeness.compare([*shapes, twin]).exact == 1
    longer = " ".join([said["reason_for_call"], *LISTS["streets"]]).lower()
    long = {**first, "user_scenario": {"instructions": {**said, "reason_for_call": longer}}}
    near = {**first, "user_scenario": {"instructions": {**said, "reason_for_call": f"{longer} well."}}}
    assert likeness.compare([long, near]).near == 1
    assert likeness.normal("Pay Ada Novak 12.50 from AC-00012") == likeness.normal("Pay Lars Cho 7 from AC-00713")


@pytest.mark.parametrize(
    ("part", "old", "new", "seen"),
    [
        ("intents.yaml", "ending: refuse", "ending: deny", "intents.yaml:16: renew_too_often: ending must be one of"),
        ("intents.yaml", "SELECT title FROM books\n", "SELECT titel FROM books\n", "no such column: titel"),
        ("intents.yaml", "{title}?", "{titel}?", "no value 'titel'; there are: title"),
        ("intents.yaml", "find_book.shelf", "find_book.floor", "no 'floor' in"),
        ("intents.yaml", "renewals = 2", "renewals = 7", "no row; change the draw"),
        ("rows.yaml", "{person: }", "{parson: }", "table 'members': full_name: a recipe has one of"),
        ("rows.yaml", "choice: titles", "choice: title", "no list 'title'"),
        ("rows.yaml", "count: 16", "count: 17", "no unique value in 200 tries"),
        ("rows.yaml", "min(rowid)", "min(rowit)", "rows.yaml: finish[0]: no such column"),
        ("rows.yaml", "key: book_id", "key: book", "books: no key column 'book'"),
        ("tools.yaml", "kind: write", "kind: wright", "tools.yaml:25: kind must be one of: read, write"),
        ("domain.yaml", "personas: [", "personas: [[", "domain.yaml: not valid YAML"),
        ("domain.yaml", "key: member_id", "key: member", "user.draw gives no column 'member'"),
    ],
)
def test_errors_in_a_spec_name_the_place(tmp_path: Path, part: str, old: str, new: str, seen: str) -> None:
    shutil.copytree(LIBRARY, tmp_path / "spec")
    path = tmp_path / "spec" / part
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        make(specs.load(tmp_path / "spec"), 30, 1, tmp_path / "out")
    assert seen in str(caught.value)


def test_too_few_intents_end_with_the_yield_report(tmp_path: Path) -> None:
    shutil.copytree(LIBRARY, tmp_path / "spec")
    path = tmp_path / "spec" / "intents.yaml"
    path.write_text(path.read_text(encoding="utf-8").partition("- intent: renew")[0], encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        make(specs.load(tmp_path / "spec"), 30, 1, tmp_path / "out")
    assert "add intents, wordings or rows" in str(caught.value)
    assert "says what another does" in str(caught.value)


def test_the_command_lines(tmp_path: Path) -> None:
    python, out = sys.executable, str(tmp_path / "out")
    made = [python, "synth/generate.py", "--spec", str(LIBRARY), "--tasks", "12", "--out", out]
    done = subprocess.run(made, capture_output=True, text=True, cwd=ROOT, check=True)
    assert "library: 12 tasks kept" in done.stdout
    done = subprocess.run(
        [python, "synth/prove.py", "--domain", out, "--jobs", "1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 1
    assert "FAULT library: 5 tools, at least 20 expected" in done.stdout
    assert "library: 12 tasks proven" in done.stdout
