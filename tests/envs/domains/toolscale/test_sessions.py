"""Tools are transactions, episodes do not see each other, and states are told apart by their content."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from sqlite3 import DatabaseError

import pytest

from tests.domains import library, with_tool
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.domains.toolscale import database, loader
from toolorchestra.envs.domains.toolscale.database import DatabaseSession, SqlDatabase
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlTable
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.synth import prove
from toolorchestra.synth.proof.domain_player import DomainPlayer


def bench() -> DomainPlayer:
    return DomainPlayer(loader.read(library()))


def borrowable(made: DomainPlayer, count: int) -> list[GoldCall]:
    """Loans that can be made."""
    tables = made.domain.tables
    members = [row[0] for row in tables["members"].rows if row[4] == "active"]
    books = [row[0] for row in tables["books"].rows if isinstance(row[3], int) and row[3] > 0]
    return [GoldCall("borrow_book", {"member_id": members[i], "book_id": books[i]}) for i in range(count)]


def test_an_error_after_a_write_leaves_nothing_behind(tmp_path: Path) -> None:
    made = DomainPlayer(
        with_tool(
            tmp_path,
            name="half",
            kind="write",
            steps=[
                {"do": "UPDATE books SET copies = 9"},
                {"do": "INSERT INTO loans VALUES ('LO-999', 'nobody', 'BO-001', '2026-05-01', 0, 'open')"},
            ],
            returns={"row": "SELECT 1 AS done"},
        )
    )
    with made.session() as session:
        with pytest.raises(ToolError, match="FOREIGN KEY constraint failed"):
            made.call(session, GoldCall("half", {}))
        assert session.changes() == []
        assert digest(session) == "unchanged"


def test_what_is_read_after_a_call_is_not_stopped_by_the_limits_of_that_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "OPERATIONS_A_TICK", 1)
    monkeypatch.setattr(database, "MOST_TICKS", 1_000_000)
    made = bench()
    with made.session() as session:
        made.call(session, borrowable(made, 1)[0])
        monkeypatch.setattr(database, "MOST_TICKS", 0)  # as if the call had used them up
        assert {name for name, *_ in session.changes()} == {"books", "loans"}
        assert session.written() is not None
        with pytest.raises(ToolError, match="took too long and was stopped"):
            made.call(session, borrowable(made, 2)[1])
        assert len(session.changes()) == 2


def test_the_first_check_that_does_not_hold_says_what_is_wrong(tmp_path: Path) -> None:
    checks = [{"check": f"1 = {number}", "error": f"no {number}"} for number in (1, 2, 3)]
    made = DomainPlayer(with_tool(tmp_path, name="look", kind="read", steps=checks, returns={"row": "SELECT 1"}))
    with made.session() as session, pytest.raises(ToolError, match=r"^no 2$"):
        made.call(session, GoldCall("look", {}))


def test_a_bomb_is_stopped_and_the_database_goes_on(tmp_path: Path) -> None:
    product = ", ".join(f"loans l{i}" for i in range(8))
    made = DomainPlayer(
        with_tool(tmp_path, name="bomb", kind="read", returns={"row": f"SELECT count(*) AS n FROM {product}"})
    )
    with made.session() as session:
        with pytest.raises(ToolError, match="took too long and was stopped"):
            made.call(session, GoldCall("bomb", {}))
        assert made.call(session, borrowable(made, 1)[0]).value["loan_id"]


def test_a_write_that_is_stopped_ends_the_episode_and_leaks_into_no_other(tmp_path: Path) -> None:
    product = ", ".join(f"books b{i}" for i in range(8))
    slow = f"UPDATE books SET copies = (SELECT count(*) FROM {product})"
    row = {"returns": {"row": "SELECT 1 AS done"}, "kind": "write"}
    made = DomainPlayer(with_tool(tmp_path, name="recount", steps=[{"do": slow}], **row))
    recount, (loan, other) = made.runners["recount"], borrowable(made, 2)
    borrow = made.runners[loan.name]
    with made.session() as session:
        borrow.call(session, loan.arguments)
        copy = session.private
        with pytest.raises(Outage, match="recount broke off in a write"):
            recount.call(session, {})
        with pytest.raises(Outage, match="an earlier call broke off"):
            borrow.call(session, other.arguments)
        with pytest.raises(Outage, match="an earlier call broke off"):
            made.runners["find_book"].call(session, {"title": made.domain.tables["books"].rows[0][1]})
    with made.session() as session:
        assert session.own() is not copy
        assert session.changes() == []
        assert made.play([GoldCall("recount", {}), loan]).state == "unchanged"


def test_a_copy_that_left_its_transaction_is_thrown_away() -> None:
    made = bench()
    with made.session() as session:
        dirty = session.own()
        dirty.connection.execute("ROLLBACK")
        dirty.connection.execute("UPDATE books SET copies = 99")
    with made.session() as session:
        assert session.own() is not dirty


def test_long_results_are_bounded(tmp_path: Path) -> None:
    many = DomainPlayer(
        with_tool(tmp_path, name="all_pairs", kind="read", returns={"rows": "SELECT a.loan_id FROM loans a, loans b"})
    )
    with many.session() as session:
        value = many.call(session, GoldCall("all_pairs", {})).value
    assert len(value) == 51
    assert "narrow the search" in value[-1]["note"]


def test_sessions_do_not_see_each_other_and_reset_by_rolling_back() -> None:
    made = bench()
    first, second = borrowable(made, 2)
    with made.session() as one, made.session() as two:
        made.call(one, first)
        made.call(two, second)
        assert len(one.changes()) == len(two.changes()) == 2
        assert digest(one) != digest(two)
        copy = one.private
    with made.session() as again:
        made.call(again, second)
        assert again.private is copy
        assert len(again.changes()) == 2  # nothing is left of what the copy's last episode did


def test_a_forgotten_session_gives_its_copy_back() -> None:
    made = bench()
    forgotten = DatabaseSession(made.database)
    made.call(forgotten, borrowable(made, 1)[0])
    held = forgotten.private
    del forgotten
    assert made.database.take() is held


Part = tuple[str, int | None, int | None]
"""What a new row says, and the numbers of the new rows that it refers to."""


def parts() -> SqlDatabase:
    """A table whose rows may refer to each other."""
    schema = "CREATE TABLE parts (part_id TEXT NOT NULL UNIQUE, name TEXT, inside_id TEXT, beside_id TEXT)"
    table = SqlTable(("part_id", "name", "inside_id", "beside_id"), "part_id", [("PA-00", "box", None, None)])
    return SqlDatabase(replace(loader.read(library()), schema=schema, tables={"parts": table}))


def state(database: SqlDatabase, rows: Sequence[Part], order: Sequence[int]) -> str:
    """Of an episode that makes the rows in this order and then puts the last of them into the box."""
    ids: dict[int | None, str] = {row: f"PA-{place:02d}" for place, row in enumerate(order, 1)}
    session = DatabaseSession(database)
    execute = session.own().connection.execute
    for row in order:
        name, inside, beside = rows[row]
        execute("INSERT INTO parts VALUES (?, ?, ?, ?)", (ids[row], name, ids.get(inside), ids.get(beside)))
    execute("UPDATE parts SET inside_id = ? WHERE part_id = 'PA-00'", (ids[len(rows) - 1],))
    made = digest(session)
    session.close()
    return made


def test_a_copied_session_has_what_was_written_and_what_sqlite_remembers() -> None:
    session = DatabaseSession(parts())
    execute = session.own().connection.execute
    execute("INSERT INTO parts VALUES ('PA-01', 'lid', 'PA-00', NULL), ('PA-02', 'cup', NULL, NULL)")
    execute("UPDATE parts SET name = 'chest', part_id = 'PA-03' WHERE part_id = 'PA-00'")
    execute("UPDATE parts SET part_id = 'PA-00' WHERE part_id = 'PA-01'")  # a key that was another row's
    execute("INSERT INTO parts VALUES ('PA-04', 'gone', NULL, NULL)")
    execute("DELETE FROM parts WHERE part_id = 'PA-04'")
    asked = ("SELECT last_insert_rowid()", "SELECT rowid, * FROM parts ORDER BY rowid", "SELECT * FROM _changes")
    for other in (deepcopy(session), deepcopy(deepcopy(session))):
        assert (other.changes(), digest(other)) == (session.changes(), digest(session))
        for query in asked:
            mine, theirs = (s.own().connection.execute(query).fetchall() for s in (session, other))
            assert mine == theirs
        for one in (session, other):
            one.own().connection.execute("SAVEPOINT s")
            one.own().connection.execute("INSERT INTO parts VALUES ('PA-05', 'new', NULL, NULL)")
        assert other.changes() == session.changes()
        session.own().connection.execute("ROLLBACK TO s")
        with pytest.raises(DatabaseError, match="not authorized"):  # the fence stands around the copy too
            other.own().connection.execute("PRAGMA foreign_keys = OFF")
        assert other.own().connection.execute("SELECT 1").fetchone() == (1,)
    assert DatabaseSession(session.database).changes() == []


@pytest.mark.parametrize(
    "rows",
    [
        [("crate", None, None), ("crate", None, None), ("lid", 0, None), ("cup", 1, None)],
        [("crate", 1, None), ("crate", None, None), ("label", 0, None), ("label", 1, None), ("lid", 3, None)],
        [("pair", 1, None), ("pair", 0, None), ("pair", 3, None), ("pair", 2, None), ("single", 4, None)],
    ],
    ids=["refers", "chain", "pairs"],
)
def test_new_rows_that_say_the_same_are_told_apart_by_references(rows: list[Part]) -> None:
    database = parts()
    orders = itertools.permutations(range(len(rows)))
    assert len({state(database, rows, order) for order in orders}) == 1


def ring(first: int, size: int) -> list[Part]:
    return [("link", first + (at + 1) % size, None) for at in range(size)]


def test_rings_of_new_rows_are_told_apart() -> None:
    """Each row of a ring refers to one and is referred to by one, so only a walk along it says how long it is."""
    database, rng, last = parts(), random.Random(1), ("last", None, None)
    rows = [*ring(0, 3), *ring(3, 4), last]
    assert len({state(database, rows, rng.sample(range(8), 8)) for _ in range(40)}) == 1
    six, threes = [*ring(0, 6), last], [*ring(0, 3), *ring(3, 3), last]
    assert state(database, six, range(7)) != state(database, threes, range(7))


def test_a_row_in_the_place_of_another_is_another_state() -> None:
    database = parts()
    rows: list[Part] = [("crate", None, None), ("crate", None, None), ("lid", 0, None), ("cup", 0, None)]
    apart: list[Part] = [*rows[:3], ("cup", 1, None)]
    beside: list[Part] = [*rows[:3], ("cup", None, 0)]
    assert len({state(database, each, range(4)) for each in (rows, apart, beside)}) == 3


def test_a_new_row_in_the_place_of_a_removed_one_is_new() -> None:
    """The last seed row's place, and the number that follows from it, are free once it is removed."""
    made = DomainPlayer(loader.load("entertainment"))
    profiles = made.domain.tables["profiles"]
    last = dict(zip(profiles.columns, profiles.rows[-1], strict=True))
    add = GoldCall("add_profile", {"member_id": "ME-0097", "name": "Zoe", "child": False, "age_limit": 12})
    remove = GoldCall("remove_profile", {"profile_id": last["profile_id"]})
    add_first, remove_first = made.play([add, remove]), made.play([remove, add])
    assert (add_first.error, remove_first.error) == ("", "")
    assert add_first.state == remove_first.state
    assert made.play([remove]).state != remove_first.state


