"""Models, retrieval and the sandbox over a cassette: recorded while live, replayed with nothing behind, or cached.

In a recording a program, and a search, that comes again is not run again: it gives what it gave, at the same charge, so
a replay gives the same bill whatever order things come in. A model's reply is recorded for each request apart, since it
may differ. From a cache nothing is billed: the run that asked first has paid.
"""

from __future__ import annotations

import asyncio
import math
import numbers
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.cassette import SIMULATED, Cassette
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.models import DEFAULT_LIMITS, ChatModel, ChatRequest, Completion, ContextLimits, ask, limits_of
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.simulated import SimulatedModels
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.retrieval import CachedHits, Hit, Retriever, items_of
from toolorchestra.envs.sandbox import Execution, Interpreter

_ABOUT = "about"
Live = Callable[[], Awaitable[Mapping[str, Any]]]


class Tape:
    """One kind of request over a cassette."""

    def __init__(self, kind: str, cassette: Cassette, suspends: bool = False) -> None:
        self.kind, self.cassette, self.suspends = kind, cassette, suspends

    async def play(
        self, request: Mapping[str, Any], live: Live, bill: Bill, *, varies: bool
    ) -> tuple[Mapping[str, Any], bool]:
        """The reply, and whether it comes from a cache. `varies`: the same request may be answered differently. What a
        live call books on `bill`, a part of its caller's, is recorded with it; what a replayed one booked is booked
        there again."""
        key = digest(self.kind, request)
        if self.cassette.mode == "replay":
            row = self.cassette.next(key) if varies else self.cassette.first(key)
            if row is None:
                raise self.cassette.miss(self.kind, request)
            return self._unless_error(row["reply"], bill), False
        if varies and self.cassette.mode == "record":
            return await self._fresh(key, request, live, bill), False
        while (known := self.cassette.claim(key)) is not None:
            if not isinstance(known, Future):
                cached = self.cassette.mode == "cache" and not self.cassette.owes(key)
                return self._unless_error(known["reply"], Bill() if cached else bill), cached
            if self.suspends:
                await asyncio.wrap_future(known)
            else:
                known.result()
        try:
            return await self._fresh(key, request, live, bill), False
        finally:
            self.cassette.release(key)

    async def _fresh(self, key: str, request: Mapping[str, Any], live: Live, bill: Bill) -> Mapping[str, Any]:
        try:
            reply = {**await live(), **_booked_on(bill)}
        except (ToolError, Outage) as err:
            if self.cassette.mode == "record":
                error = {"error": type(err).__name__, "message": str(err), **_booked_on(bill)}
                self.cassette.keep(self.kind, key, request, error)
            raise
        self.cassette.keep(self.kind, key, request, reply)
        return reply

    def _unless_error(self, reply: Mapping[str, Any], bill: Bill) -> Mapping[str, Any]:
        with self.reading():
            one = [reply[key] for key in ("usage",) if key in reply]  # before there were more
            usages = [_usage_in(row) for row in reply.get("usages") or one]
            kind = {"ToolError": ToolError, "Outage": Outage}[reply["error"]] if "error" in reply else None
            message = _text(reply["message"]) if kind else ""
        for usage in usages:
            bill.add(usage)
        if kind:
            raise kind(message)
        return reply

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A recording of another shape than this suite writes is one sentence, whatever is wrong with it."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as err:
            raise ConfigError(
                f"cassette {self.cassette.path}: a recorded {self.kind} reply is not as it was written "
                f"({type(err).__name__}: {err!s:.100}); record it anew"
            ) from None

    def about(self, facts: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What the live backend says of itself, kept with the recording."""
        request = {"of": self.kind}
        key = digest(_ABOUT, request)
        row = self.cassette.first(key)
        if facts is None:
            if row is None:
                raise ConfigError(f"{self.cassette.path} holds no {self.kind} recording; record one with that backend")
            return dict(row["reply"])
        if row is None or row["reply"] != facts:
            self.cassette.keep(_ABOUT, key, request, facts)
        return facts


def _booked_on(bill: Bill) -> dict[str, Any]:
    return {"usages": [{**u._asdict(), "tokens": list(u.tokens)} for u in bill.usages]} if bill.usages else {}


def _usage_in(row: Any) -> Usage:
    """A recorded usage. Raises what a row of another shape makes it raise."""
    into, cached, out, thought = row["tokens"]
    made = Usage(**{**row, "tokens": Tokens(into, cached, out, thought)})
    counts = (*made.tokens, made.units)
    if not (type(made.item) is type(made.role) is str and all(type(n) is int and n >= 0 for n in counts)):
        raise TypeError("a usage has an item, a role, and counts from 0 up")
    if not (isinstance(made.seconds, int | float) and 0 <= made.seconds < math.inf):
        raise TypeError("seconds are a number from 0 up")
    return made


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text expected, got {type(value).__name__}")
    return value


def _hit(row: Any) -> Hit:
    passage, score = row
    if not (isinstance(score, numbers.Real) and all(isinstance(part, str) for part in passage.values())):
        raise TypeError("a hit is a passage of texts with a number")
    return Hit(Passage(**passage), score)  # type: ignore[arg-type]


def _execution(row: Any) -> Execution:
    made = Execution(_text(row["stdout"]), _text(row["stderr"]), row["exit_status"], row["seconds"])
    if not (type(made.exit_status) is int and isinstance(made.seconds, int | float) and 0 <= made.seconds < math.inf):
        raise TypeError("a program ends with a whole number, after seconds from 0 up")
    return made


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

    def limits_of(self, model: str) -> ContextLimits:
        """Limits as the live backend has it; in a replay as the endpoint file has it, so that prompts are the same."""
        if self.live is not None:
            return limits_of(self.live, model)
        return self._endpoints.served(model).shown if self._endpoints is not None else DEFAULT_LIMITS

    async def complete(self, request: ChatRequest) -> Completion:
        """The model's reply: the recorded one if this was asked before, else the live one, which is then recorded."""
        asked = {
            "model": request.model, "purpose": request.purpose, "role": request.role, "seed": request.seed,
            "attempt": request.attempt, "messages": [dict(m) for m in request.messages],
            "tools": [t["function"]["name"] for t in request.tools],
        }  # fmt: skip

        bill = request.bill.part()

        async def live() -> Mapping[str, Any]:
            if self.live is None:
                raise ConfigError("no live model backend; name endpoints, or replay a cassette")
            said = await ask(self.live, replace(request, bill=bill))
            marks = {"cut": said.cut, SIMULATED: isinstance(self.live, SimulatedModels)}
            return {"text": said.text, **{name: True for name, holds in marks.items() if holds}}

        reply, cached = await self._tape.play(asked, live, bill, varies=True)
        free = Usage(request.model, request.role)
        with self._tape.reading():
            text = _text(reply["text"])
        used = free if cached or not bill.usages else bill.usages[-1]
        return Completion(text, used, reply.get("cut") is True, booked=True)


class RecordedRetriever:
    """A retriever over a cassette."""

    def __init__(self, live: Retriever | None, cassette: Cassette, kind: str = "retrieval") -> None:
        self.live = live
        self.suspends = live is not None and live.suspends and cassette.mode != "replay"
        self._tape = Tape(kind, cassette, self.suspends)
        self.items = items_of(live) or self._recorded_items()
        if live is not None and self.items and cassette.mode != "replay":
            self._tape.about({"items": list(self.items)})

    def _recorded_items(self) -> tuple[str, ...]:
        row = self._tape.cassette.first(digest(_ABOUT, {"of": self._tape.kind}))
        if self.live is not None or row is None:
            return ()
        with self._tape.reading():
            return tuple(_text(item) for item in row["reply"]["items"])

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The passages found for a query, from the cassette or from the live retriever."""
        part = (bill or Bill()).part()

        async def live() -> Mapping[str, Any]:
            if self.live is None:
                raise ConfigError("no live retriever; name an index, or replay a cassette")
            hits = await self.live.search(query, top_k, part)
            return {"hits": [[asdict(h.passage), h.score] for h in hits]}

        reply, cached = await self._tape.play({"query": query, "top_k": top_k}, live, part, varies=False)
        with self._tape.reading():
            hits = [_hit(row) for row in reply["hits"]]
        return CachedHits(hits) if cached else hits


@dataclass
class _InterpreterSession:
    """What was asked of an interpreter in one session."""

    before: str = ""
    """A digest of its programs so far."""
    asked: int = 0
    unrun: dict[int, str] = field(default_factory=dict)
    """The programs that the interpreter has not seen, since the tape answered them, by their number."""

    def ask(self, code: str) -> int:
        """Keep a program until it is known whether the tape answers it. Gives its number."""
        self.asked += 1
        self.unrun[self.asked] = code
        return self.asked

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
        about = self._tape.about(facts if cassette.mode != "replay" else None)
        with self._tape.reading():
            self._describe, self._item = _text(about["describe"]), _text(about["item"])
            self._keeps = bool(about["sessions"])
            self.has_folder = about.get("has_folder") is True
        self._sessions: dict[str, _InterpreterSession] = {}

    def end_session(self, session: str) -> None:
        """Forgets what was kept for an episode's session, and tells the live interpreter that the session has ended."""
        self._sessions.pop(session, None)
        end = getattr(self.live, "end_session", None)
        if end is not None:
            end(session)

    @property
    def describe(self) -> str:
        return self._describe

    @property
    def item(self) -> str:
        return self._item

    async def run(self, code: str, session: str = "") -> Execution:
        """What a program gave, from the cassette or from the live interpreter."""
        asked = {"code": code}
        kept, number = _InterpreterSession(), 0
        if self._keeps and session:
            kept = self._sessions.setdefault(session, kept)
            asked["before"] = kept.before
            kept.before = digest("before", asked)
            number = kept.ask(code)

        async def live() -> Mapping[str, Any]:
            if self.live is None:
                raise ConfigError("no live sandbox; name one, or replay a cassette")
            return (await _last_of(self.live, [*kept.take(number), code], session))._asdict()

        reply, cached = await self._tape.play(asked, live, Bill(), varies=False)
        with self._tape.reading():
            done = _execution(reply)
        return done._replace(seconds=0.0) if cached else done


async def _last_of(live: Interpreter, programs: Sequence[str], session: str) -> Execution:
    """Run programs of a session in their order; what the last one gave."""
    if not live.suspends:
        for code in programs[:-1]:
            await live.run(code, session)
        return await live.run(programs[-1], session)
    # Ordered all at once, so that no later program of the session comes in between.
    return (await asyncio.gather(*(live.run(code, session) for code in programs)))[-1]
