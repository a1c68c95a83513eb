"""The policies that are served, the requests in flight, and what is known of them. HTTP is server.py's."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.serving.accounts import Accounts, Refused
from toolorchestra.agents.serving.booking import Bookkeeper
from toolorchestra.agents.serving.canary import Canary
from toolorchestra.agents.serving.client_tools import ID_BYTES, PARKED, QUEUED, ClientSession, ClientTools, loop_of
from toolorchestra.agents.serving.openai_api import (
    STEP_CHARACTERS,
    Call,
    ChatBody,
    ChatReply,
    Spoken,
    action_in,
    asked_of,
    conversation,
    part_of,
    problem,
    read_body,
    schemas,
    told_step,
    usage_of,
)
from toolorchestra.agents.serving.solving import Asked, QuestionSolver, Solution, Solving
from toolorchestra.envs.base import preference as preferences
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError, ConfigError, no_such, one_line
from toolorchestra.envs.base.files import append_line
from toolorchestra.envs.base.types import Transcript
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.wrappers.record import trajectory_line

_LOG = logging.getLogger("uvicorn.error")
KEPT = 200
"""Latest requests that the page can show."""
PARKED_A_PLACE = 16
"""Conversations that may wait for their clients, for each request that may run or wait."""
_FILE_BYTES = 64 << 20


@dataclass(frozen=True)
class ServingLimits:
    """What the server allows."""

    most_usd: float = 1.0
    """The most that one request may spend, and what it may spend where it says nothing."""
    at_once: int = 64
    queue: int = 256
    """Requests that wait for a place; more are refused with 429."""
    deadline_seconds: float = 600.0
    session_seconds: float = 300.0
    """How long a conversation waits for the results of the client's own tools."""


@dataclass
class Ended:
    """A request that has ended, as the page lists it."""

    request_id: str
    account: str
    model: str
    policy: str
    ended: str
    seconds: float
    usd: float
    usd_by_role: Mapping[str, float]
    calls: Mapping[str, int]
    failure: str
    right: float | None
    own_tools: frozenset[str]
    """The client's own."""
    at: float = field(default_factory=time.time)
    trajectory: Mapping[str, Any] = field(default_factory=dict, repr=False)


