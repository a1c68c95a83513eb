"""What requests cost, into the database of accounts: in a thread of its own, so that one which hangs holds up nothing
else, and again until the database has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from toolorchestra.agents.serving.accounts import PATIENCE_SECONDS, Accounts
from toolorchestra.envs.base.errors import Outage

_LOG = logging.getLogger("uvicorn.error")
_BOOKED_SECONDS = 1.0
"""How long an answer waits until it is booked, at most twice."""
_AGAIN_SECONDS = 5.0
"""How long after an outage the database is asked again."""
T = TypeVar("T")


class Bookkeeper:
    """Sets aside what requests may spend, and books what they cost."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self._thread = ThreadPoolExecutor(1, "accounts")
        self._owed: dict[str, tuple[int, bool]] = {}
        """What requests have cost, in nano-dollars, and whether they have ended, until the database has it."""
        self._booking: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    async def aside(self, work: Callable[..., T], *given: Any) -> T:
        """Do work on the accounts in their thread, in turn."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)

    async def begin(self, request_id: str, account: str, usd: float) -> float:
        """Set aside what a request may spend: `Accounts.begin`. Raises Outage where the database does not answer."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self.aside(self.accounts.begin, request_id, account, usd)
        except (TimeoutError, asyncio.CancelledError) as err:
            self.end(request_id, 0)  # its thread may set it aside all the same
            if isinstance(err, TimeoutError):
                raise Outage("the database of accounts does not answer") from None
            raise

    def spent(self, request_id: str, nano_usd: int) -> None:
        """Book soon what a request has cost so far."""
        self._owed[request_id] = (nano_usd, False)
        self._book()

    def end(self, request_id: str, nano_usd: int) -> None:
        """Book soon what a request has cost in all, and give back the rest of what was set aside for it."""
        self._owed[request_id] = (nano_usd, True)
        self._book()

    async def settled(self, seconds: float | None = _BOOKED_SECONDS) -> None:
        """Wait until what requests have cost is booked: what is on its way, and what came meanwhile."""
        for _ in range(2):
            if self._owed:
                await asyncio.wait({self._book()}, timeout=seconds)

    async def close(self) -> None:
        """Book what the database takes now, and ask it no more."""
        await self.settled(None)
        self._no_more()

    def _no_more(self) -> None:
        if self._again is not None:
            self._again.cancel()

    def _book(self) -> asyncio.Task[None]:
        """Book in a task that nobody's going away cancels. What the database cannot take now it takes later; until then
        what was set aside counts."""
        if self._booking is None or self._booking.done():
            self._booking = asyncio.create_task(self._booked())
        return self._booking

    async def _booked(self) -> None:
        due = dict(self._owed)

        def book() -> None:  # again and again, if need be: that changes nothing
            for request_id, (nano_usd, over) in due.items():
                (self.accounts.end if over else self.accounts.book)(request_id, nano_usd)

        try:
            await self.aside(book)
        except Outage as err:
            _LOG.error("%s; %d requests are booked later", err, len(self._owed))
            self._no_more()
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._book)
            return
        self._owed = {request_id: cost for request_id, cost in self._owed.items() if due.get(request_id) != cost}
        if self._owed:  # what came meanwhile
            self._booking = asyncio.create_task(self._booked())
