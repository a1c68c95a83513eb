"""Tables that a person reads, and CSV that a program does."""

from __future__ import annotations

from tests.agents.evaluation.made_rows import made_row
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.summary import summarise
from toolorchestra.agents.evaluation.summary_tables import (
    aligned,
    as_markdown,
    as_text,
    number,
    piped,
)


def rows() -> list[EvaluationRow]:
    made = []
    for policy, cents in (("cheapest-of-all-the-policies-there-are", 0.4), ("strongest", 123.456), ("oracle", 11.2)):
        for n in range(12):
            models = {"answer-1": "a-model/with-a-long-name-2025-08-07", "search-1": "gpt-5"}
            fields = {"policy": policy, "groups": {"subject": "number theory" if n % 2 else "logic"}, "models": models}
            tokens = {"orchestrator": [12_345, 0, 678, 90], "expert": [1, 2, 3, 4]}
            for trial in range(5):
                right = None if n == 0 else float((n + trial) % 3 > 0)
                calls = {"answer-1": 1, "search-1": n % 4}
                made.append(made_row(str(n), right, trial=trial, cents=cents * n, calls=calls, tokens=tokens, **fields))
    return made


def test_the_text_fits_a_terminal_of_120_columns() -> None:
    said = as_text(summarise(rows(), {("HLE-v0", "test", "oracle"): 80}))
    assert max(map(len, said.splitlines())) <= 120
    assert "HLE-v0 test" in said
    assert "pass^2" in said
    assert "20 not played" in said
    assert "a-model/with-a-long-nam…" in said


def test_columns_that_do_not_fit_stand_below() -> None:
    table = [["", *(f"policy number {n}" for n in range(20))], ["calls", *map(str, range(20))]]
    lines = aligned(table).splitlines()
    assert max(map(len, lines)) <= 120
    assert " ".join(lines[1::3]).split() == [
        *"calls 0 1 2 3 4 5".split(),
        *"calls 6 7 8 9 10 11".split(),
        *"calls 12 13 14 15 16 17".split(),
        "calls",
        "18",
        "19",
    ]


def test_a_row_of_the_table_by_hand() -> None:
    some = [made_row(str(n), float(n < 3), cents=2.0, minutes=0.5) for n in range(4)]
    line = as_text(summarise(some)).splitlines()[3].split()
    assert line[:4] == ["cheap", "4", "4", "75.0"]
    assert line[4] == "30.1-95.4"  # Wilson, 3 of 4
    assert line[5:7] == ["2.00", "2.67"]
    assert line[-1] == "0.500"


def test_markdown_keeps_strangers_names_in_their_cells() -> None:
    said = as_markdown(summarise([made_row("a", policy="x | <b>y</b>\n# z")]))
    assert "| x \\| \\<b>y\\</b> # z | 1 | 1 | 100.0 |" in said
    assert piped([["a", "b"], ["1", "2"]]).splitlines() == ["| a | b |", "| --- | ---: |", "| 1 | 2 |"]


def test_numbers_have_three_digits() -> None:
    assert [number(x) for x in (0, 0.00012345, 0.5, 9.996, 12.34, 123.4, float("inf"), float("nan"))] == [
        "0", "0.000123", "0.500", "10.00", "12.3", "123", "inf", "-",
    ]  # fmt: skip
    assert aligned([["a", "bb"], ["ccc", "d"]]) == "a    bb\nccc   d"
