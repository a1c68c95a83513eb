"""The simulated customers: one scripted from the scenario, one played by a model. Neither knows the gold actions.

The script answers what it is asked (by keyword), confirms, objects to a refusal where its scenario says so, brings its
requests one after the other, and says ###STOP### when it has no more. It corrects a confirmation that names a detail of
its own with another value, and cannot judge what else it is told, so it is for training and tests; reported scores want
a model as the user.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from toolorchestra.envs.base.types import Message, Transcript
from toolorchestra.envs.domains.toolscale import user_sentences
from toolorchestra.envs.domains.toolscale.details import Detail, Wrong, details, wrong
from toolorchestra.envs.domains.toolscale.domain import SqlTask, UserFact
from toolorchestra.envs.models import ChatModel, ChatRequest, ask
from toolorchestra.envs.money.prices import USER
from toolorchestra.envs.tools import ToolContext
from toolorchestra.envs.tools.tool_config import Half

GREETING = "Hello! How can I help you today?"
PATIENCE = 4
"""Questions in a row that it does not understand before it gives up."""


@dataclass(frozen=True, slots=True)
class Mood:
    """Where a scripted conversation stands."""

    request: int = 0
    objected: bool = False
    lost: int = 0
    handed_over: bool = False


class SqlUserReply(NamedTuple):
    """What the user says, and where the conversation stands then."""

    text: str
    mood: Mood

    @property
    def final(self) -> bool:
        return any(token in self.text for token in user_sentences.STOP_TOKENS)


class SqlScriptedUser:
    """One task's user. Its wording follows from the seed; `half` leaves it a half of its sentences."""

    __slots__ = ("_details", "_half", "_seed", "_together", "task")

    def __init__(self, task: SqlTask, seed: int, half: Half | None = None) -> None:
        self.task = task
        self._seed = seed
        self._half = half
        self._details: tuple[tuple[Detail, ...], ...] | None = None
        self._together = random.Random(seed ^ 0x705E).random() < 0.3

    def _rng(self, turn: int) -> random.Random:
        return random.Random(self._seed * 1009 + turn)

    def _one_of(self, sentences: tuple[str, ...], rng: random.Random) -> str:
        return rng.choice(user_sentences.half_of(sentences, self._half))

    def said(self, number: int) -> str:
        """How this episode's user words a request."""
        say = user_sentences.half_of(self.task.requests[number].say, self._half)
        return say[(self._seed // 7 + number) % len(say)]

    def opening(self) -> str:
        """The user's first words."""
        rng = self._rng(0)
        parts = [self._one_of(user_sentences.GREETINGS, rng), self.said(0)]
        if self._together:
            parts += [self._one_of(user_sentences.LINKS, rng) + self.said(k) for k in range(1, len(self.task.requests))]
        return " ".join(part for part in parts if part)

    def reply(self, mood: Mood, text: str, turn: int) -> SqlUserReply:
        """The answer to what the agent said."""
        heard, rng = text.lower(), self._rng(turn)
        if mood.handed_over or _any(user_sentences.HANDS_OVER, heard):
            return SqlUserReply(user_sentences.TRANSFER, mood)
        confirms = "?" in heard and _any(user_sentences.CONFIRMS, heard)
        asks = _any(user_sentences.ASKS, heard) or ("?" in heard and not confirms)
        told = self._told(mood, heard, rng) if asks else []
        if confirms and (mistaken := self._mistaken(mood, text)):
            return self._corrected(mood, mistaken, rng)
        if confirms:
            return SqlUserReply(" ".join([self._one_of(user_sentences.YES, rng), *told]), replace(mood, lost=0))
        if told:
            return SqlUserReply(" ".join(told), replace(mood, lost=0))
        if _any(user_sentences.REFUSES, heard):
            return self._refused(mood, rng)
        if "?" in heard and not _any(user_sentences.CLOSES, heard):
            return self._lost(mood, rng)
        return self._next(mood, rng)

    def _mistaken(self, mood: Mood, text: str) -> Wrong | None:
        """What a confirmation gets wrong of the requests that the agent may know of."""
        if self._details is None:
            self._details = details(self.task)
        own = self._details if self._together else self._details[: mood.request + 1]
        return wrong(tuple(detail for of_request in own for detail in of_request), text)

    def _corrected(self, mood: Mood, mistaken: Wrong, rng: random.Random) -> SqlUserReply:
        if mood.lost + 1 >= PATIENCE:
            return SqlUserReply(f"This leads nowhere. {user_sentences.LOST}", mood)
        said = self._one_of(user_sentences.CORRECTS, rng).format(**mistaken._asdict())
        return SqlUserReply(said, replace(mood, lost=mood.lost + 1))

    def _told(self, mood: Mood, heard: str, rng: random.Random) -> list[str]:
        shown = self.task.requests if self._together else self.task.requests[: mood.request + 1]
        facts = (*self.task.facts, *(fact for request in shown for fact in request.facts))
        return [
            self._line(fact, rng) for fact in dict.fromkeys(facts) if any(_word(asked, heard) for asked in fact.asked)
        ]

    def _line(self, fact: UserFact, rng: random.Random) -> str:
        sentences = user_sentences.TELLS if fact.value else user_sentences.UNKNOWN
        return self._one_of(sentences, rng).format(label=fact.label, value=fact.value)

    def _refused(self, mood: Mood, rng: random.Random) -> SqlUserReply:
        pushback = self.task.requests[mood.request].pushback
        if pushback and not mood.objected:
            return SqlUserReply(pushback, replace(mood, objected=True, lost=0))
        moved = self._next(mood, rng)
        return moved._replace(text=f"{self._one_of(user_sentences.ACCEPTS, rng)} {moved.text}")

    def _next(self, mood: Mood, rng: random.Random) -> SqlUserReply:
        number = mood.request + 1
        if number >= len(self.task.requests):
            return SqlUserReply(self._one_of(user_sentences.STOPS, rng), mood)
        lead = user_sentences.REMIND if self._together else user_sentences.NEXT
        return SqlUserReply(self._one_of(lead, rng).format(say=self.said(number)), Mood(number))

    def _lost(self, mood: Mood, rng: random.Random) -> SqlUserReply:
        if mood.lost + 1 >= PATIENCE:
            return SqlUserReply(f"This leads nowhere. {user_sentences.LOST}", mood)
        return SqlUserReply(
            self._one_of(user_sentences.AGAIN, rng).format(say=self.said(mood.request)),
            replace(mood, lost=mood.lost + 1),
        )


def _any(patterns: Sequence[str], heard: str) -> bool:
    return any(pattern in heard for pattern in patterns)


def _word(asked: str, heard: str) -> bool:
    """Whether the word stands there, not as a part of another."""
    at = heard.find(asked)
    while at >= 0:
        end = at + len(asked)
        if not heard[at - 1 : at].isalnum() and not heard[end : end + 1].isalpha():
            return True
        at = heard.find(asked, end)
    return False


@dataclass(frozen=True)
class SqlModelUser:
    """A user played by a chat model: hand it to the source as `user=`. Its tokens are billed in the user's role."""

    models: ChatModel
    model: str


_RULES = """You play a customer who talks to a service agent. Stay in the role, write only the customer's next message,
say one thing at a time and only what the scenario holds; if you are asked for anything else, you do not know it.
Do not give everything at once: wait until you are asked. Do not repeat the scenario word for word.
When all that you want has been settled, or refused for good, write ###STOP###. When you are handed over to a person,
write ###TRANSFER###. When the scenario does not let you go on, write ###OUT-OF-SCOPE###."""


def scenario(task: SqlTask) -> str:
    """The scenario as a model is told it."""
    told = task.shape["user_scenario"]["instructions"]
    keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    parts = [f"{key.replace('_', ' ')}: {told[key]}" for key in keys if told.get(key)]
    persona = task.shape["user_scenario"].get("persona")
    return "\n".join([*([f"persona: {persona}"] if persona else []), *parts])


async def llm_reply(user: SqlModelUser, context: ToolContext, task: SqlTask, heard: Transcript) -> str:
    """The model's next words as the customer. `heard` is the conversation, the agent's side as role "user"."""
    system = Message(role="system", content=f"{_RULES}\n\nScenario\n{scenario(task)}")
    request = ChatRequest(
        user.model, "user", (system, *heard), context.seed, context.turn, role=USER, bill=context.bill
    )
    return (await ask(user.models, request)).text
