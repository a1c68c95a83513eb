"""Tasks as rows of a file, and rollouts as SkyRL's samples and batch, which need no SkyRL to be made."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.agents.adapters.prompt_rows import check_same_preference, job_of_row, prompt_rows, write_rows
from toolorchestra.agents.adapters.skyrl_samples import Played, batch_of, samples_of
from toolorchestra.agents.commands import export_prompts
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.rollouts.grpo import Measure, TokenSequence, Trajectory
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import ACCURATE

HLE = EnvMix("ToolOrchestra/HLE-v0", arguments={"max_turns": 7})


def rows(count: int = 6, mix: EnvMix = HLE, split: Any = "train") -> list[dict[str, Any]]:
    return list(prompt_rows(mix, split, count, seed=4))


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    from pyarrow import parquet

    read: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return read


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
    mix = EnvMix("ToolOrchestra/ToolScale-v0", arguments={"domain": "finance"})
    found = [row["task_id"] for row in rows(40, mix)]
    assert len(set(found)) == 40


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


FIRST = TokenSequence(
    [1, 2, 3, 4, 5, 6, 7], [0, 0, -0.3, -0.4, 0, -0.6, 0], [False, False, True, True, False, True, False]
)
SECOND = TokenSequence([8, 9], [0, -0.9], [False, True])
MADE = Trajectory(
    "toy", "t", 1, "sheet", ACCURATE, (), [FIRST], Measure(1.0, 0.5, 2.0, {}), 2, bill={"usd": 0.5, "usd_by_role": {}}
)


def test_one_sample_from_the_first_sampled_token_to_the_last() -> None:
    (one,) = samples_of(MADE, "one", 0)
    assert one == ([1, 2], [3, 4, 5, 6], [1, 1, 0, 1], [-0.3, -0.4, 0, -0.6])


def test_turns_have_all_before_them_for_a_prompt() -> None:
    made = samples_of(replace(MADE, sequences=[FIRST, SECOND]), "turns", 0)
    assert [(s.prompt, s.response) for s in made] == [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6]), ([8], [9])]
    assert len(samples_of(replace(MADE, sequences=[FIRST, SECOND]), "merged", 0)) == 2


def test_a_past_that_was_rewritten_is_no_single_sample() -> None:
    with pytest.raises(ConfigError, match=r"task t 1 times.*step_wise_trajectories=true"):
        samples_of(replace(MADE, sequences=[FIRST, SECOND]), "one", 0)


@pytest.mark.parametrize("sequences", [[], [TokenSequence([5], [0.0], [False])]])
def test_of_nothing_sampled_a_masked_token_is_left(sequences: list[TokenSequence]) -> None:
    (one,) = samples_of(replace(MADE, sequences=sequences), "merged", 9)
    assert (one.response, one.mask, one.logprobs) == ([9], [0], [0.0])
    assert one.prompt == (sequences[0].tokens if sequences else [9])


def test_a_batch_masks_what_failed_and_rewards_the_last_token() -> None:
    failed = replace(MADE, measure=replace(MADE.measure, failed=True), sequences=[FIRST, SECOND])
    played = [Played(replace(MADE, sequences=[FIRST, SECOND]), "toy", 3.0, 1.0), Played(failed, "toy", 4.0, 1.0)]
    made = batch_of(played, ["a", "b"], "merged", 0, scored=True)
    assert made["rewards"] == [[0.0] * 4, [1.0], [0.0] * 4, [0.0]]
    assert made["loss_masks"] == [[1, 1, 0, 1], [1], [0] * 4, [0]]
    assert made["is_last_step"] == [False, True, False, True]
    assert made["trajectory_ids"] == ["a", "a", "b", "b"]
    assert made["trajectory_time_splits"] == {"llm": [1.0] * 4, "env": [2.0, 2.0, 3.0, 3.0]}
    figures = made["rollout_metrics"]
    assert (figures["environment/toy/accuracy_mean"], figures["environment/toy/failed"]) == (1.0, 1.0)
    assert batch_of(played, ["a", "b"], "merged", 0, scored=False)["rollout_logprobs"] is None


@pytest.mark.skipif(util.find_spec("skyrl") is not None, reason="skyrl is installed here: see tests/integrations")
def test_without_skyrl_it_is_said_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"skyrl is not installed here.*make test-skyrl"):
        __import__("toolorchestra.agents.adapters.skyrl")
