"""The world of a SQL domain: an agent works on the database for a user, who listens to its messages."""

from __future__ import annotations

from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.toolscale.database import DatabaseSession
from toolorchestra.envs.domains.toolscale.experts import Advice
from toolorchestra.envs.domains.toolscale.grading import judge
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.envs.domains.toolscale.user import (
    GREETING,
    Mood,
    SqlModelUser,
    SqlScriptedUser,
    SqlUserReply,
    agrees,
    llm_reply,
)
from toolorchestra.envs.domains.toolscale.wishes import EpisodeSoFar, content, spoken_call
from toolorchestra.envs.domains.world import MESSAGE, World
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.waiting import deadline

_HEAD = "You are a customer service agent. Follow the policy. Each turn either calls tools or writes to the user."


def _hear(context: ToolContext, text: str) -> ToolResult:
    world: SqlWorld = context.world
    return world.heard(world.user.reply(world.mood, text, context.turn, world.progress), text)


_SCRIPTED = Tool("message", "Tells the user something.", MESSAGE, _hear)


def llm_listener(user: SqlModelUser) -> Tool:
    """A listener that asks a model for the user's answer."""

    async def hear(context: ToolContext, text: str) -> ToolResult:
        world: SqlWorld = context.world
        told = (*world.conversation, Message(role="user", content=text))
        answer = await llm_reply(user, context, world.task, told)
        return world.heard(SqlUserReply(answer, world.mood, agrees(answer)), text)

    return Tool(
        "message", "Tells the user something.", MESSAGE, hear, bills=(user.model,), suspends=user.models.suspends,
        deadline_seconds=deadline(user.models),
    )  # fmt: skip


class SqlWorld(World):
    """One task in play: its database, its user, and the tools over both."""

    __slots__ = ("agreed", "calls", "conversation", "domain", "listener", "mood", "session", "sheet", "system", "task",
                 "told", "toolbox", "unasked", "user")  # fmt: skip

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
        self.conversation: Transcript = (Message(role="user", content=GREETING),)
        """The conversation as the user sees it: the agent is "user" there, the user "assistant"."""
        self.calls: tuple[Called, ...] = ()
        self.told: tuple[str, ...] = ()
        """The agent's messages to the user."""
        self.agreed: frozenset[str] = frozenset()
        """The words of what the user has said yes to since its request came up; see wishes.content."""
        self.unasked: tuple[str, ...] = ()
        """The writes that were made before the user had said yes to them."""

    @property
    def progress(self) -> EpisodeSoFar:
        """What has happened so far, for the scripted user."""
        return EpisodeSoFar(tuple(called.name for called in self.calls), self.told, self.domain.writes)

    def opening(self) -> Transcript:
        first = self.user.opening()
        self.conversation += (Message(role="assistant", content=first),)
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
            elif tool.kind == "write" and not self.agreed & content(spoken_call(note.action)):
                self.unasked += (note.name,)
        elif isinstance(note, Advice):
            for part in note.notes:
                self._remember(part)
        elif isinstance(note, tuple):
            text, reply = note
            self.told += (text,)
            if reply.mood.request != self.mood.request:
                self.agreed = frozenset()
            if reply.consents:
                self.agreed |= content(text)
            self.mood = reply.mood
            self.conversation += (
                Message(role="user", content=text),
                Message(role="assistant", content=reply.text),
            )

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
