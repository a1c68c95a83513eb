"""Seed rows from a spec: a generator for each column, then SQL that makes the tables consistent with each other."""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale.domain_files import wrong_with
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTable
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.allowed_sql import Fenced
from toolorchestra.synth.formats.spec import Spec

LISTS: Mapping[str, Sequence[str]] = {
    "first_names": (
        "Ada Amara Anders Anika Aroha Bashir Bea Benat Bruno Camila Cedric Chiara Dalia Damir Daphne Diego Edda Elif "
        "Emeka Esme Farah Felix Freya Gael Gita Goran Hana Hugo Ines Ismael Ivo Jana Jiro Jonas Kaia Kamal Katya Kofi "
        "Lars Leila Linnea Luca Maeve Malik Marta Mateo Mei Milan Nadia Nico Nils Noor Odile Omar Oona Pablo Petra "
        "Priya Quinn Rafael Ravi Rhea Rosa Sami Selma Sven Tala Tariq Thea Tomas Ulla Uma Vera Viktor Wren Xenia Yara "
        "Yusuf Zadie Zoran"
    ).split(),
    "last_names": (
        "Abara Adler Almeida Andersson Arslan Bakker Barros Becker Bianchi Castellan Cho Conti Dahl Delgado Demir "
        "Dubois Eriksen Estevez Farkas Ferrari Fischer Fontaine Garnier Gupta Haddad Hansen Hartmann Ibarra Ito "
        "Ivanova Jansen Jovic Kapoor Keller Kimura Kovacs Kramer Larsen Lefevre Lindgren Mahmoud Marino Mbeki Mendes "
        "Moreau "
        "Nakata Navarro Novak Nyberg Okafor Olsen Orlov Park Pereira Petrov Quiroga Rahman Reyes Ricci Rossi Santos "
        "Sato Schwarz Silva Soto Tanaka Teixeira Thorne Umarov Urban Vargas Vidal Vogel Wagner Weiss Yilmaz Young "
        "Zeman Ziegler Zorn"
    ).split(),
    "mail_hosts": ("example.com", "example.org", "example.net", "mail.example"),
    "cities": (
        "Ardenfell Brookhaven Calder Dunmere Eastwick Farrow Glenport Harrowgate Ilford Juniper Kestrel Larkspur "
        "Marlow Northam Oakridge Pinehurst Quarry Redwater Silverton Thornbury Upton Valehaven Westmere Yarrow Zephyr"
    ).split(),
    "streets": (
        "Alder Birch Cedar Chapel Church Elm Garden Harbour High Hill King Lake Linden Maple Market Mill Oak Orchard "
        "Park Pine Queen River School Station Willow"
    ).split(),
}


Row = dict[str, Any]
MOST_TEXT = 10_000
"""Characters of a value."""
_TRIES = 200


