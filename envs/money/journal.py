"""A journal of what a run pays, written before each request goes out and after it, so that a kill loses nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.cassette import PAYER
from toolorchestra.envs.base.errors import ConfigError, SpendCapReached
from toolorchestra.envs.base.files import append_line
from toolorchestra.envs.money.prices import Charge, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap


class SpendJournal:
    """Lines of a file: `sent` with the most that a request may cost, before it goes out; `booked` with each charge;
    `done` when the request has ended; `closed` when all that a payer has paid stands in a file of its own.

    A line is in the system's hands when its method returns, so a kill of the process loses none. Who opens it holds its
    folder: one process writes it.
    """

    def __init__(self, path: Path, cap: SpendCap | None = None) -> None:
        self.cap = cap
        """Counts for bills that have no cap of their own."""
        self._path = path
        # Above the numbers that stand there: a line has more bytes than one.
        self._numbers = itertools.count(path.stat().st_size if path.is_file() else 0)

    def sent(self, most: Charge) -> int:
        """Note a request that is about to go out; its number."""
        number = next(self._numbers)
        self._write({"sent": number, "payer": PAYER.get(), "charge": most})
        return number

    def booked(self, charge: Charge) -> None:
        """Note a charge."""
        self._write({"payer": PAYER.get(), "charge": charge})

    def done(self, number: int) -> None:
        """Note that a request has ended: what it cost is booked."""
        self._write({"done": number})

    def closed(self, payer: str) -> None:
        """Note that what a payer has paid so far is kept elsewhere."""
        self._write({"closed": payer})

    def clear(self, session: str) -> None:
        """Begin anew: all of it is kept elsewhere. `session` names who writes from now on."""
        self._path.write_bytes(json.dumps({"session": session}).encode() + b"\n")

    @staticmethod
    def session_of(path: Path) -> str:
        """Name of who wrote a journal; "" where it does not say."""
        with path.open("rb") if path.is_file() else nullcontext() as file:
            first = file.readline() if file is not None else b""
        try:
            return str(json.loads(first).get("session", ""))
        except (ValueError, AttributeError):
            return ""

    def _write(self, line: Mapping[str, Any]) -> None:
        append_line(self._path, json.dumps(line).encode() + b"\n")

    @staticmethod
    def left(path: Path) -> dict[str, list[Charge]]:
        """What each payer has paid that no other file holds: what was booked, and for each request that did not end the
        most that it may have cost, unconfirmed."""
        booked: dict[str, list[Charge]] = {}
        sent: dict[int, tuple[str, Charge]] = {}
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                _read(json.loads(line), booked, sent)
            except (ValueError, TypeError, LookupError, AttributeError) as err:
                if number < len(lines):
                    raise ConfigError(
                        f"{path}, line {number}: expected a line of a run's journal ({err!s:.80})"
                    ) from None
        for payer, charge in sent.values():
            booked.setdefault(payer, []).append(charge)
        return {payer: charges for payer, charges in booked.items() if charges}


def _read(line: Any, booked: dict[str, list[Charge]], sent: dict[int, tuple[str, Charge]]) -> None:
    if "session" in line:
        return
    if "closed" in line:
        booked.pop(line["closed"], None)
    elif "done" in line:
        sent.pop(line["done"], None)
    elif "sent" in line:
        sent[line["sent"]] = (line["payer"], _charge(line["charge"]))
    else:
        booked.setdefault(line["payer"], []).append(_charge(line["charge"]))


def _charge(row: Any) -> Charge:
    """A charge as JSON keeps it. Raises ValueError for one that takes money back: a stranger's file would raise the
    cap."""
    (item, role, tokens, *rest), tool, nano_usd, sheet, *by_price = row
    if type(nano_usd) is not int or nano_usd < 0:
        raise ValueError(f"a charge is whole nano-dollars from 0 up, got {nano_usd!r:.40}")
    return Charge(Usage(item, role, Tokens(*tokens), *rest), tool, nano_usd, sheet, *by_price)


JOURNAL: ContextVar[SpendJournal | None] = ContextVar("journal", default=None)
"""Where what is paid here is noted."""


def require_money() -> None:
    """Raise SpendCapReached where the cap of what is paid here is used up: what was played last had calls that were not
    made, and nothing can be learnt or told from it."""
    journal = JOURNAL.get()
    if journal is not None and journal.cap is not None and journal.cap.used_up:
        raise SpendCapReached(
            f"{journal.cap.told()}; nothing is learnt from what was played last. Go on from the last whole step with "
            "resume=True and a higher spend_cap",
            command_line="--resume --spend-cap USD",
        )
