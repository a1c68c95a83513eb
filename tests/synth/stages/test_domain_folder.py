"""Specs become proven domains, the same bytes each time; what is wrong with a spec is said with file and line."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import ended
from tests.domains import LIBRARY, changed, library, with_tool
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlTask
from toolorchestra.synth import generate, prove
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.seed_rows import LISTS
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.task_checks import CHECKS
from toolorchestra.synth.stages import domain_folder
from toolorchestra.synth.stages.domain_folder import make, rebuilt


def test_the_same_spec_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    assert rebuilt(specs.load(LIBRARY), library(), tmp_path / "again")
    make(specs.load(LIBRARY), 12, 2, tmp_path / "other")
    assert (tmp_path / "other" / "rows.jsonl.gz").read_bytes() != (library() / "rows.jsonl.gz").read_bytes()


def test_shipped_tasks_are_proven_and_two_processes_agree() -> None:
    """A sample of each domain; `python synth/prove.py` proves all tasks."""
    sample, names = 8, loader.names()
    proofs = prove.prove(names, sample=sample, jobs=2, rebuild=False)
    assert Counter(
        proof.domain for proof in proofs if proof.what == "tasks" for _ in range(proof.tasks)
    ) == dict.fromkeys(names, sample)
    assert [line for line in prove.report(proofs, names) if line.startswith("FAULT")] == []


def test_two_folders_of_one_name_are_proven_apart_and_none_with_a_fault_is_self_consistent(tmp_path: Path) -> None:
    names = [str(library()), str(shutil.copytree(library(), tmp_path / "other"))]
    proofs = [prove.Proof(names[0], what, 3, (), "a") for what in ("tasks", "replay")]
    proofs += [
        prove.Proof(names[1], what, 3, ("0001: wrong",) * (what == "tasks"), "b") for what in ("tasks", "replay")
    ]
    assert prove.report(proofs, names) == [
        f"library ({names[0]}): 3 tasks self-consistent, transcripts a",
        f"library ({names[1]}): 3 tasks, 1 faults, transcripts b",
        f"FAULT library ({names[1]}): 0001: wrong",
    ]


def test_a_folder_of_ones_own_is_proven_whatever_its_tasks_are_called_and_one_without_tasks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = changed(tmp_path / "named", "tasks.jsonl.gz", lambda text: text.replace('"id": "0', '"id": "t0'))
    assert prove.check_again(str(named), ["t0001"]).faults == ()
    empty = changed(tmp_path / "empty", "tasks.jsonl.gz", lambda _: "")
    assert ended(prove.main, f"{empty} --at-once 1") == 2
    assert "library: it has no task that could be proven; generate it with some" in capsys.readouterr().err


def test_files_of_a_folder_that_is_no_domain_are_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.md").write_text("mine")
    assert ended(generate.main, f"{LIBRARY} --tasks 3 --out {tmp_path}") == 2
    assert "has no domain.json and so is no domain, and its policy.md would be lost" in capsys.readouterr().err
    assert (tmp_path / "policy.md").read_text() == "mine"


def test_a_domain_that_was_written_half_does_not_load(tmp_path: Path) -> None:
    out, tasks = tmp_path / "out", tmp_path / "out" / "tasks.jsonl.gz"
    shutil.copytree(library(), out)
    tasks.unlink()
    tasks.mkdir()
    with pytest.raises(OSError, match=r"tasks\.jsonl\.gz"):
        make(specs.load(LIBRARY), 12, 2, out)
    tasks.rmdir()
    shutil.copy(library() / tasks.name, tasks)
    with pytest.raises(ConfigError, match=r"domain\.json: no such file"):
        loader.read(out)


def _task() -> tuple[DomainPlayer, SqlTask]:
    bench = DomainPlayer(loader.read(library()))
    found = next(t for t in bench.domain.tasks.values() if [r.intent for r in t.requests] == ["renew"])
    return bench, found


@pytest.mark.parametrize("check", ["gold", "nothing", "told", "dropped", "swapped"])
def test_each_check_catches_its_fault(check: str) -> None:
    bench, task = _task()
    read, listed, write = task.actions
    unchanged = replace(task, end_states=("unchanged",))
    broken = {
        "gold": replace(task, actions=(read, listed, GoldCall("renew_loan", {"loan_id": "LO-999"}))),
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


def _others(bench: DomainPlayer, write: GoldCall) -> list[GoldCall]:
    return [other for _, other in bench.swaps(write)]


def _shelving(tmp_path: Path, *steps: tuple[str, str]) -> tuple[DomainPlayer, SqlTask]:
    """The library with a tool that puts a book on a shelf, and a task with a request for each step."""
    shelf = {"type": "string", "format": "text", "description": ""}
    book = {"type": "string", "format": "id", "description": ""}
    tool = {
        "name": "put_on_shelf",
        "kind": "write",
        "parameters": {"book_id": book, "shelf": shelf},
        "steps": [
            {"check": "(SELECT shelf FROM books WHERE book_id = :book_id) != 'Cellar'", "error": "It is put away."},
            {"do": "UPDATE books SET shelf = :shelf WHERE book_id = :book_id"},
        ],
        "returns": {"row": "SELECT shelf FROM books WHERE book_id = :book_id"},
    }
    bench = DomainPlayer(with_tool(tmp_path, **tool))
    task = next(iter(bench.domain.tasks.values()))
    actions = tuple(GoldCall("put_on_shelf", {"book_id": book_id, "shelf": where}) for book_id, where in steps)
    requests = tuple(replace(task.requests[0], intent=f"step {n}", actions=(n,)) for n in range(len(steps)))
    return bench, replace(task, actions=actions, alternatives=(), requests=requests)


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        (
            [("BO-001", "North"), ("BO-001", "South")],
            "step 0 sets books.BO-001.shelf to 'North', step 1 sets it to 'So",
        ),
        ([("BO-001", "Cellar"), ("BO-001", "South")], "step 1 is refused because of step 0, and goes through without"),
        ([("BO-001", "North"), ("BO-002", "South")], ""),
        ([("BO-001", "North"), ("BO-001", "Cellar")], ""),  # steps of one matter: the other order is refused
    ],
)
def test_requests_that_contradict_each_other_are_found(tmp_path: Path, steps: list[tuple[str, str]], seen: str) -> None:
    bench, task = _shelving(tmp_path, *steps)
    found = CHECKS["contradictory"](bench, task)
    assert found.startswith(seen)
    assert bool(found) == bool(seen)


def test_requests_that_add_up_are_no_contradiction() -> None:
    """Two loans of one book both change the number of copies that are in."""
    bench, task = _task()
    book = next(row[0] for row in bench.domain.tables["books"].rows if row[3] > 1)
    members = [row[0] for row in bench.domain.tables["members"].rows if row[-1] == "active"][:2]
    actions = tuple(GoldCall("borrow_book", {"member_id": member, "book_id": book}) for member in members)
    requests = tuple(replace(task.requests[0], intent=f"loan {n}", actions=(n,)) for n in range(2))
    assert CHECKS["contradictory"](bench, replace(task, actions=actions, requests=requests)) == ""


def test_no_shipped_task_asks_for_the_same_twice() -> None:
    domains = [loader.load(name) for name in loader.names()]
    twice = [t.shape for d in domains for t in d.tasks.values() if similarity.asks_twice(t.shape, d.writes)]
    assert twice == []
    domain = loader.read(library())
    task = next(t for t in domain.tasks.values() if t.requests[0].inform and t.requests[0].actions)
    request = task.shape["toolscale"]["requests"][0]
    again = {**task.shape, "toolscale": {**task.shape["toolscale"], "requests": [request, request]}}
    assert similarity.asks_twice(again, ())
    assert not similarity.asks_twice(again, set(domain.tools))  # two bookings of the same are two wishes


def test_a_task_that_asks_twice_gives_way_and_all_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = specs.load(LIBRARY)
    domain = domain_folder.skeleton(spec, 1)
    before, _ = domain_folder.tasks(spec, domain, 8, 1)
    says = iter([True])
    monkeypatch.setattr(similarity, "asks_twice", lambda *_: next(says, False))
    after, report = domain_folder.tasks(spec, domain, 8, 1)
    assert [one == other for one, other in zip(before, after, strict=True)] == [False] + [True] * 7
    assert report.dropped["asks for the same twice"] == 1


def test_duplicates_are_found_though_names_and_numbers_differ() -> None:
    shapes = [task.shape for task in loader.read(library()).tasks.values()]
    assert similarity.compare(shapes).exact == 0
    first = shapes[0]
    said = first["user_scenario"]["instructions"]
    renamed = {**said, "reason_for_call": said["reason_for_call"], "known_info": (said["known_info"] or "") + " "}
    twin = {**first, "id": "twin", "user_scenario": {"instructions": renamed}}
    assert similarity.compare([*shapes, twin]).exact == 1
    longer = " ".join([said["reason_for_call"], *LISTS["streets"]]).lower()
    long = {**first, "user_scenario": {"instructions": {**said, "reason_for_call": longer}}}
    near = {**first, "user_scenario": {"instructions": {**said, "reason_for_call": f"{longer} well."}}}
    assert similarity.compare([long, near]).near == 1
    assert similarity.normal("Pay Ada Novak 12.50 from AC-00012") == similarity.normal("Pay Lars Cho 7 from AC-00713")


@pytest.mark.parametrize(
    ("part", "old", "new", "seen"),
    [
        ("intents.yaml", "ending: refuse", "ending: deny", "intents.yaml:16: renew_too_often: ending must be one of"),
        ("intents.yaml", "SELECT title FROM books\n", "SELECT titel FROM books\n", "no such column: titel"),
        ("intents.yaml", "{title}?", "{titel}?", "no value 'titel'; there are: title"),
        ("intents.yaml", "renewals = 2", "renewals = 7", "no row; change the draw"),
        ("rows.yaml", "{person: }", "{parson: }", "table 'members': full_name: a recipe has one of"),
        ("rows.yaml", "count: 16", "count: 17", "no unique value in 200 tries"),
        ("rows.yaml", "min(rowid)", "min(rowit)", "rows.yaml: finish[0]: no such column"),
        ("tools.yaml", "kind: write", "kind: wright", "tools.yaml:25: kind must be one of: read, write"),
        ("domain.yaml", "birth_year FROM members", "birth_year FROM members LIMIT 0", "user.draw: no row; change"),
        ("intents.yaml", "intent: renew_too_often", "intent: renew", "renew: a second intent of this name"),
        ("rows.yaml", "per: [1, 2]", "per: [2, 1]", "per is [least, most] with 0 <= least <= most, got [2, 1]"),
        ("rows.yaml", '{pattern: "@-##"}', "{choice: [[A, 1], [B, 2]]}", "a text, a number or null expected, got ['"),
        ("rows.yaml", "{int: [0, 4]}", "99999999999999999999", "rows.yaml: table 'books': Python int too large"),
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


def test_a_spec_that_is_not_utf_8_names_its_file(tmp_path: Path) -> None:
    single = tmp_path / "own.yaml"
    shutil.copytree(LIBRARY, tmp_path / "spec")
    for place, path in ((single, single), (tmp_path / "spec", tmp_path / "spec" / "policy.md")):
        path.write_bytes("Müller".encode("latin-1"))
        with pytest.raises(ConfigError, match=rf"{path}: not UTF-8 text: .*; save it as UTF-8"):
            specs.load(place)


def test_too_few_intents_end_with_the_yield_report(tmp_path: Path) -> None:
    shutil.copytree(LIBRARY, tmp_path / "spec")
    path = tmp_path / "spec" / "intents.yaml"
    path.write_text(path.read_text(encoding="utf-8").partition("- intent: renew")[0], encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        make(specs.load(tmp_path / "spec"), 30, 1, tmp_path / "out")
    assert "add intents, wordings or rows" in str(caught.value)
    assert "says what another does" in str(caught.value)


def test_an_interrupt_waits_for_no_worker() -> None:
    def interrupted() -> None:
        with prove.workers(1) as pool:
            pool.submit(time.sleep, 600)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.parametrize(
    ("main", "words"),
    [(prove.main, "--sample 0"), (generate.main, "zoo --model standin:parking --out x --at-once 0")],
)
def test_numbers_of_nothing_are_refused_at_the_start(
    main: Callable[[Sequence[str]], int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(main, words) == 2
    assert f"{words[:-2].split()[-1]}: a whole number from 1 up expected, got 0" in capsys.readouterr().err


def test_a_part_of_a_spec_that_leads_out_of_its_folder_is_not_read(tmp_path: Path) -> None:
    shutil.copytree(LIBRARY, tmp_path / "library")
    (tmp_path / "library" / "policy.md").unlink()
    (tmp_path / "library" / "policy.md").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match=r"policy\.md is a link that leads out of .*library, and is not read"):
        specs.load(tmp_path / "library")
