"""Tasks as rows of a file: the same rows again, the same episodes again, and words for what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolorchestra.agents.adapters.prompt_rows import (
    check_same_preference,
    job_of_row,
    prompt_rows,
    read_rows,
    write_rows,
)
from toolorchestra.agents.commands import export_prompts
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.envs.base.errors import ConfigError

HLE = EnvMix("ToolOrchestra/HLE-v0", arguments={"max_turns": 7})


def rows(count: int = 6, mix: EnvMix = HLE, split: Any = "train") -> list[dict[str, Any]]:
    return list(prompt_rows(mix, split, count, seed=4))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_row_is_an_episode(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason='pyarrow is not installed here: pip install "toolorchestra[data]"')
    write_rows(rows(), tmp_path / name)
    read = read_rows(tmp_path / name)
    assert read == rows()
    for row in read:
        job = job_of_row(row)
        started = job.factory.start(job.seed, job.options)
        assert started.episode.task_id == row["task_id"]
        assert [dict(m) for m in started.observation["messages"]] == row["prompt"]
        assert job.factory.settings.max_turns == 7
        check_same_preference(row, started.episode.preference)


def test_listed_tasks_come_once_before_any_comes_again() -> None:
    mix = EnvMix("ToolOrchestra/ToolScale-v0")
    found = [row["task_id"] for row in rows(60, mix)]
    assert len(set(found)) == 60


def test_held_out_rows_have_other_settings() -> None:
    train, test = rows(1)[0]["arguments"], rows(1, split="test")[0]["arguments"]
    assert '"split": "train"' in train
    assert '"wording": "heldout"' in test


def test_what_is_wrong_with_a_row_is_said() -> None:
    with pytest.raises(ConfigError, match="this one lacks seed; it has gym_id"):
        job_of_row({"gym_id": "ToolOrchestra/HLE-v0"})
    row = rows(1)[0] | {"preference": "{}"}
    job = job_of_row(row)
    preference = job.factory.start(job.seed, job.options).episode.preference
    with pytest.raises(ConfigError, match=r"task .* of ToolOrchestra/HLE-v0 \(seed .*export the tasks again"):
        check_same_preference(row, preference)
    with pytest.raises(ConfigError, match=r"\.parquet or \.jsonl"):
        write_rows([], Path("rows.csv"))


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.jsonl"
    words = ["--env", "HLE-v0", "max_turns=9", "--env", "FRAMES-v0", "--tasks", "5", "--out", str(out)]
    assert export_prompts.main(words) == 0
    assert [row["data_source"] for row in read_rows(out)] == ["HLE-v0"] * 3 + ["FRAMES-v0"] * 2
