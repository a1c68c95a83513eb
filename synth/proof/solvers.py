"""Policies that try tasks: the oracle, shortcuts that ought to fail, and a second reader.

A second reader is a model that solves tasks from the text alone, several times. Where none of its tries ends as the
gold path does, either the task is hard, or its words mean something else than its gold path: if the tries agree with
each other, the second is likely.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale.gold_conversation import CLOSING, moves
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.task_checks import stranger_read
from toolorchestra.synth.storage import JUDGE, PaidModel, PaidRequest

MOST_MOVES = 50
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_ASKS = "Do you confirm (yes/no)?"
_TELLS = "For your information: "
_GIVES_UP = "I am sorry, but I cannot do this."
_GRAMMAR = (
    "You serve a customer through tools. Do what the policy and the customer's words ask for, and nothing else. To "
    'call a tool write <tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call> and nothing beside it. Any other '
    "text is said to the customer. Tell the customer all that was asked for. The tools: {tools}"
)
_SETTLED = f"That has been settled. {CLOSING}"


Player = Callable[[Any], Awaitable[str]]
"""A player of one episode: from an observation to the next turn; "" gives up."""


class Solver(Protocol):
    """A policy that tries tasks."""

    @property
    def name(self) -> str: ...

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Player:
        """A player of one episode."""
        ...


class Try(NamedTuple):
    """What came of one episode."""

    solved: bool
    missing: tuple[str, ...]
    """What gold has told or touched, and this try has not."""
    calls: tuple[GoldCall, ...]
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Scripted:
    """The oracle, with shortcuts."""

    name: str
    requests: int | None = None
    """How many requests are settled, the others turned down; None: all."""
    tells: bool = True
    writes: bool = True
    identifies: bool = True
    asks: bool = True
    """Whether it asks before it writes."""
    curious: bool = False
    """Whether it reads another person's record."""

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Player:
        return scripted(self._moves(bench, task))

    def _moves(self, bench: DomainPlayer, task: SqlTask) -> Iterator[str]:
        if self.requests == 0:
            yield from [_GIVES_UP] * MOST_MOVES
        settled = called = 0
        for text in moves(bench.domain, task):
            if self.requests is not None and settled >= self.requests:
                break
            if not self.asks and text.endswith(_ASKS):
                continue
            if text.startswith(_OPEN):
                called += 1
                if called <= task.identify and not self.identifies:
                    continue
                if self.curious and called == task.identify + 1 and (read := stranger_read(bench, task.caller)):
                    yield render_call(read.name, dict(read.arguments))
                row = json.loads(text[len(_OPEN) : -len(_CLOSE)])
                if self.writes or bench.domain.tools[row["name"]].kind == "read":
                    yield render_call(row["name"], row["arguments"])
                continue
            yield _SETTLED if _TELLS in text and not self.tells else text
            settled += CLOSING in text or "There is no exception" in text or "transferred to" in text  # ends a request
        yield from [_GIVES_UP] * (MOST_MOVES if self.requests is not None else 0)


def scripted(moves_: Iterator[str]) -> Player:
    """A player that says these turns, whatever it hears."""

    async def move(_observation: Any) -> str:
        return next(moves_, "")

    return move


ORACLE = Scripted("oracle")
TRIVIAL: tuple[Scripted, ...] = (Scripted("idle", requests=0), Scripted("mute", tells=False, writes=False))
"""Policies that should solve nothing but what is to be refused: they turn all down, or look and then say nothing."""


@dataclass(frozen=True)
class ModelSolver:
    """A model that is served, played through the environment's text interface; its calls are paid like an author's."""

    paid_model: PaidModel

    @property
    def name(self) -> str:
        """The model's name."""
        return self.paid_model.model

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Player:
        async def move(observation: Any) -> str:
            tools = json.dumps(list(observation["tools"]), ensure_ascii=False)
            grammar = Message(role="system", content=_GRAMMAR.format(tools=tools))
            asked = PaidRequest("reader", JUDGE, (grammar, *observation["messages"]), seed)
            return (await self.paid_model.ask(asked)).text

        return move


class Arena:
    """A domain folder on which solvers are tried."""

    def __init__(self, domain: str) -> None:
        self.domain: SqlDomain = ready(domain).domain
        self.bench = DomainPlayer(self.domain)
        # Without experts: the simulated ones know the gold path, and a reader is to read.
        self.env = OrchestraEnv(ToolScaleSource(domain, call_expert=False), preference="none")

    async def play(self, solver: Solver, task_id: str, seed: int) -> Try:
        """Let a solver play one episode of a task, and return what came of it."""
        move = solver.begin(self.bench, self.domain.tasks[task_id], seed)
        options = {"task_id": f"toolscale/{self.domain.name}/{task_id}"}
        observation, info = self.env.reset(seed=seed, options=options)
        reward, outcome = 0.0, None
        for _ in range(MOST_MOVES):
            text = await move(observation)
            if not text:
                break
            observation, reward, terminated, truncated, info = self.env.step(text)
            if terminated or truncated:
                outcome = info.get("outcome")
                break
        missing = tuple(map(str, outcome["evidence"].get("missing", ()))) if outcome else ()
        episode: Any = self.env.episode
        calls = tuple(called.action for called in episode.world.calls) if episode is not None else ()
        return Try(reward == 1.0, missing, calls, observation["messages"])

    async def passes(self, solver: Solver, task_id: str) -> bool:
        """Whether a solver solves a task."""
        return (await self.play(solver, task_id, 0)).solved


