"""Users: the other side that the agent talks to. A user hears the conversation as its own side sees it, and speaks or
uses its own tools.

Three kinds: `replay` repeats a recorded trajectory's turns, `scripted` follows rules (for plumbing and tests, never for
reported scores), `llm` is a model with the benchmark's own guidelines.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.base.actions import CLOSE, MAX_CALLS, UNTHINK, parse
from toolorchestra.envs.base.errors import ActionError, ConfigError
from toolorchestra.envs.base.python_source import parsed_expression
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.task import Done, Entry, Said, Tau2Task, seen_by
from toolorchestra.envs.domains.tau2.user_and_judge_models import BilledModel
from toolorchestra.envs.models import ChatModel, ChatRequest, ask
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import USER

GREETING = Said("assistant", "Hi! How can I help you today?")
"""What the benchmark's agent says before it is asked anything."""
_GUIDELINES = ("simulation_guidelines.md", "simulation_guidelines_tools.md")
_NO_PERSONA = "<PERSONA_GUIDELINES>"
"""Where upstream puts a persona that is chosen at run time; none is, as there by default."""
_PLACEHOLDER = re.compile(r"<[A-Z]+(?:_[A-Z]+)+>|\{\{?\w+\}\}?")
_TICKET = "<ticket>"


@lru_cache(maxsize=32)
def agent_message(domain: Tau2Domain, policy: str) -> str:
    """The agent's system message with the policy. The ticket of one who works alone is a message of its own:
    chat templates want one beside the system's."""
    kind = "SOLO_" if domain.solo else ""
    instruction = package.text_constant("agent.llm_agent", f"AGENT_{kind}INSTRUCTION")
    template = package.text_constant("agent.llm_agent", f"SYSTEM_PROMPT{kind and '_SOLO'}").partition(_TICKET)[0]
    if domain.solo:
        instruction = instruction.format(stop_function_name="done", stop_token="###STOP###")
    return template.format(agent_instruction=instruction, domain_policy=policy).rstrip()


@lru_cache(maxsize=32)
def guidelines(domain: Tau2Domain, tools: bool) -> str:
    """What the release tells simulated users, with tools or without. Raises ConfigError where its own code would fill
    something in."""
    path = domain.release.guidelines(_GUIDELINES[tools])
    text = path.read_text(encoding="utf-8").replace(_NO_PERSONA, "")
    if left := _PLACEHOLDER.search(text):
        raise ConfigError(
            f"{path}: {left.group()} is filled in by that release's own code, which is not run; take user='scripted' "
            "or 'replay', or a release up to 1.0.1"
        )
    return text


# -- the user of one episode -------------------------------------------------------------------------------------------


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


class User:
    """The user of one episode."""

    suspends: bool = False
    """Whether it waits for I/O."""
    bills: tuple[str, ...] = ()
    model: ChatModel | None = None
    """The model that plays it, if one does."""
    described: Mapping[str, Any]
    """What results should say of it: its kind, model and prompt."""

    async def reply(self, log: Sequence[Entry], seed: int, bill: Bill | None = None, again: int = 0) -> Tau2UserReply:
        """The next move; `again` counts the empty ones just before it. What it costs goes on the bill. An exception is
        an outage: it fails the episode."""
        raise NotImplementedError


class ReplayUser(User):
    """Repeats the user's turns of a recording, in order, whatever the agent says."""

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


class Tau2ModelUser(User):
    """A model that plays the customer after the benchmark's guidelines, its spending billed as the user's."""

    def __init__(self, domain: Tau2Domain, plan: Tau2Task, hired: BilledModel) -> None:
        self._hired = hired
        self.suspends = hired.model.suspends
        self.bills = (hired.item,)
        self.model = hired.model
        self._tools = _schemas(domain, plan.user_tools)
        told = guidelines(domain, bool(self._tools))
        scenario = package.member("data_model.tasks:UserScenario").model_validate(plan.scenario)
        template = package.text_constant("user.user_simulator", "SYSTEM_PROMPT")
        system = template.format(global_user_sim_guidelines=told, instructions=scenario)
        self._system = Message(role="system", content=system)
        settings = {**hired.settings}
        if domain.release.number >= (2,):  # its own code puts the prompt together otherwise
            settings["prompt"] = "as before 2.0"
        followed = told + (json.dumps(settings, sort_keys=True) if settings else "")
        digest = f"sha256:{hashlib.sha256(followed.encode()).hexdigest()[:12]}"
        self.described = {"kind": "llm", "model": hired.item, "guidelines": digest, **settings}

    async def reply(self, log: Sequence[Entry], seed: int, bill: Bill | None = None, again: int = 0) -> Tau2UserReply:
        messages = (self._system, *seen_by("user", log))
        attempt = len(log) + again * _APART
        request = ChatRequest(
            self._hired.item, "user", messages, seed, attempt, tools=self._tools, role=USER, bill=bill or Bill()
        )
        return understood((await ask(self._hired.model, request)).text)


@lru_cache(maxsize=32)
def _schemas(domain: Tau2Domain, names: tuple[str, ...] | None) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in domain.tools_of_user(names)
    )


