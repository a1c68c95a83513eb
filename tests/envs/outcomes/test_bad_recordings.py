"""A folder of another form, a file cut off in the middle, keys and types of another program: one clear error each."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.envs.outcomes import recordings as made
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes import files
from toolorchestra.envs.outcomes.forms import FORMS, read

TORN = ("evaluation", "trajectories")
"""Their last line may be broken off by a kill."""


def data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.json*") if path.is_file() and path.parent.name != "tasks")


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_of_another_form(tmp_path: Path, form: str) -> None:
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(ConfigError) as refused:
        read(form, tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert "expected" in str(refused.value)
    with pytest.raises(ConfigError, match="expected"):
        read(form, tmp_path / "nowhere")


@pytest.mark.parametrize("form", [form for form in FORMS if form not in TORN])
def test_a_file_where_a_folder_is_expected(tmp_path: Path, form: str) -> None:
    (tmp_path / "a").write_text("hello")
    with pytest.raises(ConfigError, match="got a file; name the folder"):
        read(form, tmp_path / "a")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_the_form_of_another_program(tmp_path: Path, form: str, other: str) -> None:
    if form == other:
        return
    path = made.WRITERS[other](tmp_path)
    with pytest.raises(ConfigError, match="expected"):
        read(form, path)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_cut_off_in_the_middle(tmp_path: Path, form: str) -> None:
    path = made.WRITERS[form](tmp_path)
    for file in data_files(tmp_path):
        whole = file.read_bytes()
        first = whole.index(b"\n") if b"\n" in whole else len(whole)
        file.write_bytes(whole[: first // 2] + (b"\n" if form in TORN else b""))
        with pytest.raises(ConfigError, match="it may be cut off") as refused:
            read(form, path)
        assert file.name in str(refused.value)
        file.write_bytes(whole)
    read(form, path)


@pytest.mark.parametrize("form", FORMS)
def test_a_pointer_in_place_of_a_file(tmp_path: Path, form: str) -> None:
    path = made.WRITERS[form](tmp_path)
    for file in data_files(tmp_path):
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n")
    with pytest.raises(ConfigError, match="Git LFS pointer"):
        read(form, path)


def replaced(value: Any, draw: random.Random) -> Iterator[Any]:
    """The value with each part of it, one after the other, left out or of another type."""
    if isinstance(value, dict):
        for key in value:
            yield {name: one for name, one in value.items() if name != key}
            for other in replaced(value[key], draw):
                yield {**value, key: other}
    elif isinstance(value, list):
        for at, one in enumerate(value):
            for other in replaced(one, draw):
                yield [*value[:at], other, *value[at + 1 :]]
    yield draw.choice([None, 3, -7.5, "words", True, [], [None], {}, {"a": 1}, [[1, "x"]]])


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_another_type_are_read_or_refused_but_never_break(tmp_path: Path, form: str) -> None:
    path, draw, refused = made.WRITERS[form](tmp_path), random.Random(0), 0
    for file in data_files(tmp_path):
        whole = file.read_text()
        lines = [json.loads(line) for line in whole.splitlines()]
        for other in replaced(lines[0], draw):
            made.write_lines(file, [other, *lines[1:]])
            try:
                read(form, path)
            except ConfigError:
                refused += 1
        file.write_text(whole)
    assert refused > 5


def test_a_name_that_is_none(tmp_path: Path) -> None:
    made.bench_file(tmp_path, "m", "20250801_000000", [made.bench_record(1, 1.0)], model_name=3)
    with pytest.raises(ConfigError, match=r"another type than llmrouterbench gives it .a name expected, got 3"):
        read("llmrouterbench", tmp_path)


def test_a_missing_key_names_what_was_expected(tmp_path: Path) -> None:
    made.write_lines(tmp_path / "cached_results" / "m.jsonl", [{"question": "?", "answer": 7}])
    with pytest.raises(ConfigError) as refused:
        read("routerarena", tmp_path)
    said = str(refused.value)
    for part in ("m.jsonl, line 1", "expected a cached result", "global_index", "its keys are: question, answer"):
        assert part in said


def test_what_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arena, openhands = made.routerarena(tmp_path / "a"), made.openhands(tmp_path / "b")
    monkeypatch.setattr(files, "MOST_LINE_BYTES", 1 << 7)
    with pytest.raises(ConfigError, match=r"gpt-9\.jsonl, line 1 is longer than"):
        read("routerarena", arena)
    monkeypatch.setattr(files, "MOST_FILE_BYTES", 1 << 4)
    with pytest.raises(ConfigError, match=r"gaia\.json is larger than"):
        read("openhands", openhands)


def test_many_rows_of_a_run_are_streamed(tmp_path: Path) -> None:
    row = made.evaluation_row("t", evidence={"said": "x" * 5_000})
    with (tmp_path / "rows.jsonl").open("w") as file:
        for number in range(3_000):
            file.write(json.dumps({**row, "task": f"t/{number % 100}", "trial": number}) + "\n")
    assert (tmp_path / "rows.jsonl").stat().st_size > 15_000_000
    tracemalloc.start()
    try:
        table = read("evaluation", tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table) == 3_000
    assert peak < 4_000_000, peak
