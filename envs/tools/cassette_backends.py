"""Models, retrieval and the sandbox over a cassette: recorded while live, replayed with nothing behind, or cached.

In a recording a program, and a search, that comes again is not run again, unless it met an outage: it gives what it
gave, at the same charge, so a replay gives the same bill whatever order things come in. A model's reply is recorded for
each request apart, since it may differ. From a cache nothing is billed: the run that asked first has paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.models import (
    DEFAULT_LIMITS,
    ChatModel,
    ChatRequest,
    Completion,
    ContextLimits,
    ask,
    limits_of,
    output_tokens_of,
)
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.simulated import SimulatedModels
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.retrieval import CachedHits, Hit, Retriever, items_of, source_of
from toolorchestra.envs.sandbox import Execution, Interpreter

_ABOUT = "about"
_LEFT_OUT = ("usages", "error", "message", "cut", "simulated")
"""Not written where there is nothing to say."""
Kept = TypeVar("Kept", bound="RecordedReply")
Told = TypeVar("Told")
Live = Callable[[], Awaitable[Kept]]


@dataclass(frozen=True)
class RecordedReply:
    """What a cassette holds of any reply: what was booked, and the error that it was, if it was one."""

    usages: tuple[Usage, ...] = ()
    error: Literal["ToolError", "Outage"] | None = None
    message: str = ""


class TapedRequest(NamedTuple):
    """A request as a tape knows it."""

    asked: Mapping[str, Any]
    varies: bool = False
    """Whether the same request may be answered differently."""
    settings: str = ""
    """Digest of what else was sent. A replay prefers a recording of the same, but a price sheet may bill what was
    recorded under another."""
    source: str = ""
    """Digest of who answers. It tells a cache's rows apart, and no replay's, which may have nothing behind it."""
    formerly: Mapping[str, Any] | None = None
    """The same as an earlier version asked it, for recordings of that."""

    @property
    def beside(self) -> dict[str, Any]:
        """What its row says beside it."""
        told = {"settings": self.settings, "source": self.source}
        return {name: value for name, value in told.items() if value}


class Tape:
    """One kind of request over a cassette."""

    def __init__(self, kind: str, cassette: Cassette, suspends: bool = False) -> None:
        self.kind, self.cassette, self.suspends = kind, cassette, suspends

    async def play(self, shape: type[Kept], request: TapedRequest, live: Live[Kept], bill: Bill) -> tuple[Kept, bool]:
        """The reply, and whether it comes from a cache. What a live call books on `bill`, a part of its caller's, is
        recorded with it; what a replayed one booked is booked there again."""
        if self.cassette.mode == "replay":
            row = self._recorded(request, request.asked)
            if row is None and request.formerly is not None:
                row = self._recorded(request, request.formerly)
            if row is None:
                raise self.cassette.miss(self.kind, request.asked)
            return self._again(shape, row["reply"], bill), False
        if request.varies and self.cassette.mode == "record":
            return await self._fresh(request, live, bill), False
        key = self.cassette.place(digest(self.kind, request.asked), request.beside)
        while (known := self.cassette.claim(key)) is not None:
            if not isinstance(known, Future):
                cached = self.cassette.mode == "cache" and not self.cassette.owes(key)
                return self._again(shape, known["reply"], Bill() if cached else bill), cached
            if self.suspends:
                await asyncio.wrap_future(known)
            else:
                known.result()
        try:
            return await self._fresh(request, live, bill), False
        finally:
            self.cassette.release(key)

    def _recorded(self, request: TapedRequest, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
        key = digest(self.kind, asked)
        return self.cassette.next(key, request.settings) if request.varies else self.cassette.lasting(key)

    async def _fresh(self, request: TapedRequest, live: Live[Kept], bill: Bill) -> Kept:
        key, beside = digest(self.kind, request.asked), request.beside
        if self.cassette.mode == "record":
            beside["number"] = next(self.cassette.numbers)  # replies come in another order than requests went out
        try:
            made = await live()
        except (ToolError, Outage) as err:
            if self.cassette.mode == "record":
                error = {"error": type(err).__name__, "message": str(err), **_booked_on(bill)}
                self.cassette.keep(self.kind, key, request.asked, error, **beside)
            raise
        said = {name: part for name, part in asdict(made).items() if part or name not in _LEFT_OUT}
        self.cassette.keep(self.kind, key, request.asked, {**said, **_booked_on(bill)}, **beside)
        return made

    def _again(self, shape: type[Kept], reply: Mapping[str, Any], bill: Bill) -> Kept:
        made = self._read(shape, reply)
        for usage in made.usages:
            bill.add(usage)
        if made.error:
            raise {"ToolError": ToolError, "Outage": Outage}[made.error](made.message)
        return made

    def _read(self, shape: type[Told], reply: object) -> Told:
        return shapes.read(shape, reply, f"cassette {self.cassette.path}, a recorded {self.kind} reply")

    @property
    def knows_about(self) -> bool:
        """Whether the live backend said something of itself."""
        return self.cassette.first(digest(_ABOUT, {"of": self.kind})) is not None

    def about(self, shape: type[Told], facts: Mapping[str, Any] | None) -> Told:
        """What the live backend says of itself, kept with the recording; of a replay, what it said."""
        request = {"of": self.kind}
        key = digest(_ABOUT, request)
        row = self.cassette.first(key)
        if facts is None:
            if row is None:
                raise ConfigError(f"{self.cassette.path} holds no {self.kind} recording; record one with that backend")
            return self._read(shape, row["reply"])
        if row is None or row["reply"] != facts:
            self.cassette.keep(_ABOUT, key, request, facts)
        return self._read(shape, facts)


def _booked_on(bill: Bill) -> dict[str, Any]:
    rows = [{**used._asdict(), "tokens": list(used.tokens)} for used in bill.usages]
    told = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return {"usages": told} if told else {}


@dataclass(frozen=True)
class _RecordedText(RecordedReply):
    text: str = ""
    cut: bool = False
    simulated: bool = False
    """Whether a simulated model gave it."""


@dataclass(frozen=True)
class _RecordedHits(RecordedReply):
    hits: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class _RecordedEnd(RecordedReply):
    """How a program ended."""

    stdout: str = ""
    stderr: str = ""
    exit_status: int = 0
    seconds: float = 0.0


class RecordedModels:
    """A chat-model backend over a cassette. `live` may be missing when it is replayed."""

    def __init__(self, live: ChatModel | None, cassette: Cassette, endpoints: Endpoints | None = None) -> None:
        self.live, self._endpoints = live, endpoints
        self.suspends = live is not None and live.suspends and cassette.mode != "replay"
        self._tape = Tape("model", cassette, self.suspends)

    @property
    def patience_seconds(self) -> float:
        """The live backend's; 0 where there is none, or none that says."""
        return float(getattr(self.live, "patience_seconds", 0.0))

    def output_tokens_of(self, model: str) -> int:
        """The most tokens that a reply may have, by the live backend or the endpoint file; 0: nobody knows."""
        if self.live is not None:
            return output_tokens_of(self.live, model, 0)
        named = self._endpoints
        return named.served(model).output_tokens if named is not None and named.names(model) else 0

    def limits_of(self, model: str) -> ContextLimits:
        """Limits as the live backend has it; in a replay as the endpoint file has it, so that prompts are the same."""
        if self.live is not None:
            return limits_of(self.live, model)
        named = self._endpoints
        return named.served(model).shown if named is not None and named.names(model) else DEFAULT_LIMITS

    async def complete(self, request: ChatRequest) -> Completion:
        """The model's reply: the recorded one if this was asked before, else the live one, which is then recorded."""
        bill = request.bill.part()

        async def live() -> _RecordedText:
            if self.live is None:
                raise ConfigError("no live model backend; name endpoints, or replay a cassette")
            said = await ask(self.live, replace(request, bill=bill))
            who = self.live.of(request.model) if hasattr(self.live, "of") else self.live
            return _RecordedText(text=said.text, cut=said.cut, simulated=isinstance(who, SimulatedModels))

        reply, cached = await self._tape.play(_RecordedText, self._taped(request), live, bill)
        used = Usage(request.model, request.role) if cached or not bill.usages else bill.usages[-1]
        return Completion(reply.text, used, reply.cut, booked=True)

    def _taped(self, request: ChatRequest) -> TapedRequest:
        before = None if request.formerly is None else _asked(request.formerly)
        return TapedRequest(_asked(request), True, _settings(request), self._source(request.model), before)

    def _source(self, model: str) -> str:
        """Digest of how the endpoint file has a model; "" where nothing but its name."""
        if self._endpoints is None or not self._endpoints.names(model):
            return ""
        served = self._endpoints.served(model)
        told = {
            "model": "" if served.model == model else served.model, "temperature": served.temperature,
            "native_tools": served.native_tools, "extra": served.extra or None,
        }  # fmt: skip
        return digest(told) if any(value not in ("", None) for value in told.values()) else ""


