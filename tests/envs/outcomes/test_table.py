"""A table of outcomes is read row by row, refuses what contradicts itself, and never takes what is unknown for 0."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder, read_table


def built(*told: dict[str, Any]) -> Outcomes:
    made = OutcomesBuilder("here")
    for one in told:
        row: dict[str, Any] = {"task": "t", "model": "m", "success": True, **one}
        made.add(**row)
    return made.made()


def test_rows_come_by_task_model_and_run() -> None:
    table = built({"task": "b", "run": 2}, {"task": "a", "run": 1}, {"task": "b", "run": 1, "success": 0})
    assert table.tasks == ("b", "a")
    assert [*table.task] == [0, 0, 1]
    assert [*table.run] == [0, 1, 0]
    assert [*table.success] == [1, 0, 1]
    assert table.runs_were_named


def test_a_run_stands_there_once() -> None:
    with pytest.raises(ConfigError, match="two rows are of task 't', model 'm', run 'r1'"):
        built({"run": "r1"}, {"run": "r2"}, {"run": "r1"})


def test_runs_are_named_everywhere_or_nowhere() -> None:
    with pytest.raises(ConfigError, match="row 2: some rows name their run and some do not"):
        built({"run": "r1"}, {"run": None})


@pytest.mark.parametrize("unknown", [None, " ", math.nan, "NaN", "null"])
def test_what_is_not_said_is_unknown(unknown: object) -> None:
    table = built({"success": unknown, "seconds": unknown, "usd": unknown})
    assert math.isnan(table.success[0])
    assert all(math.isnan(column[0]) for column in table.measures.values())


def test_dollars_of_0_are_unknown_and_counted() -> None:
    table = built({"usd": 0}, {"usd": "0.0"}, {"usd": 0.5})
    assert table.zero_dollars == 2
    assert np.isnan(table.measures["usd"]).sum() == 2
    assert table.measures["usd"][2] == 0.5


def test_a_task_is_of_one_family() -> None:
    with pytest.raises(ConfigError, match="row 2: task 't' is of the family 'files' and here 'mail'"):
        built({"family": "files"}, {"family": "mail", "model": "n"})
    assert built({"family": ""}, {"family": "files"}, {"family": ""}).families == ("files",)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"success": 1.5}, "success is true, false or a number from 0 to 1, got 1.5"),
        ({"seconds": -1}, "seconds is a number from 0 up"),
        ({"seconds": 604_801}, "seconds is at most 604,800, got 604801; if these are milliseconds"),
        ({"usd": 250_000}, "if these are micro-dollars or cents"),
        ({"cents": 3}, "no measure 'cents'; valid: input, output, reasoning, seconds, usd"),
    ],
)
def test_a_wrong_value_is_refused_with_its_row(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match="here, row 2") as refused:
        built({}, told)
    assert said in str(refused.value)


def test_a_choice_of_models() -> None:
    table = built({"task": "a", "text": "A?"}, {"task": "b", "model": "n"}, {"task": "c", "model": "n", "success": 0})
    kept = table.only(["n"])
    assert (kept.tasks, kept.models, [*kept.task], [*kept.success]) == (("a", "b", "c"), ("n",), [1, 2], [1, 0])
    turned = table.only(["n", "m"])
    assert [turned.models[number] for number in turned.model] == ["m", "n", "n"]
    with pytest.raises(ConfigError, match="no model 'o'"):
        table.only(["o"])
    with pytest.raises(ConfigError, match="no row is left of 2"):
        table.where_rows(table.model == 1).only(["m"])


HEAD = "task,family,model,run,success,seconds,input,output,reasoning,usd\n"
ROW = "t1,files,gpt,run-1,true,212.4,90311,6100,4100,0.5\n"


def table(path: Path, text: str, **how: Any) -> Outcomes:
    path.write_bytes(text.encode())
    return read_table(path, **how)


def test_all_columns(tmp_path: Path) -> None:
    read = table(tmp_path / "a.csv", HEAD + ROW + "t1,files,small,run-1,False,,,,,\n")
    assert (read.tasks, read.families, read.models) == (("t1",), ("files",), ("gpt", "small"))
    assert [*read.success] == [1, 0]
    said = {name: round(float(column[0]), 3) for name, column in read.measures.items()}
    assert said == {"seconds": 212.4, "input": 90311, "output": 6100, "reasoning": 4100, "usd": 0.5}
    assert all(math.isnan(column[1]) for column in read.measures.values())


@pytest.mark.parametrize(
    "text",
    ["\ufeff" + HEAD + ROW, "\ufeff" + (HEAD + ROW).replace("\n", "\r\n").rstrip()],
    ids=["bom", "bom and crlf, cut at the last line's end"],
)
def test_files_of_other_systems(tmp_path: Path, text: str) -> None:
    read = table(tmp_path / "a.csv", text)
    assert (read.tasks, read.models, read.measures["usd"][0]) == (("t1",), ("gpt",), 0.5)


def test_tabs_and_json_lines_say_the_same(tmp_path: Path) -> None:
    rows = [{"task_id": "a", "model": "m", "resolved": True, "cost_usd": 2.0, "question": "A?"}]
    lines = table(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    tabs = table(tmp_path / "a.tsv", "task_id\tmodel\tresolved\tcost_usd\tquestion\na\tm\tTrue\t2\tA?\n")
    for read in (lines, tabs):
        assert (read.tasks, read.texts, read.success[0], read.measures["usd"][0]) == (("a",), {"a": "A?"}, 1, 2)


def test_lines_of_json_may_differ_in_what_they_say(tmp_path: Path) -> None:
    rows = [
        {"task": "a", "model": "m", "success": True},
        {"task": "b", "model": "m", "success": True, "seconds": 4, "usd": 0.1, "cost": 3},
        {"task_id": "c", "model": "m", "resolved": False, "latency_ms": 5000},
    ]
    path, lines = tmp_path / "a.jsonl", [json.dumps(row) + "\n" for row in rows]
    for order in (lines, lines[::-1]):
        read = table(path, "".join(order))
        known = {read.tasks[at]: float(read.measures["seconds"][row]) for row, at in enumerate(read.task)}
        assert (math.isnan(known.pop("a")), known) == (True, {"b": 4, "c": 5})
    assert table(path, "".join(lines), columns={"usd": "cost"}).measures["usd"][1] == 3
    with pytest.raises(ConfigError, match=r"a\.jsonl: no column 'costs'; valid: cost, latency_ms, .*'cost'"):
        table(path, "".join(lines), columns={"usd": "costs"})
    with pytest.raises(ConfigError, match=r"a\.jsonl, row 2 has no column for success"):
        table(path, lines[0] + '{"task": "b", "model": "m"}\n')
    with pytest.raises(ConfigError, match=r"a\.jsonl, row 2: no column 'gut'"):
        table(path, '{"task": "b", "model": "m", "gut": 1}\n' + lines[0], columns={"success": "gut"})


def test_gzip_whole_and_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    whole = gzip.compress((HEAD + "".join(f"t{n},files,gpt,,1,2,3,4,5,6\n" for n in range(5_000))).encode())
    path.write_bytes(whole)
    assert len(read_table(path)) == 5_000
    for damaged in (whole[:-4], b"no gzip at all"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="is no whole csv file of outcomes"):
            read_table(path)


def test_a_long_text_is_read_and_leaves_other_readers_their_limit(tmp_path: Path) -> None:
    text, limit = "x" * (csv.field_size_limit() + 1), csv.field_size_limit()
    assert table(tmp_path / "a.csv", f"task,model,success,prompt\na,m,1,{text}\n").texts == {"a": text}
    assert csv.field_size_limit() == limit


def test_columns_by_other_names(tmp_path: Path) -> None:
    text = "frage,wer,gut\na,m,1\n"
    named = {"task": "frage", "model": "wer", "success": "gut"}
    assert table(tmp_path / "a.csv", text, columns=named).tasks == ("a",)
    with pytest.raises(ConfigError, match=r"has no column for task \(its columns: frage, wer, gut\); name it"):
        table(tmp_path / "a.csv", text)
    with pytest.raises(ConfigError, match=r"no column 'frag'; valid: frage, gut, wer\. Did you mean 'frage'"):
        table(tmp_path / "a.csv", text, columns={"task": "frag"})
    with pytest.raises(ConfigError, match="no outcome column 'tusk'"):
        table(tmp_path / "a.csv", text, columns={"tusk": "frage"})


def test_reasoning_within_the_output_and_apart(tmp_path: Path) -> None:
    text = "task,model,success,completion_tokens,reasoning_tokens\na,gpt,1,100,60\na,grok,1,100,60\n"
    within = table(tmp_path / "a.csv", text)
    assert [*within.measures["output"]] == [40, 40]
    apart = table(tmp_path / "a.csv", text, reasoning_apart=["grok"])
    assert [*apart.measures["output"]] == [40, 100]
    assert [*apart.measures["reasoning"]] == [60, 60]
    unsaid = table(tmp_path / "a.csv", text.replace("grok,1,100,60", "grok,1,100,null"))
    assert [*unsaid.measures["output"]] == [40, 100]
    assert math.isnan(unsaid.measures["reasoning"][1])
    with pytest.raises(ConfigError, match="row 2: 160 reasoning tokens are more than all 100 output tokens"):
        table(tmp_path / "a.csv", text.replace("grok,1,100,60", "grok,1,100,160"))
    with pytest.raises(ConfigError, match="not both"):
        table(tmp_path / "a.csv", "task,model,success,output,all_output\na,m,1,5,6\n")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "task,model,success\na,m\n", "another number of columns"),
        ("a.csv", "", "has no rows"),
        ("a.csv", "task,model,success,success\na,m,1,0\n", "two columns are named 'success'"),
        pytest.param("a.jsonl", '{"task": ' * 100_000, "line 1: one JSON object a line", id="deep"),
        ("a.jsonl", '{"task": "a", "model": "m", "success": 1}\n{"task": "b", "mod', "line 2: one JSON object a line"),
        (
            "a.jsonl",
            '{"task": "a", "model": "m", "success": 1, "latency_ms": 1%s}' % ("0" * 400),
            "are numbers",
        ),
        ("a.xlsx", "", "outcomes are a file of .csv, .tsv, .jsonl"),
    ],
)
def test_what_is_no_table(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        table(tmp_path / name, text)
    assert said in str(refused.value)
    assert name in str(refused.value)


def test_bytes_that_are_no_text_and_paths_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"task,model,success\n\xff\xfe,m,1\n")
    with pytest.raises(ConfigError, match="is no whole csv file of outcomes"):
        read_table(tmp_path / "a.csv")
    with pytest.raises(ConfigError, match=r"no outcomes at .*none\.csv"):
        read_table(tmp_path / "none.csv")
