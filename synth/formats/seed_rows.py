"""Seed rows from a spec: a generator for each column, then SQL that makes the tables consistent with each other."""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        self.sql = Fenced()

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
        taken: dict[str, set[Any]] = {column: set() for column in table["columns"]}
        if parents:
            places.at(at)
        for number, parent in enumerate(parents, 1):
            row: Row = {}
            known = given[number - 1] if number <= len(given) else {}
            for column, recipe in table["columns"].items():
                where = f"{at}: given[{number - 1}].{column}" if column in known else f"{at}: {column}"
                cell = _Cell(self, rng, number, parent, row, taken[column], where)
                row[column] = cell.given(known[column], recipe) if column in known else cell.value(recipe)
            rows.append(row)
        return rows

    def _finished(self) -> dict[str, SqlTable]:
        connection, at = Fenced(), "schema.sql"
        try:
            places.at(at)
            connection.script(self.spec.schema)
            for name in self.made:
                places.at(at := f"rows.yaml: table {name!r}")
                for row in self.made[name]:
                    connection.fill(name, list(row), [tuple(row.values())])
            for number, statement in enumerate(self.spec.finish):
                places.at(at := f"rows.yaml: finish[{number}]")
                connection.run(statement, self.spec.times)
            made = {}
            for table in self.spec.tables:
                name, key = table["table"], table["key"]
                places.at(at := f"rows.yaml: table {name!r}")
                columns, rows = connection.found(f"SELECT * FROM {name} ORDER BY rowid")
                if key not in columns:
                    raise ConfigError(f"{self.spec.folder}/rows.yaml: {name}: {no_such('key column', key, columns)}")
                made[name] = SqlTable(tuple(columns), key, [tuple(row) for row in rows])
            return made
        except (sqlite3.Error, OverflowError) as err:
            raise ConfigError(f"{self.spec.folder}/{at}: {err}") from None
        finally:
            connection.close()


RECIPES = tuple("id pattern choice int money date datetime person email parent ref text expr".split())
"""The kinds of recipes. docs/domains.md has the table."""


