"""What a training report is made of, read from the run's folder: its summary, its metrics, its sessions, its episodes.

So a report can be drawn again without the model, and a folder that came from elsewhere can be drawn too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.reports.page_data import lines_of
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.sessions import Session, read_sessions
from toolorchestra.envs.base.errors import ConfigError

SUMMARY = "summary.json"
TESTED = "trajectories.jsonl"
"""In the report's folder: the episodes of the test, turn by turn."""
TESTED_PAGE = "trajectories.html"


@dataclass(frozen=True)
class ReportData:
    """What the folder of one training run holds for its report."""

    folder: Path
    summary: Mapping[str, Any]
    train: Sequence[Mapping[str, Any]]
    """Rows of metrics.jsonl, one for each training step."""
    evaluations: Sequence[Mapping[str, Any]]
    warm: Sequence[Mapping[str, Any]]
    """Rows of metrics.jsonl from the supervised start."""
    sessions: Sequence[Session]
    configuration: Mapping[str, Any] | None
    """None where neither the summary nor a checkpoint says it."""

    @property
    def title(self) -> str:
        """The run in a few words."""
        return f"{self.summary['preset']}, seed {self.summary['seed']}"

    @property
    def tested(self) -> Path:
        """The file of the test's episodes, which a report of an earlier version lacks."""
        return self.folder / "report" / TESTED

    @property
    def dumped(self) -> Path:
        """The file of the rollouts of training that were kept."""
        return self.folder / ROLLOUTS


def read_report(folder: Path) -> ReportData:
    """What is there of a run that has a report."""
    path = folder / "report" / SUMMARY
    if not path.is_file():
        raise ConfigError(f"{folder} has no report yet (expected {path}); let its run end, or give another folder")
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[str, list[Mapping[str, Any]]] = {"train": [], "eval": [], "warm": []}
    for row in read(folder / "metrics.jsonl"):
        rows.setdefault(str(row.get("kind")), []).append(row)
    configuration = summary.get("configuration") or _configuration(folder)
    return ReportData(folder, summary, rows["train"], rows["eval"], rows["warm"], read_sessions(folder), configuration)


def _configuration(folder: Path) -> Mapping[str, Any] | None:
    """As the newest checkpoint has it."""
    for place in reversed(checkpoint.all_of(folder / "checkpoints")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found: Mapping[str, Any] = json.loads((place / checkpoint.STATE).read_text(encoding="utf-8"))["config"]
            return found
    return None


def episodes_in(path: Path) -> Iterator[Mapping[str, Any]]:
    """The whole lines of a file of trajectories."""
    for _, _, line in lines_of(path):
        if isinstance(line, Mapping) and isinstance(line.get("messages"), list):
            yield line


def some_tested(path: Path, each: int) -> list[Mapping[str, Any]]:
    """The first few right, wrong and failed episodes of a test: failures are to be seen too."""
    kept: dict[str, list[Mapping[str, Any]]] = {"wrong": [], "right": [], "failed": []}
    for line in episodes_in(path):
        kind = ending_of(line)
        if len(kept[kind]) < each:
            kept[kind].append(line)
    return [line for lines in kept.values() for line in lines]


def last_group(path: Path) -> list[Mapping[str, Any]]:
    """The rollouts of the last group that was dumped whose rewards differ; of the last one where none does."""
    groups: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    taught: tuple[Any, Any] | None = None
    for line in episodes_in(path):
        training = line.get("training")
        if isinstance(training, Mapping):
            key = (training.get("step"), training.get("group"))
            groups.setdefault(key, []).append(line)
            taught = key if training.get("spread") else taught
            groups = {one: lines for one, lines in groups.items() if one in (key, taught)}
    return groups[taught] if taught in groups else next(reversed(groups.values()), [])


def ending_of(line: Mapping[str, Any]) -> str:
    """How an episode ended: right, wrong or failed."""
    outcome = line.get("outcome")
    if not isinstance(outcome, Mapping):
        return "failed"
    return "right" if float(outcome.get("value") or 0) >= 1 else "wrong"
