"""Policies that try tasks: scripted ones of graded strength, shortcuts that ought to fail, and served models.

A scripted solver is the oracle with slips: at each call or telling it errs with some chance. It shows whether tasks can
tell a careful policy from a careless one; it says nothing about how a model would fare.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.oracle import CLOSING, moves
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.task_checks import stranger_read
from toolorchestra.synth.storage import SOLVER, PaidModel, PaidRequest, Role

K = 8
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


class Playing(Protocol):
    """The player of one episode."""

    async def move(self, observation: Any) -> str:
        """The next turn; "" gives up."""
        ...


class Solver(Protocol):
    """A policy that tries tasks."""

    @property
    def name(self) -> str: ...

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Playing:
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
    """The oracle with slips and shortcuts."""

    name: str
    slips: float = 0.0
    """The chance to err at each call and at each telling."""
    requests: int | None = None
    """So many requests are settled, the others turned down; None: all."""
    tells: bool = True
    writes: bool = True
    identifies: bool = True
    asks: bool = True
    """Before it writes."""
    curious: bool = False
    """It reads another person's record."""

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Playing:
        rng = random.Random(f"{self.name}/{task.task_id}/{seed}")
        return _Scripted(self._moves(bench, task, rng))

    def _moves(self, bench: DomainPlayer, task: SqlTask, rng: random.Random) -> Iterator[str]:
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
                yield from self._call(bench, json.loads(text[len(_OPEN) : -len(_CLOSE)]), rng)
                continue
            slips = _TELLS in text and (not self.tells or rng.random() < self.slips)
            yield _SETTLED if slips else text
            settled += _ends(text)
        yield from [_GIVES_UP] * (MOST_MOVES if self.requests is not None else 0)

    def _call(self, bench: DomainPlayer, row: dict[str, Any], rng: random.Random) -> Iterator[str]:
        if not self.writes and bench.domain.tools[row["name"]].kind == "write":
            return
        if rng.random() < self.slips:
            swaps = [other for _, other in bench.swaps(GoldCall(row["name"], row["arguments"]))]
            if not swaps or rng.random() < 0.5:
                return
            row["arguments"] = dict(rng.choice(swaps).arguments)
        yield render_call(row["name"], row["arguments"])


def _ends(text: str) -> bool:
    """Whether a message of the oracle's ends a request."""
    return CLOSING in text or "There is no exception" in text or "transferred to" in text


class _Scripted:
    __slots__ = ("_moves",)

    def __init__(self, made: Iterator[str]) -> None:
        self._moves = made

    async def move(self, observation: Any) -> str:
        return next(self._moves, "")


GRADED: tuple[Scripted, ...] = tuple(
    Scripted(name, slips) for name, slips in (("oracle", 0.0), ("strong", 0.03), ("fair", 0.1), ("weak", 0.3))
)
"""From the strongest to the weakest. SIMULATED policies."""
TRIVIAL: tuple[Scripted, ...] = (Scripted("idle", requests=0), Scripted("mute", tells=False, writes=False))
"""Policies that should solve nothing but what is to be refused: they turn all down, or look and then say nothing."""
SHORTCUTS: tuple[Scripted, ...] = (Scripted("first-request", requests=1),)
"""Solves what has one request, or only one that is served."""
RULE_BREAKERS: tuple[Scripted, ...] = (
    Scripted("unidentified", identifies=False),
    Scripted("unasked", asks=False),
    Scripted("curious", curious=True),
)
"""Oracles that break one rule of process. They solve what the rule does not touch, and all where a domain has none."""
SCRIPTED = {solver.name: solver for solver in (*GRADED, *TRIVIAL, *SHORTCUTS, *RULE_BREAKERS)}


@dataclass(frozen=True)
class ModelSolver:
    """A model that is served, played through the environment's text interface; its calls are paid like an author's."""

    paid_model: PaidModel
    stage: str = "filters"
    role: Role = SOLVER

    @property
    def name(self) -> str:
        """The model's name."""
        return self.paid_model.model

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Playing:
        return _ModelPlaying(self, seed)


class _ModelPlaying:
    __slots__ = ("_seed", "_solver")

    def __init__(self, solver: ModelSolver, seed: int) -> None:
        self._solver, self._seed = solver, seed

    async def move(self, observation: Any) -> str:
        tools = json.dumps(list(observation["tools"]), ensure_ascii=False)
        grammar = Message(role="system", content=_GRAMMAR.format(tools=tools))
        asked = PaidRequest(
            self._solver.stage, self._solver.role, (grammar, *observation["messages"]), self._seed
        )  # fmt: skip
        return (await self._solver.paid_model.ask(asked)).text


def named(names: Sequence[str]) -> list[Solver]:
    """The scripted solvers with these names. Raises ConfigError where a name is unknown."""
    if unknown := [name for name in names if name not in SCRIPTED]:
        raise ConfigError(no_such("scripted solver", unknown[0], SCRIPTED))
    return [SCRIPTED[name] for name in names]


class Arena:
    """A domain folder on which solvers are tried."""

    def __init__(self, domain: str) -> None:
        self.domain: SqlDomain = ready(domain).domain
        self.bench = DomainPlayer(self.domain)
        self.env = OrchestraEnv(ToolScaleSource(domain), preference="none")

    async def play(self, solver: Solver, task_id: str, seed: int) -> Try:
        """Has a solver play one episode of a task, and returns what came of it."""
        return await self.follow(solver.begin(self.bench, self.domain.tasks[task_id], seed), task_id, seed)

    async def follow(self, player: Playing, task_id: str, seed: int) -> Try:
        """Has a player that is at hand play one episode of a task."""
        options = {"task_id": f"toolscale/{self.domain.name}/{task_id}"}
        observation, info = self.env.reset(seed=seed, options=options)
        reward, outcome = 0.0, None
        for _ in range(MOST_MOVES):
            text = await player.move(observation)
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

    async def passes(self, solver: Solver, task_id: str, k: int = K) -> int:
        """How many of k tries a solver passes."""
        tries = [await self.play(solver, task_id, seed) for seed in range(k)]
        return sum(found.solved for found in tries)
