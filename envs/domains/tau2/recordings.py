"""Recorded runs of the benchmark, one JSON a line: to be replayed with a `replay` user, and graded again."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.conversation_log import Aside, Entry, Said
from toolorchestra.envs.domains.tau2.task import Criteria, read_criteria
from toolorchestra.envs.domains.tau2.users import Tau2UserReply


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: the moves of both sides, and what it was graded."""

    sim_id: str
    domain: str
    task_id: str
    solo: bool
    ended: str
    """The recorded termination reason."""
    reward: float
    parts: Mapping[str, float] | None
    """The recorded breakdown by basis, where there is one."""
    criteria: Criteria | None
    """What it was graded by, where that is not what the package has for the task."""
    messages: Sequence[Mapping[str, Any]]
    """As recorded, in order."""

    def user_turns(self) -> list[Tau2UserReply]:
        """Every move of the user's, the first included."""
        turns = []
        for message in self.messages:
            if message["role"] == "user":
                calls, text = recorded_calls(message), message.get("content") or ""
                turns.append(Tau2UserReply("", calls, beside=text) if calls else Tau2UserReply(text))
        return turns


def recorded_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """A message's tool calls; an empty list is none, as it should be."""
    return tuple(ToolCall(call["name"], dict(call["arguments"])) for call in message.get("tool_calls") or ())


@lru_cache(maxsize=8)
def read_recordings(path: str) -> Mapping[str, Recording]:
    """Every run of a file, by sim_id. The file may be gzipped."""
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"recordings={path!r}: no such file; name one with a recorded run as JSON on each line")
    runs: dict[str, Recording] = {}
    for run in _read(file):
        if run.sim_id in runs:
            raise ConfigError(f"{file}: two runs have one sim_id, {run.sim_id!r}, by which they are found; change one")
        runs[run.sim_id] = run
    return runs


def _read(file: Path) -> Iterator[Recording]:
    raw = file.read_bytes()
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as err:
        raise ConfigError(f"{file}: recorded runs as JSON lines expected, gzipped or not, got: {err}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _recording(json.loads(line))
        except (AttributeError, KeyError, TypeError, ValueError) as err:
            raise ConfigError(f"{file}: line {number} is no recorded run: {type(err).__name__} {err}") from None


def _recording(row: Mapping[str, Any]) -> Recording:
    criteria = row.get("criteria")
    return Recording(
        str(row["sim_id"]),
        row["domain"],
        str(row["task_id"]),
        bool(row["solo"]),
        row["termination_reason"],
        float(row["reward"]),
        row.get("reward_breakdown"),
        None if criteria is None else read_criteria(criteria, str(row["task_id"])),
        row["messages"],
    )


def write_recordings(path: str, runs: Iterable[Recording]) -> None:
    """Write runs as read_recordings() reads them. They are graded again by their tasks' own criteria."""
    rows = []
    for run in runs:
        row = {"domain": run.domain, "solo": run.solo, "task_id": run.task_id, "sim_id": run.sim_id}
        row |= {"termination_reason": run.ended, "reward": run.reward, "reward_breakdown": run.parts, "criteria": None}
        rows.append(json.dumps({**row, "messages": list(run.messages)}, ensure_ascii=False))
    Path(path).write_text("\n".join(rows) + "\n", encoding="utf-8")


def recorded_messages(log: Iterable[Entry], *, stops: bool) -> list[dict[str, Any]]:
    """An episode's log in the shape of a recorded run's messages. `stops`: the agent said that it was done."""
    messages: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    aside: str | None = None
    for number, entry in enumerate(log):
        if isinstance(entry, Aside):
            aside = entry.text
        elif isinstance(entry, Said):
            messages.append({"role": entry.side, "content": entry.text})
        else:
            shown = {"id": str(number), "requestor": entry.side}
            call = {**shown, "name": entry.call.name, "arguments": entry.call.arguments}
            if entry.joins and messages and messages[-1].get("requestor") == entry.side:  # nobody spoke between
                calls.append(call)
            else:
                calls = [call]
                messages.append({"role": entry.side, "content": aside, "tool_calls": calls})
            messages.append({"role": "tool", "content": entry.content, "error": entry.error, **shown})
            aside = None
    if stops:
        messages.append({"role": "assistant", "content": "###STOP###"})
    return messages
