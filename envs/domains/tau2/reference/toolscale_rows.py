"""The tasks of reference domains: a folder's own tasks.json or tasks.jsonl, or rows such as nvidia/ToolScale's."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.sql import hub_rows
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.reference.folders import TASKS, Place
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import read_plan

Rows = Mapping[str, Mapping[str, Any]]
"""Tasks as they are written, by id."""
Schemas = Mapping[str, Mapping[str, Any]]
"""The parameters of tools, by name."""
PAPER_NAMES: Mapping[str, str] = {
    "finance": "bank", "sport": "basketball", "sports": "basketball", "e-commerce": "ecommerce",
    "entertainment": "movie", "education": "school",
}  # fmt: skip
"""Domains that the paper calls by other names than the code's folders."""
_SHARES = (("train", 80), ("validation", 90), ("test", 100))
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class ReferenceTasks(Release):
    """The tasks of some domains. `base` has all of a domain's; the other splits follow from hashes of the ids."""

    by_domain: Mapping[str, Rows] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Splits that a domain's own file names."""

    def tasks(self, domain: str) -> Rows:
        return self.by_domain[domain]

    def splits(self, domain: str) -> Mapping[str, tuple[str, ...]]:
        rows = self.by_domain[domain]
        if domain in self.named:
            kept = {name: tuple(i for i in map(str, ids) if i in rows) for name, ids in self.named[domain].items()}
            return {"base": tuple(rows), **kept}
        parts: dict[str, list[str]] = {}
        for task_id in rows:
            at = int(hashlib.sha256(f"{domain}/{task_id}".encode()).hexdigest(), 16) % 100
            parts.setdefault(next(name for name, end in _SHARES if at < end), []).append(task_id)
        return {"base": tuple(rows), **{name: tuple(parts[name]) for name, _ in _SHARES if name in parts}}


def read_shelf(folder: str, wanted: Mapping[str, Place], tasks_path: str | None, version: str | None) -> ReferenceTasks:
    """The tasks of the wanted domains, from their folders or from `tasks_path`."""
    by_domain = _given(tasks_path, wanted) if tasks_path else {name: _own(place) for name, place in wanted.items()}
    digest = hashlib.sha256(json.dumps(by_domain, sort_keys=True, default=str).encode()).hexdigest()[:12]
    named = {} if tasks_path else {name: split for name, place in wanted.items() if (split := _named(place))}
    source = Path(tasks_path or folder).name
    return ReferenceTasks(Path(folder), version or f"{source} sha256:{digest}", by_domain, named)


def has_tasks(place: Place) -> bool:
    """Whether a domain comes with tasks of its own."""
    return any(place.find(name) for name in TASKS)


def _own(place: Place) -> Rows:
    path = next((found for name in TASKS if (found := place.find(name))), None)
    if path is None:
        expected = f"{place.name} has no {' or '.join(TASKS)} in {place.data[0]}"
        raise ConfigError(f'{expected}; name tasks by tasks_path="nvidia/ToolScale@COMMIT", or a file of such rows')
    return _by_id(hub_rows.tasks(place.file(path.name, "the domain's tasks")), str(path))


def _named(place: Place) -> Mapping[str, Sequence[str]] | None:
    path = place.find("split_tasks.json")
    if path is None:
        return None
    split = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(split, dict) or not all(isinstance(ids, list) for ids in split.values()):
        raise ConfigError(f"{path}: a name with a list of task ids for each split expected, got {split!r:.80}")
    return split


@lru_cache(maxsize=4)
def _read(tasks_path: str) -> tuple[dict[str, Any], ...]:
    return tuple(hub_rows.tasks(tasks_path))


def _given(tasks_path: str, wanted: Mapping[str, Place]) -> dict[str, Rows]:
    rows = _read(tasks_path)
    sorted_out: dict[str, list[Mapping[str, Any]]] = {name: [] for name in wanted}
    strangers: Counter[str] = Counter()
    for row in rows:
        told = hub_rows.domain_of(row)
        name = next((n for n in (told, told.lower(), PAPER_NAMES.get(told.lower(), "")) if n in wanted), None)
        if name is None:
            strangers[told or "(none named)"] += 1
        else:
            sorted_out[name].append(row)
    empty = [name for name, found in sorted_out.items() if not found]
    if empty:
        others = ", ".join(f"{name} ({count})" for name, count in sorted(strangers.items())) or "none"
        raise ConfigError(f"tasks_path={tasks_path!r} has no task of {', '.join(empty)}; its other domains: {others}")
    return {name: _by_id(found, f"{tasks_path}: {name}") for name, found in sorted_out.items()}


def missing_databases(tasks_path: str, found: Mapping[str, Place]) -> list[str]:
    """The domains that rows name and the folder does not have."""
    told = {hub_rows.domain_of(row).lower() for row in _read(tasks_path)}
    return sorted(name for name in told if PAPER_NAMES.get(name, name) not in found)


def _by_id(rows: Iterable[Mapping[str, Any]], where: str) -> Rows:
    made: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["id"] in made:
            raise ConfigError(f"{where}: a second task {row['id']!r}; each needs an id of its own")
        made[row["id"]] = row
    if not made:
        raise ConfigError(f"{where}: at least one task expected, got none")
    return made


def fitting(domain: Tau2Domain, rows: Rows, *, skip: bool) -> Rows:
    """The tasks that a toolkit can play; the others are refused together, or left out."""
    schemas = {tool.name: tool.parameters for tool in domain.tools}
    whole = {task_id: _completed(row, schemas) for task_id, row in rows.items()}
    wrong = {task_id: why for task_id, row in whole.items() if (why := _misfit(row, schemas))}
    kept = {task_id: row for task_id, row in whole.items() if task_id not in wrong}
    if wrong and not (skip and kept):
        shown = "; ".join(f"task {task_id}: {why}" for task_id, why in [*wrong.items()][:_SHOWN])
        tools = ", ".join(sorted(schemas))
        raise ConfigError(
            f"{domain.name}: {len(wrong)} of {len(rows)} tasks do not match the toolkit: {shown}. Its tools: {tools}."
            " Take the toolkit that the tasks were made for, or leave those tasks out by skip_unmatched=True"
        )
    return kept


def _completed(row: Mapping[str, Any], schemas: Schemas) -> Mapping[str, Any]:
    """The task with its nulls again where a tool demands one: rows without them have lost those too."""
    criteria = row["evaluation_criteria"]
    actions = []
    for action in criteria.get("actions") or ():
        schema = schemas.get(action["name"], {})
        nulls = {name: None for name in schema.get("required", ()) if _nullable(schema["properties"][name])}
        actions.append({**action, "arguments": {**nulls, **action["arguments"]}})
    return {**row, "evaluation_criteria": {**criteria, "actions": actions}}


def _nullable(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("type"), list) and "null" in schema["type"]


def _misfit(row: Mapping[str, Any], schemas: Schemas) -> str:
    """Why a task cannot be played with these tools, or ""."""
    plan = read_plan(row)
    if plan.user_data or any(function.side == "user" for function in plan.actions):
        return "it prepares a device of the user's, and this toolkit has no user's side"
    for action in (plan.criteria and plan.criteria.actions) or ():
        name, given = action.call
        if name not in schemas:
            return f"no tool {name!r}"
        if unknown := sorted(set(given) - set(schemas[name]["properties"])):
            return f"{name} has no parameter {unknown[0]!r}"
        if lacking := sorted(set(schemas[name]["required"]) - set(given)):
            return f"{name} needs {lacking[0]!r}, which the task does not give"
    return ""
