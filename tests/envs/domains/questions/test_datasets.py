"""Real question sets: read from files by their fields, split by their own text, refused with what to do."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import timeit
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.paths import SHARED
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.domains.questions.datasets import PINNED, Dataset, load
from toolorchestra.envs.factory import factory
from toolorchestra.envs.tools.backends import Backing, read

ROWS = [{"id": f"q{i}", "question": f"What is {i} + {i}?", "answer": str(2 * i), "category": "Math"} for i in range(60)]
FRAMES = "toolorchestra.envs.domains.frames.source:FramesSource"
QUESTIONS = SHARED / "data" / "frames_questions.jsonl"


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_json_csv_and_parquet_give_the_same(tmp_path: Path) -> None:
    want = load(written(tmp_path / "a.jsonl", ROWS)).questions
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8-sig")
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:  # as Excel does
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    assert load(str(tmp_path / "a.json")).questions == load(str(tmp_path / "a.csv")).questions == want
    if find_spec("pyarrow") is None:
        (tmp_path / "a.parquet").touch()
        with pytest.raises(ConfigError, match=r"\.\[data\]"):
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
    wanted = r"has no question \(its columns: frage, antwort\).*fields=\{\"question\": \"COLUMN\"\}\)$"
    with pytest.raises(ConfigError, match=wanted):
        load(file)
    got = load(Dataset(file, {"question": "frage", "answer": "antwort"})).questions
    assert got["0"].answer.text == "Sie"
    with pytest.raises(ConfigError, match="Did you mean 'frage'"):
        load(Dataset(file, {"question": "fragen", "answer": "antwort"}))
    with pytest.raises(ConfigError, match="Did you mean 'answer'"):
        Dataset(file, {"answers": "antwort"})


def test_a_file_that_a_row_names_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("mine")
    rows = [{**ROWS[0], "file_name": str(tmp_path / "secret.txt")}]
    assert load(written(tmp_path / "q.jsonl", rows)).questions["q0"].files == ()
    with pytest.raises(ConfigError, match="no field 'file'"):
        Dataset("q.jsonl", {"file": "file_name"})


def test_questions_with_images_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{**row, "image": "data:image/png;base64,xx" if i % 4 == 0 else ""} for i, row in enumerate(ROWS)]
    file = written(tmp_path / "h.jsonl", rows)
    got = load(file)
    assert (len(got.questions), got.skipped_images) == (45, 15)


def test_a_row_without_an_answer_two_of_one_id_and_missing_ids_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="row 'q1' has no answer"):
        load(written(tmp_path / "a.jsonl", [ROWS[0], {**ROWS[1], "answer": " "}]))
    with pytest.raises(ConfigError, match="two rows have the id 'q0'"):
        load(written(tmp_path / "b.jsonl", [ROWS[0], {**ROWS[1], "id": "q0"}]))
    file = written(tmp_path / "c.jsonl", ROWS)
    assert list(load(Dataset(file, ids=("q9", "q3"))).questions) == ["q3", "q9"]
    with pytest.raises(ConfigError, match="no usable row 'q99'"):
        load(Dataset(file, ids=("q99",)))
    with pytest.raises(ConfigError, match="is empty"):
        load(written(tmp_path / "d.jsonl", []))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "question,answer\nWho?,She\nWhat is 1,000 + 1?,1001\n", "line 3: more columns than the first line"),
        ("a.csv", b"question,answer\nWho?,\xff\n", "'utf-8' codec can't decode"),
        ("a.json", "{", "Expecting property name"),
        ("a.json", '{"data": []}', "a list of rows expected, got dict"),
        ("a.jsonl", '{"question": "Who?", "answer": "She"}\n1\n', "row 2 is 1"),
        ("a.jsonl", '["Who?", "She"]\n', "row 1 is ['Who?', 'She']"),
        ("a.jsonl", '{"question": "Who?", "answer": "She"}\n\n{\n', "line 3: Expecting"),
        ("a.parquet", "PAR1", ""),
        ("a.jsonl", '{"id": 1, "question": "Who?", "answer": "She"}\n{"question": "Why?", "answer": "So"}\n',
         "row 2 has no id under 'id'"),
        ("a.jsonl", '{"id": null, "question": "Who?", "answer": "She"}\n', "row 1 has no id under 'id'"),
        ("a.jsonl", '{"id": " ", "question": "Who?", "answer": "She"}\n', "row 1 has no id under 'id'"),
        ("a.jsonl", '{"id": 7, "question": "Who?", "answer": ["She", "He"]}\n',
         "row '7': a text or a number expected under 'answer', got ['She', 'He']"),
        ("a.jsonl", '{"id": 7, "question": {"en": "Who?"}, "answer": "She"}\n',
         "row '7': a text or a number expected under 'question', got {'en': 'Who?'}"),
        ("a.jsonl", '{"id": 7, "question": "Who?", "answer": NaN}\n', "row '7' has no answer under 'answer'"),
    ],
)  # fmt: skip
def test_a_file_that_would_be_misread_is_refused_by_its_row(
    tmp_path: Path, name: str, content: str | bytes, says: str
) -> None:
    if name.endswith("parquet") and find_spec("pyarrow") is None:
        pytest.skip('pip install ".[data]"')
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=re.escape(str(path)) + ".*" + re.escape(says)):
        load(str(path))


def test_rows_of_sets_made_for_training(tmp_path: Path) -> None:
    """Several models' answers to one question are one question, and what nobody answered can be left out."""
    rows = [{"question_id": 7, "question": "Who?", "reference_answer": "She", "model_answer": m} for m in "abc"]
    rows.append({"question_id": 8, "question": "Why?", "reference_answer": "", "model_answer": "d"})
    file = written(tmp_path / "g.jsonl", rows)
    with pytest.raises(ConfigError, match=r"row '8' has no answer under 'reference_answer'; .*blanks=\"skip\""):
        load(file)
    got = load(Dataset(file, blanks="skip"))
    assert (list(got.questions), got.repeats, got.blanks) == (["7"], 2, 1)


