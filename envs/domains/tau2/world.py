"""The world of a τ²-Bench task: a domain's state, a user who is talked to, and the benchmark's own rules of the end.

Tools change the domain's state when they run, in the order of a turn's calls: what one call wrote the next one reads,
and its output has to say so. That is why this world, unlike a question's, does not wait for absorb().
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.errors import ActionError, ConfigError, Outage, ToolError, WrongSetting
from toolorchestra.envs.base.files import write_whole
from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.tau2.domain import State, Tau2Domain
from toolorchestra.envs.domains.tau2.grading import Graded, ask_judge, grade
from toolorchestra.envs.domains.tau2.task import (
    Aside,
    Criteria,
    Done,
    Entry,
    Log,
    Said,
    Tau2Task,
    entries_kept,
    kept_entries,
    read_criteria,
    seen_by,
)
from toolorchestra.envs.domains.tau2.toolbox import EXPERT as CALL_EXPERT
from toolorchestra.envs.domains.tau2.toolbox import NO_ARGUMENTS, DomainToolbox
from toolorchestra.envs.domains.tau2.user_and_judge_models import BilledModel
from toolorchestra.envs.domains.tau2.users import (
    GREETING,
    STOPPED,
    STOPS,
    USER_ERROR,
    RunEnds,
    Tau2UserReply,
    User,
    agent_message,
)
from toolorchestra.envs.domains.world import MESSAGE, World
from toolorchestra.envs.models import ChatRequest, ask
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import EXPERT
from toolorchestra.envs.tools import Tool, ToolContext, ToolResult
from toolorchestra.envs.tools.backends import deadline


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: the moves of both sides, and what it was graded."""

    sim_id: str
    domain: str
    task_id: str
    solo: bool
    ended: str
    """The recorded termination reason."""
    reward: float
    parts: Mapping[str, float] | None
    """The recorded breakdown by basis, where there is one."""
    criteria: Criteria | None
    """What it was graded by, where that is not what the package has for the task."""
    messages: Sequence[Mapping[str, Any]]
    """Messages as recorded, in order."""

    def user_turns(self) -> list[Tau2UserReply]:
        """Every move of the user's, the first included."""
        turns = []
        for message in self.messages:
            if message["role"] == "user":
                calls, text = recorded_calls(message), message.get("content") or ""
                if not isinstance(text, str):
                    raise TypeError(f"a message's content is a text or null, got {text!r:.60}")
                turns.append(Tau2UserReply("", calls, beside=text) if calls else Tau2UserReply(text))
        return turns


def recorded_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """A message's tool calls; an empty list is none, as it should be."""
    return tuple(ToolCall(call["name"], _arguments(call["arguments"])) for call in message.get("tool_calls") or ())


def _arguments(written: Any) -> dict[str, Any]:
    """The arguments of a call, which model servers have as JSON text."""
    found = json.loads(written) if isinstance(written, str) else written
    if not isinstance(found, Mapping):
        raise TypeError(f"a call's arguments are an object, got {written!r:.60}")
    return dict(found)


def read_recordings(path: str) -> Mapping[str, Recording]:
    """Every run of a file, by sim_id. The file may be gzipped."""
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"recordings={path!r}: no such file; name one with a recorded run as JSON on each line")
    runs: dict[str, Recording] = {}
    for run in _read(file):
        if run.sim_id in runs:
            raise ConfigError(f"{file}: two runs have one sim_id, {run.sim_id!r}, by which they are found; change one")
        runs[run.sim_id] = run
    return runs


