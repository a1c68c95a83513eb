"""The lint of a spec: what running its tasks cannot show, whether its words, gold calls and tools mean the same.

Findings are places that its author should look at. They are looked for in the process that has limits.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.bounded_functions import bound
from toolorchestra.envs.domains.toolscale.database import Change, DatabaseSession
from toolorchestra.envs.domains.toolscale.grading import mentions
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.allowed_sql import Fenced, holding
from toolorchestra.synth.formats.intent_templates import WHO, Caller, Rejected, Templates, Values, plain, text
from toolorchestra.synth.formats.part_checks import Fault, Parts
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton
from toolorchestra.synth.stages.limited_work import SHARED

FALSE_GOLD = "another row"
"""A check whose certain findings are gold that means something else than the words."""
SECONDS = 300.0
"""How long the lint of one spec may take."""
SAMPLES = 8
"""Ways to fill an intent that are played."""
_HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Finding:
    """A place in a spec that its author should look at."""

    check: str
    part: str
    """The file of the spec that it is in."""
    entry: str
    """The intent, tool, column or rule that it is about."""
    seen: str
    expected: str
    certain: bool = False
    """Seen by running it; others follow from words or from what may be chance, and may be mistaken."""

    def text(self) -> str:
        """The finding in one line of text."""
        how = "" if self.certain else " (perhaps)"
        return f"{self.part}: {self.entry}: {self.check}{how}: {self.seen}; expected: {self.expected}"


class PlayedIntent(NamedTuple):
    """One intent filled in for one person, its gold calls made."""

    entry: Mapping[str, Any]
    values: Values
    called: Sequence[Called]
    said: tuple[str, ...]
    """Each wording, with what the user tells when asked behind it."""


class CheckedSpec:
    """One spec, ready for checks."""

    def __init__(self, spec: Spec, bench: DomainPlayer, seed: int) -> None:
        self.spec = spec
        self.bench = bench
        self.seed = seed
        self.templates = Templates(spec, bench.domain)
        fits = {person.key: len(self.templates.fitting(person)) for person in self.templates.people}
        self.people = sorted(self.templates.people, key=lambda person: -fits[person.key])
        """People; those whom the most intents fit come first."""

    def played(self, entry: Mapping[str, Any]) -> Iterator[PlayedIntent]:
        """Ways to fill an intent that went through."""
        name = entry["intent"]
        rng = random.Random(f"{self.seed}/{name}/lint")
        if entry.get("public"):
            rows: list[tuple[Caller | None, Values]] = [(None, row) for row in self.templates.public[name]]
        else:
            owners = self.templates.private[name]
            rows = [(p, {**p.values, **row}) for p in self.people if p.key in owners for row in owners[p.key]]
        facts = [fact["value"] for fact in entry.get("facts", []) if "value" in fact]
        for person, values in rows[: SAMPLES // 2] + rng.sample(rows, min(len(rows), SAMPLES // 2)):
            with self.bench.session() as session, suppress(ConfigError, Rejected):
                if (called := self.called(session, entry, person, values)) is not None:
                    told = [text(value, values, name) for value in facts]
                    said = tuple(" ".join([text(say, values, name), *told]) for say in entry["say"])
                    yield PlayedIntent(entry, values, called, said)

    def called(
        self, session: DatabaseSession, entry: Mapping[str, Any], person: Caller | None, values: Values
    ) -> list[Called] | None:
        """The gold calls, after identification where a person is given; None where one is refused: no task is made of
        that."""
        try:
            if person is not None:
                way = self.spec.head["user"]["ways"][0]["actions"]
                self.bench.follow(session, way, person.values, "user.ways")
            return self.bench.follow(session, entry["actions"], values, entry["intent"])
        except (ToolError, ConfigError, Rejected):
            return None


def holes(value: Any) -> set[str]:
    """The columns that templates in a value name."""
    if isinstance(value, str):
        return set(_HOLE.findall(value))
    if isinstance(value, Mapping):
        return {name for part in value.values() for name in holes(part)}
    if isinstance(value, Sequence):
        return {name for part in value for name in holes(part)}
    return set()


# -- another row -------------------------------------------------------------------------------------------------------

_PATH = re.compile(r"(\w+)\.(\d+)\.(\w+)")
_PICKS = re.compile(
    r"\b(?:first|last|next|latest|newest|oldest|earliest|earlier|soonest|cheapest|dearest|most|least|highest|lowest|"
    r"biggest|largest|smallest|best|top|closest|nearest|shortest|longest|quickest|fastest|only|recent|current|upcoming|"
    r"any|either|fewest|greatest|cheaper|sooner|soon|possible|whichever|some|strongest|weakest|warmest|coldest)\b",
    re.IGNORECASE,
)
"""Words by which a request picks one of several things without naming it."""
_ID = "_id"
_SMALL = 100
"""Smaller whole numbers stand in a request by chance, and for other things."""


class _Pick(NamedTuple):
    """A row that an intent takes by its place."""

    path: str
    rows: Sequence[Mapping[str, Any]]
    place: int
    field: str


def another_row(ground: CheckedSpec) -> Iterator[Finding]:
    """The first row of several, where the request names another: `inform: [list_loans.0.price]` is right only if the
    row at that place is the one that the user speaks of. One finding for each path: the worst of its samples."""
    for entry in ground.spec.intents:
        worst: dict[str, Finding] = {}
        for one in ground.played(entry):
            for pick in _picks(one):
                finding = _row_finding(entry["intent"], one, pick)
                if finding and (pick.path not in worst or finding.certain > worst[pick.path].certain):
                    worst[pick.path] = finding
        yield from worst.values()


def _picks(one: PlayedIntent) -> Iterator[_Pick]:
    filled = [value for row in one.entry["actions"] for given in row.values() for value in (given or {}).values()]
    holes_ = [v[1:-1] for v in filled if isinstance(v, str) and v[:1] == "{" and v[-1:] == "}"]
    for path in dict.fromkeys([*one.entry.get("inform", []), *holes_]):
        if match := _PATH.fullmatch(path):
            tool, place, field = match[1], int(match[2]), match[3]
            result = next((c.value for c in reversed(one.called) if c.name == tool), None)
            rows = [row for row in result if field in row] if isinstance(result, list) else []
            if len(rows) > 1 and place < len(rows):
                yield _Pick(path, rows, place, field)


def _row_finding(name: str, one: PlayedIntent, pick: _Pick) -> Finding | None:
    scores = [_named(row, pick.rows, one) for row in pick.rows]
    best, own = max(scores), scores[pick.place]
    field = pick.field
    others = [place for place, score in enumerate(scores) if score == best and place != pick.place]
    differ = [place for place in others if pick.rows[place][field] != pick.rows[pick.place][field]]
    if not differ:
        return None
    other, what = differ[0], f"{pick.path} of {len(pick.rows)} rows"
    picks = all(_PICKS.search(said) for said in one.said)
    if own < best and not (picks and best == 1):
        seen = f"{what} is {pick.rows[pick.place][field]!r}, and the request {one.said[0]!r:.160} names row {other}"
        expected = f"{pick.rows[other][field]!r}; take the row that is named, or draw requests with one row alone"
        return Finding("another row", "intents.yaml", f"intent {name}", seen, expected, certain=True)
    if picks:
        return None
    seen = f"{what}: nothing in {one.said[0]!r:.160} tells row {pick.place} from row {other}"
    expected = "words that say which one, or a draw of requests with one row alone"
    return Finding("another row", "intents.yaml", f"intent {name}", seen, expected)


def _named(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], one: PlayedIntent) -> int:
    """How much of what tells a row from the others stands in the request, or is an id that its draw gave."""
    drawn = {value for name, value in one.values.items() if name.endswith(_ID)}
    score = 0
    for name, value in row.items():
        if not isinstance(value, str | int | float) or all(other.get(name) == value for other in rows):
            continue
        if name.endswith(_ID):
            score += value in drawn
        elif one.values.get(name) == value or not (isinstance(value, int) and abs(value) < _SMALL):
            score += mentions(one.said[0], plain(value))
    return score


# -- order -------------------------------------------------------------------------------------------------------------

PEOPLE = 4
"""Number of people with whom each intent is tried."""
ROWS = 12
"""Requests of the second intent that are asked for again."""


def order(ground: CheckedSpec) -> Iterator[Finding]:
    """Two intents of one person that contradict each other in one order: one finding for each ordered pair.

    An intent's draw is its author's own word on when the gold calls are right. So one intent is played, and then the
    draw of another is asked again: where it no longer gives the request, though every tool still does as it is told, a
    task with the two in this order has a gold path that its author calls wrong. Where a tool refuses, drafts are
    dropped anyway."""
    domain = ground.bench.domain
    private = [entry for entry in ground.spec.intents if not entry.get("public")]
    with closing(holding(domain.schema, domain.tables)) as rows:
        for first in private:
            if any(name in domain.writes for row in first["actions"] for name in row):
                yield from _after(ground, rows, first, private)


def _after(
    ground: CheckedSpec, rows: Fenced, first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    places.at(f"intents.yaml: intent {first['intent']!r}")
    owners = ground.templates.private[first["intent"]]
    found: set[str] = set()
    for person in [p for p in ground.people if p.key in owners][:PEOPLE]:
        values = {**person.values, **owners[person.key][0]}
        with ground.bench.session() as session:
            if ground.called(session, first, person, values) is None:
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
            for entry, lost in _lost(ground, rows, changes, person, with_draw):
                if ground.called(session, entry, None, {**person.values, **lost}) is not None:
                    found.add(entry["intent"])
                    cells = {value for _, before, now in changes for value in (*(before or ()), *(now or ()))}
                    things = cells & ground.bench.database.keys & set(lost.values()) - {person.key}
                    yield _order_finding(first, entry, lost, things)


def _order_finding(first: Mapping[str, Any], entry: Mapping[str, Any], lost: Values, things: set[Any]) -> Finding:
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


def _lost(
    ground: CheckedSpec,
    rows: Fenced,
    changes: Sequence[Change],
    person: Caller,
    entries: Sequence[Mapping[str, Any]],
) -> list[tuple[Mapping[str, Any], Values]]:
    """The intents of which a request of this person's is no longer drawn after the changes, and that request. The seed
    rows behind the fence take the changes in for a while."""
    rows.run("SAVEPOINT episode")
    try:
        for name, before, now in changes:
            table = ground.bench.domain.tables[name]
            if before is not None:
                key = before[table.columns.index(table.key)]
                rows.run(f"DELETE FROM {name} WHERE {table.key} = ?", (key,))
            if now is not None:
                rows.fill(name, table.columns, [now])
        found = []
        for entry in entries:
            drawn = ground.templates.private[entry["intent"]][person.key][:ROWS]
            if (lost := next((row for row in drawn if not _drawn(ground, rows, entry, row)), None)) is not None:
                found.append((entry, lost))
        return found
    except sqlite3.Error:
        return []  # rows that only the tools' own statements can write, such as rings of references
    finally:
        rows.run("ROLLBACK TO episode")
        rows.run("RELEASE episode")


def _drawn(ground: CheckedSpec, rows: Fenced, entry: Mapping[str, Any], row: Values) -> bool:
    """Whether a draw still gives a row, as far as the gold calls are filled from it."""
    used = [WHO, *sorted(holes(entry["actions"]) & set(row) - {WHO})]
    where = " AND ".join(f'"{name}" IS :row_{name}' for name in used)
    asked = {**ground.spec.times, **{f"row_{name}": row[name] for name in used}}
    return bool(rows.found(f"SELECT 1 FROM ({entry['draw']}) WHERE {where} LIMIT 1", asked)[1])


# -- unused tools and hidden columns -----------------------------------------------------------------------------------

_INSERT = re.compile(r"\s*INSERT\s+INTO\s+(\w+)", re.IGNORECASE)
_USING = re.compile(r"\bUSING\s*\(([^)]*)\)", re.IGNORECASE)
Cell = tuple[str, str]
"""A table and one of its columns."""


def unused_tools(ground: CheckedSpec) -> Iterator[Finding]:
    """Tools that no gold call of an intent or of identification uses."""
    entries = ground.spec.intents
    paths = [path for entry in entries for path in (entry["actions"], *entry.get("otherwise", []))]
    paths += [way["actions"] for way in ground.spec.head["user"]["ways"]]
    used = {name for path in paths for row in path for name in row}
    for tool in ground.bench.domain.tools.values():
        if tool.name not in used:
            seen = "no intent's gold calls have it" + (": no task hands over to a person" if tool.transfers else "")
            yield Finding(
                "unused tool", "tools.yaml", f"tool {tool.name}", seen, "an intent that needs it", certain=True
            )


def hidden_columns(ground: CheckedSpec) -> Iterator[Finding]:
    """Columns that no tool's result or message shows. Worse where an intent's draw goes by one: the agent cannot."""
    domain = ground.bench.domain
    shown, guarded = _seen(domain)
    facts = [fact for way in ground.spec.head["user"]["ways"] for fact in way["facts"]]
    facts += [fact for entry in ground.spec.intents for fact in entry.get("facts", [])]
    spoken = holes([fact.get("value", "") for fact in facts])  # callers know it of themselves, and say it
    filled = _tables_filled(domain)
    for name, table in domain.tables.items():
        mine = [(name.lower(), column.lower()) for column in table.columns]
        if filled.get(name):
            continue  # what the tool that hands over writes is for people
        if name in filled and shown.isdisjoint(mine):
            seen = "tools write rows of it, and no tool shows them"
            yield Finding("hidden column", "schema.sql", f"table {name}", seen, "a reading tool that shows its rows")
            continue
        for column, cell in zip(table.columns, mine, strict=True):
            if cell in shown or column in spoken or column == table.key:
                continue
            if seen := _hidden(ground, name, column, guarded=cell in guarded):
                expected = "a reading tool that shows it, or no such column"
                where = f"column {name}.{column}"
                yield Finding("hidden column", "schema.sql", where, seen, expected, certain=True)


def _hidden(ground: CheckedSpec, table: str, column: str, *, guarded: bool) -> str:
    """What is wrong with a column that is not shown; "" where a guard's refusal is all that depends on it."""
    by = [entry for entry in ground.spec.intents if _goes_by(entry["draw"], table, column)]
    if not guarded:
        return "no tool reads it" + (f", and the draw of intent {by[0]['intent']} goes by it" if by else "")
    refused = [entry["intent"] for entry in by if entry.get("ending", "serve") == "refuse"]
    return f"only guards of tools read it, and intent {refused[0]} is to be refused by it" if refused else ""


