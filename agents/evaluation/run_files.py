"""A run's folder, read: its rows with their trajectories, by environment, split and policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.evaluation.rows import MANIFEST, TRAJECTORIES, EvaluationRow, read_rows
from toolorchestra.agents.evaluation.summary import Cell, latest
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.money.prices import ORCHESTRATOR

RowKey = tuple[Any, ...]


class PlayedRow(NamedTuple):
    """A trial's row with its trajectory."""

    row: EvaluationRow
    trajectory: Mapping[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """What a run's folder holds."""

    folder: Path
    manifest: Mapping[str, Any]
    """Empty where there is none."""
    cells: Mapping[Cell, Sequence[PlayedRow]]
    """By environment, split and policy, in the order of their trials."""

    @classmethod
    def read(cls, folder: Path, policy: str = "") -> RunFiles:
        """A folder; with `policy` that one's rows alone."""
        if not folder.is_dir():
            raise ConfigError(f"a run's folder, as `toolorchestra evaluate --out FOLDER` makes it, expected: {folder}")
        rows = {row.key: row for row in latest(read_rows(folder))}
        policies = dict.fromkeys(row.policy for row in rows.values())
        if policy and policy not in policies:
            raise ConfigError(no_such("policy", policy, policies))
        if policy:
            rows = {key: row for key, row in rows.items() if row.policy == policy}
        path = folder / TRAJECTORIES
        chosen = lines_of_rows(path, rows)
        lines = {key: line for key, number, line in keyed_trajectories(path) if chosen.get(key) == number}
        cells: dict[Cell, list[PlayedRow]] = {}
        for row in sorted(rows.values(), key=lambda row: (row.trial, row.seed)):
            played = PlayedRow(row, lines.get(row.key, {}))
            cells.setdefault((row.env, row.split, row.policy), []).append(played)
        return cls(folder, read_manifest(folder), cells)

    @property
    def begun(self) -> datetime:
        """When the run was begun; without a manifest, when its rows were written last."""
        told = self.manifest.get("begun")
        if isinstance(told, str):
            return datetime.fromisoformat(told)
        return datetime.fromtimestamp((self.folder / TRAJECTORIES).stat().st_mtime, UTC)


def model_of(some: Sequence[PlayedRow]) -> str:
    """The one model that moved in these trials, as the price sheet calls it; the policy's name where there were several
    or none."""
    items = {
        str(charge["item"])
        for one in some
        for charge in one.trajectory.get("charges", ())
        if charge.get("role") == ORCHESTRATOR
    }
    return items.pop() if len(items) == 1 else some[0].row.policy


def read_manifest(run: Path) -> dict[str, Any]:
    """What was asked for; empty where nothing says so."""
    path = run / MANIFEST
    data = json.loads(path.read_bytes()) if path.is_file() else {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: an object expected, got {type(data).__name__}")
    return data


def keyed_trajectories(path: Path) -> Iterator[tuple[RowKey, int, dict[str, Any]]]:
    """Each trajectory with its row's key and its line. A torn last line, left by a kill, is passed over."""
    if not path.is_file():
        raise ConfigError(f"no trajectories at {path}; the charges and messages of a run are in them")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                data = json.loads(line)
                env, split, policy, task, trial = data["key"]
                charges = data["charges"]
                if not all(isinstance(charge, dict) for charge in charges):
                    raise TypeError("charges are objects")
            except (ValueError, TypeError, KeyError, RecursionError) as err:
                if not line.endswith(b"\n"):
                    return
                raise ConfigError(
                    f"{path}, line {number}: expected a trajectory with its charges and key ({err!s:.80})"
                ) from None
            yield (env, split, policy, task, trial), number, data


def lines_of_rows(path: Path, rows: Mapping[RowKey, EvaluationRow]) -> dict[RowKey, int]:
    """The line of each row's trajectory, of which one must be there for each row that has a bill."""
    found = lines_found(path, rows)
    if lost := [key for key, row in rows.items() if key not in found and row.nano_usd]:
        raise ConfigError(
            f"{len(lost)} of {len(rows)} trials have a bill and no trajectory in {path}, such as {list(lost[0])}: they "
            "cannot be read in full"
        )
    return found


def lines_found(path: Path, rows: Mapping[RowKey, EvaluationRow]) -> dict[RowKey, int]:
    """The line of each trajectory that is there: of several tries the last with the row's bill, else the last."""
    found: dict[RowKey, tuple[bool, int]] = {}
    for key, number, line in keyed_trajectories(path):
        if key in rows:
            same = sum(charge.get("nano_usd") or 0 for charge in line["charges"]) == rows[key].nano_usd
            found[key] = max(found.get(key, (False, 0)), (same, number))
    return {key: number for key, (_, number) in found.items()}