def _read(file: Path) -> Iterator[Recording]:
    raw = file.read_bytes()
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as err:
        raise ConfigError(f"{file}: recorded runs as JSON lines expected, gzipped or not, got: {err}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _recording(json.loads(line))
        except (AttributeError, KeyError, TypeError, ValueError) as err:
            raise ConfigError(f"{file}: line {number} is no recorded run: {type(err).__name__} {err}") from None


def _recording(row: Mapping[str, Any]) -> Recording:
    sim_id, task_id, ended = str(row["sim_id"]), str(row["task_id"]), row["termination_reason"]
    reward = math.nan if row["reward"] is None else float(row["reward"])  # a failed episode has none
    criteria = None if row.get("criteria") is None else read_criteria(row["criteria"], task_id)
    parts, messages = row.get("reward_breakdown"), row["messages"]
    if not isinstance(messages, list):
        raise TypeError(f"messages are a list, got {messages!r:.60}")
    made = Recording(sim_id, row["domain"], task_id, bool(row["solo"]), ended, reward, parts, criteria, messages)
    made.user_turns()  # what cannot be read is told by its line, and not as an episode begins
    return made


def write_recordings(path: str, runs: Iterable[Recording]) -> None:
    """Write runs as read_recordings() reads them. They are graded again by their tasks' own criteria."""
    rows = []
    for run in runs:
        row = {"domain": run.domain, "solo": run.solo, "task_id": run.task_id, "sim_id": run.sim_id}
        reward = None if math.isnan(run.reward) else run.reward
        row |= {"termination_reason": run.ended, "reward": reward, "reward_breakdown": run.parts, "criteria": None}
        rows.append(json.dumps({**row, "messages": list(run.messages)}, allow_nan=False) + "\n")
    write_whole(Path(path), "".join(rows).encode())


def recorded_messages(log: Iterable[Entry], *, stops: bool) -> list[dict[str, Any]]:
    """An episode's log in the shape of a recorded run's messages. `stops`: the agent said that it was done."""
    messages: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    aside: str | None = None
    for number, entry in enumerate(log):
        if isinstance(entry, Aside):
            aside = entry.text
        elif isinstance(entry, Said):
            messages.append({"role": entry.side, "content": entry.text})
        else:
            shown = {"id": str(number), "requestor": entry.side}
            call = {**shown, "name": entry.call.name, "arguments": entry.call.arguments}
            if entry.joins and messages and messages[-1].get("requestor") == entry.side:  # nobody spoke between
                calls.append(call)
            else:
                calls = [call]
                messages.append({"role": entry.side, "content": aside, "tool_calls": calls})
            messages.append({"role": "tool", "content": entry.content, "error": entry.error, **shown})
            aside = None
    if stops:
        messages.append({"role": "assistant", "content": "###STOP###"})
    return messages


MOST_USER_CALLS = 50
"""Limit of a user's calls between two of its messages; more is a broken simulator."""
MOST_EMPTY_REPLIES = 4
"""Limit of a user's empty replies in a row, as often as the benchmark asks for one message; then the conversation has
ended by its error."""
MAX_STEPS = 200
"""Messages and executions together, as the benchmark counts them; turns are limited besides."""
MAX_ERRORS = 10
"""Errors of tools, as the benchmark counts them."""
LIMITS = ("max_steps", "too_many_errors")
AGENT_ERROR = "agent_error"
"""Ends the episode with reward 0. It is the agent's own doing, so no truncation: there is nothing after it."""


@dataclass(frozen=True)
class SourceRules:
    """What is the same for every episode of a source."""

    corrected: bool
    """Whether this suite's corrections hold, in place of the benchmark as published."""
    limited: bool
    """Whether the benchmark's own limits hold. A replayed run ends where it was recorded to end."""
    judge: BilledModel | None
    experts: Mapping[str, BilledModel] = field(default_factory=dict)


class Tau2World(World):
    """One episode's state, conversation and end."""

    __slots__ = (
        "_consulted", "_turn", "domain", "ended", "errors", "house", "listener", "log", "plan", "state", "steps",
        "system", "toolbox", "user",
    )  # fmt: skip

    def __init__(
        self, domain: Tau2Domain, plan: Tau2Task, toolbox: DomainToolbox, user: User | None, house: SourceRules
    ) -> None:
        self.domain, self.plan, self.toolbox, self.user, self.house = domain, plan, toolbox, user, house
        self.system = agent_message(domain, domain.policy_of(plan))
        self.listener = listener_of(user)
        self.state: State = domain.start(plan)
        self.log: Log = _past(plan)
        self.ended = ""
        """Why, in the benchmark's words; "" while it goes on."""
        self.steps = self.errors = 0
        self._turn = self._consulted = 0

    @property
    def over(self) -> bool:
        return bool(self.ended)

    # -- talking ---------------------------------------------------------------------------------------------------

    def opening(self) -> Transcript | Tool:
        if self.user is None:
            return (
                Message(role="user", content=f"<ticket>\n{self.plan.ticket}\n</ticket>"),
                *seen_by("assistant", self.log),
            )
        if not self.log:
            self.log.append(GREETING)
        if isinstance(self.log[-1], Said) and self.log[-1].side == "assistant":
            if self.user.bills:
                return replace(self.listener, name="opening", parameters=NO_ARGUMENTS, run=_open)
            _at_once(self.listen(0))
        return tuple(seen_by("assistant", self.log))

    async def hear(self, text: str, context: ToolContext) -> ToolResult:
        """The agent's message goes to the user, who uses its tools and answers."""
        if self.ended:
            return ToolResult("", final=True)
        self.log.append(Said("assistant", text))
        self.steps += 1
        return ToolResult("", final=True) if self._cut_off() else await self.listen(context.seed, context.bill)

    async def listen(self, seed: int, bill: Bill | None = None) -> ToolResult:
        """The user's turn, up to its next message. Its tool calls are its own: the agent does not see them."""
        if self.user is None:
            raise RuntimeError("nobody listens: the agent works alone")
        empty = 0
        for _ in range(MOST_USER_CALLS):
            try:
                reply = await self.user.reply(self.log, seed, bill, empty)
            except RunEnds as end:
                return self._ended(str(end))
            except WrongSetting:
                raise  # of the run, not of this user
            except Exception as err:
                raise Outage(f"{type(err).__name__}: {err}") from err
            empty = empty + 1 if reply.empty else 0
            if empty == MOST_EMPTY_REPLIES:
                return self._ended(USER_ERROR)
            if empty:
                continue
            self.steps += 1
            if not reply.calls:
                return self._heard(reply.text)
            self._use(reply)
            if self._cut_off():
                return self._ended(self.ended)
        raise Outage(f"the user made calls in {MOST_USER_CALLS} messages without saying a word")

    def _ended(self, why: str) -> ToolResult:
        self.ended = why
        return ToolResult("", final=True)

    def _heard(self, text: str) -> ToolResult:
        """The user's words, which may end the conversation."""
        self.log.append(Said("user", text))
        if any(word in text for word in STOPS):
            self.ended = "user_stop"
        return ToolResult(text, final=self._cut_off() or bool(self.ended))

    def _use(self, reply: Tau2UserReply) -> None:
        """The user's tools, used."""
        if reply.beside:
            self.log.append(Aside(reply.beside, "user"))
        for place, call in enumerate(reply.calls):
            answer = self.state.call("user", call.name, call.arguments)
            self.log.append(Done("user", call, *answer, joins=place > 0))
            self.errors += answer.error
        self.steps += 1

    # -- acting ----------------------------------------------------------------------------------------------------

    def act(self, context: ToolContext, call: ToolCall) -> ToolResult:
        """One call of a domain's tool."""
        if self.ended:
            return ToolResult("", final=True)
        joins = context.turn == self._turn
        if not joins:
            self._turn = context.turn
            self.steps += 2  # the message that calls, and its execution
            if context.aside:
                self.log.append(Aside(context.aside))
        answer = self.state.call("assistant", call.name, call.arguments)
        self.log.append(Done("assistant", call, *answer, joins=joins))
        self.errors += answer.error
        return ToolResult(answer.content, (), 0.0, self._cut_off())

    def finish(self) -> ToolResult:
        """The agent works alone and says that it is done."""
        return self._ended(self.ended or "agent_stop")

    async def consult(self, context: ToolContext, alias: str) -> ToolResult:
        """An expert makes one move in the agent's place."""
        if self.ended:
            return ToolResult("", final=True)
        if context.turn == self._consulted:
            raise ToolError("call_expert hands over one move: call it once a turn")
        self._consulted = context.turn
        hired, bill = self.house.experts[alias], context.bill
        messages = (Message(role="system", content=self.system), *seen_by("assistant", self.log))
        schemas = [schema for schema in self.toolbox.schemas if schema["function"]["name"] != CALL_EXPERT]
        request = ChatRequest(
            hired.item, "move", messages, context.seed, context.turn, tools=schemas, role=EXPERT, bill=bill
        )
        said = (await ask(hired.model, request)).text
        try:
            move = parse(said)
            if not move.calls and self.user is None:
                raise ToolError(f"{alias} wrote a message, but nobody listens: {move.said:.200}")
            if not move.calls:
                heard = await self.hear(move.said, context)
                return ToolResult(f"{alias} said: {move.said}\nThe user: {heard.content}", final=heard.final)
            if any(call.name == CALL_EXPERT for call in move.calls):
                raise ToolError("it may not hand the move on")
            tools = [self.toolbox.check(call) for call in move.calls]
        except (ActionError, ToolError) as err:
            raise ToolError(f"{alias} made a move that cannot be played: {err}") from None
        lines, final = [f"{alias} moved:"], False
        for tool, call in zip(tools, move.calls, strict=True):
            result: ToolResult = tool.run(context, **call.arguments)
            lines += [render_call(*call), result.content]
            final = final or result.final
        return ToolResult("\n".join(lines), final=final)

    def _cut_off(self) -> bool:
        """Whether one of the benchmark's own limits is reached; as there, it outdoes a stop of the same moment."""
        if self.house.limited and self.steps >= MAX_STEPS:
            self.ended = LIMITS[0]
        if self.house.limited and self.errors >= MAX_ERRORS:
            self.ended = LIMITS[1]
        return self.ended in LIMITS

    # -- the end ---------------------------------------------------------------------------------------------------

    def grade(self, *, finished: bool) -> Outcome | Tool:
        if not finished or self.ended not in STOPPED:
            return self._outcome(Graded({}, {}), cut=True)
        graded = grade(self.domain, self.plan, self.state, self.log, corrected=self.house.corrected)
        criteria = self.plan.criteria
        if criteria is None or "NL_ASSERTION" not in criteria.basis:
            return self._outcome(graded)
        if not criteria.judged or self.house.judge is None:  # a task that needs a judge is not opened without one
            graded.parts["NL_ASSERTION"] = 1.0
            return self._outcome(graded)
        judge, wanted = self.house.judge, criteria.judged

        async def run(context: ToolContext) -> ToolResult:
            met = await ask_judge(judge, wanted, self.log, context.seed, context.bill)
            graded.parts["NL_ASSERTION"] = float(all(met))
            graded.details["judged"] = met
            return ToolResult("judged", outcome=self._outcome(graded))

        suspends, seconds = judge.model.suspends, deadline(judge.model)
        return Tool("judge", "", NO_ARGUMENTS, run, (judge.item,), suspends=suspends, deadline_seconds=seconds)

    def to_grade(self) -> dict[str, Any]:
        """Give what is graded again (Regradable). The user's calls are among them, which the agent never saw."""
        log = kept_entries(self.log[len(_past(self.plan)) :])
        return {"ended": self.ended, "steps": self.steps, "errors": self.errors, "log": log}

    def take_up(self, kept: Mapping[str, Any], context: ToolContext) -> None:
        """Take up what is graded again (Regradable). A call that fails is an answer here, so none is refused."""
        del context
        self.log = _past(self.plan)
        for entry in entries_kept(kept["log"]):
            if isinstance(entry, Done):
                entry = entry._replace(**self.state.call(entry.side, *entry.call)._asdict())
            self.log.append(entry)
        self.ended, self.steps, self.errors = kept["ended"], kept["steps"], kept["errors"]

    def recording(self, sim_id: str, reward: float) -> Recording:
        """The episode as a recorded run, whose user a `replay` user can then repeat."""
        domain, ended, messages = self.domain, self.ended or "max_steps", self.whole_conversation()
        return Recording(sim_id, domain.name, self.plan.task_id, domain.solo, ended, reward, None, None, messages)

    def whole_conversation(self) -> Sequence[Mapping[str, Any]]:
        """Both sides' words and calls in the benchmark's own form; the agent saw none of the user's calls."""
        return recorded_messages(self.log, stops=self.ended == "agent_stop")

    def _outcome(self, graded: Graded, *, cut: bool = False) -> Outcome:
        evidence = {
            "task": self.plan.task_id,
            "domain": self.domain.name,
            "tasks_version": self.domain.release.version,
            "termination": self.ended or "cut_off",
            "parts": graded.parts,
            **graded.details,
            "user": dict(self.user.described) if self.user else {"kind": "none"},
            "steps": self.steps,
            "errors": self.errors,
            "asides": sum(isinstance(entry, Aside) and entry.side == "assistant" for entry in self.log),
            "corrected": self.house.corrected,
        }
        own_doing = self.ended in (*STOPPED, AGENT_ERROR)
        return Outcome(0.0 if cut else graded.value, evidence, "" if own_doing else self.ended)


def _past(plan: Tau2Task) -> Log:
    """The log of the conversation that a task starts in the middle of. domain.start() has made its calls."""
    log: Log = []
    for past in plan.history:
        if past.calls:
            pairs = zip(past.calls, past.outputs, strict=True)
            log += [Done(past.side, *pair, False, joins=place > 0) for place, pair in enumerate(pairs)]
        else:
            log.append(Said(past.side, past.text))
    return log


# -- the listener ----------------------------------------------------------------------------------------------------


async def _open(context: ToolContext) -> ToolResult:
    world: Tau2World = context.world
    result = await world.listen(context.seed, context.bill)
    return result._replace(final=False)


async def _hear(context: ToolContext, text: str) -> ToolResult:
    world: Tau2World = context.world
    return await world.hear(text, context)


def _alone(context: ToolContext, text: str) -> ToolResult:
    """Nobody is there to read it: an error of the agent's that ends the work."""
    world: Tau2World = context.world
    stops = not world.house.corrected and STOPS[0] in text
    world.log.append(Said("assistant", text))
    world.ended = world.ended or ("agent_stop" if stops else AGENT_ERROR)
    return ToolResult(text, final=True)


def listener_of(user: User | None) -> Tool:
    """The one who takes a message without calls."""
    return _listener(user.bills, user.suspends, deadline(user.model, MOST_USER_CALLS)) if user else _NOBODY


_NOBODY = Tool("message", "Nobody reads it.", MESSAGE, _alone)


@lru_cache(maxsize=32)
def _listener(bills: tuple[str, ...], suspends: bool, seconds: float) -> Tool:
    return Tool("message", "Goes to the user.", MESSAGE, _hear, bills, suspends=suspends, deadline_seconds=seconds)


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run what does not wait: a user that bills nothing has no model behind it."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("a user that bills nothing waited for I/O; name what it bills")
