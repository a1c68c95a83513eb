"""Reads task rows in nvidia/ToolScale's form: tau2's Task flattened through Arrow, which leaves traces to be undone.

The rows come without databases. They are returned as tau2's Task objects for whoever has the domains; `missing` says
which domains those are.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from toolorchestra.envs.base import hub_revisions
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader

DATASET = "nvidia/ToolScale"


def tasks(source: str | Path | Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """tau2 Tasks from a JSON or JSONL file, from rows, or from that hub set, as nvidia/ToolScale@COMMIT."""
    for number, row in enumerate(_rows(source), 1):
        yield _task(row, f"{source if isinstance(source, str | Path) else 'rows'}: row {number}")


def _rows(source: str | Path | Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    if not isinstance(source, str | Path):
        return source
    path = Path(source)
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
            listed = text.lstrip().startswith("[")
            return json.loads(text) if listed else [json.loads(line) for line in text.split("\n") if line.strip()]
        except (ValueError, RecursionError) as err:
            raise ConfigError(
                f"{path}: not JSON or JSONL: {err}; write a parquet file out with datasets first"
            ) from None
    if str(source).partition("@")[0] != DATASET:
        raise ConfigError(f"no file {str(source)!r}; name a JSON or JSONL file, or {DATASET}@COMMIT")
    return hub_revisions.rows(str(source), "train")


def _task(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in ("id", "user_scenario", "evaluation_criteria"):
        if not isinstance(row.get(key), str if key == "id" else Mapping):
            raise ConfigError(f"{where}: {key!r} expected, got {row.get(key)!r:.60}; keys: {', '.join(map(str, row))}")
    criteria = dict(row["evaluation_criteria"])
    actions = [_action(action, f"{where}: action {n}") for n, action in enumerate(criteria.get("actions") or [])]
    criteria["actions"] = actions
    criteria["communicate_info"] = list(criteria.get("communicate_info") or [])
    return {**_plain(row), "evaluation_criteria": _plain(criteria)}


def _action(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        raise ConfigError(f"{where}: an action has a name and arguments, got {row!r:.60}")
    # One struct holds the union of all tools' parameters: what is null there was never an argument.
    arguments = {key: _plain(value) for key, value in (row.get("arguments") or {}).items() if value is not None}
    return {**row, "arguments": arguments}


def _plain(value: Any) -> Any:
    """JSON again: what became a timestamp is text once more, a day without a time of day as a date alone."""
    if isinstance(value, datetime.datetime):
        midnight = (value.hour, value.minute, value.second) == (0, 0, 0)
        return value.date().isoformat() if midnight else value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def domain_of(task: Mapping[str, Any]) -> str:
    """The domain that a task names."""
    told = task["user_scenario"].get("instructions")
    return str(told.get("domain") or "") if isinstance(told, Mapping) else ""


def missing(rows: Iterable[Mapping[str, Any]], folders: Mapping[str, Path]) -> list[str]:
    """The domains whose tasks cannot be played: no folder with a db.json and a policy.md, and not shipped here."""
    named = {domain_of(task) for task in rows}
    return sorted(name for name in named if name not in loader.names() and not _complete(folders.get(name)))


def _complete(folder: Path | None) -> bool:
    return folder is not None and (folder / "db.json").is_file() and (folder / "policy.md").is_file()
