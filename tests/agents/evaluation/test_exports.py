"""Rows and figures for other programs."""

from __future__ import annotations

import csv
import io
import json

from tests.agents.evaluation.made_rows import made_row
from toolorchestra.agents.evaluation.rows import row_of
from toolorchestra.agents.evaluation.summary import summarise
from toolorchestra.agents.evaluation.summary_tables import as_csv, csv_text, rows_as_csv, rows_as_json, rows_as_markdown

ROWS = [
    made_row("a, b", 1.0, calls={"answer-1": 2}, groups={"subject": "logic"}, tokens={"expert": [1, 2, 3, 4]}),
    made_row("c", None, failure="=cmd()|x\nboom", nano_usd_by_tool={"": 5, "answer-1": 7}, evidence={"k": [1]}),
]


def test_csv_is_read_back() -> None:
    first, second = csv.DictReader(io.StringIO(rows_as_csv(ROWS)))
    assert (first["task"], first["right"], first["calls_answer-1"], first["group_subject"]) == (
        "a, b", "1.0", "2", "logic",
    )  # fmt: skip
    assert json.loads(first["tokens_expert"]) == [1, 2, 3, 4]
    assert int(first["nano_usd_of_role_orchestrator"]) + int(first["nano_usd_of_role_expert"]) == ROWS[0].nano_usd
    assert (second["right"], second["status"], second["calls_answer-1"]) == ("", "failed", "")
    assert second["failure"] == "'=cmd()|x\nboom"
    assert (second["nano_usd_of_tool_orchestrator"], second["evidence"]) == ("5", '{"k": [1]}')


def test_json_is_the_rows() -> None:
    assert [row_of(one) for one in json.loads(rows_as_json(ROWS))] == ROWS


def test_markdown_stays_in_its_cells() -> None:
    lines = rows_as_markdown(ROWS).splitlines()
    assert len(lines) == 4
    assert lines[2] == "| HLE-v0 | test | cheap | a, b | 0 | ended | 1 | 3.00 | 1.00 | 0 | answer-1 2 |  |"
    assert "=cmd()\\|x boom" in lines[3]


def test_csv_of_figures_is_read_back() -> None:
    summary = summarise(ROWS)
    read = list(csv.DictReader(io.StringIO(as_csv(summary))))
    assert {line["group"] for line in read} == {"", "subject: logic"}
    assert (read[0]["planned"], read[0]["failed"], read[0]["calls_answer-1"]) == ("2", "1", "2.0")
    assert float(read[0]["accuracy_low"]) == summary.policies[0].accuracy.low


def test_no_cell_of_csv_is_a_formula() -> None:
    assert csv_text([["=1+1", "-x", -2.5, "a,b"]]) == "'=1+1,'-x,-2.5,\"a,b\"\n"
