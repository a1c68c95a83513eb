"""SQL functions that stand in the place of SQLite's: the same results, quickly, or a reason."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator

import pytest

from toolorchestra.envs.domains.toolscale.bounded_functions import MOST_LENGTH, bound, told

SAME = """date('2026-01-31', '+1 month')|date('2026-01-31 10:00', 'start of month')|date(NULL)|date('nonsense')
date(2461041)|julianday('2026-03-01') - julianday('2026-02-01')|julianday(2461041.5)|datetime(0, 'unixepoch')
time('12:30', '+90 minutes')
strftime('%Y-%m', '2026-03-01')|strftime('%w', '2026-03-01')|strftime('%H:%M', '10:05')|strftime(NULL, '2026-01-01')
printf('LO-%03d', 7)|printf('%.2f', 2.5)|printf('%s', 1.0)|printf('%s', 1)|printf('%d', '12x')|printf('%,d', 12345)
printf('%-8s|', 'a')|printf('100%%')|printf('%s')|printf(NULL)|printf()|format('%05.1f', 3.14159)|printf('%200d', 1)
instr('abcabc', 'ca')|instr('abc', 'x')|instr('abc', '')|instr(NULL, 'a')|instr(1234, 23)|instr('größe', 'ße')
replace('aXbX', 'X', '--')|replace('abc', '', 'x')|replace(NULL, 'a', 'b')|replace('a1b', 1, 2)|replace('aa', 'a', '')
like('a%', 'ABC')|like('a_c', 'abd')|like('a\\%', 'a%', '\\')|like(NULL, 'a')|like('1%', 12)|like('%', '')
trim('  a ')|trim('xxaxx', 'x')|ltrim('  a')|rtrim('a  ')|trim(NULL)|trim(12, 1)|trim('', 'x')"""
REFUSED = {
    "date('No' || 'w')": "clock",
    "date(x'6e6f77')": "clock",
    "strftime('%s')": "clock",
    "time('10:00', 'local' || 'time')": "time zone",
    "CURRENT_DATE": "clock",
    "random()": "replays",
    "printf('%.2000000000c', 'x')": "up to 200",
    "printf('%*d', 2000000000, 1)": "up to 200",
    "printf('%.*f', 2000000000, 1.0)": "up to 200",
    f"'{'a' * 3_000}' LIKE '%{'a' * 400}b'": "multiplied",
    f"'a' LIKE '{'%a' * 300}'": "too complex",
}


@pytest.fixture
def fenced() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_LENGTH)
    bound(connection)
    yield connection
    connection.close()


@pytest.mark.parametrize("expression", [one for line in SAME.splitlines() for one in line.split(")|") if one])
def test_results_are_those_of_sqlite(fenced: sqlite3.Connection, expression: str) -> None:
    expression = expression if expression.endswith(")") else f"{expression})"
    plain = sqlite3.connect(":memory:")
    for _ in range(2):  # the second from what is kept
        found = fenced.execute(f"SELECT {expression}, typeof({expression})").fetchone()
        assert found == plain.execute(f"SELECT {expression}, typeof({expression})").fetchone()
    plain.close()


@pytest.mark.parametrize(("expression", "why"), REFUSED.items())
def test_what_reads_the_clock_or_counts_for_ever_is_refused(
    fenced: sqlite3.Connection, expression: str, why: str
) -> None:
    started = time.process_time()
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError) as caught:
            fenced.execute(f"SELECT {expression}").fetchone()
        assert why in told(caught.value)
    assert time.process_time() - started < 1


def test_the_clock_is_refused_in_a_row_and_in_a_default_too(fenced: sqlite3.Connection) -> None:
    fenced.execute("CREATE TABLE days (day TEXT, made TEXT DEFAULT (date('now')))")
    with pytest.raises(sqlite3.OperationalError) as caught:
        fenced.execute("INSERT INTO days (day) VALUES ('now')")
    assert "clock" in told(caught.value)
    fenced.execute("INSERT INTO days VALUES ('NOW', '')")
    with pytest.raises(sqlite3.OperationalError):
        fenced.execute("SELECT date(day) FROM days").fetchall()


@pytest.mark.parametrize("expression", ["instr(a.t, b.t || 'b')", "replace(a.t, b.t || 'b', 'c')", "trim(a.t, 'b')"])
def test_long_texts_are_searched_in_a_time_that_grows_with_their_length(
    fenced: sqlite3.Connection, expression: str
) -> None:
    fenced.execute("CREATE TABLE texts (t TEXT)")
    fenced.executemany("INSERT INTO texts VALUES (?)", [("a" * 90_000,), ("a" * 45_000,)])
    started = time.process_time()
    for _ in range(20):
        fenced.execute(f"SELECT {expression} FROM texts a JOIN texts b ON a.rowid = 1 AND b.rowid = 2").fetchone()
    assert time.process_time() - started < 2


def test_a_text_never_grows_beyond_its_bound(fenced: sqlite3.Connection) -> None:
    doubled = "'a'"
    for _ in range(30):
        doubled = f"replace({doubled}, 'a', 'aa')"
    with pytest.raises(sqlite3.OperationalError) as caught:
        fenced.execute(f"SELECT {doubled}").fetchone()
    assert "more than 100000 characters" in told(caught.value)
