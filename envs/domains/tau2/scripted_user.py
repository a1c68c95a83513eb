"""A user that follows rules, for plumbing, training smoke runs and tests. Never for reported scores: it is no customer.

It knows its scenario and nothing of the reference path or the database, so what it does gives no label away. It opens
with the reason of its call; then, in this order, it does literally what it is asked as `tool(argument=value)`, gives
what it knows of itself when asked, says yes to questions of consent, leaves when it is being transferred or is asked
whether there is anything else, and gives up after many turns with nothing in them for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.python_source import parsed_expression
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.conversation_log import Done, Entry, Said
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.task import Tau2Task
from toolorchestra.envs.domains.tau2.users import STOPS, Tau2UserReply
from toolorchestra.envs.money.ledger import Bill

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


class Tau2ScriptedUser:
    """The user of one episode, who answers by fixed rules."""

    suspends = False
    bills: tuple[str, ...] = ()
    model = None
    described: Mapping[str, str] = {"kind": "scripted"}

    def __init__(self, domain: Tau2Domain, plan: Tau2Task) -> None:
        instructions = plan.scenario["instructions"]
        whole = {"reason_for_call": instructions} if isinstance(instructions, str) else instructions
        self._reason = whole["reason_for_call"]
        self._known = whole.get("known_info") or ""
        self._parameters = {tool.name: list(tool.parameters.get("properties", {})) for tool in domain.user_tools}
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
    """The arguments of `tool(a, b=2)` where they are literals; None when it is no such request."""
    try:
        call = parsed_expression(request)
        if not isinstance(call, ast.Call) or len(call.args) > len(parameters):
            return None
        by_place = {name: ast.literal_eval(arg) for name, arg in zip(parameters, call.args, strict=False)}
        return {**by_place, **{k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):  # all that literal_eval may raise
        return None
