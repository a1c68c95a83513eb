"""What our own evaluations and recordings say of experts: trials of one expert, and every other trial counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation.made_rows import made_row, write_run
from tests.envs.outcomes import recordings as made
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.forms import read
from toolorchestra.envs.outcomes.rows import Outcomes
from toolorchestra.envs.wrappers import RecordTrajectories

SEARCH = render_call("search", {"model": "search-1"})
MODELS = {"answer-1": "gpt-9", "answer-2": "small", "search-1": "gpt-9"}


def measured(table: Outcomes, at: int = 0) -> dict[str, float]:
    return {name: round(float(column[at]), 6) for name, column in table.measures.items()}


def test_an_evaluation_that_our_program_wrote(tmp_path: Path) -> None:
    told = {"calls": {"answer-1": 2, "search-1": 1}, "models": MODELS, "groups": {"subject": "logic", "level": "2"}}
    rows = [
        made_row("t/1", 0.0, tokens={"expert": [10, 5, 7, 3], "judge": [9, 9, 9, 9]}, cents=3.0, minutes=0.5, **told),
        made_row("t/1", 1.0, trial=1, **told),
        made_row("t/1", 1.0, policy="dear", **{**told, "calls": {"answer-2": 1}}),
    ]
    folder = write_run(tmp_path / "run", rows)
    table = read("evaluation", folder)
    assert (table.tasks, table.families, table.models) == (("t/1",), ("logic",), ("gpt-9", "small"))
    assert [*zip(table.model, table.run, table.success, strict=True)] == [(0, 0, 0), (0, 1, 1), (1, 0, 1)]
    assert measured(table) == {"seconds": 30, "input": 15, "output": 7, "reasoning": 3, "usd": 0.03}
    assert not table.left_out
    assert len(read("evaluation", folder / "rows.jsonl")) == 3


def test_what_judges_and_users_cost_is_not_the_agents(tmp_path: Path) -> None:
    table = read("evaluation", made.evaluation(tmp_path))
    assert measured(table)["usd"] == 0.003


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


def test_nothing_but_trials_of_several(tmp_path: Path) -> None:
    made.write_lines(tmp_path / "rows.jsonl", [made.evaluation_row("b", calls={"answer-1": 1, "answer-2": 1})])
    with pytest.raises(ConfigError, match="has no rows to take: 1 rows of several experts"):
        read("evaluation", tmp_path)


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