def test_what_a_statement_does_on_conflict_does_not_reach_the_log() -> None:
    """SQLite puts a statement's OR in the place of that of the statements in its triggers."""
    session = DatabaseSession(parts())
    for statement in (
        "DELETE FROM parts",
        "INSERT OR IGNORE INTO parts VALUES ('PA-01', 'lid', NULL, NULL)",
        "UPDATE OR IGNORE parts SET name = 'cup'",
    ):
        session.own().connection.execute(statement)
    old, new = ("PA-00", "box", None, None), ("PA-01", "cup", None, None)
    assert session.changes() == [("parts", old, None), ("parts", None, new)]


def test_rows_that_their_rowids_do_not_count_are_refused() -> None:
    schema = "CREATE TABLE parts (number INTEGER PRIMARY KEY, part_id TEXT NOT NULL UNIQUE)"
    table = SqlTable(("number", "part_id"), "part_id", [(2, "PA-01"), (1, "PA-02")])
    with pytest.raises(ConfigError, match=r"the rowids of parts must count its rows from 1; leave them to SQLite"):
        SqlDatabase(replace(loader.read(library()), schema=schema, tables={"parts": table}))


def test_undoing_a_change_is_no_change() -> None:
    session = DatabaseSession(parts())
    for name, unchanged in (("chest", False), ("box", True)):
        session.own().connection.execute("UPDATE parts SET name = ?", (name,))
        assert (digest(session) == "unchanged") is unchanged


def test_hundreds_of_sessions_on_other_threads() -> None:
    made = bench()
    action = borrowable(made, 1)[0]
    states: list[str] = []

    def play() -> None:
        for _ in range(10):
            states.append(made.play([action]).state)

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 80
    assert len(set(states)) == 1


def test_hostile_arguments_are_contained() -> None:
    """Those of the library; `synth prove` sends them to every domain."""
    assert len(prove.ARGUMENTS) == 70
    assert list(prove.breaches(bench())) == []


def test_values_are_bound_never_pasted() -> None:
    made = bench()
    with made.session() as session, pytest.raises(ToolError, match="No book is called O'Brien's UNION SELECT"):
        made.call(session, GoldCall("find_book", {"title": "O'Brien's UNION SELECT"}))
