"""Chaos: backends that fail, hang, drip, break off, garble, and answer late or twice, at given rates, by seed.

    from toolorchestra.envs.testing.chaos import Chaos

    chaos = Chaos(seed=0, rate=0.3)
    env = gym.make("ToolOrchestra/ToolScale-v0", backends=chaos.models(mine))
    Backing(read("backends.toml"), around=chaos.around)      # all that stands behind the tools of a question source

Each wrapper notes which faults it made in which episode, and what the models behind it were paid for. So one can hold
the episodes against it: one with a fault that hides the answer has failed and is not scored, any other is as it is
without chaos, and the bill is what was paid. envs/testing/chaos_runs.py does that for every environment.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from toolorchestra.envs.base.errors import ConfigError, Outage, no_such
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion, ContextLimits, ask, limits_of
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.retrieval import Hit, Retriever
from toolorchestra.envs.sandbox import Execution, Interpreter
from toolorchestra.envs.tools.assemble import Backends

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

    def next_fault(self, kind: str) -> str:
        """What goes wrong with this call; "" for nothing. Noted."""
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

    def note_paid(self, usage: Usage) -> None:
        """Count what a model was paid for."""
        self.paid.setdefault(EPISODE.get(), []).append(usage)

    async def before(self, fault: str) -> None:
        """What happens before anything is asked."""
        if fault in ("fail", "outage", "exit", "cancel"):
            _raise(fault)
        if fault == "hang":
            await asyncio.sleep(self.seconds)
            raise TimeoutError("chaos: nothing came")
        if fault == "late":
            await asyncio.sleep(self.seconds)

    async def after(self, fault: str) -> None:
        """What happens once the answer is there, and paid."""
        if fault == "drip":
            for _ in range(10):
                await asyncio.sleep(self.seconds / 10)
        if fault == "cut":
            raise ConnectionResetError("chaos: the connection broke off in the middle of the answer")


def _raise(fault: str) -> NoReturn:
    if fault == "outage":
        raise Outage("chaos: the backend is away")
    if fault == "exit":
        raise SystemExit("chaos: a backend that ends the process")
    if fault == "cancel":
        raise asyncio.CancelledError("chaos: a backend that cancels itself")
    raise OSError("chaos: no route to the backend")


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
        fault = self.chaos.next_fault("models")
        await self.chaos.before(fault)
        for _ in range(2 if fault == "twice" else 1):
            completion = await self._paid(request)
        await self.chaos.after(fault)
        if fault == "garble":
            return completion._replace(text=None)  # type: ignore[arg-type]
        return completion

    async def _paid(self, request: ChatRequest) -> Completion:
        bill = request.bill.part()
        completion = await ask(self.inner, replace(request, bill=bill))
        for usage in bill.usages:
            self.chaos.note_paid(usage)
        return completion


class ChaosRetriever:
    """A retriever that behaves like the one inside it, but for the faults that Chaos draws."""

    suspends = True

    def __init__(self, inner: Retriever, chaos: Chaos) -> None:
        self.inner, self.chaos = inner, chaos

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The passages found, or a fault."""
        fault = self.chaos.next_fault("retriever")
        await self.chaos.before(fault)
        for _ in range(2 if fault == "twice" else 1):
            hits = await self.inner.search(query, top_k, bill or Bill())
        await self.chaos.after(fault)
        return None if fault == "garble" else hits  # type: ignore[return-value]


class ChaosInterpreter:
    """An interpreter that behaves like the one inside it, but for the faults that Chaos draws."""

    suspends = True

    def __init__(self, inner: Interpreter, chaos: Chaos) -> None:
        self.inner, self.chaos = inner, chaos

    @property
    def describe(self) -> str:
        return self.inner.describe

    @property
    def item(self) -> str:
        return self.inner.item

    async def run(self, code: str, session: str = "") -> Execution:
        """What the program did, or a fault."""
        fault = self.chaos.next_fault("interpreter")
        await self.chaos.before(fault)
        for _ in range(2 if fault == "twice" else 1):
            done = await self.inner.run(code, session)
        await self.chaos.after(fault)
        return done._replace(stdout=None) if fault == "garble" else done  # type: ignore[arg-type]


class ChaosSampler:
    """An engine that samples a policy's turns, with faults: late samples, and outages. The rest is the engine's own."""

    def __init__(self, inner: Any, chaos: Chaos) -> None:
        self._inner, self._chaos = inner, chaos

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def sample(self, prompt: Sequence[int], params: Any, session: str = "") -> Any:
        """One sampled turn, or a fault."""
        named = EPISODE.set(session)
        try:
            fault = self._chaos.next_fault("sampler")
            if fault in FATAL:
                raise Outage(f"chaos: the sampler is away ({fault})")
            await self._chaos.before(fault)
            sample = await self._inner.sample(prompt, params, session)
            await self._chaos.after(fault)
        finally:
            EPISODE.reset(named)
        return sample