# A user that follows rules, for plumbing, training smoke runs and tests. Never for reported scores: it is no customer


STOP, TRANSFER, OUT_OF_SCOPE = STOPS
MOST_IDLE_TURNS = 8
_REQUEST = re.compile(r"\b(\w+)\(([^()]*)\)")
_BEING_TRANSFERRED = re.compile(r"\b(being|been) transferred\b", re.IGNORECASE)
_NOTHING_ELSE = re.compile(r"\b(anything|something) else\b", re.IGNORECASE)
_CONSENT = re.compile(
    r"\b(confirm|yes/no|yes or no|proceed|would you like|shall i|do you (want|agree))\b", re.IGNORECASE
)
_ASKED: Mapping[str, re.Pattern[str]] = {
    "id": re.compile(r"\b(user|customer|reservation|order) (id|number)\b|\bids?\b", re.IGNORECASE),
    "name": re.compile(r"\bname\b", re.IGNORECASE),
    "phone": re.compile(r"\bphone number\b", re.IGNORECASE),
    "zip": re.compile(r"\b(zip|post(al)? code)\b", re.IGNORECASE),
    "email": re.compile(r"\be-?mail\b", re.IGNORECASE),
    "abroad": re.compile(r"\b(where|location|abroad|country)\b", re.IGNORECASE),
}
_FIRST_PERSON = (
    (r"\byou are\b", "I am"),
    (r"\byou were\b", "I was"),
    (r"\byou're\b", "I'm"),
    (r"\byourself\b", "myself"),
    (r"\byours\b", "mine"),
    (r"\byour\b", "my"),
    (r"\byou\b", "I"),
)


def in_first_person(text: str) -> str:
    """A scenario's sentence as its user says it."""
    for pattern, word in _FIRST_PERSON:
        text = re.sub(pattern, word, text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:]


class Tau2ScriptedUser(User):
    """The user of one episode, who answers by fixed rules."""

    described = {"kind": "scripted"}  # noqa: RUF012 - nobody changes it

    def __init__(self, domain: Tau2Domain, plan: Tau2Task) -> None:
        instructions = plan.scenario["instructions"]
        whole = {"reason_for_call": instructions} if isinstance(instructions, str) else instructions
        self._reason = re.sub("|".join(STOPS), "", whole["reason_for_call"])  # some say when to say it
        self._known = whole.get("known_info") or ""
        tools = domain.tools_of_user(plan.user_tools)
        self._parameters = {tool.name: list(tool.parameters.get("properties", {})) for tool in tools}
        self._idle = 0
        self._silent = True

    async def reply(self, log: Sequence[Entry], seed: int, bill: Bill | None = None, again: int = 0) -> Tau2UserReply:
        del seed, bill, again
        if self._silent:
            self._silent = False
            return Tau2UserReply(in_first_person(self._reason))
        last = log[-1]
        if isinstance(last, Done):
            return Tau2UserReply(self._report(log))
        heard = last.text if isinstance(last, Said) else ""
        if calls := self._requested(heard):
            self._idle = 0
            return Tau2UserReply("", calls)
        return Tau2UserReply(self._answer(heard))

    def _requested(self, heard: str) -> tuple[ToolCall, ...]:
        """Literal requests for tools that it has. What only looks like one is left alone."""
        found = []
        for match in _REQUEST.finditer(heard) if self._parameters else ():
            name = match.group(1)
            arguments = _arguments(match.group(0), self._parameters[name]) if name in self._parameters else None
            if arguments is not None:
                found.append(ToolCall(name, arguments))
        return tuple(found)

    @staticmethod
    def _report(log: Sequence[Entry]) -> str:
        """The outputs of the calls just made."""
        outputs: list[str] = []
        for entry in reversed(log):
            if not isinstance(entry, Done) or entry.side != "user":
                break
            outputs.append(entry.content)
        return "\n".join(reversed(outputs)) or "Done."

    def _answer(self, heard: str) -> str:
        asked = [pattern for pattern in _ASKED.values() if pattern.search(heard)] if "?" in heard else []
        if asked and not _NOTHING_ELSE.search(heard):
            told = [s for s in re.split(r"(?<=[.!])\s+", self._known) if s and any(p.search(s) for p in asked)]
            return in_first_person(" ".join(told or [self._known])) if self._known else "I don't remember."
        if _CONSENT.search(heard):
            return "Yes."
        if _BEING_TRANSFERRED.search(heard):
            return TRANSFER
        if _NOTHING_ELSE.search(heard):
            return STOP
        self._idle += 1
        return OUT_OF_SCOPE if self._idle > MOST_IDLE_TURNS else "Please go on."


def _arguments(request: str, parameters: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of `tool(a, b=2)` where they are literals and JSON has them; None when it is no such request."""
    try:
        call = parsed_expression(request)
        if not isinstance(call, ast.Call) or len(call.args) > len(parameters):
            return None
        by_place = {name: ast.literal_eval(arg) for name, arg in zip(parameters, call.args, strict=False)}
        arguments = {**by_place, **{k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}}
        json.dumps(arguments, allow_nan=False)
        return arguments
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):  # all that literal_eval may raise
        return None
