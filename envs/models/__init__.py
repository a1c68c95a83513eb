"""Chat-model backends behind one protocol. A request says in typed fields what it is for; nobody reads model names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from toolorchestra.envs.base.actions import UNTHINK
from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.types import Question, Transcript
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import EXPERT, Tokens, Usage

Purpose = Literal["query", "code", "answer", "move", "user", "judge"]
"""A search query, a program, an answer, a turn of the agent's on its behalf, a simulated user's turn, a verdict."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a model is asked: the messages, and how the reply is drawn and billed. Policies, tools, users and judges
    make one; a ChatModel answers it. For example the question of an episode, for "gpt-5", with purpose "answer"."""

    model: str
    """Price sheet item and backend name of the model."""
    purpose: Purpose
    """What the reply is for, such as "query" or "answer"."""
    messages: Transcript
    seed: int = 0
    attempt: int = 0
    """Number of the turn: asking the same again may go better."""
    truth: Question | None = None
    """The question that is asked, with its answer, for simulated models only. Real backends never see it."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Schemas of tools that the model may call. Native calls come back as text, in the action grammar."""
    role: str = EXPERT
    """Role of the ledger under which the completion is billed."""
    bill: Bill = field(default_factory=Bill, compare=False, repr=False)
    """Bill of the call that asks. A backend books here what it used, as soon as it knows, and sets aside here what a
    request may cost at most."""
    temperature: float | None = None
    """Where the endpoint file says none."""
    native_tools: bool = False
    """Whether schemas and calls travel natively, where the endpoint file says neither."""
    most_output_tokens: int = 0
    """The most that the reply may have, where that is less than the endpoint file allows: it bounds what it can cost. A
    reply that is longer all the same is broken off, booked at this length, and not asked for again. 0: no bound but the
    file's."""
    images: tuple[str, ...] = ()
    """Pictures, as `data:` URLs, that go with the first message of the user."""
    stream: bool = False
    """Whether the reply comes in pieces, as it is made, where the endpoint file says neither."""
    formerly: ChatRequest | None = field(default=None, compare=False, repr=False)
    """The same as an earlier version asked it. A replay that has no recording of this request takes one of that."""


class ContextLimits(NamedTuple):
    """How much of what was gathered a model is shown, in characters; four make about a token."""

    document: int = 4_000
    """Characters of each document, from its beginning."""
    results: int = 64_000
    """Characters of the computed results, from their end."""
    total: int = 96_000
    """Characters of documents and results together, from their end. About 24,000 tokens, what the reference hands open
    experts."""


DEFAULT_LIMITS = ContextLimits()


class Completion(NamedTuple):
    """What came back, and what it used."""

    text: str
    usage: Usage
    """Usage of this reply. What replies before it used, that were of no use, stands on the request's bill alone."""
    cut: bool = False
    """Whether the server says that the text broke off at the limit of its length."""
    booked: bool = False
    """Whether the backend has booked the usage on the request's bill itself."""


class ChatModel(Protocol):
    """A backend. `suspends` says whether completing waits for I/O."""

    @property
    def suspends(self) -> bool: ...

    async def complete(self, request: ChatRequest) -> Completion: ...


async def ask(models: ChatModel, request: ChatRequest) -> Completion:
    """One completion, booked on the request's bill also where the backend does not book it itself, and counted there:
    also where none came."""
    bill = request.bill
    try:
        completion = await models.complete(request)
    except BaseException as err:
        if bill.cap is None or not bill.cap.used_up:  # else it was not asked
            refused = isinstance(err, ToolError)
            bill.asked(request.model, refused=refused, failed=not refused)
        raise
    if not completion.booked:
        bill.add(completion.usage)
        completion = completion._replace(booked=True)
    if not isinstance(completion.text, str):
        raise TypeError(f"a completion's text is text, got {type(completion.text).__name__} from {request.model!r}")
    said = completion.text.rpartition(UNTHINK)[2]
    bill.asked(request.model, empty=not said or said.isspace(), cut=completion.cut)
    return completion


def output_tokens_of(models: ChatModel, model: str, otherwise: int) -> int:
    """The most tokens that a reply of a model may have, where its backend knows."""
    known: Callable[[str], int] | None = getattr(models, "output_tokens_of", None)
    return (known(model) if known is not None else 0) or otherwise


def limits_of(models: ChatModel, model: str) -> ContextLimits:
    """The limits that hold for one model: what its backend says, or the default."""
    known: Callable[[str], ContextLimits] | None = getattr(models, "limits_of", None)
    return DEFAULT_LIMITS if known is None else known(model)


class ScriptedModel:
    """A model of your own that completes with `reply(request)`. Tokens are counted as words."""

    suspends = False

    def __init__(self, reply: Callable[[ChatRequest], str], seconds: float = 0.0) -> None:
        self._reply = reply
        self._seconds = seconds

    async def complete(self, request: ChatRequest) -> Completion:
        text = self._reply(request)
        words = sum(len(str(m["content"]).split()) for m in request.messages)
        tokens = Tokens(input=words, output=len(text.split()))
        return Completion(text, Usage(request.model, request.role, tokens, seconds=self._seconds))
