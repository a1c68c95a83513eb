"""GAIA over a copy made here in its format: answers, attachments, levels, withheld answers and the submission."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation.made_rows import made_row, write_run
from tests.agents.evaluation.played_episodes import play
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import compare, evaluate
from toolorchestra.agents.evaluation.gaia_submission import SUBMISSION
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.policies.players import player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.answer_grading import is_right
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Answer
from toolorchestra.envs.domains.gaia.source import GaiaSource, text_of
from toolorchestra.envs.domains.questions.datasets import picture_url
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.tools.backends import Backing, read

ID = "ToolOrchestra/GAIA-v0"
SHEET = '<x:worksheet xmlns:x="u"><x:row>{}</x:row></x:worksheet>'
CELLS = '<x:c r="A1" t="s"><x:v>1</x:v></x:c><x:c r="B1"><x:v>4.5</x:v></x:c><x:c r="C1"/>'
SHARED = '<x:sst xmlns:x="u"><x:si><x:t>no</x:t></x:si><x:si><x:t>ap</x:t><x:t>ple</x:t></x:si></x:sst>'


def row(task: str, answer: str, level: int = 1, file: str = "") -> dict[str, Any]:
    return {"task_id": task, "Question": f"What is {task}?", "Level": level, "Final answer": answer,
            "file_name": file, "Annotator Metadata": {"Steps": "1. Look."}}  # fmt: skip


def copy_of(folder: Path) -> Path:
    rows = [
        row("t-1", "3,459"),
        row("t-2", "pears, bananas", 2),
        row("t-3", "THE CASTLE", 3, "t-3.csv"),
        row("t-4", "?"),
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "t-3.csv").write_text("name,rooms\nThe Castle,12\n")
    return folder


@pytest.fixture
def made(tmp_path: Path) -> GaiaSource:
    return GaiaSource(dataset=str(copy_of(tmp_path)), backends=Backing(read(index="embedded")))


@pytest.mark.parametrize(
    ("reference", "given", "right"),
    [
        ("17", "17", True),
        ("17", "$17.0 %", True),
        ("3459", "3,459", True),
        ("17", "about 17", False),
        ("0.1", "0.10", True),
        ("3; 7", "3;7.0", True),
        ("3; 7", "3", False),
        ("b, e", "e, b", False),
        ("b, e", "B,E", True),
        ("Smith, J.", "Smith, J", False),
        ("St. Petersburg", "st petersburg", True),
        ("sea gull", "Seagull.", True),
        ("sea gull", "seagulls", False),
        ("Paris", "", False),
        ("?", "...", False),
        ("?", "?", False),
    ],
)
def test_quasi_exact_match_is_the_leaderboard_s(reference: str, given: str, right: bool) -> None:
    assert is_right(Answer(reference, "quasi"), given) is right


def test_rows_become_questions_by_level(made: GaiaSource, tmp_path: Path) -> None:
    assert made.task_ids("all") == [f"gaia/all/t-{n}" for n in (1, 2, 3, 4)]
    assert GaiaSource(dataset=str(tmp_path), level=2, backends=made.backing).task_ids("all") == ["gaia/all/t-2"]
    for task, answer, right in (("t-1", "$3,459", 1.0), ("t-2", "Pears,bananas", 1.0), ("t-2", "pears", 0.0)):
        env = gym.make(ID, dataset=str(tmp_path), backends=made.backing, tools="plain", preference="none", split="all")
        env.reset(seed=0, options={"task_id": f"gaia/all/{task}"})
        *_, info = env.step(render_call("submit", {"answer": answer}))
        assert info["outcome"]["value"] == right


def test_an_attachment_is_shown_and_lies_in_the_folder_of_programs(tmp_path: Path) -> None:
    copy_of(tmp_path)
    backing = Backing(read(index="embedded", sandbox="unsafe-exec", unsafe_exec=True))
    env = gym.make(ID, dataset=str(tmp_path), backends=backing, tools="plain", preference="none", split="all")
    seen, _ = env.reset(seed=0, options={"task_id": "gaia/all/t-3"})
    assert "Attached file: t-3.csv\n\n[t-3.csv] name,rooms\nThe Castle,12" in seen["messages"][-1]["content"]
    seen, *_ = env.step(render_call("python", {"code": "print(open('t-3.csv').read().splitlines()[1])"}))
    assert "The Castle,12" in seen["messages"][-1]["content"]


def test_an_attached_picture_goes_to_models_that_take_pictures(tmp_path: Path) -> None:
    pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
    png, file = b"\x89PNG\r\n\x1a\n" + b"x" * 500, tmp_path / "backends.json"
    (tmp_path / "metadata.jsonl").write_text(json.dumps(row("t-1", "a cat", file="t-1.png")) + "\n")
    (tmp_path / "t-1.png").write_bytes(png)

    def answer(asked: ReceivedRequest) -> ServerReply:
        simple = "<answer>a cat</answer>" if "<answer>" in asked.text else ""
        return ServerReply(simple or render_call("answer", {"model": "answer-4"}))

    with Loopback(answer) as server:
        for settings, shown in (({"image_tokens": 1500}, [picture_url(png)]), ({}, [])):
            ends = {"endpoints": {"here": {"base_url": server.base_url}}, "models": {"*": settings}}
            file.write_text(json.dumps({**ends, "retrieval": {"index": "embedded"}}))
            made = factory_of("GAIA-v0", dataset=str(tmp_path), backends=str(file), split="all", preference="none")
            got = asyncio.run(play(made, player("chat", made).move, 0, Gates(), {"task_id": "gaia/all/t-1"}))
            assert (got.failure, got.record.right, got.nano_usd > 0) == ("", 1.0, True)
            for asked in (one.json["messages"] for one in server.seen):
                parts = [p for said in asked if isinstance(said["content"], list) for p in said["content"]]
                assert [p["image_url"]["url"] for p in parts if p["type"] == "image_url"] == shown
                assert "Attached file: t-1.png" in json.dumps(asked)
            assert len(server.seen) == 2
            server.seen.clear()


def test_office_files_are_read_and_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.xlsx", "w") as packed:
        packed.writestr("xl/sharedStrings.xml", SHARED)
        packed.writestr("xl/worksheets/sheet1.xml", SHEET.format(CELLS))
    assert text_of(tmp_path / "a.xlsx") == "A1: apple\tB1: 4.5"
    with ZipFile(tmp_path / "a.docx", "w") as packed:
        packed.writestr("word/document.xml", '<w:d xmlns:w="u"><w:p><w:t>Hel</w:t><w:t>lo</w:t></w:p><w:p/></w:d>')
    assert text_of(tmp_path / "a.docx") == "Hello"
    with ZipFile(tmp_path / "c.docx", "w", ZIP_DEFLATED) as packed:
        packed.writestr("word/document.xml", "<a>" + "hello world " * 500 + "</a>")
    whole = (tmp_path / "c.docx").read_bytes()
    begun = whole.index(b"document.xml") + len("document.xml") + 5
    (tmp_path / "c.docx").write_bytes(whole[:begun] + b"\xff" * 10 + whole[begun + 10 :])
    assert text_of(tmp_path / "c.docx") == ""
    (tmp_path / "b.xlsx").write_bytes(b"no zip")
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    assert text_of(tmp_path / "b.xlsx") == text_of(tmp_path / "a.png") == ""


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="GAIA is gated"):
        gym.make(ID)
    with pytest.raises(ConfigError, match=r"has none of metadata\.jsonl"):
        GaiaSource(dataset=str(tmp_path), backends=Backing(read(index="embedded")))
    copy_of(tmp_path)
    (tmp_path / "t-3.csv").unlink()
    with pytest.raises(ConfigError, match=r"'t-3\.csv' is not in"):
        GaiaSource(dataset=str(tmp_path), backends=Backing(read(index="embedded")))


def test_an_attachment_is_no_link_out_of_the_copy_except_in_a_hub_s_cache(tmp_path: Path) -> None:
    (copy := tmp_path / "copy").mkdir()
    (kept := tmp_path / "kept").mkdir()
    copy_of(copy)
    (copy / "t-3.csv").rename(kept / "t-3.csv")
    (copy / "t-3.csv").symlink_to(kept / "t-3.csv")
    backing = Backing(read(index="embedded"))
    with pytest.raises(ConfigError, match="is a link that leads out of"):
        GaiaSource(dataset=str(copy), backends=backing)
    (copy / "metadata.jsonl").rename(kept / "metadata.jsonl")
    (copy / "metadata.jsonl").symlink_to(kept / "metadata.jsonl")
    assert GaiaSource(dataset=str(copy), backends=backing).question("gaia/all/t-3").attached[0].title == "t-3.csv"


def test_a_run_is_written_as_the_leaderboard_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_of(tmp_path)
    words = ["--env", "GAIA-v0", "--split", "all", "--dataset", str(tmp_path), "--backends", "index=embedded"]
    run = tmp_path / "run"
    assert evaluate.main([*words, "--tasks", "4", "--policy", "random", "--out", str(run)]) == 0
    assert compare.main([str(run), "--format", "gaia", "--out", str(tmp_path / "out")]) == 0
    assert f"{SUBMISSION}: 4 tasks" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "out" / SUBMISSION).read_text().splitlines()]
    assert sorted(one["task_id"] for one in rows) == ["t-1", "t-2", "t-3", "t-4"]
    assert all(list(one) == ["task_id", "model_answer", "reasoning_trace"] for one in rows)
    assert all("What is t-" in one["reasoning_trace"] for one in rows)


def test_trials_that_failed_are_no_answers_of_the_leaderboard_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(task: str, trial: int, right: float | None) -> EvaluationRow:
        evidence = {"answer": f"{task} {trial}"} if right is not None else {}
        return made_row(f"gaia/all/{task}", right, env="GAIA-v0", trial=trial, evidence=evidence, cents=0.0)

    tried = [("a", 0, None), ("a", 1, 0.0), ("a", 2, 1.0), ("b", 0, None), ("b", 1, None), ("c", 0, 1.0)]
    run = write_run(tmp_path / "run", [played(*one) for one in tried])
    (run / "trajectories.jsonl").touch()
    assert compare.main([str(run), "--format", "gaia", "--out", str(tmp_path / "out")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / SUBMISSION).read_text().splitlines()]
    assert {one["task_id"]: one["model_answer"] for one in rows} == {"a": "a 1", "c": "c 0"}
    said = capsys.readouterr().out
    assert f"{SUBMISSION}: 2 tasks, 0 without an answer" in said
    assert "1 of 3 tasks failed or were cut, and are left out" in said
