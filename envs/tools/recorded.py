"""Models, retrieval and the sandbox over a cassette: recorded while live, replayed with nothing behind, or cached.

In a recording a program, and a search, that comes again is not run again: it gives what it gave, at the same charge, so
a replay gives the same bill whatever order things come in. A model's reply is recorded for each request apart, since it
may differ. From a cache nothing is billed: the run that asked first has paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any

from toolorchestra.envs.base.cassette import Cassette, digest
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.models import DEFAULT_LIMITS, ChatModel, ChatRequest, Completion, ContextLimits, limits_of
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.retrieval import CachedHits, Hit, Retriever
from toolorchestra.envs.sandbox import Execution, Interpreter

_ABOUT = "about"
Live = Callable[[], Awaitable[Mapping[str, Any]]]


class _Tape:
    """What the three wrappers share."""

    def __init__(self, kind: str, cassette: Cassette, suspends: bool = False) -> None:
        self.kind, self.cassette, self.suspends = kind, cassette, suspends

    async def play(self, request: Mapping[str, Any], live: Live, *, varies: bool) -> tuple[Mapping[str, Any], bool]:
        """The reply, and whether it comes from a cache. `varies`: the same request may be answered differently."""
        key = digest(self.kind, request)
        if self.cassette.mode == "replay":
            row = self.cassette.next(key) if varies else self.cassette.known(key)
            if row is None:
                raise self.cassette.miss(self.kind, request)
            return _unless_error(row["reply"]), False
        if varies and self.cassette.mode == "record":
            return await self._fresh(key, request, live), False
        while (known := self.cassette.claim(key)) is not None:
            if not isinstance(known, Future):
                cached = self.cassette.mode == "cache"
                return _unless_error(known["reply"], cached), cached
            if self.suspends:
                await asyncio.wrap_future(known)
            else:
                known.result()
        try:
            return await self._fresh(key, request, live), False
        finally:
            self.cassette.release(key)

    async def _fresh(self, key: str, request: Mapping[str, Any], live: Live) -> Mapping[str, Any]:
        try:
            reply = await live()
        except (ToolError, Outage) as err:
            if self.cassette.mode == "record":
                usages = [_usage_out(u) for u in err.usages]
                error = {"error": type(err).__name__, "message": str(err), "usages": usages}
                self.cassette.add(self.kind, key, request, error)
            raise
        self.cassette.add(self.kind, key, request, reply)
        return reply

    def about(self, facts: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What the live backend says of itself, kept with the recording."""
        request = {"of": self.kind}
        key = digest(_ABOUT, request)
        row = self.cassette.known(key)
        if facts is None:
            if row is None:
                raise ConfigError(f"{self.cassette.path} holds no {self.kind} recording; record one with that backend")
            return dict(row["reply"])
        if row is None or row["reply"] != facts:
            self.cassette.add(_ABOUT, key, request, facts)
        return facts


def _unless_error(reply: Mapping[str, Any], cached: bool = False) -> Mapping[str, Any]:
    if "error" in reply:
        made = {"ToolError": ToolError, "Outage": Outage}[reply["error"]]
        raise made(reply["message"], () if cached else [_usage_in(row) for row in reply["usages"]])
    return reply


def _usage_out(usage: Usage) -> dict[str, Any]:
    return {**usage._asdict(), "tokens": list(usage.tokens)}


def _usage_in(row: Mapping[str, Any]) -> Usage:
    return Usage(**{**row, "tokens": Tokens(*row["tokens"])})


class RecordedModels:
    """A chat-model backend over a cassette. `live` may be missing when it is replayed."""

    def __init__(self, live: ChatModel | None, cassette: Cassette, endpoints: Endpoints | None = None) -> None:
        self.live, self._endpoints = live, endpoints
        self.suspends = live is not None and live.suspends and cassette.mode != "replay"
        self._tape = _Tape("model", cassette, self.suspends)

    @property
    def patience_seconds(self) -> float:
        """The live backend's; 0 where there is none, or none that says."""
        return float(getattr(self.live, "patience_seconds", 0.0))

    def limits_of(self, model: str) -> ContextLimits:
        """As the live backend has it; in a replay as the endpoint file has it, so that prompts are the same."""
        if self.live is not None:
            return limits_of(self.live, model)
        return self._endpoints.served(model).shown if self._endpoints is not None else DEFAULT_LIMITS

    async def complete(self, request: ChatRequest) -> Completion:
        """One completion."""
        asked = {
            "model": request.model, "purpose": request.purpose, "role": request.role, "seed": request.seed,
            "attempt": request.attempt, "messages": [dict(m) for m in request.messages],
            "tools": [t["function"]["name"] for t in request.tools],
        }  # fmt: skip

        async def live() -> Mapping[str, Any]:
            if self.live is None:
                raise ConfigError("no live model backend; name endpoints, or replay a cassette")
            done = await self.live.complete(request)
            return {"text": done.text, "usage": _usage_out(done.usage)}

        reply, cached = await self._tape.play(asked, live, varies=True)
        usage = _usage_in(reply["usage"])
        return Completion(reply["text"], Usage(usage.item, usage.role) if cached else usage)


class RecordedRetriever:
    """A retriever over a cassette."""

    def __init__(self, live: Retriever | None, cassette: Cassette, kind: str = "retrieval") -> None:
        self.live = live
        self.suspends = live is not None and live.suspends and cassette.mode != "replay"
        self._tape = _Tape(kind, cassette, self.suspends)

    async def search(self, query: str, top_k: int) -> Sequence[Hit]:
        """The passages found."""

        async def live() -> Mapping[str, Any]:
            if self.live is None:
                raise ConfigError("no live retriever; name an index, or replay a cassette")
            return {"hits": [[asdict(h.passage), h.score] for h in await self.live.search(query, top_k)]}

        reply, cached = await self._tape.play({"query": query, "top_k": top_k}, live, varies=False)
        hits = [Hit(Passage(**passage), score) for passage, score in reply["hits"]]
        return CachedHits(hits) if cached else hits


@dataclass
class _Session:
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
        self._tape = _Tape("program", cassette, self.suspends)
        keeps = bool(getattr(live, "sessions", False))
        facts = None if live is None else {"describe": live.describe, "item": live.item, "sessions": keeps}
        self._about = self._tape.about(facts if cassette.mode != "replay" else None)
        self._sessions: dict[str, _Session] = {}

    @property
    def describe(self) -> str:
        return str(self._about["describe"])

    @property
    def item(self) -> str:
        return str(self._about["item"])

    async def run(self, code: str, session: str = "") -> Execution:
        """What the program gave."""
        asked = {"code": code}
        kept, number = _Session(), 0
        if self._about["sessions"] and session:
            kept = self._sessions.setdefault(session, kept)
            asked["before"] = kept.before
            kept.before = digest("before", asked)
            number = kept.ask(code)

        async def live() -> Mapping[str, Any]:
            if self.live is None:
                raise ConfigError("no live sandbox; name one, or replay a cassette")
            return (await _last_of(self.live, [*kept.take(number), code], session))._asdict()

        reply, cached = await self._tape.play(asked, live, varies=False)
        done = Execution(**reply)
        return done._replace(seconds=0.0) if cached else done


async def _last_of(live: Interpreter, programs: Sequence[str], session: str) -> Execution:
    """Run programs of a session in their order; what the last one gave."""
    if not live.suspends:
        for code in programs[:-1]:
            await live.run(code, session)
        return await live.run(programs[-1], session)
    # Ordered all at once, so that no later program of the session comes in between.
    return (await asyncio.gather(*(live.run(code, session) for code in programs)))[-1]