def _asked(request: ChatRequest) -> dict[str, Any]:
    asked = {
        "model": request.model, "purpose": request.purpose, "role": request.role, "seed": request.seed,
        "attempt": request.attempt, "messages": [dict(m) for m in request.messages],
        "tools": [t["function"]["name"] for t in request.tools],
    }  # fmt: skip
    if request.images:
        asked["images"] = [digest(url) for url in request.images]
    return asked


def _settings(request: ChatRequest) -> str:
    """Digest of the tools' schemas and of how the reply is drawn; "" where nothing is said of either."""
    told = (list(request.tools), request.temperature, request.native_tools, request.most_output_tokens)
    return "" if told == ([], None, False, 0) else digest(told)


@dataclass(frozen=True)
class _RecordedIndex:
    """What a retriever says of itself: the price sheet's items that a search may use."""

    items: tuple[str, ...]


class RecordedRetriever:
    """A retriever over a cassette."""

    def __init__(self, live: Retriever | None, cassette: Cassette, kind: str = "retrieval") -> None:
        self.live = live
        self.suspends = live is not None and live.suspends and cassette.mode != "replay"
        self._tape = Tape(kind, cassette, self.suspends)
        self.items = items_of(live)
        self._source = source_of(live)
        if self.items and cassette.mode != "replay":
            self._tape.about(_RecordedIndex, {"items": list(self.items)})
        elif live is None and self._tape.knows_about:
            self.items = self._tape.about(_RecordedIndex, None).items

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The passages found for a query, from the cassette or from the live retriever."""
        part = (bill or Bill()).part()

        async def live() -> _RecordedHits:
            if self.live is None:
                raise ConfigError("no live retriever; name an index, or replay a cassette")
            return _RecordedHits(hits=tuple(await self.live.search(query, top_k, part)))

        request = TapedRequest({"query": query, "top_k": top_k}, source=self._source)
        reply, cached = await self._tape.play(_RecordedHits, request, live, part)
        return CachedHits(reply.hits) if cached else list(reply.hits)


@dataclass(frozen=True)
class _InterpreterFacts:
    """What an interpreter says of itself."""

    describe: str
    item: str
    sessions: bool
    has_folder: bool = False


@dataclass
class _InterpreterSession:
    """What was asked of an interpreter in one session."""

    before: str = ""
    """A digest of its programs so far."""
    asked: int = 0
    unrun: dict[int, str] = field(default_factory=dict)
    """The programs that the interpreter has not seen, since the tape answered them, by their number."""

    def take(self, number: int) -> list[str]:
        """What the interpreter has to run before a program; with it, none of them is asked for again."""
        earlier = [self.unrun.pop(n) for n in sorted(self.unrun) if n < number]
        self.unrun.pop(number, None)
        return earlier


class RecordedInterpreter:
    """An interpreter over a cassette. A session's programs are told apart by what ran before them in it. One that the
    tape does not know is run after those of its session that it knew, which are neither billed nor recorded again."""

    def __init__(self, live: Interpreter | None, cassette: Cassette) -> None:
        self.live = live
        self.suspends = live is not None and live.suspends and cassette.mode != "replay"
        self._tape = Tape("program", cassette, self.suspends)
        keeps = bool(getattr(live, "sessions", False))
        facts = None if live is None else {"describe": live.describe, "item": live.item, "sessions": keeps}
        if facts is not None and getattr(live, "has_folder", False):
            facts["has_folder"] = True
        self._about = self._tape.about(_InterpreterFacts, facts if cassette.mode != "replay" else None)
        self.has_folder = self._about.has_folder
        self._sessions: dict[str, _InterpreterSession] = {}

    def end_session(self, session: str) -> None:
        """Forgets what was kept for an episode's session, and tells the live interpreter that the session has ended."""
        self._sessions.pop(session, None)
        end = getattr(self.live, "end_session", None)
        if end is not None:
            end(session)

    @property
    def describe(self) -> str:
        return self._about.describe

    @property
    def item(self) -> str:
        return self._about.item

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """What a program gave, from the cassette or from the live interpreter."""
        asked, part = {"code": code}, (bill or Bill()).part()
        kept, number = _InterpreterSession(), 0
        if self._about.sessions and session:
            kept = self._sessions.setdefault(session, kept)
            asked["before"] = kept.before
            kept.before = digest("before", asked)
            number = kept.asked = kept.asked + 1
            kept.unrun[number] = code  # until it is known whether the tape answers it

        async def live() -> _RecordedEnd:
            if self.live is None:
                raise ConfigError("no live sandbox; name one, or replay a cassette")
            done = await _last_of(self.live, [*kept.take(number), code], session, part)
            return _RecordedEnd(**done._asdict())

        reply, cached = await self._tape.play(_RecordedEnd, TapedRequest(asked), live, part)
        return Execution(reply.stdout, reply.stderr, reply.exit_status, 0.0 if cached else reply.seconds)


async def _last_of(live: Interpreter, programs: Sequence[str], session: str, bill: Bill) -> Execution:
    """Run programs of a session in their order; what the last one gave, and what it has used without giving it."""
    if not live.suspends:
        for code in programs[:-1]:
            await live.run(code, session)
        return await live.run(programs[-1], session, bill)
    # Ordered all at once, so that no later program of the session comes in between.
    earlier = [live.run(code, session) for code in programs[:-1]]
    return (await asyncio.gather(*earlier, live.run(programs[-1], session, bill)))[-1]
