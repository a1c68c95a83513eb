"""Each form of recording gives the outcomes that its files say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.envs.outcomes import recordings as made
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.forms import FORMS, read
from toolorchestra.envs.outcomes.rows import MEASURES, Outcomes


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
        read("bfcl", tmp_path, {"task": "id"})


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


def test_mcpmark_reasoning_by_the_maker_where_no_total_says(tmp_path: Path) -> None:
    unsaid, more = made.mcpmark_run(1, True, (100, 60, 50, 0)), made.mcpmark_run(1, True, (100, 60, 80, 0))
    models = {"grok-4": [more], "grok-fast": [unsaid], "gpt-9": [unsaid]}
    made.mcpmark_task(tmp_path, "a__b", "notion", models)
    said = {model: one["output"] for (_, model, _), one in rows(read("mcpmark", tmp_path)).items()}
    assert said == {"grok-4": 60, "grok-fast": 60, "gpt-9": 10}


def test_mcpmark_runs_that_counted_nothing(tmp_path: Path) -> None:
    made.mcpmark_task(tmp_path, "a__b", "notion", {"m": [made.mcpmark_run(1, False, (0, 0, None, 0), 30.0)]})
    made.mcpmark_task(tmp_path, "c__d", "notion", {"m": [made.mcpmark_run(1, False, (0, 0, 0, 0), 30.0)]})
    assert [*rows(read("mcpmark", tmp_path)).values()] == [{"success": 0, "seconds": 30}] * 2


def test_mcpmark_as_its_program_writes_it(tmp_path: Path) -> None:
    for run, success in (("run-1", True), ("run-2", False)):
        meta = {
            "model_name": "gpt-9",
            "agent_execution_time": 60.5,
            "execution_result": {"success": success, "error_message": None},
            "token_usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }
        made.write_json(tmp_path / "exp" / "gpt-9__playwright_webarena" / run / "shop__find_price" / "meta.json", meta)
    want = {
        ("shop__find_price", "gpt-9", run): {"success": 1 - run, "seconds": 60.5, "input": 10, "output": 5}
        for run in (0, 1)
    }
    for folder in (tmp_path, tmp_path / "exp"):
        table = read("mcpmark", folder)
        assert rows(table) == want
        assert families(table) == {"shop__find_price": "playwright"}


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


def test_one_name_in_two_benchmarks_is_two_tasks(tmp_path: Path) -> None:
    for benchmark in ("swe-bench", "swt-bench"):
        path = tmp_path / "results" / "m" / "instance_results" / f"{benchmark}.json"
        made.write_json(path, {"x-1": {"resolved": None, "cost": 2.0}})
    table = read("openhands", tmp_path)
    assert families(table) == {"swe-bench/x-1": "swe-bench", "swt-bench/x-1": "swt-bench"}
    assert [*rows(table).values()] == [{"usd": 2.0}] * 2


def test_llmrouterbench(tmp_path: Path) -> None:
    table = read("llmrouterbench", made.llmrouterbench(tmp_path))
    used = {"input": 40, "output": 200}
    assert rows(table) == {
        ("aime/test/1", "gpt-9", 0): {"success": 1, "usd": 0.01, **used},
        ("aime/test/1", "small", 0): {"success": 0, **used},
        ("aime/test/2", "gpt-9", 0): {"success": 0.5, "usd": 0.01, **used},
    }
    assert (families(table)["aime/test/1"], table.texts["aime/test/1"]) == ("aime", "What is 1?")
    assert rows(read("llmrouterbench", tmp_path / "results" / "bench" / "aime")) == rows(table)


def test_llmrouterbench_takes_the_latest_run_and_counts_the_others(tmp_path: Path) -> None:
    made.bench_file(tmp_path, "m", "20250801_000000", [made.bench_record(1, 0.0)])
    made.bench_file(tmp_path, "m", "20250802_000000", [made.bench_record(1, 1.0), made.bench_record(2, None)])
    made.bench_file(tmp_path, "m", "20250803_000000", [made.bench_record(1, 0.0)] * 3, demo=True)
    failed = made.bench_record(1, None, prompt_tokens=0, completion_tokens=0, cost=0.0)
    made.bench_file(tmp_path, "n", "20250801_000000", [failed, made.bench_record(2, 1.0)])
    table = read("llmrouterbench", tmp_path)
    success = {task: one.get("success") for task, one in rows(table).items()}
    assert success == {("aime/test/1", "m", 0): 1, ("aime/test/2", "m", 0): None, ("aime/test/2", "n", 0): 1}
    assert table.left_out == {
        "rows of demo runs": 3, "rows of runs that a later one replaced": 1, "calls that failed": 1,
    }  # fmt: skip


def test_llmrouterbench_of_two_versions_of_a_dataset(tmp_path: Path) -> None:
    made.llmrouterbench(tmp_path)
    made.bench_file(tmp_path, "third", "20250801_000000", [made.bench_record(1, 1.0, origin_query="Another?")])
    with pytest.raises(ConfigError, match="record 1: aime/test/1 asks another question here"):
        read("llmrouterbench", tmp_path)


def test_llmrouterbench_with_scores_of_100(tmp_path: Path) -> None:
    made.bench_file(tmp_path, "m", "20250801_000000", [made.bench_record(1, 87.0)])
    with pytest.raises(ConfigError, match="a number from 0 to 1, got 87"):
        read("llmrouterbench", tmp_path)


def test_routerarena(tmp_path: Path) -> None:
    table = read("routerarena", made.routerarena(tmp_path))
    used = {"input": 10, "output": 5}
    assert rows(table) == {
        ("AIME_1", "gpt-9", 0): {"success": 1, "usd": 0.002, **used},
        ("AIME_1", "small", 0): used,
        ("MMLUPro_computer science_2", "gpt-9", 0): {"success": 0, "usd": 0.002, **used},
    }
    assert families(table) == {"AIME_1": "AIME", "MMLUPro_computer science_2": "MMLUPro"}
    assert table.texts["AIME_1"] == "Q AIME_1"
    assert rows(read("routerarena", tmp_path / "cached_results")) == rows(table)


def test_routerarena_a_call_that_worked_is_not_yet_right(tmp_path: Path) -> None:
    many = [
        made.arena_row("AIME_1", "m", 0.0, run_number=1),
        made.arena_row("AIME_1", "m", 1.0, run_number=2),
        made.arena_row("AIME_1", "m", 1.0, run_number=2),
        made.arena_row("AIME_2", "m", 1.0, success=False, error="timeout"),
        made.arena_row("Chess_1", "m", -0.03),
    ]
    made.write_lines(tmp_path / "cached_results" / "m.jsonl", many)
    table = read("routerarena", tmp_path)
    assert [one.get("success") for one in rows(table).values()] == [0, 1, None]
    assert table.left_out == {"answers that stand there twice": 1, "calls that failed": 1, "grades below 0": 1}


def test_bfcl(tmp_path: Path) -> None:
    table = read("bfcl", made.bfcl(tmp_path))
    used = {"seconds": 1.75, "input": 600, "output": 60}
    assert rows(table) == {
        ("multi_turn_base_0", "gpt-9", 0): {"success": 1, **used},
        ("multi_turn_base_0", "small", 0): used,
        ("multi_turn_base_1", "gpt-9", 0): {"success": 0, **used},
        ("multi_turn_base_1", "small", 0): used,
    }
    assert set(table.families) == {"multi_turn_base"}
    assert rows(read("bfcl", tmp_path / "result")) == rows(table)


def bfcl_folder(folder: Path, answers: list[Any], scores: list[Any] | None, category: str = "simple") -> Outcomes:
    made.write_lines(folder / "result" / "m" / f"BFCL_v3_{category}_result.json", answers)
    if scores is not None:
        made.write_lines(folder / "score" / "m" / f"BFCL_v3_{category}_score.json", scores)
    return read("bfcl", folder)


def test_bfcl_numbers_from_1_are_names_from_their_prompt(tmp_path: Path) -> None:
    answers = [made.bfcl_answer("simple_0"), made.bfcl_answer("simple_1")]
    wrong = [{"id": 2, "valid": False, "prompt": {"id": "simple_1"}}]
    assert [*bfcl_folder(tmp_path, answers, made.bfcl_score(2, wrong)).success] == [1, 0]


@pytest.mark.parametrize(
    "scores",
    [
        made.bfcl_score(2, [{"id": 2, "valid": False}]),
        made.bfcl_score(3, [{"id": "simple_1", "valid": False}]),
        made.bfcl_score(2, [{"id": "simple_1"}, {"id": "simple_1"}]),
        [{"accuracy": 1.0}],
        [],
    ],
    ids=["numbers without names", "of more answers", "fewer wrong than counted", "no totals", "empty"],
)
def test_bfcl_grades_that_do_not_fit_grade_nothing(tmp_path: Path, scores: list[Any]) -> None:
    table = bfcl_folder(tmp_path, [made.bfcl_answer("simple_0"), made.bfcl_answer("simple_1")], scores)
    assert [math.isnan(value) for value in table.success] == [True, True]
    assert table.left_out == {"grades of score files that do not fit their results": 2}


def test_bfcl_counts_of_0_and_none_are_unknown(tmp_path: Path) -> None:
    answers = [
        made.bfcl_answer("simple_0", input_token_count=0, output_token_count=0, latency=0.5),
        {"id": "simple_1", "result": "Error during inference: refused"},
        made.bfcl_answer("simple_2", input_token_count=[[5, None]], latency=1.5),
    ]
    said = [*rows(bfcl_folder(tmp_path, answers, None)).values()]
    assert said == [{"seconds": 0.5}, {}, {"seconds": 1.5, "output": 60}]


def test_bfcl_memories_are_no_tasks(tmp_path: Path) -> None:
    made.write_lines(
        tmp_path / "result/m/BFCL_v4_memory_kv_prereq_result.json", [made.bfcl_answer("memory_kv_prereq_0")]
    )
    table = bfcl_folder(tmp_path, [made.bfcl_answer("odd")], None)
    assert (table.tasks, table.left_out) == (("simple/odd",), {"rows that only fill a memory": 1})


def test_bfcl_of_several_dates(tmp_path: Path) -> None:
    made.bfcl(tmp_path / "2025-12-16")
    assert len(read("bfcl", tmp_path)) == 4
    made.bfcl(tmp_path / "2025-11-03")
    with pytest.raises(ConfigError, match=r"several dates \(2025-11-03, 2025-12-16\); name one, such as 2025-12-16"):
        read("bfcl", tmp_path)
