"""Each form of recording gives the outcomes that its files say; another folder or a broken one gives an error."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation.made_rows import made_row, write_run
from tests.envs.outcomes import recordings as made
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.recording_forms import FORMS, read
from toolorchestra.envs.outcomes.table import MEASURES, Outcomes
from toolorchestra.envs.wrappers import RecordTrajectories


def rows(table: Outcomes) -> dict[tuple[str, str, int], dict[str, float]]:
    """By task, model and run: what is known."""
    said = {}
    for at in range(len(table)):
        values = {"success": table.success[at], **{name: table.measures[name][at] for name in MEASURES}}
        known = {name: round(float(value), 6) for name, value in values.items() if not math.isnan(value)}
        said[table.tasks[table.task[at]], table.models[table.model[at]], int(table.run[at])] = known
    return said


def families(table: Outcomes) -> dict[str, str]:
    return dict(zip(table.tasks, table.families, strict=True))


def test_forms_are_named_in_an_error(tmp_path: Path) -> None:
    assert set(FORMS) == set(made.WRITERS)
    with pytest.raises(ConfigError, match=r"no form of outcomes 'openhand'.*Did you mean 'openhands'"):
        read("openhand", tmp_path)
    with pytest.raises(ConfigError, match="columns and reasoning_apart are for tables alone"):
        read("mcpmark", tmp_path, {"task": "id"})


def test_mcpmark(tmp_path: Path) -> None:
    table = read("mcpmark", made.mcpmark(tmp_path))
    assert rows(table) == {
        ("shop__find_price", "gpt-9", 0): {
            "success": 1, "seconds": 60, "input": 100, "output": 10, "reasoning": 50,
        },
        ("shop__find_price", "gpt-9", 1): {"success": 0, "seconds": 90, "input": 100, "output": 20},
        ("shop__find_price", "claude-x", 0): {"success": 0, "seconds": 90, "input": 100, "output": 20},
    }  # fmt: skip
    assert families(table) == {"shop__find_price": "playwright"}
    assert table.texts == {"shop__find_price": "Find the price."}
    assert table.runs_were_named


def test_mcpmark_reasoning_by_the_total(tmp_path: Path) -> None:
    """One model's runs count it in one service within the output, in another beside it."""
    within, beside = made.mcpmark_run(1, True, (100, 60, 50, 160)), made.mcpmark_run(1, True, (100, 60, 50, 210))
    more = made.mcpmark_run(2, True, (100, 60, 80, 240))
    made.mcpmark_task(tmp_path, "a__b", "notion", {"grok-4": [within]})
    made.mcpmark_task(tmp_path, "c__d", "github", {"grok-4": [beside, more]})
    said = rows(read("mcpmark", tmp_path))
    assert [one["output"] for one in said.values()] == [10, 60, 60]
    assert [one["reasoning"] for one in said.values()] == [50, 50, 80]


def test_openhands(tmp_path: Path) -> None:
    table = read("openhands", made.openhands(tmp_path))
    assert rows(table) == {
        ("gaia/a-1", "gpt-9", 0): {"success": 1, "usd": 0.5},
        ("gaia/a-2", "gpt-9", 0): {"success": 0},
        ("gaia/a-2", "acp/gpt-9", 0): {"success": 0, "usd": 1.5},
    }
    assert families(table) == {"gaia/a-1": "gaia", "gaia/a-2": "gaia"}
    assert table.zero_dollars == 1
    assert table.left_out == {"instances neither graded nor priced": 1}


SEARCH = render_call("search", {"model": "search-1"})
MODELS = {"answer-1": "gpt-9", "answer-2": "small", "search-1": "gpt-9"}


def measured(table: Outcomes, at: int = 0) -> dict[str, float]:
    return {name: round(float(column[at]), 6) for name, column in table.measures.items()}


def test_an_evaluation_that_our_program_wrote(tmp_path: Path) -> None:
    told = {"calls": {"answer-1": 2, "search-1": 1}, "models": MODELS, "groups": {"subject": "logic", "level": "2"}}
    rows = [
        made_row("t/1", 0.0, tokens={"expert": [10, 5, 7, 3], "judge": [9, 9, 9, 9]}, cents=3.0, minutes=0.5, **told),
        made_row("t/1", 1.0, trial=1, **told),
        made_row("t/1", 1.0, policy="expensive", **{**told, "calls": {"answer-2": 1}}),
    ]
    folder = write_run(tmp_path / "run", rows)
    table = read("evaluation", folder)
    assert (table.tasks, table.families, table.models) == (("t/1",), ("logic",), ("gpt-9", "small"))
    assert [*zip(table.model, table.run, table.success, strict=True)] == [(0, 0, 0), (0, 1, 1), (1, 0, 1)]
    assert measured(table) == {"seconds": 30, "input": 15, "output": 7, "reasoning": 3, "usd": 0.03}
    assert not table.left_out
    assert len(read("evaluation", folder / "rows.jsonl")) == 3