class PolicyService:
    """Answers requests, each within its limits, and books what they cost."""

    def __init__(
        self,
        solvers: Mapping[str, QuestionSolver],
        accounts: Accounts,
        limits: ServingLimits,
        folder: Path | None = None,
        *,
        texts: bool = True,
        canary: Canary | None = None,
    ) -> None:
        """`solvers` by the names they are served under, the first for requests that name none of them."""
        self.solvers, self.accounts, self.limits = dict(solvers), accounts, limits
        self.books = Bookkeeper(accounts)
        self.canary = canary
        self.latest: deque[Ended] = deque(maxlen=KEPT)
        self.on_end: list[Callable[[Ended], None]] = []
        self.draining = False
        self.active = self.waiting = 0
        self._places = asyncio.Semaphore(limits.at_once)
        self._open: set[ClientSession] = set()
        self._late: set[ClientSession] = set()
        """Conversations that have ended while they waited for the client, until they expire."""
        self._ending: set[asyncio.Task[None]] = set()
        self._opening = 0
        self._room = limits.at_once + limits.queue
        self._folder, self._texts = folder, texts
        self._file = 0

    # -- which policy ----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        """Names that a request may ask for: each policy, and each with a kind of preference."""
        return [name if not kind else f"{name}:{kind}" for name in self.solvers for kind in ("", *preferences.kinds())]

    def policy_of(self, model: str) -> tuple[str, str]:
        """The policy and the kind of preference that a model's name stands for."""
        if model in self.solvers:
            return model, ""
        name, _, kind = model.rpartition(":")
        if name in self.solvers and kind in preferences.kinds():
            return name, kind
        raise ConfigError(no_such("model", model, self.models()))

    # -- a request -------------------------------------------------------------------------------------------------

    async def begin(self, data: Mapping[str, Any], account: str) -> ClientSession:
        """Open a request, or go on with the conversation that waits for its results. Raises ConfigError for what
        cannot be read, and Refused for what is not taken."""
        await self._check_open()
        body, ignored = read_body(data)
        spoken = conversation(body.messages)
        if spoken.results and (found := self._resumed(spoken, account, body.keep_experts)):
            return found
        if spoken.results and body.orchestrator_tools != ():
            raise Refused(
                409, "session_gone", "no conversation waits for these results: it has ended, or belongs to another key "
                "or server; begin anew, or send orchestrator_tools=[] to be asked without one"
            )  # fmt: skip
        return await self._opened("chatcmpl", body, spoken, account, ignored)

    async def _check_open(self) -> None:
        if self.draining:
            raise Refused(503, "shutting_down", "the server is shutting down", 5.0)
        await self.books.settled()

    def _check_room(self) -> None:
        parked = sum(one.state == PARKED for one in self._open)
        if len(self._open) + self._opening - parked >= self._room:
            raise Refused(429, "overloaded", f"{self.active} requests run and {self.waiting} wait", 1.0)

    async def _opened(
        self, kind: str, body: ChatBody, spoken: Spoken, account: str, ignored: Sequence[str] = ()
    ) -> ClientSession:
        """A new request, where there is room for it."""
        self._check_room()
        if len(self._open) + len(self._late) >= (PARKED_A_PLACE + 1) * self._room:
            raise Refused(429, "overloaded", f"{len(self._open)} conversations wait for their clients", 1.0)
        request_id = f"{kind}-{secrets.token_hex(ID_BYTES)}"
        client = ClientTools(schemas(body.tools), self.limits.deadline_seconds)
        policy, asked = self._asked(body, spoken, client, request_id)
        self._opening += 1
        try:
            running = await self._granted(request_id, account, asked, policy)
        finally:
            self._opening -= 1
        session = ClientSession(request_id, account, body.model, policy, running, client, time.monotonic(), ignored)
        session.own_alone, session.loop = asked.tools == (), loop_of(spoken.results) or loop_of([request_id])
        self._open.add(session)
        return session

    def _asked(self, body: ChatBody, spoken: Spoken, client: ClientTools, request_id: str) -> tuple[str, Asked]:
        """Give who answers a request, and what it asks. One who answers a loop's first request answers all of it."""
        policy, kind = self.policy_of(body.model)
        if self.canary is not None:
            policy = self.canary.choose(policy, loop_of(spoken.results) or loop_of([request_id]))
        if kind and body.preference is None:
            body = replace(body, preference=kind)
        return policy, asked_of(body, spoken, client.tools, self.limits.most_usd, self.limits.deadline_seconds)

    async def _granted(self, request_id: str, account: str, asked: Asked, policy: str) -> Solving:
        """Set aside what a request may spend, and open its episode. Raises Refused where the key has too little left
        for any call."""
        assert asked.budget_usd is not None
        granted = await self.books.begin(request_id, account, asked.budget_usd)
        try:
            fits = granted == asked.budget_usd
            running = self.solvers[policy].open(asked if fits else replace(asked, budget_usd=granted))
            least = self.solvers[policy].least_usd(running) if granted < asked.budget_usd else 0.0
            if granted < least:
                raise Refused(
                    402, "insufficient_quota", f"the key has {granted:.9f} $ left, and the cheapest call of "
                    f"{policy!r:.60} may cost {least:.9f} $"
                )  # fmt: skip
        except BaseException:
            self.books.end(request_id, 0)
            await self.books.settled()
            raise
        return running

    def _resumed(self, spoken: Spoken, account: str, keep_experts: bool) -> ClientSession | None:
        mine = (one for one in (*self._open, *self._late) if one.state == PARKED and one.account == account)
        found = next((one for one in mine if any(call_id in one.client.waiting for call_id in spoken.results)), None)
        if found is not None:
            self._check_room()
            found.client.take(spoken.results)
            found.offer(keep_experts)
            found.state = QUEUED
            self._late.discard(found)
            if found.expires is not None:
                found.expires.cancel()
        return found

    async def reply(self, session: ClientSession) -> ChatReply:
        """Play on until there is an answer, or calls that the client has to make. Cancelled, it ends the request and
        books what was paid."""
        try:
            async with self._place(session):
                told = await self._replied(session)
            await self.books.settled()
            return told
        except BaseException:
            # In a task of its own: anyio, under the MCP server, cancels again at every await of who was left.
            await asyncio.shield(self._stopping(session, "cancelled"))
            raise

    async def left(self, session: ClientSession) -> None:
        """End a request whose client went away before it was played on."""
        if session.state == QUEUED:
            await self._stop(session, "cancelled")

    @asynccontextmanager
    async def _place(self, session: ClientSession) -> AsyncIterator[None]:
        """One of the places of requests that run, when it is this one's turn."""
        self.waiting += 1
        session.state = QUEUED
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        self.active += 1
        session.state = "runs"
        try:
            yield
        finally:
            self.active -= 1
            self._places.release()

    async def _replied(self, session: ClientSession) -> ChatReply:
        solver, running = self.solvers[session.policy], session.running
        if session.own_alone:
            return await self._moved(session, solver)
        if session.task is None:
            session.task = asyncio.create_task(solver.play(running, lambda e, s: self._step(session, e, s)))
            session.task.add_done_callback(lambda _: self._ran_out(session))
        else:
            session.client.answer()
        called = asyncio.ensure_future(session.client.called.wait()) if session.client.tools else None
        ends: list[asyncio.Future[Any]] = [session.task] if called is None else [session.task, called]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if called is not None:
                called.cancel()
        await asyncio.sleep(0)  # calls of one turn come together
        if session.task.done():
            solution = session.task.result()
            self._end(session, solution)
            return self._told(session, solution, (), solution.ended)
        calls = [call for call, _ in session.client.waiting.values()]
        session.state = PARKED
        loop = asyncio.get_running_loop()
        session.expires = loop.call_later(self.limits.session_seconds, self._expire, session)
        return self._told(session, running.solution("tool_calls"), calls, "tool_calls")

    async def _moved(self, session: ClientSession, solver: QuestionSolver) -> ChatReply:
        """One move of a conversation with the client's tools alone: its next request says everything again."""
        solution = await solver.move(session.running)
        if solution.ended != "moved":
            self._end(session, solution)
            return self._told(session, solution, (), solution.ended)
        action = action_in(session.running.said)
        calls = [Call(f"call_{session.loop}_{secrets.token_hex(4)}", *call) for call in action.calls]
        solution = replace(solution, text=action.said, ended="tool_calls" if calls else "answered")
        self._end(session, solution)
        return self._told(session, solution, calls, solution.ended)

    def _told(self, session: ClientSession, solution: Solution, calls: Sequence[Call], ended: str) -> ChatReply:
        """The reply, with the bill of this part of the conversation."""
        usage, session.told = usage_of(part_of(solution, session.told)), solution
        text, thought = solution.text, ""
        if calls or session.own_alone:
            thought, _, text = action_in(session.running.said)
        return ChatReply(
            session.request_id, session.model, text, calls, ended, usage, session.ignored, solution.failure, thought
        )

    def _step(self, session: ClientSession, episode: Episode, step: Step) -> None:
        if episode.over:  # its end books it
            return
        self.books.spent(session.request_id, episode.ledger.nano_usd)
        if session.watch is not None:
            session.watch(told_step(step))

    def _stopping(self, session: ClientSession, ended: str) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._stop(session, ended))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _stop(self, session: ClientSession, ended: str) -> None:
        """End an episode in the middle, and book what was paid."""
        if session in self._open:
            if session.task is not None:
                session.task.cancel()
                await asyncio.wait({session.task})
            else:
                session.running.settle()
            self._end(session, session.running.solution(ended))
        await self.books.settled()

    def _ran_out(self, session: ClientSession) -> None:
        """End a conversation whose deadline passes while it waits for the client, who may still come to be told."""
        if session.state == PARKED and session.task is not None and not session.task.cancelled():
            self._late.add(session)
            self._end(session, session.task.result())

    def _expire(self, session: ClientSession) -> None:
        session.state = "expires"
        self._late.discard(session)
        self._stopping(session, "expired")

    def _end(self, session: ClientSession, solution: Solution) -> None:
        if session not in self._open:  # ended twice: by a client that has gone, and by the end of the server
            return
        self._open.discard(session)
        self.books.end(session.request_id, session.running.episode.ledger.nano_usd)
        row = self._shown(solution)
        told = {"request": session.request_id, "key": session.account, "model": session.model, "ended": solution.ended}
        if self._folder is not None:
            self._write({**told, **row})
        who = {name: getattr(session, name) for name in ("request_id", "account", "model", "policy")}
        what = {name: getattr(solution, name) for name in ("ended", "usd", "usd_by_role", "calls", "failure", "right")}
        own = frozenset(tool.name for tool in session.client.tools)
        seconds = time.monotonic() - session.began
        ended = Ended(**who, **what, seconds=seconds, own_tools=own, trajectory=row)
        self.latest.append(ended)
        if self.canary is not None:
            self.canary.ended(ended.policy, ended.ended, ended.usd, ended.right, session.loop)
        for listener in self.on_end:
            listener(ended)

    def _shown(self, solution: Solution) -> dict[str, Any]:
        """The trajectory, without its texts where they are left out."""
        left_out = () if self._texts else ("messages", "task", "conversation")
        return {name: value for name, value in solution.trajectory.items() if name not in left_out}

    def _write(self, row: Mapping[str, Any]) -> None:
        assert self._folder is not None
        path = self._folder / f"trajectories-{self._file:04}.jsonl"
        while path.exists() and path.stat().st_size > _FILE_BYTES:
            self._file += 1
            path = self._folder / f"trajectories-{self._file:04}.jsonl"
        try:
            append_line(path, trajectory_line(row))
        except OSError as err:  # the answer is paid, and goes out all the same
            _LOG.error("a trajectory is lost: %s", err)

    # -- watching --------------------------------------------------------------------------------------------------

    def in_flight(self) -> list[dict[str, Any]]:
        """What the page lists of the requests that have not ended, the latest first."""
        rows = []
        for session in sorted(self._open, key=lambda one: one.began, reverse=True):
            episode, seconds = session.running.episode, time.monotonic() - session.began
            names = ("request_id", "account", "model", "policy", "state")
            rows.append({
                **{name: getattr(session, name) for name in names},
                "began": time.time() - seconds,
                "seconds": seconds,
                "usd_by_role": episode.ledger.usd_by_role(),
                "calls": dict(episode.calls),
                "turns": episode.turn,
                "question": question_of(episode.messages) if self._texts else "",
            })  # fmt: skip
        return rows

    def trajectory(self, request_id: str) -> Mapping[str, Any] | None:
        """The trajectory of a request: whole for one of the latest, so far for one in flight."""
        for ended in self.latest:
            if ended.request_id == request_id:
                return ended.trajectory
        for session in self._open:
            if session.request_id == request_id:
                return self._shown(session.running.solution("running"))
        return None

    # -- a decision, and the end -------------------------------------------------------------------------------------

    async def decision(self, data: Mapping[str, Any], account: str) -> dict[str, Any]:
        """Tell which tools the policy would call now. Nothing is called; deciding itself is billed."""
        await self._check_open()
        body, _ = read_body(data)
        session = await self._opened("decision", body, conversation(body.messages), account)
        running, episode = session.running, session.running.episode
        told = {"object": "decision", "model": body.model, "policy": session.policy}
        try:
            async with self._place(session):
                solution = await self.solvers[session.policy].move(running)
            if solution.ended != "moved":
                self._end(session, solution)
                failed = solution.ended == "failed"
                why = problem(solution.failure, "server_error", "failed") if failed else {}
                return {**told, "calls": [], "text": "", "ended": solution.ended, **why, "cost": solution.usd}
            self._end(session, replace(solution, ended="decided"))
            action = parse(running.said)
        except ActionError as err:
            return {**told, "calls": [], "text": one_line(str(err)), "cost": episode.ledger.usd}
        finally:
            await self._stop(session, "cancelled")
        models = {offer.alias: offer.model for tool in episode.world.toolbox for offer in tool.offers}
        calls = [
            {
                "name": call.name,
                "arguments": call.arguments,
                # In a list: a policy may write anything there, also what cannot be hashed.
                **({"model": models[alias]} if (alias := call.arguments.get("model")) in [*models] else {}),
            }
            for call in action.calls
        ]
        said = {"text": action.said, "thought": action.thought}
        return {**told, "calls": calls, **said, "cost": episode.ledger.usd}

    def rate(self, request_id: str, right: bool, account: str) -> None:
        """Note whether an answer was right, as who asked says. Raises Refused for a request that is not known."""
        found = next((one for one in self.latest if one.request_id == request_id and one.account == account), None)
        if found is None:
            raise Refused(404, "not_found", f"no request {request_id!r:.60} of this key among the latest {KEPT}")
        before, found.right = found.right, float(right)
        if self._folder is not None:
            line = {"request": request_id, "right": right}
            append_line(self._folder / "feedback.jsonl", json.dumps(line).encode() + b"\n")
        if self.canary is not None:
            self.canary.rate(found.policy, right, before)

    async def close(self) -> None:
        """End every request that is left, and book what was paid."""
        self.draining = True
        for session in list(self._open):
            await self._stop(session, "cancelled")
        if self._ending:
            await asyncio.wait(self._ending)
        await self.books.close()
        for solver in self.solvers.values():
            await solver.aclose()


def question_of(messages: Transcript) -> str:
    """The head of what was asked."""
    asked = next((message["content"] for message in messages if message["role"] == "user"), "")
    return asked[:STEP_CHARACTERS]