class Maker:
    """Makes one domain's rows. The same spec and seed give the same rows."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec = spec
        self.seed = seed
        self.made: dict[str, list[Row]] = {}
        self.lists: Mapping[str, Sequence[Any]] = {**LISTS, **spec.lists}
        self._sql = Fenced()

    def tables(self) -> dict[str, SqlTable]:
        """Makes the rows of all tables, and returns the finished tables by name."""
        for table in self.spec.tables:
            self.made[table["table"]] = self._rows(table)
        return self._finished()

    def _rows(self, table: Mapping[str, Any]) -> list[Row]:
        name, rng = table["table"], random.Random(f"{self.seed}/{self.spec.name}/{table['table']}")
        at = f"{self.spec.folder / 'rows.yaml'}: table {name!r}"
        parents: list[Row | None]
        if "each" in table:
            if table["each"] not in self.made:
                raise ConfigError(f"{at}: each: {no_such('earlier table', table['each'], self.made)}")
            low, high = bounds(table.get("per", (1, 1)), at)
            parents = [row for row in self.made[table["each"]] for _ in range(rng.randint(low, high))]
        elif "count" in table:
            parents = [None] * table["count"]
        else:
            raise ConfigError(f"{at}: give count, or each (an earlier table) with per: [least, most]")
        given: Sequence[Row] = table.get("given", [])
        if odd := sorted({column for row in given for column in row} - set(table["columns"])):
            raise ConfigError(f"{at}: given: {no_such('column', odd[0], table['columns'])}")
        rows: list[Row] = []
        taken: dict[str, set[Any]] = {}
        for number, parent in enumerate(parents, 1):
            row: Row = {}
            if number == 1:
                places.at(at)
            known = given[number - 1] if number <= len(given) else {}
            for column, recipe in table["columns"].items():
                if column in known:
                    row[column] = _given(known[column], recipe, taken, f"{at}: given[{number - 1}].{column}")
                else:
                    row[column] = self._value(recipe, row, _Place(rng, number, parent, taken, f"{at}: {column}"))
            rows.append(row)
        return rows

    def _value(self, recipe: Any, row: Row, place: _Place) -> Any:
        if not isinstance(recipe, Mapping):
            return recipe
        options = dict(recipe)
        unique, share = options.pop("unique", False), options.pop("share", None)
        if not isinstance(share, int | float | None):
            raise ConfigError(f"{place.at}: share is a number from 0 to 1, got {share!r:.60}")
        if share is not None and place.rng.random() >= share:
            return None
        kinds = [kind for kind in options if kind in _RECIPES]
        if len(kinds) != 1:
            known = ", ".join(_RECIPES)
            raise ConfigError(f"{place.at}: a recipe has one of {known} (and unique, share), got {sorted(recipe)}")
        for _ in range(_TRIES):
            try:
                value = _RECIPES[kinds[0]](self, options[kinds[0]], row, place)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as err:
                seen = f"{type(err).__name__}: {err}"
                raise ConfigError(f"{place.at}: {dict(recipe)!s:.200} cannot be made: {seen:.200}") from None
            if isinstance(value, str) and len(value) > MOST_TEXT:
                raise ConfigError(f"{place.at}: a text of {len(value)} characters, at most {MOST_TEXT} are allowed")
            taken = place.taken.setdefault(place.at, set()) if unique else set()
            if value not in taken:
                taken.add(value)
                return value
        raise ConfigError(f"{place.at}: no unique value in {_TRIES} tries; widen the recipe")

    # -- recipes ---------------------------------------------------------------------------------------------------

    def _id(self, pattern: str, _row: Row, place: _Place) -> str:
        """`{n}` counts the rows from 1; a format such as {n:04d} is Python's."""
        _fillable(pattern, place)
        return pattern.format(n=place.number)

    def _pattern(self, pattern: str, _row: Row, place: _Place) -> str:
        digits = re.sub("#", lambda _: str(place.rng.randrange(10)), pattern)
        return re.sub("@", lambda _: place.rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ"), digits)

    def _choice(self, options: Any, _row: Row, place: _Place) -> Any:
        if isinstance(options, str):
            if options not in self.lists:
                raise ConfigError(f"{place.at}: {no_such('list', options, self.lists)}")
            return place.rng.choice(self.lists[options])
        if isinstance(options, Mapping):
            return place.rng.choices(list(options), weights=list(options.values()))[0]
        return place.rng.choice(options)

    def _int(self, bounds: Sequence[int], _row: Row, place: _Place) -> int:
        low, high, *step = bounds
        return place.rng.randrange(low, high + 1, *step)

    def _money(self, bounds: Sequence[float], _row: Row, place: _Place) -> float:
        return round(place.rng.uniform(*bounds), 2)

    def _date(self, bounds: Sequence[str], _row: Row, place: _Place) -> str:
        return self._moment(bounds, place)[:10]

    def _datetime(self, bounds: Sequence[str], _row: Row, place: _Place) -> str:
        return self._moment(bounds, place)

    def _moment(self, bounds: Sequence[str], place: _Place) -> str:
        low, high = (datetime.datetime.fromisoformat(str(bound)) for bound in bounds)
        quarters = int((high - low).total_seconds() // 900)
        return (low + datetime.timedelta(minutes=15 * place.rng.randint(0, quarters))).strftime("%Y-%m-%d %H:%M")

    def _person(self, _option: Any, _row: Row, place: _Place) -> str:
        return f"{place.rng.choice(self.lists['first_names'])} {place.rng.choice(self.lists['last_names'])}"

    def _email(self, column: str, row: Row, place: _Place) -> str:
        name = row[column].lower().replace(" ", ".").replace("'", "")
        return f"{name}{place.number}@{place.rng.choice(self.lists['mail_hosts'])}"

    def _parent(self, column: str, _row: Row, place: _Place) -> Any:
        if place.parent is None:
            raise ConfigError(f"{place.at}: parent needs a table with each")
        return place.parent[column]

    def _ref(self, option: Any, row: Row, place: _Place) -> Any:
        """ "table.column", or {of: table.column, where: {column: value or "{own column}"}}."""
        of = option if isinstance(option, str) else option["of"]
        table, _, column = of.partition(".")
        if table not in self.made:
            raise ConfigError(f"{place.at}: {no_such('earlier table', table, self.made)}")
        where = {} if isinstance(option, str) else option.get("where", {})
        wanted = {key: _filled(value, _scope(row, place)) for key, value in where.items()}
        found = [other for other in self.made[table] if all(other[key] == value for key, value in wanted.items())]
        return place.rng.choice(found)[column] if found else None

    def _text(self, template: str, row: Row, place: _Place) -> str:
        """A template over the row's earlier columns, and the parent's as {parent_COLUMN}."""
        _fillable(template, place)
        return template.format_map(_scope(row, place))

    def _expr(self, sql: str, row: Row, place: _Place) -> Any:
        """A SQL expression over the row's earlier columns (:column), the parent's (:parent_column) and :now, :today."""
        clock = self.spec.head["clock"]
        values = {**_scope(row, place), "now": clock, "today": clock[:10]}
        try:
            return self._sql.run(f"SELECT {sql}", values).fetchone()[0]
        except sqlite3.Error as err:
            raise ConfigError(f"{place.at}: {err}; values here: {', '.join(values)}") from None

    # -- consistency -----------------------------------------------------------------------------------------------

    def _finished(self) -> dict[str, SqlTable]:
        where = str(self.spec.folder)
        connection = Fenced()
        clock = self.spec.head["clock"]
        at = "schema.sql"
        try:
            places.at(at)
            connection.script(self.spec.schema)
            for table in self.spec.tables:
                at = f"rows.yaml: table {table['table']!r}"
                places.at(at)
                for row in self.made[table["table"]]:
                    columns = ", ".join(row)
                    marks = ", ".join("?" * len(row))
                    connection.run(f"INSERT INTO {table['table']} ({columns}) VALUES ({marks})", tuple(row.values()))
            for number, statement in enumerate(self.spec.finish):
                at = f"rows.yaml: finish[{number}]"
                places.at(at)
                connection.run(statement, {"now": clock, "today": clock[:10]})
            made = {}
            for table in self.spec.tables:
                at = f"rows.yaml: table {table['table']!r}"
                places.at(at)
                made[table["table"]] = self._table(connection, table, where)
            return made
        except (sqlite3.Error, OverflowError) as err:
            raise ConfigError(f"{where}/{at}: {err}") from None
        finally:
            connection.close()

    def _table(self, connection: Fenced, table: Mapping[str, Any], where: str) -> SqlTable:
        columns, rows = connection.found(f"SELECT * FROM {table['table']} ORDER BY rowid")
        if table["key"] not in columns:
            raise ConfigError(f"{where}/rows.yaml: {table['table']}: {no_such('key column', table['key'], columns)}")
        return SqlTable(tuple(columns), table["key"], [tuple(row) for row in rows])


class _Place:
    """The place at which a value is made."""

    __slots__ = ("at", "number", "parent", "rng", "taken")

    def __init__(
        self, rng: random.Random, number: int, parent: Row | None, taken: dict[str, set[Any]], at: str
    ) -> None:
        self.rng = rng
        self.number = number
        self.parent = parent
        self.taken = taken
        self.at = at


def _scope(row: Row, place: _Place) -> Row:
    """What a recipe may refer to: the row's earlier columns, and the parent's as parent_COLUMN."""
    return {**{f"parent_{name}": value for name, value in (place.parent or {}).items()}, **row}


def _given(value: Any, recipe: Any, taken: dict[str, set[Any]], at: str) -> Any:
    """A value that stands in rows.yaml itself, for the first rows of a table."""
    if not isinstance(value, str | int | float | None) or (isinstance(value, str) and len(value) > MOST_TEXT):
        raise ConfigError(f"{at}: a text, a number or null expected, got {value!r:.60}")
    if isinstance(recipe, Mapping) and recipe.get("unique"):
        seen = taken.setdefault(at.split(": given[")[0] + ": " + at.rpartition(".")[2], set())
        if value in seen:
            raise ConfigError(f"{at}: {value!r:.60} stands there already, and the column is unique")
        seen.add(value)
    return value


def _fillable(template: str, place: _Place) -> None:
    if isinstance(template, str) and (wrong := wrong_with(template)):
        raise ConfigError(f"{place.at}: {template!r:.80}: {wrong}")


def bounds(per: Sequence[int], at: str) -> tuple[int, int]:
    """The least and the most rows for each row of an earlier table."""
    if len(per) != 2 or not 0 <= per[0] <= per[1]:
        raise ConfigError(f"{at}: per is [least, most] with 0 <= least <= most, got {list(per)}")
    return per[0], per[1]


def _filled(value: Any, row: Row) -> Any:
    return row[value[1:-1]] if isinstance(value, str) and value[:1] == "{" else value


_RECIPES: Mapping[str, Callable[[Maker, Any, Row, _Place], Any]] = {
    "id": Maker._id,
    "pattern": Maker._pattern,
    "choice": Maker._choice,
    "int": Maker._int,
    "money": Maker._money,
    "date": Maker._date,
    "datetime": Maker._datetime,
    "person": Maker._person,
    "email": Maker._email,
    "parent": Maker._parent,
    "ref": Maker._ref,
    "text": Maker._text,
    "expr": Maker._expr,
}
"""Recipe -> how it makes a value. docs/domains.md has the table."""
