"""Specs that were written to fill the memory, to take for ever, to read the clock or to get out of the fence.

Each variant spoils one part of a spec that is good. tests/synth/authors/test_hostile_authors.py plays them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolorchestra.synth.authors.model_author import plain
from toolorchestra.synth.authors.untrusted_answers import dumped

Parts = dict[str, str]
Change = Callable[[Parts], None]
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FLAT = BOMB.strip().replace("\n", ", ")


def after(part: str, text: str, more: str) -> Change:
    """Put something behind a text of a part, or at its end."""

    def change(parts: Parts) -> None:
        parts[part] = parts[part].replace(text, text + more) if text else parts[part] + more

    return change


def schema(more: str) -> Change:
    """Put statements behind the schema's."""
    return after("schema.sql", "", more)


def column(definition: str) -> Change:
    """Give books one more column, which the rows leave out."""
    return after("schema.sql", "shelf TEXT NOT NULL,", f" {definition},")


def raw(part: str, text: str) -> Change:
    """Put a text before a part's."""

    def change(parts: Parts) -> None:
        parts[part] = text + parts[part]

    return change


def on(part: str, edit: Callable[[Any], object]) -> Change:
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
    return on("tools.yaml", lambda tools: [one.update(more) for one in tools if one["name"] == "find_book"])


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


def repeated(statement: str, count: int) -> Change:
    """Put many statements behind the schema's or the rows' own, each with its number in it."""
    return schema("".join(statement.format(n=n) for n in range(count)))


def chained(columns: int) -> str:
    """Columns of which each is computed from the one before, twice."""
    return ", ".join(f"g{n} INTEGER AS (g{n - 1} + g{n - 1})" for n in range(1, columns))


DEEP, DEPTH = "NESTED", 800


def deep(changed: Change) -> Change:
    """Nest a value that a change has put in, in the text: YAML is not written so deep."""

    def change(parts: Parts) -> None:
        changed(parts)
        for name in parts:
            parts[name] = parts[name].replace(DEEP, "[" * DEPTH + "]" * DEPTH)

    return change


def intents_of(count: int) -> Change:
    """Many copies of due_date, with names and words of their own."""
    more = [{"intent": f"due_{n}", "say": [f"Number {n}: when is my book due?"]} for n in range(count)]
    return on("intents.yaml", lambda intents: intents.extend([{**intents[1], **one} for one in more]))


def tools_of(count: int) -> Change:
    """A change of a spec that adds `count` copies of the tool find_book."""

    def edit(tools: Any) -> None:
        book = next(one for one in tools if one["name"] == "find_book")
        tools += [{**book, "name": f"find_{number}"} for number in range(count)]

    return on("tools.yaml", edit)


def top(**more: Any) -> Change:
    return on("domain.yaml", lambda value: value.update(more))


COMMENTS = "/**/" * 40
FLATTENED = "WITH a0 AS (SELECT book_id, rowid AS a FROM books WHERE title = :title)" + "".join(
    f", a{n} AS (SELECT book_id, a + a AS a FROM a{n - 1})" for n in range(1, 40)
)
AAA = "'a'"
for _ in range(12):
    AAA = f"replace({AAA}, 'a', 'aa')"
HIDDEN = "\u200b"