def _tables_filled(domain: SqlDomain) -> dict[str, bool]:
    """Tables that tools put rows into, and whether those that hand over to a person alone do."""
    found: dict[str, bool] = {}
    for tool in domain.tools.values():
        for step in tool.steps:
            if step.verb == "do" and (match := _INSERT.match(step.sql)):
                found[match[1]] = found.get(match[1], True) and tool.transfers
    return found


def _goes_by(draw: str, table: str, column: str) -> bool:
    _, _, condition = draw.upper().partition("WHERE")
    pattern = rf"\b{re.escape(column.upper())}\b"
    return bool(re.search(rf"\b{re.escape(table)}\b", draw, re.IGNORECASE) and re.search(pattern, condition))


def _seen(domain: SqlDomain) -> tuple[set[Cell], set[Cell]]:
    """The cells that results or messages of tools show, and those that other statements of tools read."""
    shown: set[Cell] = set()
    guarded: set[Cell] = set()
    with closing(sqlite3.connect(":memory:")) as connection:
        bound(connection)
        connection.executescript(domain.schema)
        for tool in domain.tools.values():
            given = {name: None for name in (*tool.parameters.get("properties", {}), "now", "today")}
            texts = " ".join([tool.result, *(step.error for step in tool.steps)])
            for step in tool.steps:
                sql = f"SELECT ({step.sql})" if step.verb == "check" else step.sql
                read, made = _read(connection, sql, given)
                given.update(dict.fromkeys(made))
                # what a let gives is shown where a message or the result names it
                told = step.verb == "let" and any(re.search(rf"[:{{]{re.escape(name)}\b", texts) for name in made)
                (shown if told else guarded).update(read)
            shown |= _read(connection, tool.result, given)[0] | _joined(domain, tool.result)
    return shown, guarded - shown


