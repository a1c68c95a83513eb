"""Real question sets: read from files by their fields, split by their own text, refused with what to do."""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.factory import factory
from toolorchestra.envs.tasks.datasets import Dataset, load
from toolorchestra.envs.tasks.frames import FramesSource
from toolorchestra.envs.tools.backing import Backing, read

ROWS = [{"id": f"q{i}", "question": f"What is {i} + {i}?", "answer": str(2 * i), "category": "Math"} for i in range(60)]
FRAMES = "toolorchestra.envs.tasks.frames:FramesSource"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "frames_questions.jsonl"


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_rows_become_questions(tmp_path: Path) -> None:
    got = load(written(tmp_path / "a.jsonl", ROWS))
    question = got.questions["q7"]
    assert (question.text, question.answer.text, question.subject, question.family) == (
        "What is 7 + 7?",
        "14",
        "Math",
        "math",
    )
    assert (len(got.questions), got.skipped_images) == (60, 0)


def test_json_csv_and_parquet_give_the_same(tmp_path: Path) -> None:
    want = load(written(tmp_path / "a.jsonl", ROWS)).questions
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    assert load(str(tmp_path / "a.json")).questions == load(str(tmp_path / "a.csv")).questions == want
    if find_spec("pyarrow") is None:
        (tmp_path / "a.parquet").touch()
        with pytest.raises(ConfigError, match=r"toolorchestra\[data\]"):
            load(str(tmp_path / "a.parquet"))
        return
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert load(str(tmp_path / "a.parquet")).questions == want


def test_the_known_sets_need_no_mapping_and_others_take_one(tmp_path: Path) -> None:
    frames = [{"Unnamed: 0": 3, "Prompt": "Who?", "Answer": "She", "reasoning_types": "Tabular | Temporal"}]
    assert load(written(tmp_path / "f.jsonl", frames)).questions["3"].text == "Who?"
    other = [{"frage": "Wer?", "antwort": "Sie"}]
    file = written(tmp_path / "o.jsonl", other)
    with pytest.raises(ConfigError, match=r"has no question \(its columns: frage, antwort\).*--field question=COLUMN"):
        load(file)
    got = load(Dataset(file, {"question": "frage", "answer": "antwort"})).questions
    assert got["0"].answer.text == "Sie"
    with pytest.raises(ConfigError, match="Did you mean 'frage'"):
        load(Dataset(file, {"question": "fragen", "answer": "antwort"}))
    with pytest.raises(ConfigError, match="Did you mean 'answer'"):
        Dataset(file, {"answers": "antwort"})


def test_questions_with_images_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{**row, "image": "data:image/png;base64,xx" if i % 4 == 0 else ""} for i, row in enumerate(ROWS)]
    file = written(tmp_path / "h.jsonl", rows)
    got = load(file)
    assert (len(got.questions), got.skipped_images) == (45, 15)
    with pytest.raises(ConfigError, match="'q0' needs its image"):
        load(Dataset(file, images="refuse"))


def test_a_row_without_an_answer_two_of_one_id_and_missing_ids_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="row 'q1' has no answer"):
        load(written(tmp_path / "a.jsonl", [ROWS[0], {**ROWS[1], "answer": " "}]))
    with pytest.raises(ConfigError, match="two rows have the id 'q0'"):
        load(written(tmp_path / "b.jsonl", [ROWS[0], ROWS[0]]))
    file = written(tmp_path / "c.jsonl", ROWS)
    assert list(load(Dataset(file, ids=("q9", "q3"))).questions) == ["q3", "q9"]
    with pytest.raises(ConfigError, match="no usable row 'q99'"):
        load(Dataset(file, ids=("q99",)))
    with pytest.raises(ConfigError, match="is empty"):
        load(written(tmp_path / "d.jsonl", []))


def test_what_is_not_there_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"needs its revision pinned: cais/hle@COMMIT"):
        load("cais/hle")
    with pytest.raises(ConfigError, match=r"no data set file 'none\.jsonl'"):
        load("none.jsonl")
    if find_spec("datasets") is None:
        with pytest.raises(ConfigError, match=r'pip install "toolorchestra\[data\]"'):
            load("cais/hle@main")


def test_the_splits_share_no_question_and_all_has_every_one(tmp_path: Path) -> None:
    source = FramesSource(backends=Backing(read(index="embedded")), dataset=written(tmp_path / "a.jsonl", ROWS))
    parts = [source.ids(split) for split in ("train", "validation", "test")]
    rows = [task_id.rpartition("/")[2] for part in parts for task_id in part]
    assert sorted(rows) == sorted(row["id"] for row in ROWS)
    assert len(source.ids("all")) == 60
    assert source.name == "frames"
    with pytest.raises(ConfigError, match="no task 'frames/train/zz'"):
        source.question("frames/train/zz")


def test_real_questions_want_a_real_index(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(ConfigError, match=r"real questions need something real to search in.*--index"):
        factory(FRAMES, dataset=file)


def test_an_episode_over_a_real_question(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", ROWS)
    made = factory(FRAMES, dataset=file, split="all", tools="plain", backends=Backing(read(index="embedded")))
    started = made.start(0, {"task_id": "frames/all/q7"})
    assert started.observation["messages"][1]["content"] == "What is 7 + 7?"
    assert "14" not in str(started.info)
    assert made.start(1).info == made.start(1).info


@pytest.mark.skipif(not SHARED.is_file(), reason="the public FRAMES questions are not on this machine")
def test_the_824_real_frames_questions_load() -> None:
    got = load(str(SHARED))
    assert len(got.questions) == 824
    assert got.questions["wiki____3"].answer.text == "France"
    source = FramesSource(backends=Backing(read(index="embedded")), dataset=str(SHARED))
    sizes = {split: len(source.ids(split)) for split in source.splits}
    assert sizes["all"] == 824
    assert sizes["train"] + sizes["validation"] + sizes["test"] == 824
    assert 600 < sizes["train"] < 720