HOSTILE: dict[str, tuple[Change, str]] = {
"schema: rows without end": (schema(f"INSERT INTO books {ENDLESS} SELECT x, x, x, x FROM c;"), "schema.sql: not"),
"schema: a table of a query": (schema(f"CREATE TABLE more AS {ENDLESS} SELECT x FROM c;"), "schema.sql: not auth"),
"schema: another file": (schema("ATTACH DATABASE 'stolen.db' AS x;"), "schema.sql: too many attached|schema.sql"),
"schema: a trigger": (schema("CREATE TRIGGER t AFTER INSERT ON books BEGIN DELETE FROM loans; END;"), "schema.sql"),
"schema: a view": (schema("CREATE VIEW v AS SELECT 1;"), "schema.sql: not auth"),
"schema: full text": (schema("CREATE VIRTUAL TABLE f USING fts5(x);"), "schema.sql"),
"schema: a pragma": (schema("PRAGMA writable_schema = 1;"), "schema.sql: not auth"),
"schema: the list of tables": (schema("INSERT INTO sqlite_master VALUES (1, 1, 1, 1, 1);"), "schema.sql"),
"schema: chance": (column("luck INTEGER DEFAULT (random())"), "books.*random"),
"schema: the clock": (column("made TEXT DEFAULT (date('No' || 'w'))"), "books.*clock"),
"schema: a wide column": (column(f"wide TEXT GENERATED ALWAYS AS ({WIDE}) STORED"), "books.*printf"),
"schema: deletes unseen": (column("more TEXT UNIQUE ON CONFLICT REPLACE"), "schema.sql"),
"schema: a long text": (schema("-- " + "x" * 3_000_000), "schema.sql: 30"),
    # rows.yaml,
"rows: endless": (finish(f"UPDATE books SET copies = ({ENDLESS} SELECT max(x) FROM c)"), r"finish\[1\].*steps"),
"rows: a full memory": (
        finish(f"INSERT INTO handoffs {ENDLESS} SELECT 'HO-' || x || {LONG}, 'ME-001', 'unblock' FROM c, books"),
        r"finish\[1\]|handoffs",
    ),
"rows: a long list": (finish(f"UPDATE books SET shelf = ({ENDLESS} SELECT group_concat(x) FROM c)"), "finish"),
"rows: a file": (finish("UPDATE books SET shelf = readfile('/etc/passwd')"), r"finish\[1\].*readfile"),
"rows: code": (finish("SELECT load_extension('x')"), r"finish\[1\].*load_extension"),
"rows: wide numbers": (recipe(1, "shelf", {"expr": WIDE}), "shelf.*printf"),
"rows: the clock": (recipe(1, "shelf", {"expr": "date('No' || 'w')"}), "shelf.*clock"),
"rows: a wide text": (recipe(1, "shelf", {"text": "{title:>1500000000}"}), "shelf.*width"),
"rows: inside": (recipe(1, "shelf", {"text": "{title.__class__}"}), "shelf.*names a value"),
"rows: a long pattern": (recipe(1, "shelf", {"pattern": "#" * 400_000}), "shelf.*characters"),
"rows: too many": (table(1, count=10_000_000), "rows.yaml: size"),
"rows: too many for each": (table(2, per=[0, 100_000_000]), "rows.yaml: size"),
"rows: a great number": (recipe(1, "copies", {"int": [10**30, 10**31]}), "books|copies"),
"rows: everything with everything": (on("rows.yaml", quadratic), "rows.yaml: table.*longer than"),
"rows: anchors": (raw("rows.yaml", BOMB), "rows.yaml:.*anchors"),
"rows: an anchor of itself": (raw("rows.yaml", "a: &a [*a]\n"), "rows.yaml:.*anchor"),
"rows: depth": (raw("rows.yaml", "a: " + "[" * 5000 + "]" * 5000 + "\n"), "rows.yaml"),
    # tools.yaml,
"tool: wide": (shown(WIDE), "find_book.*printf"),
"tool: a long search": (shown(f"instr({DOUBLED}, 'ab')"), "find_book.*replace"),
"tool: the clock": (shown("date('No' || 'w')"), "find_book.*clock"),
"tool: the clock in bytes": (shown("date(x'6e6f77')"), "find_book.*clock"),
"tool: the clock in a modifier": (shown("time('12:00', 'local' || 'time')"), "find_book.*time zone"),
"tool: recursion": (let(f"{ENDLESS} SELECT max(x) AS most FROM c"), "find_book.*not auth"),
"tool: everything with everything": (
        shown("(SELECT count(*) FROM loans a, loans b, loans c, loans d WHERE a.due_on < b.due_on)"),
        "find_book.* (took too long|takes longer)",
    ),
"tool: chance": (shown("abs(random())"), "find_book.*not authorized"),
"tool: other tables": (shown("(SELECT sql FROM sqlite_master)"), "find_book.*(prohibited|not auth)"),
"tool: its log": (shown("(SELECT count(*) FROM _changes)"), "find_book.*(prohibited|not auth)"),
"tool: a wide error": (error("No {title:>1500000000}."), "find_book.*width"),
"tool: inside an error": (error("No {title.__class__}."), "find_book.*names a value"),
"tool: a long error": (error("No. " * 20_000), "find_book.*characters"),
"draw: deletes": (intent(draw="DELETE FROM loans RETURNING member_id AS who"), "due_date.*only read"),
"draw: endless": (intent(draw=f"{ENDLESS} SELECT max(x) AS who FROM c"), "due_date.*steps"),
"draw: a full memory": (
        intent(draw=f"{ENDLESS} SELECT 'ME-001' AS who, {LONG} || x AS more FROM c, books"),
        "due_date.*(memory|rows|steps|too large)",
    ),
"draw: the clock": (intent(draw="SELECT member_id AS who, date('No' || 'w') AS day FROM loans"), "due_date.*clock"),
"say: three megabytes": (intent(say=["When is it due? " * 200_000]), "intents.yaml: 3"),
"say: long": (intent(say=["When is it due? " * 20_000]), r"due_date: say\[0\].*characters"),
"say: inside": (intent(say=["When is {title.__class__.__mro__} due?"]), "due_date.*names a value"),
"say: many": (intent(say=[f"When is it due, {n}?" for n in range(9_000)]), "due_date.*say may have 50 items"),
"schema: comments between two words": (schema(f"CREATE TABLE x (a TEXT UNIQUE ON{COMMENTS}x);"), "schema.sql"),
"schema: open comments": (schema("-- " + "on /* " * 60_000), "schema.sql"),
"schema: replaced behind a text": (
        column("more TEXT DEFAULT '--' UNIQUE ON CONFLICT REPLACE"), "schema.sql: ON CONFLICT REPLACE"
    ),
"schema: columns of columns": (column(f"g0 INTEGER DEFAULT 1, {chained(40)}"), "schema.sql|books"),
"schema: indexes without end": (
        repeated("CREATE INDEX i{n} ON loans (loan_id, member_id, book_id, due_on, status);", 1_200), "schema.sql|loans"
    ),
"schema: tables without end": (repeated("CREATE TABLE t{n} (x TEXT NOT NULL UNIQUE);", 2_000), "schema.sql"),
"schema: brackets": (column(f"more TEXT CHECK ({'(' * 20_000}1{')' * 20_000})"), "schema.sql"),
"schema: words for a pattern": (schema("CREATE TABLE x (" + "TEXT " * 8_000 + ");"), "schema.sql"),
"schema: not text": (schema("\0\0\0"), "schema.sql"),
"schema: itself as parent": (
        column(f"deep TEXT REFERENCES books (deep) CHECK (deep LIKE '%' || {AAA})"), "books.*like"
    ),
"rows: a number of digits": (raw("rows.yaml", f"more: {'9' * 400_000}\n"), "rows.yaml"),
"rows: no bounds": (table(2, per=[]), "rows.yaml.*per"),
"rows: code in YAML": (raw("rows.yaml", "more: !!python/object/apply:os.system [touch stolen.db]\n"), "rows.yaml"),
"rows: doubled": (
        on("rows.yaml", lambda rows: rows["finish"].extend(["INSERT INTO handoffs SELECT handoff_id || '0' || rowid,"
           " member_id, reason FROM handoffs"] * 40)), r"rows.yaml.*finish"
    ),
"rows: sorted": (
        finish("UPDATE books SET shelf = (SELECT max(x) FROM (SELECT a.title || printf('%200s', b.title) AS x"
               " FROM books a, books b, books c, loans d ORDER BY x DESC LIMIT 3 OFFSET 900000))"), r"finish\[1\]"
    ),
"rows: wide rows": (
        on("rows.yaml", lambda rows: [rows["tables"][1]["columns"].update({"shelf": "x" * 9_000}),
                                      rows["tables"][4].update(count=19_000)]), "rows.yaml"
    ),
"rows: alike": (finish(f"UPDATE books SET shelf = 'x' WHERE {AAA} LIKE '%' || substr({AAA}, 1, 40000) || 'b'"),
                    r"finish\[1\].*like"),
"rows: weights": (recipe(1, "shelf", {"choice": {"a": float("inf"), "b": 1}}), "rows.yaml"),
"rows: times": (recipe(2, "due_on", {"date": ["0001-01-01", "9999-12-31"]}), "rows.yaml"),
"rows: a step in the dark": (recipe(1, "copies", {"int": [0, 10**19]}), "rows.yaml"),
"tool: alike": (shown(f"({AAA} LIKE '%' || substr({AAA}, 1, 400) || 'b')"), "find_book.*like"),
"tool: a query of queries": (tool(returns={"row": f"{FLATTENED} SELECT book_id, a FROM a39"}), "find_book"),
"tool: a write that reads": (
        let("WITH x AS (SELECT 1) INSERT INTO handoffs VALUES ('HO-999', 'ME-001', 'unblock') RETURNING 1 AS one"),
        "find_book.*INSERT",
    ),
"tool: two statements": (let("SELECT 1 AS one; DELETE FROM loans"), "find_book"),
"tool: comments between two words": (tool(kind="write", steps=[{"do": f"INSERT{COMMENTS}x"}]), "find_book"),
"tool: a file": (let("SELECT 1 AS one FROM books; ATTACH 'stolen.db' AS x"), "find_book"),
"tool: a pattern": (
        tool(parameters={"title": {"type": "string", "format": "text", "pattern": "(a+)+$"}}), "pattern"
    ),
"tool: a schema of itself": (tool(parameters={"title": {"$ref": "#"}}), "find_book"),
"tool: a deep schema": (
        deep(tool(parameters={"title": {"type": "string", "format": "text", "enum": DEEP}})), "tools.yaml"
    ),
"tool: a hidden name": (tool(name=f"find{HIDDEN}_book"), "tools.yaml"),
"tool: too many": (tools_of(400), "tools.yaml.*tools"),
"tool: a thousand steps": (
        tool(steps=[{"let": "SELECT book_id AS book FROM books WHERE title = :title", "error": "No."}] * 4_000),
        "find_book",
    ),
"tool: a long query": (shown("1" + " + 1" * 30_000), "find_book"),
"draw: files": (intent(draw="SELECT member_id AS who, readfile('/etc/passwd') AS x FROM loans"), "due_date"),
"draw: chance": (intent(draw="SELECT member_id AS who, title FROM loans, books ORDER BY random()"), "due_date"),
"draw: unbounded": (
        intent(draw="SELECT a.member_id AS who, b.title FROM loans a, books b, loans c, loans d"), "due_date.*rows"
    ),
"draw: candidates that delete": (
        intent(candidates={"column": "loan_id", "of": "DELETE FROM loans RETURNING loan_id"}), "due_date.*only read"
    ),
"draw: candidates without end": (
        intent(candidates={"column": "loan_id", "of": f"{ENDLESS} SELECT x FROM c"}), "due_date.*(steps|rows)"
    ),
"intents: a weight without end": (intent(weight=float("inf")), "intents.yaml|due_date"),
"intents: many": (intents_of(1_500), "intents.yaml"),
"intents: many calls": (
        intent(actions=[{"list_loans": {"member_id": "{member_id}"}}] * 4_000), "due_date|intents.yaml"
    ),
"intents: deep arguments": (deep(intent(actions=[{"list_loans": {"member_id": DEEP}}])), "intents.yaml"),
"intents: a far row": (intent(inform=["list_loans." + "9" * 5_000 + ".due_on"]), "due_date"),
"user: another folder": (top(name="../../stolen"), "domain.yaml.*name"),
"user: no such day": (top(clock="2026-02-31 25:61:00"), "domain.yaml.*clock"),
"user: a key of SQL": (head(key="member_id FROM members; DROP TABLE members; --"), "domain.yaml.*user.draw"),
"user: many personas": (top(personas=[f"You are number {n}." for n in range(40_000)]), "domain.yaml"),
"policy: one sentence": (raw("policy.md", "may not never can not " * 20_000), "policy.md"),
"policy: many rules": (
        raw("policy.md", "".join(f"- You must not do thing {n}.\n" for n in range(14_000))), "policy.md"
    ),
}  # fmt: skip
