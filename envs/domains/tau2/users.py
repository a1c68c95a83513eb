"""Who the agent talks to. A user hears the conversation as its own side sees it, and speaks or uses its own tools.

Three kinds: `replay` repeats a recorded trajectory's turns, `scripted` follows rules (for plumbing and tests, never for
reported scores; see scripted.py), `llm` is a model with the benchmark's own guidelines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from toolorchestra.envs.base.actions import CLOSE, MAX_CALLS, UNTHINK, parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.domains.tau2.conversation_log import Entry, seen_by
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.hired_models import BilledModel
from toolorchestra.envs.domains.tau2.prompts import guidelines_digest, unlike_the_release, user_message
from toolorchestra.envs.domains.tau2.task import Tau2Task
from toolorchestra.envs.models import ChatModel, ChatRequest, ask
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import USER

STOPS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""A user's message that holds one of these ends the conversation. From an agent they are plain text."""
STOPPED = ("user_stop", "agent_stop")
"""Ends that are graded; every other is worth 0."""
USER_ERROR = "user_error"
"""Ends a conversation whose user said nothing at all, again and again."""
_APART = 1000
"""How far the attempt numbers of one move's repetitions lie apart, so that each is asked with a seed of its own."""


class Tau2UserReply(NamedTuple):
    """A user's next move: calls of its own tools, or else words to the agent."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    beside: str = ""
    """Text beside the calls: only the user itself sees it again."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it, neither calls nor words."""
        return not (self.calls or self.text.strip())


def understood(text: str) -> Tau2UserReply:
    """A model's reply as the benchmark takes it: calls that can be read are calls, and everything else is words, stray
    tags included."""
    try:
        move = parse(text)
    except ActionError:
        if text.count(CLOSE) > MAX_CALLS and (calls := _one_by_one(text)):
            return Tau2UserReply("", calls)
        return Tau2UserReply("" if text.rstrip().endswith(UNTHINK) else text)
    if move.calls:
        return Tau2UserReply("", move.calls, beside=move.said)
    return Tau2UserReply(move.said if move.thought else text)


def _one_by_one(text: str) -> tuple[ToolCall, ...]:
    """More calls than an agent may make in one turn, which a user may; none where anything cannot be read."""
    *calls, tail = text.split(CLOSE)
    try:
        moves = [parse(f"{call}{CLOSE}") for call in calls]
    except ActionError:
        return ()
    return () if tail.strip() else tuple(call for move in moves for call in move.calls)


class RunEnds(Exception):
    """A recorded run was cut off here, not stopped. Its text is the recorded reason."""


class User(Protocol):
    """The user of one episode."""

    @property
    def suspends(self) -> bool:
        """Whether it waits for I/O."""

    @property
    def bills(self) -> tuple[str, ...]: ...

    @property
    def model(self) -> ChatModel | None:
        """Who plays it, if a model does."""

    @property
    def described(self) -> Mapping[str, Any]:
        """What results should say of it: its kind, model and prompt."""

    async def reply(self, log: Sequence[Entry], seed: int, bill: Bill | None = None, again: int = 0) -> Tau2UserReply:
        """The next move; `again` counts the empty ones just before it. What it costs goes on the bill. An exception is
        an outage: it fails the episode."""


class ReplayUser:
    """Repeats the user's turns of a recording, in order, whatever the agent says."""

    suspends = False
    bills: tuple[str, ...] = ()
    model = None

    def __init__(self, turns: Sequence[Tau2UserReply], sim_id: str, ended: str) -> None:
        self._turns: list[Tau2UserReply] = [*reversed(turns)]
        self._ended = ended
        self.described = {"kind": "replay", "recording": sim_id}

    async def reply(self, log: Sequence[Entry], seed: int, bill: Bill | None = None, again: int = 0) -> Tau2UserReply:
        del log, seed, bill, again
        if not self._turns and self._ended not in STOPPED:
            raise RunEnds(self._ended)
        if not self._turns:
            raise RuntimeError("the recorded user has no turn left: the agent went on beyond its recording")
        return self._turns.pop()


class Tau2ModelUser:
    """A model that plays the customer after the benchmark's guidelines, its spending billed as the user's."""

    def __init__(self, domain: Tau2Domain, plan: Tau2Task, hired: BilledModel) -> None:
        self._hired = hired
        self.suspends = hired.model.suspends
        self.bills = (hired.item,)
        self.model = hired.model
        self._system = Message(role="system", content=user_message(domain, plan))
        self._tools = _schemas(domain)
        settings = {**hired.settings, **unlike_the_release(domain.release)}
        guidelines = guidelines_digest(domain, settings)
        self.described = {"kind": "llm", "model": hired.item, "guidelines": guidelines, **settings}

    async def reply(self, log: Sequence[Entry], seed: int, bill: Bill | None = None, again: int = 0) -> Tau2UserReply:
        messages = (self._system, *seen_by("user", log))
        attempt = len(log) + again * _APART
        request = ChatRequest(
            self._hired.item, "user", messages, seed, attempt, tools=self._tools, role=USER, bill=bill or Bill()
        )
        return understood((await ask(self._hired.model, request)).text)


@lru_cache(maxsize=32)
def _schemas(domain: Tau2Domain) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in domain.user_tools
    )
