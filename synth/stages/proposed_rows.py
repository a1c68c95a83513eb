"""Rows that a model proposes: natural values for columns that are not ids, references or computed. Each record is
looked through and run; those that break a rule are left out, and the rest stand in rows.yaml as `given`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.authors import untrusted_answers
from toolorchestra.synth.formats import part_checks
from toolorchestra.synth.formats.part_checks import partial
from toolorchestra.synth.formats.seed_rows import Maker
from toolorchestra.synth.formats.spec import parsed
from toolorchestra.synth.stages.stage_values import Making

FILLED_IN = ("id", "parent", "ref", "expr", "email", "pattern")
"""Recipes that stay: their values have to agree with others."""
SHOWN = 3
"""Rows of each table that a model sees."""


def about(making: Making, seed: int) -> dict[str, Any]:
    """What a model is told: the schema, and for each table its open columns and some rows as they are."""
    spec = partial(making.parts)
    made = Maker(spec, seed).tables()
    tables = {}
    for table in spec.tables:
        columns = open_columns(table)
        found = made[table["table"]]
        if columns and found.rows:
            rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows[:SHOWN]]
            shown = [{name: row[name] for name in columns} for row in rows]
            tables[table["table"]] = {
                "columns": columns,
                "rows": shown,
                "recipes": {n: table["columns"][n] for n in columns},
            }
    return {"schema": making.parts["schema.sql"], "tables": tables}


def open_columns(table: Mapping[str, Any]) -> list[str]:
    """The columns that a record may give."""
    return [
        name
        for name, recipe in table["columns"].items()
        if isinstance(recipe, Mapping) and not any(kind in recipe for kind in FILLED_IN)
    ]


def accepted(
    making: Making, seed: int, records: Mapping[str, Any], most: int
) -> tuple[str, Counter[str], dict[str, str]]:
    """rows.yaml with the records that hold, and why the others do not; in the process that has limits."""
    spec = partial(making.parts)
    made = Maker(spec, seed).tables()
    value = _plain(parsed(making.parts["rows.yaml"], Path("rows.yaml")))
    dropped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for table in value["tables"]:
        name = table["table"]
        room = min(most, len(made[name].rows))
        listed = records.get(name, [])
        good: list[dict[str, Any]] = []
        for record in listed if isinstance(listed, list) else []:
            why = _wrong(table, made[name], spec.head["clock"], record, good, room)
            if not why:
                why = _breaks(making, seed, value, table, [*good, record])
            if why:
                dropped[why.partition(":")[0]] += 1
                examples.setdefault(why.partition(":")[0], f"{name}: {why}"[:300])
            else:
                good.append(record)
        if good:
            table["given"] = good
    return untrusted_answers.dumped(value), dropped, examples


def _wrong(
    table: Mapping[str, Any], made: Any, clock: str, record: Any, good: Sequence[Any], room: int
) -> str:  # fmt: skip
    """What is wrong with a record by itself; ""."""
    if not isinstance(record, dict) or not record:
        return f"shape: an object of columns expected, got {record!r:.80}"
    columns = open_columns(table)
    if other := [name for name in record if name not in columns]:
        return f"column: {other[0]!r:.40} is not one of {', '.join(columns)}"
    if record in good:
        return "twice: the same record stands there already"
    if len(good) >= room:
        return f"too many: the table has room for {room}"
    for name, value in record.items():
        at = made.columns.index(name)
        kinds = {type(row[at]) for row in made.rows}
        if type(value) not in kinds and not (float in kinds and type(value) is int):
            return f"kind: {name} is {value!r:.60}, and the recipe makes {', '.join(sorted(k.__name__ for k in kinds))}"
        if not part_checks.believable(name, value, clock):
            return f"plausibility: {name} is {value!r:.60}"
    return ""


def _breaks(making: Making, seed: int, value: Any, table: Any, given: Sequence[Any]) -> str:
    """Which rule of the rows' check the records break; "" for none."""
    tables = [{**one, "given": list(given)} if one is table else one for one in value["tables"]]
    text = untrusted_answers.dumped({**value, "tables": tables})
    try:
        faults = part_checks.rows({**making.parts, "rows.yaml": text}, seed)
    except ConfigError as err:
        return f"rows: {err}"
    return f"{faults[0].reason}: {faults[0].seen}" if faults else ""


def _plain(value: Any) -> Any:
    import json

    return json.loads(json.dumps(value, ensure_ascii=False))