@dataclass(slots=True)
class _Cell:
    """The cell that a recipe makes a value for, in a row whose earlier columns are there. `of_KIND` makes it."""

    maker: Maker
    rng: random.Random
    number: int
    parent: Row | None
    row: Row
    taken: set[Any]
    """The values that the column has so far, if no two may be the same."""
    at: str

    def value(self, recipe: Any) -> Any:
        """What a recipe gives."""
        if not isinstance(recipe, Mapping):
            return recipe
        options = dict(recipe)
        unique, share = options.pop("unique", False), options.pop("share", None)
        if not isinstance(share, int | float | None):
            raise ConfigError(f"{self.at}: share is a number from 0 to 1, got {share!r:.60}")
        if share is not None and self.rng.random() >= share:
            return None
        kinds = [kind for kind in options if kind in RECIPES]
        if len(kinds) != 1:
            known = ", ".join(RECIPES)
            raise ConfigError(f"{self.at}: a recipe has one of {known} (and unique, share), got {sorted(recipe)}")
        for _ in range(_TRIES):
            try:
                value = getattr(self, f"of_{kinds[0]}")(options[kinds[0]])
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as err:
                seen = f"{type(err).__name__}: {err}"
                raise ConfigError(f"{self.at}: {dict(recipe)!s:.200} cannot be made: {seen:.200}") from None
            if not isinstance(value, str | int | float | None):
                raise ConfigError(f"{self.at}: a text, a number or null expected, got {value!r:.60}")
            if isinstance(value, str) and len(value) > MOST_TEXT:
                raise ConfigError(f"{self.at}: a text of {len(value)} characters, at most {MOST_TEXT} are allowed")
            if not unique or value not in self.taken:
                self.taken.add(value)
                return value
        raise ConfigError(f"{self.at}: no unique value in {_TRIES} tries; widen the recipe")

    def given(self, value: Any, recipe: Any) -> Any:
        """A value that stands in rows.yaml itself, for the first rows of a table."""
        if not isinstance(value, str | int | float | None) or (isinstance(value, str) and len(value) > MOST_TEXT):
            raise ConfigError(f"{self.at}: a text, a number or null expected, got {value!r:.60}")
        if isinstance(recipe, Mapping) and recipe.get("unique") and value in self.taken:
            raise ConfigError(f"{self.at}: {value!r:.60} stands there already, and the column is unique")
        self.taken.add(value)
        return value

    def _scope(self) -> Row:
        """What a recipe may refer to: the row's earlier columns, and the parent's as parent_COLUMN."""
        return {**{f"parent_{name}": value for name, value in (self.parent or {}).items()}, **self.row}

    def _fillable(self, template: str) -> str:
        if isinstance(template, str) and (wrong := wrong_with(template)):
            raise ConfigError(f"{self.at}: {template!r:.80}: {wrong}")
        return template

    def of_id(self, pattern: str) -> str:
        """`{n}` counts the rows from 1; a format such as {n:04d} is Python's."""
        return self._fillable(pattern).format(n=self.number)

    def of_pattern(self, pattern: str) -> str:
        digits = re.sub("#", lambda _: str(self.rng.randrange(10)), pattern)
        return re.sub("@", lambda _: self.rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ"), digits)

    def of_choice(self, options: Any) -> Any:
        if isinstance(options, str):
            if options not in self.maker.lists:
                raise ConfigError(f"{self.at}: {no_such('list', options, self.maker.lists)}")
            return self.rng.choice(self.maker.lists[options])
        if isinstance(options, Mapping):
            return self.rng.choices(list(options), weights=list(options.values()))[0]
        return self.rng.choice(options)

    def of_int(self, bounds: Sequence[int]) -> int:
        low, high, *step = bounds
        return self.rng.randrange(low, high + 1, *step)

    def of_money(self, bounds: Sequence[float]) -> float:
        return round(self.rng.uniform(*bounds), 2)

    def of_date(self, bounds: Sequence[str]) -> str:
        return self.of_datetime(bounds)[:10]

    def of_datetime(self, bounds: Sequence[str]) -> str:
        low, high = (datetime.datetime.fromisoformat(str(bound)) for bound in bounds)
        quarters = int((high - low).total_seconds() // 900)
        return (low + datetime.timedelta(minutes=15 * self.rng.randint(0, quarters))).strftime("%Y-%m-%d %H:%M")

    def of_person(self, _option: Any) -> str:
        return f"{self.rng.choice(self.maker.lists['first_names'])} {self.rng.choice(self.maker.lists['last_names'])}"

    def of_email(self, column: str) -> str:
        name = self.row[column].lower().replace(" ", ".").replace("'", "")
        return f"{name}{self.number}@{self.rng.choice(self.maker.lists['mail_hosts'])}"

    def of_parent(self, column: str) -> Any:
        if self.parent is None:
            raise ConfigError(f"{self.at}: parent needs a table with each")
        return self.parent[column]

    def of_ref(self, option: Any) -> Any:
        """ "table.column", or {of: table.column, where: {column: value or "{own column}"}}."""
        of, where = (option, {}) if isinstance(option, str) else (option["of"], option.get("where", {}))
        table, _, column = of.partition(".")
        if table not in self.maker.made:
            raise ConfigError(f"{self.at}: {no_such('earlier table', table, self.maker.made)}")
        own = {key: isinstance(value, str) and value[:1] == "{" for key, value in where.items()}
        wanted = {key: self._scope()[value[1:-1]] if own[key] else value for key, value in where.items()}
        rows = self.maker.made[table]
        found = [other for other in rows if all(other[key] == value for key, value in wanted.items())]
        return self.rng.choice(found)[column] if found else None

    def of_text(self, template: str) -> str:
        """A template over the row's earlier columns, and the parent's as {parent_COLUMN}."""
        return self._fillable(template).format_map(self._scope())

    def of_expr(self, sql: str) -> Any:
        """A SQL expression over the row's earlier columns (:column), the parent's (:parent_column) and :now, :today."""
        values = {**self._scope(), **self.maker.spec.times}
        try:
            return self.maker.sql.run(f"SELECT {sql}", values).fetchone()[0]
        except sqlite3.Error as err:
            raise ConfigError(f"{self.at}: {err}; values here: {', '.join(values)}") from None


def bounds(per: Sequence[int], at: str) -> tuple[int, int]:
    """The least and the most rows for each row of an earlier table."""
    if len(per) != 2 or not 0 <= per[0] <= per[1]:
        raise ConfigError(f"{at}: per is [least, most] with 0 <= least <= most, got {list(per)}")
    return per[0], per[1]
