"""Chaos: backends that fail, hang, drip, break off, garble, and answer late or twice, at given rates, by seed.

    from tests.support.chaos import Chaos

    chaos = Chaos(seed=0, rate=0.3)
    env = gym.make("ToolOrchestra/ToolScale-v0", backends=chaos.models(mine))
    Backing(read("backends.toml"), around=chaos.around)      # all that stands behind the tools of a question source

Each wrapper notes which faults it made in which episode, and what the models behind it were paid for, so that one can
hold the episodes against it: tests/support/chaos_runs.py does.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TypeVar

from toolorchestra.envs.base.errors import ConfigError, Outage, no_such
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion, ContextLimits, ask, limits_of
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.retrieval import Hit, Retriever
from toolorchestra.envs.sandbox import Execution, Interpreter
from toolorchestra.envs.tools.assemble import Backends

Answer = TypeVar("Answer")
HARMLESS = ("drip", "late", "twice")
"""The answer comes all the same: after many small waits, after a long one, or after it was asked for and paid twice."""
FATAL = ("fail", "outage", "hang", "cut", "garble", "cancel", "exit")
"""Nothing is asked, or what was paid is lost or cannot be read: the episode fails."""
FAULTS = (*HARMLESS, *FATAL)
EPISODE: ContextVar[str] = ContextVar("episode", default="")
"""Name of the episode that starts a call, set by who plays it; the wrappers note faults under it."""


@dataclass
class Chaos:
    """Plan of what goes wrong when, and list of what did. The same seed makes the same faults in an episode, however
    many run beside it."""

    seed: int = 0
    rate: float = 0.3
    """The share of calls with a fault."""
    faults: Sequence[str] = FAULTS
    seconds: float = 0.02
    """How long a late answer takes, and a hanging one until its connection breaks."""
    made: dict[str, list[str]] = field(default_factory=dict)
    """The faults that were made, by episode."""
    paid: dict[str, list[Usage]] = field(default_factory=dict)
    """What the models behind the wrappers were paid for, by episode."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each kind of backend was asked."""
    _asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"a rate is a share of the calls, from 0 to 1, got {self.rate!r}")
        if unknown := [name for name in self.faults if name not in FAULTS]:
            raise ConfigError(no_such("fault", unknown[0], FAULTS))

    def models(self, inner: ChatModel) -> ChaosModels:
        """A model backend with faults around another one."""
        return ChaosModels(inner, self)

    def around(self, backends: Backends) -> Backends:
        """All that stands behind a question source's tools, with faults."""
        return replace(
            backends,
            models=ChaosModels(backends.models, self),
            retriever=ChaosRetriever(backends.retriever, self),
            interpreter=ChaosInterpreter(backends.interpreter, self),
        )

    async def through(self, kind: str, ask: Callable[[], Awaitable[Answer]]) -> tuple[Answer, bool]:
        """The answer of a backend, and whether it is to be garbled; or what goes wrong with this call. Noted."""
        fault = self._next_fault(kind)
        if fault in _RAISED:
            raised, text = _RAISED[fault]
            raise raised(f"chaos: {text}")
        if fault in ("late", "hang"):
            await asyncio.sleep(self.seconds)
        if fault == "hang":
            raise TimeoutError("chaos: nothing came")
        for _ in range(2 if fault == "twice" else 1):
            answer = await ask()
        for _ in range(10 if fault == "drip" else 0):
            await asyncio.sleep(self.seconds / 10)
        if fault == "cut":
            raise ConnectionResetError("chaos: the connection broke off in the middle of the answer")
        return answer, fault == "garble"

    def _next_fault(self, kind: str) -> str:
        episode = EPISODE.get()
        self._asked[episode, kind] += 1
        self.calls[kind] += 1
        text = f"{self.seed}\x1f{kind}\x1f{episode}\x1f{self._asked[episode, kind]}"
        drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        if drawn / 2**64 >= self.rate or not self.faults:
            return ""
        fault = self.faults[drawn % len(self.faults)]
        self.made.setdefault(episode, []).append(fault)
        return fault


_RAISED: Mapping[str, tuple[type[BaseException], str]] = {
    "fail": (OSError, "no route to the backend"),
    "outage": (Outage, "the backend is away"),
    "exit": (SystemExit, "a backend that ends the process"),
    "cancel": (asyncio.CancelledError, "a backend that cancels itself"),
}


class ChaosModels:
    """A model backend that behaves like the one inside it, but for the faults that Chaos draws."""

    suspends = True

    def __init__(self, inner: ChatModel, chaos: Chaos) -> None:
        self.inner, self.chaos = inner, chaos

    @property
    def patience_seconds(self) -> float:
        return float(getattr(self.inner, "patience_seconds", 0.0)) + 100 * self.chaos.seconds

    def limits_of(self, model: str) -> ContextLimits:
        """The limits of a model, as the backend inside gives them."""
        return limits_of(self.inner, model)

    async def complete(self, request: ChatRequest) -> Completion:
        """The model's reply, or what the chaos draws in its place: an outage, a delay, garbled text."""
        completion, garbled = await self.chaos.through("models", lambda: self._paid(request))
        return completion._replace(text=None) if garbled else completion  # type: ignore[arg-type]

    async def _paid(self, request: ChatRequest) -> Completion:
        bill = request.bill.part()
        completion = await ask(self.inner, replace(request, bill=bill))
        self.chaos.paid.setdefault(EPISODE.get(), []).extend(bill.usages)
        return completion


class ChaosRetriever:
    """A retriever that behaves like the one inside it, but for the faults that Chaos draws."""

    suspends = True

    def __init__(self, inner: Retriever, chaos: Chaos) -> None:
        self.inner, self.chaos = inner, chaos

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The passages found, or a fault."""
        hits, garbled = await self.chaos.through("retriever", lambda: self.inner.search(query, top_k, bill or Bill()))
        return None if garbled else hits  # type: ignore[return-value]


class ChaosInterpreter:
    """An interpreter that behaves like the one inside it, but for the faults that Chaos draws."""

    suspends = True

    def __init__(self, inner: Interpreter, chaos: Chaos) -> None:
        self.inner, self.chaos = inner, chaos
        self.describe, self.item = inner.describe, inner.item

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """What the program did, or a fault."""
        done, garbled = await self.chaos.through("interpreter", lambda: self.inner.run(code, session, bill))
        return done._replace(stdout=None) if garbled else done  # type: ignore[arg-type]
