"""The recorded run of a whole model-written domain, played again: the author was a script in a model's place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.synth import runs
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.synth import generate, prove
from toolorchestra.synth.authors.model_author import GIVES_UP, ScriptedParts
from toolorchestra.synth.storage import Journal

TAPE = Path(__file__).parent / "data" / "library-standin.cassette.jsonl"
COMMAND = ["a public library", "--model", "standin:public_library", "--tasks", "30"]


def test_the_cassette_plays_the_whole_path_and_every_task_is_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "library"
    assert generate.main([*COMMAND, "--out", str(out), "--replay", str(TAPE)]) == 0
    told = capsys.readouterr().out
    assert "| schema | 1 | 1 | SQL: 1 |" in told
    assert "of them made now: 0" in told
    ids = [json.loads(line)["id"] for line in _tasks(out)]
    assert len(ids) == 30
    assert prove.check_tasks(str(out), ids).faults == ()


def test_a_stand_in_that_reads_tasks_gives_up() -> None:
    talk = ("Solve the task.", "Hello! How can I help you today?", "Renew my loan.")
    messages = tuple(
        Message(role=role, content=text) for role, text in zip(("system", "assistant", "user"), talk, strict=True)
    )
    assert ScriptedParts(runs.texts())(ChatRequest("standin", "judge", messages)) == GIVES_UP


def _tasks(folder: Path) -> list[str]:
    return gzip.decompress((folder / "tasks.jsonl.gz").read_bytes()).decode().splitlines()


@pytest.mark.parametrize(
    "change",
    [{"key": 7}, {"tokens": [1, 2, 3, 4, 5]}, {"text": None}],
)
def test_a_call_of_another_shape_is_one_sentence(tmp_path: Path, change: dict[str, object]) -> None:
    first, *others = TAPE.read_text().split("\n")
    row = {**json.loads(first), "text": "a\u2028b"}
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join([json.dumps(row, ensure_ascii=False), *others]), encoding="utf-8")
    assert Journal(path).rows[row["key"]][0]["text"] == "a\u2028b"
    for line in (json.dumps({**row, **change}), "[" * 100_000, "[]", "\udcff"):
        path.write_text(f"{line}\n", encoding="utf-8", errors="surrogateescape")
        with pytest.raises(ConfigError, match=r"calls\.jsonl: line 1 is not a recorded call; record it anew"):
            Journal(path)