def test_trials_that_are_nobodys_are_counted(tmp_path: Path) -> None:
    rows = [
        made.evaluation_row("a"),
        made.evaluation_row("b", calls={"answer-1": 1, "answer-2": 1}),
        made.evaluation_row("c", calls={"code": 1}),
        made.evaluation_row("d", calls={"answer-1": 0}),
        made.evaluation_row("e", None),
        made.evaluation_row("f", None, status="cut"),
    ]
    made.write_lines(tmp_path / "rows.jsonl", rows)
    table = read("evaluation", tmp_path)
    assert table.tasks == ("a",)
    assert table.left_out == {
        "rows of several experts": 1, "rows without an expert": 2, "rows that failed or were cut": 2,
    }  # fmt: skip


def test_a_last_line_that_a_kill_broke_off(tmp_path: Path) -> None:
    file = made.evaluation(tmp_path) / "rows.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    table = read("evaluation", tmp_path)
    assert (table.tasks, table.left_out) == (("t/1",), {"lines broken off at the end": 1})
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 2: expected a row of an evaluation as JSON"):
        read("evaluation", tmp_path)


def test_rows_of_two_environments(tmp_path: Path) -> None:
    rows = [made.evaluation_row("a"), made.evaluation_row("a", env="Frames-v0", trial=1)]
    made.write_lines(tmp_path / "rows.jsonl", rows)
    with pytest.raises(ConfigError, match="line 2: task 'a' is of HLE-v0 and of Frames-v0"):
        read("evaluation", tmp_path)


def played(path: Path, *episodes: Sequence[str]) -> list[str]:
    """Tasks of episodes that were recorded."""
    env = RecordTrajectories(gym.make("ToolOrchestra/HLE-v0"), path)
    tasks = []
    for seed, actions in enumerate(episodes):
        _, info = env.reset(seed=seed)
        tasks.append(info["task_id"])
        for action in actions:
            env.step(action)
    env.close()
    return tasks


def answer(number: int) -> str:
    return render_call("answer", {"model": f"answer-{number}"})


def test_trajectories_that_our_wrapper_recorded(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first, second, _, _ = played(path, [answer(1)], [answer(2)], [SEARCH, answer(2)], [SEARCH])
    table = read("trajectories", path)
    assert table.tasks == (first, second)
    assert len(table.models) == 2
    assert set(table.texts) == {first, second}
    assert all(family for family in table.families)
    assert all(value > 0 for value in measured(table).values())
    assert table.left_out == {"rows of several experts": 1, "episodes that were left": 1}


def test_trajectories(tmp_path: Path) -> None:
    judge = made.charge("judge-model", "judge", 70_000_000)
    rows = [
        made.trajectory(
            "t/1", [made.charge("gpt-9"), made.charge("gpt-9"), judge, made.charge("web", "tool", 500_000)]
        ),
        made.trajectory("t/1", [made.charge("gpt-9")], outcome={"value": 0.0}),
        made.trajectory("t/2", [made.charge("gpt-9")], outcome=None),
        made.trajectory("t/3", [made.charge("gpt-9")], truncated_by="spend_cap"),
        made.trajectory("t/4", [made.charge("gpt-9")], failed={"where": "x"}),
        made.trajectory("t/5", [made.charge("web", "tool")]),
    ]
    made.write_lines(tmp_path / "trajectories.jsonl", rows)
    table = read("trajectories", tmp_path)
    assert (table.tasks, table.models, table.families) == (("t/1",), ("gpt-9",), ("logic",))
    assert [*table.success] == [1, 0]
    assert measured(table) == {"seconds": 12.5, "input": 30, "output": 14, "reasoning": 6, "usd": 0.0045}
    assert table.texts == {"t/1": "Ask t/1"}
    assert table.left_out == {"episodes that failed or were cut": 3, "rows without an expert": 1}


def test_a_question_asked_again_with_another_subject_or_none_is_of_the_first(tmp_path: Path) -> None:
    told: list[dict[str, str]] = [{}, {"subject": "seas"}, {"subject": "maps"}, {}, {"subject": "seas"}]
    rows = [{**made.trajectory("t/1", [made.charge("gpt-9")]), "task": task} for task in told]
    made.write_lines(tmp_path / "trajectories-0000.jsonl", rows)
    table = read("trajectories", tmp_path)
    assert (table.families, len(table)) == (("seas",), 5)
    assert table.left_out == {"families beside the first that a task's rows name": 1}


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
