"""Specs that were written to fill the memory, to take for ever, to read the clock or to get out of the fence: each is
refused by one sentence that names the part at fault, within 20 seconds and a gigabyte.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.paths import REPOSITORY
from tests.synth import runs
from toolorchestra.synth import generate
from toolorchestra.synth.authors.scripted_author import plain
from toolorchestra.synth.authors.untrusted_answers import dumped
from toolorchestra.synth.stages import limited_work, pipeline, written_parts

Parts = dict[str, str]
Change = Callable[[Parts], None]
MOST_SECONDS = 20.0
MOST_KILOBYTES = 1 << 20
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FLAT = BOMB.strip().replace("\n", ", ")


def schema(more: str) -> Change:
    """Put statements behind the schema's."""

    def change(parts: Parts) -> None:
        parts["schema.sql"] += more

    return change


def column(definition: str) -> Change:
    """Give books one more column, which the rows leave out."""

    def change(parts: Parts) -> None:
        parts["schema.sql"] = parts["schema.sql"].replace("shelf TEXT NOT NULL,", f"shelf TEXT NOT NULL, {definition},")

    return change


def raw(part: str, text: str) -> Change:
    """Put a text before a part's."""

    def change(parts: Parts) -> None:
        parts[part] = text + parts[part]

    return change


def on(part: str, edit: Callable[[Any], None]) -> Change:
    """Change a part as data."""

    def change(parts: Parts) -> None:
        value = plain(parts[part])
        edit(value)
        parts[part] = dumped(value)

    return change


def finish(sql: str) -> Change:
    return on("rows.yaml", lambda rows: rows["finish"].append(sql))


def recipe(table: int, name: str, made: Any) -> Change:
    return on("rows.yaml", lambda rows: rows["tables"][table]["columns"].update({name: made}))


def table(number: int, **more: Any) -> Change:
    return on("rows.yaml", lambda rows: rows["tables"][number].update(more))


def tool(**more: Any) -> Change:
    """Change find_book, which anybody may call."""

    def edit(tools: Any) -> None:
        next(one for one in tools if one["name"] == "find_book").update(more)

    return on("tools.yaml", edit)


def shown(expression: str) -> Change:
    """Have find_book show what an expression gives."""
    return tool(returns={"row": f"SELECT book_id, title, shelf, {expression} AS more FROM books WHERE book_id = :book"})


def let(sql: str) -> Change:
    find = {"let": "SELECT book_id AS book FROM books WHERE title = :title", "error": "No book."}
    return tool(steps=[find, {"let": sql, "error": "No."}])


def error(text: str) -> Change:
    return tool(steps=[{"let": "SELECT book_id AS book FROM books WHERE title = :title", "error": text}])


def intent(**more: Any) -> Change:
    """Change the second intent, due_date."""
    return on("intents.yaml", lambda intents: intents[1].update(more))


def head(**more: Any) -> Change:
    return on("domain.yaml", lambda value: value["user"].update(more))


def quadratic(rows: Any) -> None:
    rows["tables"][0]["count"] = 4_500
    rows["tables"][2]["per"] = [1, 1]
    where = {"full_name": "{full_name}", "birth_year": "{birth_year}"}
    rows["tables"][4] |= {"count": 4_000, "columns": {
        "handoff_id": {"id": "HO-{n:05d}"}, "full_name": {"person": None}, "birth_year": {"int": [1940, 2012]},
        "member_id": {"ref": {"of": "members.member_id", "where": where}}, "reason": "unblock",
    }}  # fmt: skip


WIDE = "printf('%.2000000000c', 'x')"
LONG = "printf('%s%s', printf('%200s%200s%200s', title, title, title), printf('%200s%200s', title, title))"
DOUBLED = "'a'"
for _ in range(40):
    DOUBLED = f"replace({DOUBLED}, 'a', 'aa')"

