"""A JSONL file of requests and what came of them: written while live, read when replayed, or kept as a cache.

Only what a request says is stored, with the reply, its usage and its time; keys and headers never get here. The charge
follows from the usage by whichever price sheet bills it.
"""

from __future__ import annotations

import difflib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from toolorchestra.envs.base.answer_store import AnswerStore, Row, digest
from toolorchestra.envs.base.errors import ConfigError, no_such

Mode = Literal["record", "replay", "cache"]
MODES = ("record", "replay", "cache")
PAYER: ContextVar[str] = ContextVar("payer", default="")
"""The player: RUN|TRIAL, of a run that can be broken off and resumed. What a trial asked before it was broken off it
paid, so when it is played again it pays the same, once, though the cache answers."""
_LOOKED_AT = 200
"""Recorded requests that a miss is compared with."""


class CassetteMiss(ConfigError):
    """A replay asked for what was never recorded."""


class Cassette(AnswerStore):
    """One file. Any number of threads may read and write it."""

    path: Path
    what = "a recording; record it anew"
    shape = {"kind": str, "key": str, "request": dict, "reply": dict}  # noqa: RUF012

    def __init__(self, path: str | Path, mode: Mode) -> None:
        if mode not in MODES:
            raise ConfigError(no_such("cassette mode", mode, MODES))
        self.mode = mode
        self._taken: Counter[int] = Counter()
        self.numbers = itertools.count()
        """Numbers of the requests of a recording, in the order in which they go out."""
        self._asked: dict[str, Future[None]] = {}
        there = Path(path).is_file()
        if mode == "replay" and not there:
            raise ConfigError(
                f'no cassette {str(path)!r} to replay; record one first, with mode = "record"',
                command_line=f"--backends record={path}",
            )
        if mode == "record" and there and Path(path).stat().st_size:
            raise ConfigError(f"cassette {str(path)!r} exists; replay it, remove it, or record another")
        super().__init__(path)
        for rows in self.rows.values():
            rows.sort(key=lambda row: row["number"] if isinstance(row.get("number"), int) else 0)
        self._owed = {
            (row["payer"], key) for key, rows in self.rows.items() for row in rows if isinstance(row.get("payer"), str)
        }
        """Payer and request, of a cache's rows that an earlier process wrote and that nobody has paid in this one."""

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def simulated(self) -> bool:
        """Whether a simulated model's reply is among those recorded."""
        return any("simulated" in row["reply"] for rows in self.rows.values() for row in rows)

    def claim(self, key: str) -> Mapping[str, Any] | Future[None] | None:
        """The first recording of a request that is no outage; or what to wait for, since somebody asks just that at
        this moment; or None: whoever gets it is to ask, and then to release() the request."""
        with self.lock:
            if (known := _answered(self.rows.get(key, ()))) is not None:
                return known
            if (other := self._asked.get(key)) is not None:
                return other
            mine = self._asked[key] = Future()
            mine.set_running_or_notify_cancel()  # else a waiter's cancellation would cancel it for all
            return None

    def release(self, key: str) -> None:
        """Wake those who wait for a request that was claimed."""
        with self.lock:
            mine = self._asked.pop(key)
        mine.set_result(None)

    def next(self, key: str, settings: str) -> Mapping[str, Any] | None:
        """The recording of a request that may come again and be answered differently: of the same settings and the
        same trial, where there is one; in order, then from the start."""
        trial = _trial(PAYER.get())
        with self.lock:
            rows = self.rows.get(key, [])
            rows = [row for row in rows if row.get("settings", "") == settings] or rows
            rows = [row for row in rows if _trial(row.get("payer")) == trial] or rows
            if not rows:
                return None
            row = min(rows, key=lambda row: self._taken[id(row)])
            self._taken[id(row)] += 1
            return row

    def lasting(self, key: str) -> Mapping[str, Any] | None:
        """The recording of a request that is always answered alike: each outage that this trial met once, in order,
        and then what lasts."""
        trial = _trial(PAYER.get())
        with self.lock:
            rows = self.rows.get(key, ())
            for row in rows:
                met = not trial or _trial(row.get("payer")) in ("", trial)
                if met and _is_outage(row) and not self._taken[id(row)]:
                    self._taken[id(row)] += 1
                    return row
            return _answered(rows) or next(iter(rows), None)

    def place(self, key: str, beside: Mapping[str, Any]) -> str:
        """What recordings of a request are found by: in a cache also by its settings and by who answers."""
        apart = [beside.get("settings", ""), beside.get("source", "")]
        return digest(key, *apart) if self.mode == "cache" and any(apart) else key

    def _take(self, row: Row) -> None:
        self.check(row)
        self.rows.setdefault(self.place(row["key"], row), []).append(row)

    def keep(self, kind: str, key: str, request: Mapping[str, Any], reply: Mapping[str, Any], **beside: object) -> None:
        """Keep what came of a request, and what the row says beside it."""
        row = {"kind": kind, "key": key, "request": request, "reply": reply, **beside}
        if payer := PAYER.get():
            row["payer"] = payer
        self.add(row)

    def owes(self, key: str) -> bool:
        """Whether who plays now paid for this request before it was broken off. It is asked once: then it has paid."""
        asked = (PAYER.get(), key)
        with self.lock:
            owed = asked in self._owed
            self._owed.discard(asked)
        return owed

    def miss(self, kind: str, request: Mapping[str, Any]) -> CassetteMiss:
        """The error that names the recorded request which is most like this one, and where they part."""
        wanted = _flat(request)
        same_kind = [row["request"] for rows in self.rows.values() for row in rows if row["kind"] == kind]
        start = f"{self.path}: no recording of this {kind} request"
        if not same_kind:
            return CassetteMiss(f'{start}, nor of any other; record it, with mode = "record"')
        shares = [_alike(wanted, _flat(other)) for other in same_kind[:_LOOKED_AT]]
        share = max(shares)
        nearest = _flat(same_kind[shares.index(share)])
        parts = [key for key in wanted if wanted[key] != nearest.get(key)]
        part = parts[0] if parts else "nothing"
        here, there = wanted.get(part, ""), nearest.get(part, "")
        at = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
        lead = max(0, at - 20)
        return CassetteMiss(
            f"{start}; the nearest recorded one is {share:.0%} alike and differs in {', '.join(parts)}: "
            f"{part} has {here[lead : at + 40]!r}, recorded was {there[lead : at + 40]!r}"
        )


def _is_outage(row: Mapping[str, Any]) -> bool:
    return bool(row["reply"].get("error") == "Outage")


def _answered(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((row for row in rows if not _is_outage(row)), None)


def _trial(payer: object) -> str:
    """The payer without its run: a replay is another run."""
    return payer.partition("|")[2] if isinstance(payer, str) else ""


def _flat(request: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in request.items()}


def _alike(one: Mapping[str, str], other: Mapping[str, str]) -> float:
    shares = [difflib.SequenceMatcher(None, one[k], other.get(k, ""), autojunk=False).quick_ratio() for k in one]
    return sum(shares) / max(1, len(shares))
