"""The world of a SQL domain: an agent works on the database for a user, who listens to its messages."""

from __future__ import annotations

import hashlib
import inspect
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError, ConfigError, ToolError
from toolorchestra.envs.base.types import Answer, Message, Outcome, Question, ToolCall, Transcript
from toolorchestra.envs.domains.toolscale.database import DatabaseSession
from toolorchestra.envs.domains.toolscale.followed_requests import EpisodeSoFar, FollowedRequests, content
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.grading import judge, rules
from toolorchestra.envs.domains.toolscale.model_user import TRIES, model_reply
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.envs.domains.toolscale.user import GREETING, Mood, SqlModelUser, SqlScriptedUser, SqlUserReply
from toolorchestra.envs.domains.world import MESSAGE, World
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion, ask
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, PriceSheet, Tokens, Usage, offer_line
from toolorchestra.envs.tools import Offer, Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.backends import deadline

NAME = "call_expert"
OFFERS = (
    Offer("expert-1", "gpt-5", 31, "the strongest"),
    Offer("expert-2", "gpt-5-mini", 25, "strong"),
    Offer("expert-3", "qwen3-32b", 9, "fair"),
)


class TurnSkill(NamedTuple):
    """How well a simulated expert writes turns, and how long it takes."""

    level: float
    """Level on the scale of a task's difficulty, 1 to 5."""
    tokens: int
    seconds: float
    reasons: bool
    """Whether most of its output is billed as reasoning."""


SKILLS = {
    "gpt-5": TurnSkill(5.5, 6000, 96, reasons=True),
    "gpt-5-mini": TurnSkill(4.0, 4000, 27, reasons=True),
    "qwen3-32b": TurnSkill(3.6, 2500, 11, reasons=False),
}
"""Chosen so that price, speed and ability trade off. Nothing is said of the real models."""
CAP, FLOOR = 0.985, 0.02
DECOYS = (
    "Could you tell me more about your request?",
    "Let me look into this for you. Is there anything else I should know?",
    "I am sorry, but I cannot do this.",
)


def call_expert(models: ChatModel, sheet: PriceSheet, *, user_suspends: bool, deadline_seconds: float) -> Tool:
    """The tool, its prices rendered from the sheet that bills it. The deadline is for the expert and then the user."""
    model_of = {offer.alias: offer.model for offer in OFFERS}

    async def run(context: ToolContext, expert: str) -> ToolResult:
        world: SqlWorld = context.world
        own = [schema for schema in world.toolbox.schemas if schema["function"]["name"] != NAME]
        truth = question(world) if isinstance(models, SimulatedExperts) else None
        request = ChatRequest(
            model_of[expert], "move", brief(world), context.seed, context.turn, truth, tuple(own),
            bill=context.bill,
        )  # fmt: skip
        completion = await ask(models, request)
        return await _play(context, world, expert, completion)

    lines = [offer_line(sheet, o.alias, o.model, o.note, f"about {o.seconds:g} s") for o in OFFERS]
    return Tool(
        NAME,
        "Let an expert write this turn: the user's answer, or calls.\n" + "\n".join(lines),
        {
            "type": "object",
            "properties": {"expert": {"type": "string", "enum": list(model_of), "description": "Which expert."}},
            "required": ["expert"],
        },
        run,
        bills=tuple(dict.fromkeys(model_of.values())),
        keyed_by="expert",
        offers=OFFERS,
        suspends=models.suspends or user_suspends,
        deadline_seconds=deadline_seconds,
        in_order=True,
    )


async def _play(context: ToolContext, world: SqlWorld, expert: str, completion: Completion) -> ToolResult:
    """Do what the expert wrote, as if the agent had."""
    try:
        action = parse(completion.text)
    except ActionError as err:
        raise ToolError(f"{expert} wrote a turn that cannot be read: {err}") from None
    calls = action.calls or (ToolCall(world.listener.name, {"text": action.said}),)
    lines, notes = [], []
    final = False
    for call in calls:
        try:
            if call.name == NAME:
                raise ToolError("an expert writes the turn itself; it cannot call another")
            tool = world.toolbox.check(call) if action.calls else world.listener
            made = tool.run(context, **call.arguments)
            result: ToolResult = await made if inspect.isawaitable(made) else made
        except ToolError as err:
            lines.append(f"{expert} called {call.name}({call.arguments}): Error: {err}")
            continue
        said = (
            f"told the user: {action.said}\nThe user" if not action.calls else f"called {call.name}({call.arguments})"
        )
        lines.append(f"{expert} {said}: {result.content}")
        notes.append(result.note)
        for usage in result.usages:
            context.bill.add(usage)
        final = final or result.final
    return ToolResult("\n".join(lines), final=final, note=notes)


