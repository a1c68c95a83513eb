"""Intent templates and the people they fit: each row of an intent's `draw` is one way to fill the template."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale.domain_files import wrong_with
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.allowed_sql import holding
from toolorchestra.synth.formats.spec import Marked, Spec

Values = Mapping[str, Any]
WHO = "who"
BRANCH = "branch"
"""The column of a draw that says which of an intent's branches is right."""
MOST_SAID = 8_000
"""Characters of a template that is filled in."""


class Caller(NamedTuple):
    """Somebody who may call, with what the spec's user.draw says of them."""

    key: Any
    values: Values


class Rejected(Exception):
    """A draft that is no task, with the name of the reason for the yield report."""

    def __init__(self, reason: str, seen: str = "", intent: str = "") -> None:
        super().__init__(f"{reason}: {seen}")
        self.reason = reason
        self.intent = intent


class Templates:
    """A spec's intents, filled from the seed rows."""

    def __init__(self, spec: Spec, domain: SqlDomain) -> None:
        self.spec = spec
        self.domain = domain
        self._connection = holding(domain.schema, domain.tables)
        user = spec.head["user"]
        people = self._drawn(user["draw"], "domain.yaml: user.draw")
        if not people:
            raise ConfigError(f"{spec.folder}/domain.yaml: user.draw: no row; change the draw or the rows it looks for")
        if user["key"] not in people[0]:
            raise ConfigError(f"{spec.folder}/domain.yaml: user.draw gives no column {user['key']!r}")
        self.people = [Caller(row[user["key"]], row) for row in people]
        self.public: dict[str, list[Values]] = {}
        self.private: dict[str, dict[Any, list[Values]]] = {}
        for intent in spec.intents:
            self._fill(intent)

    def _fill(self, intent: Mapping[str, Any]) -> None:
        name = intent["intent"]
        place = f"intents.yaml:{intent.line}: {name}" if isinstance(intent, Marked) else name
        at = f"{place}.draw"
        rows = self._drawn(intent["draw"], at)
        if not rows:
            raise ConfigError(f"{self.spec.folder}/{at}: no row; change the draw or the rows it looks for")
        if intent.get("public"):
            self.public[name] = rows
            return
        if WHO not in rows[0]:
            raise ConfigError(f"{self.spec.folder}/{at}: a column named {WHO} must say whose request it is")
        found: dict[Any, list[Values]] = defaultdict(list)
        for row in rows:
            found[row[WHO]].append(row)
        self.private[name] = found

    def _drawn(self, sql: str, at: str) -> list[Values]:
        places.at(at)
        try:
            columns, rows = self._connection.found(sql, self.spec.times)
        except sqlite3.Error as err:
            raise ConfigError(f"{self.spec.folder}/{at}: {err}") from None
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def fitting(self, person: Caller) -> list[Mapping[str, Any]]:
        """The intents that this person may have."""
        return [i for i in self.spec.intents if not i.get("public") and person.key in self.private[i["intent"]]]

    def instance(self, intent: Mapping[str, Any], person: Caller | None, rng: random.Random) -> Values:
        """One way to fill an intent."""
        if person is None or intent.get("public"):
            return self._drawn_one(intent, self.public[intent["intent"]], rng)
        return {**person.values, **self._drawn_one(intent, self.private[intent["intent"]][person.key], rng)}

    def _drawn_one(self, intent: Mapping[str, Any], rows: Sequence[Values], rng: random.Random) -> Values:
        """A row; where the right answer depends on the data, each of the answers that there are as often."""
        if any(row.get(BRANCH) is not None for row in rows[:1]):
            taken = rng.choice(sorted({str(row[BRANCH]) for row in rows}))
            rows = [row for row in rows if str(row[BRANCH]) == taken]
        return rng.choice(rows)

    def others(self, candidates: Mapping[str, Any], values: Values, where: str) -> list[Any]:
        """The values that a request's candidates have beside the right one."""
        right = named(values, candidates["column"], where)
        try:
            _, rows = self._connection.found(candidates["of"], {**values, **self.spec.times})
        except sqlite3.Error as err:
            raise ConfigError(f"{self.spec.folder}/intents.yaml: {where}: candidates: {err}") from None
        found = list(dict.fromkeys(row[0] for row in rows))
        return [value for value in found if value != right] if right in found else []


def action(row: Mapping[str, Any], values: Values, called: Sequence[Called], where: str) -> GoldCall:
    """`{tool: {argument: "{value}"}}` filled in. A lone {value} keeps its type, {tool.field} is taken from an earlier
    result, and what is NULL is left out."""
    arguments = next(iter(row.values()), None) or {}
    if len(row) != 1 or not isinstance(arguments, Mapping):
        raise ConfigError(f"{where}: an action is written `tool: {{argument: value}}`, got {dict(row)}")
    (name,) = row
    filled = {key: _value(value, values, called, where) for key, value in arguments.items()}
    return GoldCall(name, {key: value for key, value in filled.items() if value is not None})


def _value(value: Any, values: Values, called: Sequence[Called], where: str) -> Any:
    if not isinstance(value, str) or "{" not in value:
        return value
    inner = value[1:-1]
    if value[0] == "{" and value[-1] == "}" and "." in inner:
        return _looked_up(inner, called, where)
    if value[0] == "{" and value[-1] == "}" and inner.isidentifier():
        return named(values, inner, where)
    return text(value, values, where)


def named(values: Values, name: str, where: str) -> Any:
    """The value of this name. Raises ConfigError where a draw has no such column."""
    if name not in values:
        raise ConfigError(f"{where}: no value {name!r}; there are: {', '.join(values)}")
    return values[name]


def text(template: str, values: Values, where: str) -> str:
    """A template filled in, amounts without needless zeros. Raises Rejected where it names what is NULL in this row."""
    if wrong := wrong_with(template):
        raise ConfigError(f"{where}: {template!r:.80}: {wrong}")
    there = ((key, value) for key, value in values.items() if value is not None)
    shown = {key: plain(value) if isinstance(value, int | float) else value for key, value in there}
    try:
        made = template.format_map(shown)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as err:
        if isinstance(err, KeyError) and err.args[0] in values:
            seen = f"{where}: {template!r:.80}: {err}"
            raise Rejected("a value is NULL", seen, where.removeprefix("intent ")) from None
        raise ConfigError(f"{where}: {template!r:.80}: no value {err}; there are: {', '.join(values)}") from None
    if len(made) > MOST_SAID:
        raise ConfigError(f"{where}: {template!r:.80} makes {len(made)} characters, at most {MOST_SAID} are allowed")
    return made


def plain(value: Any) -> str:
    """A value as a person says it: 12.5 as 12.50, 12.0 as 12."""
    if isinstance(value, float):
        return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
    return str(value)


def informed(paths: Sequence[str], called: Sequence[Called], where: str) -> tuple[str, ...]:
    """What must be told: `tool.field` or `tool.0.field` of the last result of a tool, as text."""
    return tuple(dict.fromkeys(plain(_looked_up(path, called, where)) for path in paths))


def _looked_up(path: str, called: Sequence[Called], where: str) -> Any:
    tool, *steps = path.split(".")
    result = next((c.value for c in reversed(called) if c.name == tool), None)
    for step in steps:
        try:
            result = result[int(step) if step.isdigit() else step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            raise ConfigError(f"{where}: {path!r}: no {step!r} in {result!r:.200}") from None
    if result is None:
        raise ConfigError(f"{where}: {path!r}: there is no such result")
    return result
