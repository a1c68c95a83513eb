"""Who the agent talks to. A user hears the conversation as its own side sees it, and speaks or uses its own tools.

Three kinds: `replay` repeats a recorded trajectory's turns, `scripted` follows rules (for plumbing and tests, never for
reported scores; see scripted.py), `llm` is a model with the benchmark's own guidelines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError, Outage
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.domains.tau2.conversation_log import Entry, seen_by
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.judge import BilledModel
from toolorchestra.envs.domains.tau2.prompts import guidelines_digest, user_message
from toolorchestra.envs.domains.tau2.task import Tau2Task
from toolorchestra.envs.models import ChatModel, ChatRequest
from toolorchestra.envs.money.prices import USER, Usage
from toolorchestra.envs.money.spend_cap import SpendCap

STOPS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""A user's message that holds one of these ends the conversation. From an agent they are plain text."""
STOPPED = ("user_stop", "agent_stop")
"""Ends that are graded; every other is worth 0."""


class Tau2UserReply(NamedTuple):
    """A user's next move: calls of its own tools, or else words to the agent."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usages: tuple[Usage, ...] = ()


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
    def described(self) -> Mapping[str, str]:
        """What results should say of it: its kind, model and prompt."""

    async def reply(self, log: Sequence[Entry], seed: int, spend_cap: SpendCap | None = None) -> Tau2UserReply:
        """The next move. An exception is an outage: it fails the episode."""


class ReplayUser:
    """Repeats the user's turns of a recording, in order, whatever the agent says."""

    suspends = False
    bills: tuple[str, ...] = ()
    model = None

    def __init__(self, turns: Sequence[Tau2UserReply], sim_id: str, ended: str) -> None:
        self._turns: list[Tau2UserReply] = [*reversed(turns)]
        self._ended = ended
        self.described = {"kind": "replay", "recording": sim_id}

    async def reply(self, log: Sequence[Entry], seed: int, spend_cap: SpendCap | None = None) -> Tau2UserReply:
        del log, seed, spend_cap
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
        self.described = {"kind": "llm", "model": hired.item, "guidelines": guidelines_digest(bool(domain.user_tools))}

    async def reply(self, log: Sequence[Entry], seed: int, spend_cap: SpendCap | None = None) -> Tau2UserReply:
        messages = (self._system, *seen_by("user", log))
        request = ChatRequest(
            self._hired.item, "user", messages, seed, len(log), tools=self._tools, role=USER, spend_cap=spend_cap
        )
        completion = await self._hired.model.complete(request)
        try:
            move = parse(completion.text)
        except ActionError as err:
            wrote = f"the user's model wrote what cannot be read ({err}): {completion.text!r:.200}"
            raise Outage(wrote, (completion.usage,)) from None
        return Tau2UserReply("" if move.calls else move.said, move.calls, (completion.usage,))


@lru_cache(maxsize=32)
def _schemas(domain: Tau2Domain) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in domain.user_tools
    )