def test_the_published_file_of_frames(tmp_path: Path) -> None:
    """Its table is separated by tabs, and its first column has no name."""
    path = tmp_path / "test.tsv"
    path.write_text('\tPrompt\tAnswer\treasoning_types\n0\t"Who, say ""x""?"\tShe\tTabular | Temporal\n')
    question = load(str(path)).questions["0"]
    assert (question.text, question.answer.text) == ('Who, say "x"?', "She")


def from_hub(name: str, file: Path, caches: Path, *wanted: str) -> list[dict[str, Any]]:
    """What the real library gives, with a hub on the loopback."""
    program = [
        sys.executable,
        "-m",
        "tests.envs.domains.questions.hub_on_loopback",
        name,
        str(file),
        str(caches),
        *wanted,
    ]
    home = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, env=home, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(find_spec("datasets") is None, reason='pip install ".[data]"')
def test_frames_from_the_hub_at_its_pinned_revision(tmp_path: Path) -> None:
    file = tmp_path / "test.tsv"
    file.write_text("\tPrompt\tAnswer\treasoning_types\n0\tWho?\tShe\tTabular\n1\tWhen?\t1987\tTemporal\n")
    name, other = "google/frames-benchmark", "0" * 40
    default, given, missing, gated = from_hub(
        name, file, tmp_path / "hub", name, f"{name}@{other}", f"{name}@{'1' * 40}", "cais/gated@main"
    )
    assert default["rows"] == {"0": ["Who?", "She", "Tabular"], "1": ["When?", "1987", "Temporal"]}
    assert all(PINNED[name] in path for path in default["asked"])
    assert given["rows"] == default["rows"]
    assert all(other in path for path in given["asked"])
    assert f"data set {name}@{'1' * 40} " in missing["error"]
    for part in ("cais/gated@main is not there or is gated", "accept its terms", "export HF_TOKEN="):
        assert part in gated["error"]