def _joined(domain: SqlDomain, sql: str) -> set[Cell]:
    """Columns by which a result joins tables: SQLite does not say that USING reads them."""
    tables = [name for name in domain.tables if re.search(rf"\b{re.escape(name)}\b", sql, re.IGNORECASE)]
    keys = {key.strip().lower() for names in _USING.findall(sql) for key in names.split(",")}
    return {
        (name.lower(), key) for name in tables for key in keys if key in map(str.lower, domain.tables[name].columns)
    }


def _read(connection: sqlite3.Connection, sql: str, given: Mapping[str, None]) -> tuple[set[Cell], list[str]]:
    """What a statement reads, and the columns that it gives. Run on empty tables."""
    found: set[Cell] = set()

    def seen(action: int, first: str | None, second: str | None, _base: str | None, _trigger: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first and second:
            found.add((first.lower(), second.lower()))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(seen)
    try:
        cursor = connection.execute(sql, dict(given))
        made = [column[0] for column in cursor.description or ()]
    except sqlite3.IntegrityError:  # a write of nothing breaks a rule of the tables
        made = []
    finally:
        connection.set_authorizer(None)
    return found, made


# -- all of them -------------------------------------------------------------------------------------------------------

CHECKS = {
    FALSE_GOLD: another_row,
    "order": order,
    "unused tool": unused_tools,
    "hidden column": hidden_columns,
}
"""Name -> check."""


def findings(parts: Parts, seed: int, folder: Path = Path("spec")) -> list[Finding]:
    """The findings of six texts, in this process, in the order in which they are worth reading."""
    spec = specs.read(parts, folder)
    domain = skeleton(spec, seed)
    ground = CheckedSpec(spec, DomainPlayer(domain), seed)
    found = [finding for check in CHECKS.values() for finding in check(ground)]
    kinds = Counter((one.certain, one.check) for one in found)
    return sorted(found, key=lambda one: (*rank(one), kinds[one.certain, one.check]))


def rank(one: Finding) -> tuple[bool, bool]:
    """Low for what was seen by running, and lowest for false gold. Then comes what a spec has few of."""
    return not one.certain, one.check != FALSE_GOLD


def of_parts(parts: Parts, seed: int, folder: Path = Path("spec")) -> list[Finding]:
    """The findings of six texts; `folder` is where errors say they are from."""
    found: list[Finding] = SHARED.run(findings, dict(parts), seed, folder, seconds=SECONDS)
    return found


def faults(parts: Parts, seed: int) -> list[Fault]:
    """Requests that are answered with another row than they name, as faults for an author that can mend them. Other
    findings are told and not sent back: they may be what the author wants."""
    try:
        found = of_parts(parts, seed)
    except ConfigError:
        return []  # other checks say what is wrong with it
    return [
        Fault(one.check, f"{one.entry}: {one.seen}; expected: {one.expected}", one.entry.removeprefix("intent "))
        for one in found
        if one.certain and one.check == FALSE_GOLD
    ]


def counted(found: Iterable[Finding]) -> str:
    """How many of each check, in a line."""
    counts = Counter(one.check for one in found)
    return ", ".join(f"{name} {counts[name]}" for name in CHECKS if counts[name]) or "nothing"
