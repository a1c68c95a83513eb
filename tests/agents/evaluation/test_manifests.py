"""What a run is made with: a resumed run notices what has changed, one process plays in a folder, no file is half."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, cast

import pytest

from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.evaluation.rows import ROWS, SUMMARY, read_rows
from toolorchestra.agents.evaluation.run_files import CHANGED, whole_manifest
from toolorchestra.agents.policies.players import Player, player
from toolorchestra.envs.base import files
from toolorchestra.envs.base.files import write_json
from toolorchestra.envs.factory import EpisodeFactory

DATA = resources.files("toolorchestra.envs") / "data"
QUESTIONS = [{"id": str(n), "question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(4)]


def copied(tmp_path: Path, folder: str, name: str) -> Path:
    path = tmp_path / f"{folder}.json"
    path.write_bytes((DATA / folder / f"{name}.json").read_bytes())
    return path


def dataset(tmp_path: Path, answer: str = "6") -> Path:
    rows = [{**row, "answer": answer} if row["id"] == "3" else row for row in QUESTIONS]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def backends(tmp_path: Path, seconds: int = 20, kind: str = "arithmetic") -> Path:
    path = tmp_path / "b.toml"
    path.write_text(f'[retrieval]\nindex = "embedded"\n[sandbox]\nkind = "{kind}"\nseconds = {seconds}.0\n')
    return path


def run(tmp_path: Path, *more: str) -> int:
    words = ["--env", "HLE-v0", "--tasks", "3", "--policy", "random", "--out", str(tmp_path / "run"), *more]
    return evaluate.main(words)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def prices_change(tmp_path: Path) -> tuple[list[str], Callable[[], object], str]:
    path = copied(tmp_path, "prices", "paper-2025-11")
    return ["--each", f"prices={path}"], lambda: edit(path, '"gpt-5"', '"gpt-5" '), f"price sheet {path}"


def questions_change(tmp_path: Path) -> tuple[list[str], Callable[[], object], str]:
    words = ["--dataset", str(dataset(tmp_path)), "--backends", "index=embedded"]
    return words, lambda: dataset(tmp_path, "7"), f"data set {tmp_path / 'questions.jsonl'}"


def backends_change(tmp_path: Path) -> tuple[list[str], Callable[[], object], str]:
    words = ["--backends", str(backends(tmp_path))]
    return words, lambda: backends(tmp_path, seconds=7), "backends: sandbox"


WEIGHTS = ["first"]
"""What the player below says that it is made of."""


def weighed(name: str, factory: EpisodeFactory, seed: int, _options: object) -> Player:
    made: Any = player("cheapest", factory, seed)
    made.name, made.made_of = name, WEIGHTS[0]
    return cast(Player, made)


def weights_change(_tmp_path: Path) -> tuple[list[str], Callable[[], object], str]:
    name = f"{__name__}:weighed"
    return ["--policy", name], lambda: WEIGHTS.append(WEIGHTS.pop() + "x"), f"policy {name}"


CHANGES = (prices_change, questions_change, backends_change, weights_change)


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_has_changed_is_named_and_the_run_does_not_go_on(
    change: Callable[[Path], tuple[list[str], Callable[[], object], str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, do, name = change(tmp_path)
    assert run(tmp_path, *words) == 0
    assert run(tmp_path, *words, "--resume") == 0
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    do()
    capsys.readouterr()
    assert run(tmp_path, *words, "--resume") == 2
    told = capsys.readouterr().err
    assert f"was made with, but this has changed since: {name}; put back what it was" in told
    assert "or say allow_changed=True, and rows of both will stand in one run. On the command line: --resume " in told
    assert told.endswith(" --allow-changed, or another --out FOLDER\n")
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


def test_a_changed_file_can_be_allowed_and_the_manifest_says_so(tmp_path: Path) -> None:
    words, do, name = prices_change(tmp_path)
    assert run(tmp_path, *words) == 0
    (tmp_path / "run" / ROWS).write_text((tmp_path / "run" / ROWS).read_text().split("\n")[0] + "\n")
    (tmp_path / "run" / SUMMARY).unlink()
    do()
    assert run(tmp_path, *words, "--resume", "--allow-changed") == 0
    assert len(list(read_rows(tmp_path / "run"))) == 3
    assert [entry["what"] for entry in whole_manifest(tmp_path / "run")[CHANGED]] == [[name]]
    assert run(tmp_path, *words, "--resume") == 0  # it is the new one that counts now


# -- one process at a time ---------------------------------------------------------------------------------------------


def test_two_processes_do_not_play_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    program = (
        "import sys, pathlib\nfrom toolorchestra.envs.base.files import held\n"
        "with held(pathlib.Path(sys.argv[1]), ''):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "run")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
        capsys.readouterr()
        assert run(tmp_path, "--resume") == 2
        told = capsys.readouterr().err
        other.kill()  # the lock ends with its process
    assert f"{tmp_path / 'run'} is played in by another process; wait until it has ended, or name another" in told
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert run(tmp_path, "--resume") == 0


# -- whole files -------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.json"
    write_json(path, {"a": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["manifest.json"]