@pytest.mark.skipif(find_spec("datasets") is None, reason='pip install ".[data]"')
def test_hle_from_the_hub_without_a_picture_library(tmp_path: Path) -> None:
    """Its previews are pictures, which nobody has to decode; questions with an image are left out and counted."""
    import datasets

    picture = {"bytes": b"\x89PNG not really", "path": None}
    rows = [
        {"id": "a1", "question": "What?", "image": "", "image_preview": None, "answer": "That", "category": "Math"},
        {"id": "a2", "question": "See?", "image": "data:x", "image_preview": picture, "answer": "B", "category": "Art"},
    ]
    features = {key: datasets.Value("string") for key in rows[0]} | {"image_preview": datasets.Image()}
    file = tmp_path / "test.parquet"
    datasets.Dataset.from_list(rows, features=datasets.Features(features)).to_parquet(str(file))
    (got,) = from_hub("cais/hle", file, tmp_path / "hub", "cais/hle")
    assert got["rows"] == {"a1": ["What?", "That", "Math"]}
    assert got["images"] == 1
    assert all(PINNED["cais/hle"] in path for path in got["asked"])


def test_what_is_not_there_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"needs its revision pinned: some/set@COMMIT .*without a revision: cais/hle"):
        load("some/set")
    with pytest.raises(ConfigError, match=r"no data set file 'none\.jsonl'"):
        load("none.jsonl")
    if find_spec("datasets") is None:
        with pytest.raises(ConfigError, match=r'pip install "\.\[data\]"'):
            load("cais/hle@main")


def test_the_splits_share_no_question_and_all_has_every_one(tmp_path: Path) -> None:
    source = FramesSource(backends=Backing(read(index="embedded")), dataset=written(tmp_path / "a.jsonl", ROWS))
    parts = [source.ids(split) for split in ("train", "validation", "test")]
    rows = [task_id.rpartition("/")[2] for part in parts for task_id in part]
    assert sorted(rows) == sorted(row["id"] for row in ROWS)
    assert len(source.ids("all")) == 60
    assert source.name == "frames"
    (elsewhere,) = parts[2][:1]
    for unknown in ("frames/train/zz", elsewhere.replace("/test/", "/train/"), "frames/none/q1", "other/all/q1"):
        with pytest.raises(ConfigError, match=f"no task '{unknown}'"):
            source.question(unknown)


def test_a_question_of_a_large_set_is_found_as_fast_as_of_a_small_one(tmp_path: Path) -> None:
    rows = [{"id": f"row-{i:04}", "question": f"What is {i}?", "answer": str(i)} for i in range(4000)]
    source = FramesSource(backends=Backing(read(index="embedded")), dataset=written(tmp_path / "a.jsonl", rows))
    first, last = (
        min(timeit.repeat(lambda task=task: source.question(f"frames/all/{task}"), number=1, repeat=30))
        for task in ("row-0000", "row-3999")
    )
    assert last < 5 * first


def test_real_questions_want_a_real_index(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(ConfigError, match=r"real questions need something real to search in.*index = \"FOLDER\""):
        factory(FRAMES, dataset=file)


def test_an_episode_over_a_real_question(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", ROWS)
    made = factory(FRAMES, dataset=file, split="all", tools="plain", backends=Backing(read(index="embedded")))
    started = made.start(0, {"task_id": "frames/all/q7"})
    assert started.observation["messages"][1]["content"] == "What is 7 + 7?"
    assert "14" not in str(started.info)
    assert made.start(1).info == made.start(1).info


@pytest.mark.skipif(not QUESTIONS.is_file(), reason="the public FRAMES questions are not on this machine")
def test_the_824_real_frames_questions_load() -> None:
    got = load(str(QUESTIONS))
    assert len(got.questions) == 824
    assert got.questions["wiki____3"].answer.text == "France"
    source = FramesSource(backends=Backing(read(index="embedded")), dataset=str(QUESTIONS))
    sizes = {split: len(source.ids(split)) for split in source.splits}
    assert sizes["all"] == 824
    assert sizes["train"] + sizes["validation"] + sizes["test"] == 824
    assert 600 < sizes["train"] < 720
