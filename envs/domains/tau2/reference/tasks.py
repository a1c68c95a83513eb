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
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.reference.folders import Place
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import read_plan
from toolorchestra.envs.domains.toolscale import hub_rows

Rows = Mapping[str, Mapping[str, Any]]
"""Tasks as they are written, by id; or the parameters of tools, by name."""
PAPER_NAMES: Mapping[str, str] = {
    "finance": "bank", "sport": "basketball", "sports": "basketball", "e-commerce": "ecommerce",
    "entertainment": "movie", "education": "school",
}  # fmt: skip
"""Domains that the paper calls by other names than the code's folders."""
_SHARES = {"train": range(80), "validation": range(80, 90), "test": range(90, 100)}


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
        named = self.named.get(domain)
        if named is None:
            percent = {i: int(hashlib.sha256(f"{domain}/{i}".encode()).hexdigest(), 16) % 100 for i in rows}
            drawn = {name: [i for i in rows if percent[i] in share] for name, share in _SHARES.items()}
            named = {name: ids for name, ids in drawn.items() if ids}
        return {"base": tuple(rows)} | {n: tuple(i for i in map(str, ids) if i in rows) for n, ids in named.items()}


def read_tasks(
    folder: str, wanted: Mapping[str, Place], tasks_path: str | None, version: str | None, *, every: bool
) -> ReferenceTasks:
    """The tasks of the wanted domains, from their folders or from `tasks_path`. every: that file's are all wanted."""
    by_domain = _sorted_out(tasks_path, wanted, every) if tasks_path else {n: _own(p) for n, p in wanted.items()}
    digest = hashlib.sha256(json.dumps(by_domain, sort_keys=True, default=str).encode()).hexdigest()[:12]
    named = {} if tasks_path else {name: split for name, place in wanted.items() if (split := _named(place))}
    source = Path(tasks_path or folder).name
    return ReferenceTasks(Path(folder), version or f"{source} sha256:{digest}", by_domain=by_domain, named=named)


def _own(place: Place) -> Rows:
    path = place.tasks()
    if path is None:
        expected = f"{place.name} has no tasks.json or tasks.jsonl in {place.data[0]}"
        raise ConfigError(f'{expected}; name tasks by tasks_path="nvidia/ToolScale@COMMIT", or a file of such rows')
    return _by_id(hub_rows.tasks(place.file(path.name, "the domain's tasks")), str(path))


def _named(place: Place) -> Mapping[str, Sequence[str]] | None:
    path = place.find("split_tasks.json")
    try:
        split = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: not JSON: {err}") from None
    if not isinstance(split, dict) or not all(isinstance(ids, list) for ids in split.values()):
        raise ConfigError(f"{path}: a name with a list of task ids for each split expected, got {split!r:.80}")
    return split if path else None


@lru_cache(maxsize=4)
def _read(tasks_path: str) -> tuple[dict[str, Any], ...]:
    return tuple(hub_rows.tasks(tasks_path))


def _sorted_out(tasks_path: str, wanted: Mapping[str, Place], every: bool) -> dict[str, Rows]:
    """The rows of each domain."""
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in wanted}
    others: Counter[str] = Counter()
    for row in _read(tasks_path):
        told = hub_rows.domain_of(row)
        name = next((n for n in (told, told.lower(), PAPER_NAMES.get(told.lower())) if n in wanted), None)
        if name is None:
            others[told or "(none named)"] += 1
        else:
            found[name].append(row)
    if every and others:
        raise ConfigError(
            f"tasks_path={tasks_path!r} has tasks of {', '.join(sorted(others))}, whose databases are missing; there"
            f" are {', '.join(wanted)}: get the others too, or play one by domain=NAME"
        )
    if empty := [name for name, rows in found.items() if not rows]:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(others.items())) or "none"
        raise ConfigError(f"tasks_path={tasks_path!r} has no task of {', '.join(empty)}; its other domains: {listed}")
    return {name: _by_id(rows, f"{tasks_path}: {name}") for name, rows in found.items()}


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
        shown = "; ".join(f"task {task_id}: {why}" for task_id, why in [*wrong.items()][:3])
        raise ConfigError(
            f"{domain.name}: {len(wrong)} of {len(rows)} tasks do not match the toolkit: {shown}. Its tools:"
            f" {', '.join(sorted(schemas))}. Take the toolkit that the tasks were made for, or leave those tasks out by"
            " skip_unmatched=True"
        )
    return kept


def _completed(row: Mapping[str, Any], schemas: Rows) -> Mapping[str, Any]:
    """The task with its nulls again where a tool demands one: rows without them have lost those too."""
    criteria, actions = row["evaluation_criteria"], []
    for action in criteria.get("actions") or ():
        schema = schemas.get(action["name"], {})
        kinds = {name: schema["properties"][name].get("type") for name in schema.get("required", ())}
        nulls = {name: None for name, kind in kinds.items() if isinstance(kind, list) and "null" in kind}
        actions.append({**action, "arguments": {**nulls, **action["arguments"]}})
    return {**row, "evaluation_criteria": {**criteria, "actions": actions}}


def _misfit(row: Mapping[str, Any], schemas: Rows) -> str:
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
