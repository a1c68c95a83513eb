"""Two intents of one person that contradict each other in one order.

An intent's draw is its author's own word on when the gold calls are right. So one intent is played, and then the draw
of another is asked again: where it no longer gives the request, though every tool still does as it is told, a task with
the two in this order has a gold path that its author calls wrong. Where a tool refuses, drafts are dropped anyway.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.database import Change, Session
from toolorchestra.envs.domains.toolscale.domain import SqlDomain
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.allowed_sql import Fenced
from toolorchestra.synth.formats.intent_templates import WHO, Caller, Values, action
from toolorchestra.synth.lint.ground import Finding, Ground, holes

PEOPLE = 4
"""With whom each intent is tried."""
ROWS = 12
"""Requests of the second intent that are asked for again."""


def check(ground: Ground) -> Iterator[Finding]:
    """One finding for each ordered pair."""
    rows = SeedRows(ground.spec.head["clock"], ground.bench.domain)
    private = [entry for entry in ground.spec.intents if not entry.get("public")]
    try:
        for first in private:
            if any(ground.bench.domain.tools[name].kind == "write" for name in ground.calls(first)):
                yield from _after(ground, rows, first, private)
    finally:
        rows.close()


def _after(
    ground: Ground, rows: SeedRows, first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    places.at(f"intents.yaml: intent {first['intent']!r}")
    owners = ground.templates.private[first["intent"]]
    found: set[str] = set()
    for person in [p for p in ground.people if p.key in owners][:PEOPLE]:
        values = {**person.values, **owners[person.key][0]}
        with ground.bench.session() as session:
            if not _run(ground, session, first, person, values):
                continue
            changes = session.changes()
            written = {name for name, _, _ in changes}
            with_draw = [
                entry
                for entry in others
                if entry is not first
                and entry["intent"] not in found
                and first.get("ending") != "transfer"
                and person.key in ground.templates.private[entry["intent"]]
                and any(re.search(rf"\b{name}\b", entry["draw"]) for name in written)
            ]
            for entry, lost in rows.lost(changes, person, with_draw, ground.templates.private):
                if _run(ground, session, entry, None, {**person.values, **lost}):
                    found.add(entry["intent"])
                    things = _things(ground, changes) & set(lost.values()) - {person.key}
                    yield _finding(first, entry, lost, things)


def _run(
    ground: Ground, session: Session, entry: Mapping[str, Any], person: Caller | None, values: Values
) -> bool:  # fmt: skip
    """Whether the gold calls go through, after identification where the person is given."""
    try:
        if person is not None:
            for row in ground.spec.head["user"]["ways"][0]["actions"]:
                ground.bench.call(session, action(row, person.values, [], "user.ways"))
        called: list[Any] = []
        for row in entry["actions"]:
            called.append(ground.bench.call(session, action(row, values, called, entry["intent"])))
    except (ToolError, ConfigError):
        return False
    return True


def _things(ground: Ground, changes: Sequence[Change]) -> set[Any]:
    """The ids in all rows that were written."""
    keys = ground.bench.database.keys
    return {value for _, *rows in changes for row in rows for value in row or () if value in keys}


def _finding(first: Mapping[str, Any], entry: Mapping[str, Any], lost: Values, things: set[Any]) -> Finding:
    """Certain where both work on one thing. Where they do not, the draw may have looked for an example alone."""
    one, other = first["intent"], entry["intent"]
    shown = ", ".join(f"{name} {value}" for name, value in lost.items() if name in holes(entry["actions"]))
    does = "is still refused" if entry.get("ending", "serve") == "refuse" else "is still served"
    seen = (
        f"once {one} is done, the draw of {other} no longer gives the request ({shown or 'the same values'}), and the"
        f" gold path {does}"
    )
    expected = (
        "a tool that refuses it then, a draw that the other intent leaves alone, or requests of the two about other"
        " things"
    )
    return Finding("order", "intents.yaml", f"intents {one}, then {other}", seen, expected, certain=bool(things))


class SeedRows:
    """The seed rows behind the fence, to which what an episode wrote can be added for a while."""

    def __init__(self, clock: str, domain: SqlDomain) -> None:
        self.domain = domain
        self.times = {"now": clock, "today": clock[:10]}
        self.database = Fenced()
        self.database.script(domain.schema)
        for name, table in domain.tables.items():
            marks, columns = ", ".join("?" * len(table.columns)), ", ".join(table.columns)
            for row in table.rows:
                self.database.run(f"INSERT INTO {name} ({columns}) VALUES ({marks})", row)

    def lost(
        self,
        changes: Sequence[Change],
        person: Caller,
        entries: Sequence[Mapping[str, Any]],
        drawn: Mapping[str, Mapping[Any, Sequence[Values]]],
    ) -> list[tuple[Mapping[str, Any], Values]]:
        """The intents of which a request of this person's is no longer drawn after the changes, and that request."""
        self.database.run("SAVEPOINT episode")
        try:
            for change in changes:
                self._write(*change)
            found = []
            for entry in entries:
                for row in drawn[entry["intent"]][person.key][:ROWS]:
                    if not self._drawn(entry, row):
                        found.append((entry, row))
                        break
            return found
        except sqlite3.Error:
            return []  # rows that only the tools' own statements can write, such as rings of references
        finally:
            self.database.run("ROLLBACK TO episode")
            self.database.run("RELEASE episode")

    def _write(self, name: str, before: Sequence[Any] | None, now: Sequence[Any] | None) -> None:
        table = self.domain.tables[name]
        at = table.columns.index(table.key)
        if before is not None:
            self.database.run(f"DELETE FROM {name} WHERE {table.key} = ?", (before[at],))
        if now is not None:
            marks, columns = ", ".join("?" * len(table.columns)), ", ".join(table.columns)
            self.database.run(f"INSERT INTO {name} ({columns}) VALUES ({marks})", tuple(now))

    def _drawn(self, entry: Mapping[str, Any], row: Values) -> bool:
        """Whether a draw still gives a row, as far as the gold calls are filled from it."""
        used = [WHO, *sorted(holes(entry["actions"]) & set(row) - {WHO})]
        where = " AND ".join(f'"{name}" IS :row_{name}' for name in used)
        asked = {**self.times, **{f"row_{name}": row[name] for name in used}}
        _, rows = self.database.found(f"SELECT 1 FROM ({entry['draw']}) WHERE {where} LIMIT 1", asked)
        return bool(rows)

    def close(self) -> None:
        """Closes the database that holds the seed rows in memory."""
        self.database.close()
