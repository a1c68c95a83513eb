"""Tools are transactions, episodes do not see each other, and states are told apart by their content."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.domains import library, with_tool
from toolorchestra.envs.errors import Outage, ToolError
from toolorchestra.envs.sqldomain import loader
from toolorchestra.envs.sqldomain.database import Session
from toolorchestra.envs.sqldomain.domain import Action
from toolorchestra.envs.sqldomain.state import digest
from toolorchestra.synth import hostile
from toolorchestra.synth.bench import Bench


def bench() -> Bench:
    return Bench(loader.read(library()))


def borrowable(made: Bench, count: int) -> list[Action]:
    """Loans that can be made."""
    tables = made.domain.tables
    members = [row[0] for row in tables["members"].rows if row[4] == "active"]
    books = [row[0] for row in tables["books"].rows if isinstance(row[3], int) and row[3] > 0]
    return [Action("borrow_book", {"member_id": members[i], "book_id": books[i]}) for i in range(count)]


def test_an_error_after_a_write_leaves_nothing_behind(tmp_path: Path) -> None:
    made = Bench(
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
            made.call(session, Action("half", {}))
        assert session.changes() == []
        assert digest(session) == "unchanged"


def test_a_check_after_a_write_undoes_it(tmp_path: Path) -> None:
    made = Bench(
        with_tool(
            tmp_path,
            name="late",
            kind="write",
            steps=[
                {"do": "DELETE FROM loans"},
                {"check": "1 = 0", "error": "too late"},
            ],
            returns={"row": "SELECT 1 AS done"},
        )
    )
    with made.session() as session:
        with pytest.raises(ToolError, match="too late"):
            made.call(session, Action("late", {}))
        assert digest(session) == "unchanged"


def test_a_bomb_is_stopped_and_the_database_goes_on(tmp_path: Path) -> None:
    product = ", ".join(f"loans l{i}" for i in range(8))
    made = Bench(with_tool(tmp_path, name="bomb", kind="read", returns={"row": f"SELECT count(*) AS n FROM {product}"}))
    with made.session() as session:
        with pytest.raises(ToolError, match="took too long and was stopped"):
            made.call(session, Action("bomb", {}))
        assert made.call(session, borrowable(made, 1)[0]).value["loan_id"]


def test_a_write_that_is_stopped_ends_the_episode_and_leaks_into_no_other(tmp_path: Path) -> None:
    product = ", ".join(f"books b{i}" for i in range(8))
    slow = f"UPDATE books SET copies = (SELECT count(*) FROM {product})"
    row = {"returns": {"row": "SELECT 1 AS done"}, "kind": "write"}
    made = Bench(with_tool(tmp_path, name="recount", steps=[{"do": slow}], **row))
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
        assert made.play([Action("recount", {}), loan]).state == "unchanged"


def test_a_copy_that_left_its_transaction_is_thrown_away() -> None:
    made = bench()
    with made.session() as session:
        dirty = session.own()
        dirty.connection.execute("ROLLBACK")
        dirty.connection.execute("UPDATE books SET copies = 99")
    with made.session() as session:
        assert session.own() is not dirty


def test_long_results_are_bounded(tmp_path: Path) -> None:
    many = Bench(
        with_tool(tmp_path, name="all_pairs", kind="read", returns={"rows": "SELECT a.loan_id FROM loans a, loans b"})
    )
    with many.session() as session:
        value = many.call(session, Action("all_pairs", {})).value
    assert len(value) == 51
    assert "narrow the search" in value[-1]["note"]


def test_numbers_beyond_sqlite_are_refused() -> None:
    made = bench()
    with made.session() as session, pytest.raises(ToolError, match="birth_year must be at most 2026"):
        made.call(session, Action("find_member", {"email": "a@b.c", "birth_year": 10**30}))


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
    forgotten = Session(made.database)
    made.call(forgotten, borrowable(made, 1)[0])
    held = forgotten.private
    del forgotten
    assert made.database.take() is held


def test_the_order_in_which_rows_were_made_does_not_matter() -> None:
    made = bench()
    first, second = borrowable(made, 2)
    assert made.play([first, second]).state == made.play([second, first]).state
    assert made.play([first]).state != made.play([second]).state


def test_undoing_a_change_is_no_change(tmp_path: Path) -> None:
    made = Bench(
        with_tool(
            tmp_path,
            name="set_shelf",
            kind="write",
            parameters={"shelf": {"type": "string", "format": "text"}},
            steps=[{"do": "UPDATE books SET shelf = :shelf WHERE book_id = 'BO-001'"}],
            returns={"row": "SELECT :shelf AS shelf"},
        )
    )
    shelf = made.domain.tables["books"].rows[0][2]
    there, back = Action("set_shelf", {"shelf": "Z-1"}), Action("set_shelf", {"shelf": shelf})
    assert made.play([there]).state != "unchanged"
    assert made.play([there, back]).state == "unchanged"


def test_hundreds_of_sessions_on_other_threads() -> None:
    made = bench()
    action = borrowable(made, 1)[0]
    states: list[str] = []

    def play() -> None:
        for _ in range(20):
            states.append(made.play([action]).state)

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 160
    assert len(set(states)) == 1


@pytest.mark.parametrize("name", loader.names())
def test_hostile_arguments_are_contained(name: str) -> None:
    assert len(hostile.ARGUMENTS) >= 40
    assert list(hostile.breaches(Bench(loader.load(name)))) == []


def test_values_are_bound_never_pasted() -> None:
    made = bench()
    with made.session() as session, pytest.raises(ToolError, match="No book is called O'Brien's UNION SELECT"):
        made.call(session, Action("find_book", {"title": "O'Brien's UNION SELECT"}))


def test_results_are_json_that_says_what_the_rows_say() -> None:
    made = bench()
    row = made.domain.tables["books"].rows[0]
    with made.session() as session:
        called = made.call(session, Action("find_book", {"title": row[1]}))
    assert json.loads(called.text) == {"book_id": row[0], "title": row[1], "shelf": row[2], "copies": row[3]}