HOSTILE: dict[str, tuple[Change, str]] = {
    # schema.sql
    "schema: rows without end": (schema(f"INSERT INTO books {ENDLESS} SELECT x, x, x, x FROM c;"), "schema.sql: not"),
    "schema: a table of a query": (schema(f"CREATE TABLE more AS {ENDLESS} SELECT x FROM c;"), "schema.sql: not auth"),
    "schema: another file": (schema("ATTACH DATABASE 'stolen.db' AS x;"), "schema.sql: too many attached|schema.sql"),
    "schema: a trigger": (schema("CREATE TRIGGER t AFTER INSERT ON books BEGIN DELETE FROM loans; END;"), "schema.sql"),
    "schema: a view": (schema("CREATE VIEW v AS SELECT 1;"), "schema.sql: not auth"),
    "schema: a table beside": (schema("CREATE TEMP TABLE t (x);"), "schema.sql: not auth"),
    "schema: full text": (schema("CREATE VIRTUAL TABLE f USING fts5(x);"), "schema.sql"),
    "schema: a pragma": (schema("PRAGMA writable_schema = 1;"), "schema.sql: not auth"),
    "schema: another's file": (schema("VACUUM INTO 'stolen.db';"), "schema.sql: auth"),
    "schema: the list of tables": (schema("INSERT INTO sqlite_master VALUES (1, 1, 1, 1, 1);"), "schema.sql"),
    "schema: chance": (column("luck INTEGER DEFAULT (random())"), "books.*random"),
    "schema: the clock": (column("made TEXT DEFAULT (date('No' || 'w'))"), "books.*clock"),
    "schema: the clock by name": (column("made TEXT DEFAULT CURRENT_TIMESTAMP"), "books.*clock"),
    "schema: a wide column": (column(f"wide TEXT GENERATED ALWAYS AS ({WIDE}) STORED"), "books.*printf"),
    "schema: a check by the clock": (column("more TEXT CHECK (date('no' || 'w') > '2000')"), "books.*clock"),
    "schema: deletes unseen": (column("more TEXT UNIQUE ON CONFLICT REPLACE"), "schema.sql"),
    "schema: a long text": (schema("-- " + "x" * 3_000_000), "schema.sql: 30"),
    # rows.yaml
    "rows: endless": (finish(f"UPDATE books SET copies = ({ENDLESS} SELECT max(x) FROM c)"), r"finish\[1\].*steps"),
    "rows: a full memory": (
        finish(f"INSERT INTO handoffs {ENDLESS} SELECT 'HO-' || x || {LONG}, 'ME-001', 'unblock' FROM c, books"),
        r"finish\[1\]|handoffs",
    ),
    "rows: a long list": (finish(f"UPDATE books SET shelf = ({ENDLESS} SELECT group_concat(x) FROM c)"), "finish"),
    "rows: a file": (finish("UPDATE books SET shelf = readfile('/etc/passwd')"), r"finish\[1\].*readfile"),
    "rows: code": (finish("SELECT load_extension('x')"), r"finish\[1\].*load_extension"),
    "rows: many bytes": (finish("UPDATE books SET shelf = zeroblob(1000000000)"), r"finish\[1\].*zeroblob"),
    "rows: wide numbers": (recipe(1, "shelf", {"expr": WIDE}), "shelf.*printf"),
    "rows: the clock": (recipe(1, "shelf", {"expr": "date('No' || 'w')"}), "shelf.*clock"),
    "rows: a wide text": (recipe(1, "shelf", {"text": "{title:>1500000000}"}), "shelf.*width"),
    "rows: a wide id": (recipe(1, "book_id", {"id": "BO-{n:01500000000d}"}), "book_id.*width"),
    "rows: a width by a width": (recipe(1, "shelf", {"text": "{title:>{copies}}"}), "shelf.*width"),
    "rows: inside": (recipe(1, "shelf", {"text": "{title.__class__}"}), "shelf.*names a value"),
    "rows: a long pattern": (recipe(1, "shelf", {"pattern": "#" * 400_000}), "shelf.*characters"),
    "rows: too many": (table(1, count=10_000_000), "rows.yaml: size"),
    "rows: too many for each": (table(2, per=[0, 100_000_000]), "rows.yaml: size"),
    "rows: a great number": (recipe(1, "copies", {"int": [10**30, 10**31]}), "books|copies"),
    "rows: everything with everything": (on("rows.yaml", quadratic), "rows.yaml: table.*longer than"),
    "rows: anchors": (raw("rows.yaml", BOMB), "rows.yaml:.*anchors"),
    "rows: an anchor of itself": (raw("rows.yaml", "a: &a [*a]\n"), "rows.yaml:.*anchor"),
    "rows: depth": (raw("rows.yaml", "a: " + "[" * 5000 + "]" * 5000 + "\n"), "rows.yaml"),
    # tools.yaml
    "tool: wide": (shown(WIDE), "find_book.*printf"),
    "tool: wide by a value": (shown("printf('%*d', 2000000000, 1)"), "find_book.*printf"),
    "tool: a long search": (shown(f"instr({DOUBLED}, 'ab')"), "find_book.*replace"),
    "tool: the clock": (shown("date('No' || 'w')"), "find_book.*clock"),
    "tool: the clock in bytes": (shown("date(x'6e6f77')"), "find_book.*clock"),
    "tool: the clock by nothing": (shown("strftime('%s')"), "find_book.*clock"),
    "tool: the clock in a modifier": (shown("time('12:00', 'local' || 'time')"), "find_book.*time zone"),
    "tool: recursion": (let(f"{ENDLESS} SELECT max(x) AS most FROM c"), "find_book.*not auth"),
    "tool: everything with everything": (
        shown("(SELECT count(*) FROM loans a, loans b, loans c, loans d WHERE a.due_on < b.due_on)"),
        "find_book.* (took too long|takes longer)",
    ),
    "tool: chance": (shown("abs(random())"), "find_book.*not authorized"),
    "tool: other tables": (shown("(SELECT sql FROM sqlite_master)"), "find_book.*(prohibited|not auth)"),
    "tool: its log": (shown("(SELECT count(*) FROM _changes)"), "find_book.*(prohibited|not auth)"),
    "tool: pragmas": (shown("(SELECT name FROM pragma_table_info('books'))"), "find_book"),
    "tool: a wide error": (error("No {title:>1500000000}."), "find_book.*width"),
    "tool: inside an error": (error("No {title.__class__}."), "find_book.*names a value"),
    "tool: a long error": (error("No. " * 20_000), "find_book.*characters"),
    "tool: anchors": (raw("tools.yaml", f"- {{ {FLAT} }}\n"), "tools.yaml:.*anchors"),
    # intents.yaml and domain.yaml
    "draw: deletes": (intent(draw="DELETE FROM loans RETURNING member_id AS who"), "due_date.*only read"),
    "draw: writes": (intent(draw="UPDATE loans SET status = 'open' RETURNING member_id AS who"), "due_date.*only read"),
    "draw: endless": (intent(draw=f"{ENDLESS} SELECT max(x) AS who FROM c"), "due_date.*steps"),
    "draw: a full memory": (
        intent(draw=f"{ENDLESS} SELECT 'ME-001' AS who, {LONG} || x AS more FROM c, books"),
        "due_date.*(memory|rows|steps)",
    ),
    "draw: the clock": (intent(draw="SELECT member_id AS who, date('No' || 'w') AS day FROM loans"), "due_date.*clock"),
    "draw: wide": (intent(draw=f"SELECT member_id AS who, {WIDE} AS more FROM loans"), "due_date.*printf"),
    "say: three megabytes": (intent(say=["When is it due? " * 200_000]), "intents.yaml: 3"),
    "say: long": (intent(say=["When is it due? " * 20_000]), r"due_date: say\[0\].*characters"),
    "say: wide": (intent(say=["When is {title:>999999999} due?"]), "due_date.*width"),
    "say: inside": (intent(say=["When is {title.__class__.__mro__} due?"]), "due_date.*names a value"),
    "say: many": (intent(say=[f"When is it due, {n}?" for n in range(9_000)]), "due_date.*wordings"),
    "say: a long refusal": (intent(pushback="Please! " * 20_000), "due_date: pushback"),
    "intents: anchors": (raw("intents.yaml", f"- {{ {FLAT} }}\n"), "intents.yaml:.*anchors"),
    "user: deletes": (head(draw="DELETE FROM members RETURNING *"), "user.draw.*only read"),
    "user: endless": (head(draw=f"{ENDLESS} SELECT x AS member_id FROM c"), "user.draw.*(rows|steps)"),
    "policy: three megabytes": (raw("policy.md", "Be kind. " * 400_000), "policy.md: 3"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_parts, "CHECK_SECONDS", 10.0)
    monkeypatch.setattr(pipeline, "TASKS_SECONDS", 10.0)


def spec_of(folder: Path, parts: Parts) -> Path:
    """A spec's folder."""
    folder.mkdir()
    for name, text in parts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_spec_that_is_spoilt_below_is_good_as_it_is(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "spec", runs.texts())
    assert generate.main(["--spec", str(spec), "--out", str(tmp_path / "out"), "--tasks", "10", "--no-costs"]) == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_spec_is_refused_by_a_sentence_that_names_its_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, seen = HOSTILE[name]
    if name == "rows: everything with everything":  # nothing but the clock ends it
        monkeypatch.setattr(written_parts, "CHECK_SECONDS", 2.0)
    parts = runs.texts()
    before = dict(parts)
    change(parts)
    assert parts != before
    spec = spec_of(tmp_path / "spec", parts)
    started = time.monotonic()
    assert generate.main(["--spec", str(spec), "--out", str(tmp_path / "out"), "--tasks", "10", "--no-costs"]) == 2
    took = time.monotonic() - started
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("error: ")
    assert re.search(seen, told), told
    assert took < MOST_SECONDS
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.db"))


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of(tmp_path / "spec", runs.texts())
    with (spec / "policy.md").open("r+b") as file:
        file.truncate(1 << 30)
    assert generate.main(["--spec", str(spec), "--out", str(tmp_path / "out")]) == 2
    assert "policy.md: 1073741824 bytes, at most 16777216 are read" in capsys.readouterr().err


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux bounds the memory of a process, and says how much it had"
)
def test_the_memory_of_the_process_is_bounded() -> None:
    """Also where no bound of SQLite's own holds. Measured where nobody else has started processes."""
    code = f"from {__name__} import peak_of_greedy; print(peak_of_greedy())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert 1000 < int(done.stdout) < MOST_KILOBYTES


def peak_of_greedy() -> int:
    """Kilobytes that the limited process had at most, before it was ended for asking for more."""
    with pytest.raises(limited_work.TooMuch, match="512 MiB"):
        limited_work.SHARED.run(greedy, seconds=20)
    limited_work.SHARED.end()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def greedy() -> int:
    """Two gigabytes, and none of it is SQLite's."""
    return len([bytearray(1 << 20) for _ in range(2048)])


def test_work_that_takes_too_long_is_ended_and_the_next_goes_on() -> None:
    with pytest.raises(limited_work.TooMuch, match=r"the spec takes longer than 0\.5 s"):
        limited_work.SHARED.run(time.sleep, 30, seconds=0.5)
    assert limited_work.SHARED.run(len, [1, 2], seconds=20) == 2
    with pytest.raises(KeyError):
        limited_work.SHARED.run(dict.__getitem__, {}, "x", seconds=20)
    assert limited_work.SHARED.run(len, [1], seconds=20) == 1