def brief(world: SqlWorld) -> Transcript:
    """What an expert is shown: the policy, the conversation, and what was called so far."""
    made = "\n".join(f"{c.name}({dict(c.arguments)}) -> {c.text[:2000]}" for c in world.calls[-20:])
    system = Message(role="system", content=f"{world.system}\n\nWrite the agent's next turn: tool calls, or a message.")
    talk = [
        Message(role=role, content=said)
        for words, reply in zip((GREETING, *world.told), world.replies, strict=True)
        for role, said in (("assistant", words), ("user", reply.text))
    ]
    return (system, *talk, Message(role="user", content=f"Calls so far:\n{made or 'none'}"))


def question(world: SqlWorld) -> Question:
    """The situation, and the turn that an oracle would write in it, for simulated experts."""
    done = [(call.name, dict(call.arguments)) for call in world.calls]
    told = len(world.told)
    best = ""
    for move in moves(world.domain, world.task):
        best = move
        calls = parse(move).calls
        if calls:
            if (calls[0].name, calls[0].arguments) not in done:
                break
        elif told:
            told -= 1
        else:
            break
    text = f"{world.task.task_id} after {len(world.calls)} calls and {len(world.told)} messages"
    return Question(text, Answer(best), world.domain.name, "knowledge", float(world.task.difficulty), decoys=DECOYS)


def chance(skill: float, difficulty: float) -> float:
    """The chance of success: the cap half a level above the difficulty, the floor 1.5 below it, linear between."""
    share = min(1.0, max(0.0, (skill - difficulty + 1.5) / 2.0))
    return FLOOR + (CAP - FLOOR) * share