# -- a second reader ---------------------------------------------------------------------------------------------------

MOST_SHOWN = 6_000
"""Characters of a transcript that are kept."""
MOST_FAULTS = 6
"""Disagreements that an author is shown at a time."""
Kind = Literal["agrees", "differs", "unsure"]
"""Some try ends as gold does; no try does, and all made the same changes; no try does, and they differ."""
KINDS = {
    "agrees": "solved by the reader",
    "differs": "tries agree with each other, not with gold",
    "unsure": "no try ends as gold does, and they differ",
}


@dataclass(frozen=True)
class Reading:
    """All tries at one task, beside its gold path."""

    task_id: str
    intents: tuple[str, ...]
    kind: Kind
    solved: int
    tries: int
    gold: tuple[str, ...]
    """The changes that the gold path makes, as `tool(arguments)`."""
    changed: tuple[str, ...]
    """Changes of the first try that is not solved, or of the first."""
    missing: tuple[str, ...]
    """What gold has told or touched, and that try has not."""
    transcript: str
    """The conversation of that try."""

    def text(self) -> str:
        """The reading in a sentence or two, and the transcript."""
        did, gold = ("; ".join(calls) or "nothing" for calls in (self.changed, self.gold))
        lacks = f"; not told or looked at: {', '.join(self.missing)}" if self.missing else ""
        agreed = ", and the tries agree with each other" if self.kind == "differs" and self.tries > 1 else ""
        return (
            f"task {self.task_id} ({', '.join(self.intents)}): {self.solved} of {self.tries} tries end as gold does"
            f"{agreed}. Gold changes: {gold}. The reader changed: {did}{lacks}\nThe reader's"
            f" conversation:\n{self.transcript}"
        )


async def readings(
    arena: Arena, reader: Solver, count: int, tries: int, seen: Callable[[int, int], None]
) -> list[Reading]:
    """Readings of so many tasks, spread evenly (0: all), each read several times. Raises SpendCapReached."""
    ids, made = list(arena.domain.tasks), []
    if 0 < count < len(ids):
        ids = [ids[place * len(ids) // count] for place in range(count)]
    for number, task_id in enumerate(ids, 1):
        made.append(_reading(arena, task_id, [await arena.play(reader, task_id, seed) for seed in range(tries)]))
        seen(number, len(ids))
    return made


def _reading(arena: Arena, task_id: str, made: Sequence[Try]) -> Reading:
    task = arena.domain.tasks[task_id]
    writes = [_written(arena, one.calls) for one in made]
    solved = sum(one.solved for one in made)
    kind: Kind = "agrees" if solved else "differs" if len(set(writes)) == 1 else "unsure"
    shown = next((number for number, one in enumerate(made) if not one.solved), 0)
    # The policy is left out, and where the rest is long, its beginning.
    said = "\n".join(f"{m['role']}: {m['content']}" for m in made[shown].messages if m["role"] != "system")
    return Reading(
        task_id, tuple(request.intent for request in task.requests), kind, solved, len(made),
        _written(arena, task.actions), writes[shown], made[shown].missing,
        said if len(said) <= MOST_SHOWN else f"[...]{said[-MOST_SHOWN:]}",
    )  # fmt: skip


def _written(arena: Arena, calls: Sequence[GoldCall]) -> tuple[str, ...]:
    """The calls that change something, in an order that does not depend on theirs."""
    writes = (call for call in calls if call.name in arena.domain.writes)
    shown = (f"{c.name}({json.dumps(dict(c.arguments), ensure_ascii=False, sort_keys=True)})" for c in writes)
    return tuple(sorted(shown))


def reader_faults(made: Sequence[Reading], known: Collection[str]) -> list[Fault]:
    """One for each intent that is suspected, with the transcript: those where the tries agree with each other first. An
    intent of a task that was solved elsewhere is suspected less than others of the same task."""
    cleared = {name for one in made if one.kind == "agrees" for name in one.intents}
    found: dict[str, Fault] = {}
    for one in sorted((one for one in made if one.kind != "agrees"), key=lambda one: (one.kind, len(one.intents))):
        named = [name for name in one.intents if name in known]  # a request that follows another has no intent alone
        for name in [name for name in named if name not in cleared] or named:
            found.setdefault(name, Fault("second reader", one.text(), name))
    return list(found.values())[:MOST_FAULTS]