class SimulatedExperts:
    """Writes the oracle's next turn as often as the model's skill allows, else a turn that leads nowhere. SIMULATED."""

    suspends = False

    async def complete(self, request: ChatRequest) -> Completion:
        """Writes one turn: the oracle's with a chance that depends on the model's skill, else one that leads
        nowhere."""
        truth = request.truth
        if truth is None or request.purpose != "move":
            raise ConfigError(f"simulated experts write a turn of a shipped task, not {request.purpose!r}")
        skill = SKILLS[request.model]
        shown = "\n".join(str(m["content"]) for m in request.messages)
        seed = f"{request.seed}/{truth.text}/{request.model}/{request.attempt}"
        rng = random.Random(hashlib.blake2b(seed.encode(), digest_size=8).digest())
        able = rng.random() < chance(skill.level, truth.difficulty)
        text = truth.answer.text if able else rng.choice(truth.decoys)
        out = round(skill.tokens * (0.7 + 0.6 * rng.random()))
        reasoning = round(0.8 * out) if skill.reasons else 0
        tokens = Tokens(len(shown) // CHARACTERS_PER_TOKEN, 0, out - reasoning, reasoning)
        seconds = round(skill.seconds * (0.8 + 0.4 * rng.random()), 3)
        return Completion(text, Usage(request.model, request.role, tokens, seconds=seconds))


# -- the world of a SQL domain -----------------------------------------------------------------------------------------

_HEAD = "You are a customer service agent. Follow the policy. Each turn either calls tools or writes to the user."


def _hear(context: ToolContext, text: str) -> ToolResult:
    world: SqlWorld = context.world
    return world.heard(world.user.reply(world.mood, text, context.turn, world.progress), text)


_SCRIPTED = Tool("message", "Tells the user something.", MESSAGE, _hear)


def llm_listener(user: SqlModelUser) -> Tool:
    """A listener that asks a model for the user's answer."""

    async def hear(context: ToolContext, text: str) -> ToolResult:
        world: SqlWorld = context.world
        reply = await model_reply(user, context, world.task, (*world.told, text), world.replies)
        return world.heard(reply._replace(mood=world.mood), text)

    return Tool(
        "message", "Tells the user something.", MESSAGE, hear, bills=(user.model,), suspends=user.models.suspends,
        deadline_seconds=TRIES * deadline(user.models),
    )  # fmt: skip


class SqlWorld(World):
    """One task in play: its database, its user, and the tools over both."""

    __slots__ = ("agreed", "calls", "domain", "listener", "mood", "replies", "session", "sheet", "system",
                 "task", "told", "toolbox", "unasked", "user")  # fmt: skip

    def __init__(
        self,
        domain: SqlDomain,
        task: SqlTask,
        session: DatabaseSession,
        toolbox: Toolbox,
        seed: int,
        listener: Tool | None = None,
    ) -> None:
        self.domain = domain
        self.task = task
        self.session = session
        self.toolbox = toolbox
        self.system = f"{_HEAD} The time is {domain.clock}.\n\n{domain.policy}"
        self.listener = listener or _SCRIPTED
        self.user = SqlScriptedUser(task, seed)
        self.mood = Mood()
        self.calls: tuple[Called, ...] = ()
        self.told: tuple[str, ...] = ()
        """The agent's messages to the user."""
        self.replies: tuple[SqlUserReply, ...] = ()
        """What the user has said, its first words included."""
        self.agreed: frozenset[int] = frozenset()
        """The requests whose changes the user has said yes to, and has not taken that back."""
        self.unasked: tuple[str, ...] = ()
        """The writes for none of the requests that the user had agreed to by then."""

    @property
    def progress(self) -> EpisodeSoFar:
        """What has happened so far, for the scripted user."""
        made = tuple(called.name for called in self.calls)
        return EpisodeSoFar(made, self.told, self.domain.writes, content(self.domain.policy))

    def opening(self) -> Transcript:
        first = self.user.opening()
        self.replies = (SqlUserReply(first, self.mood),)
        return (Message(role="assistant", content=GREETING), Message(role="user", content=first))

    def heard(self, reply: SqlUserReply, text: str) -> ToolResult:
        """The user's answer as a result; a stop token ends the episode."""
        return ToolResult(reply.text, final=reply.final, note=(text, reply))

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        self._remember(result.note)

    def _remember(self, note: object) -> None:
        if isinstance(note, Called):
            self.calls += (note,)
            tool = self.domain.tools[note.name]
            if tool.transfers:
                self.mood = self.mood._replace(handed_over=True)
            elif tool.kind == "write" and not self._agreed_to(note):
                self.unasked += (note.name,)
        elif isinstance(note, list):  # of the calls or the message of an expert's turn
            for part in note:
                self._remember(part)
        elif isinstance(note, tuple):
            text, reply = note
            self.told += (text,)
            self.agreed = self.agreed - reply.takes_back | reply.agrees_to
            self.mood = reply.mood
            self.replies += (reply,)

    def _agreed_to(self, made: Called) -> bool:
        followed = self.task.once(FollowedRequests, self.domain.writes)
        return bool(self.agreed & followed.settled_by(made.action))

    def to_grade(self) -> dict[str, Any]:
        """Give what is graded again (Regradable). An expert's calls are among them."""
        kept: dict[str, Any] = {
            "calls": [[called.name, dict(called.arguments)] for called in self.calls],
            "told": list(self.told),
        }
        return {**kept, "unasked": list(self.unasked)} if rules(self.domain) else kept

    def take_up(self, kept: Mapping[str, Any], context: ToolContext) -> None:
        """Take up what is graded again (Regradable)."""
        for name, arguments in kept["calls"]:
            tool = self.toolbox.check(ToolCall(name, arguments))
            self._remember(tool.run(context, **arguments).note)
        self.told = tuple(kept["told"])
        self.unasked = tuple(kept.get("unasked", ()))

    def grade(self, *, finished: bool) -> Outcome:
        verdict = judge(self.task, self.session, self.calls, self.told, self.unasked)
        self.session.close()
        evidence = {
            **verdict._asdict(),
            "process": verdict.process,
            "finished": finished,
            "difficulty": self.task.difficulty,
        }
        return Outcome(verdict.value if finished else 0.0, evidence)
