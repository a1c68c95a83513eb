"""A second reader: a model that solves tasks from the text alone, several times, through the environment.

It sees what an agent under test sees: the policy, the tools and the conversation. Where none of its tries ends as the
gold path does, either the task is hard, or its words mean something else than its gold path. If the tries agree with
each other and not with gold, the second is likely. The author is shown the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale.domain import GoldCall
from toolorchestra.synth.proof.solvers import MOST_MOVES, Arena
from toolorchestra.synth.storage.paid_calls import JUDGE, PaidModel, PaidRequest

STAGE = "reader"
MOST_SHOWN = 6_000
"""Characters of a transcript that are kept."""
_GRAMMAR = (
    "You serve a customer through tools. Do what the policy and the customer's words ask for, and nothing else. To "
    'call a tool write <tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call> and nothing beside it. Any other '
    "text is said to the customer. Tell the customer all that was asked for. The tools: {tools}"
)
Kind = Literal["agrees", "differs", "unsure"]
"""Some try ends as gold does; no try does, and all made the same changes; no try does, and they differ."""


@dataclass(frozen=True)
class ReaderTry:
    """One try at a task."""

    solved: bool
    writes: tuple[str, ...]
    """The changes that were made, as `tool(arguments)`."""
    missing: tuple[str, ...]
    """What gold has told or touched, and this try has not."""
    transcript: str


@dataclass(frozen=True)
class Reading:
    """All tries at one task, beside its gold path."""

    task_id: str
    intents: tuple[str, ...]
    kind: Kind
    solved: int
    tries: int
    gold: tuple[str, ...]
    """The changes that the gold path makes."""
    told: tuple[str, ...]
    """What the gold path tells the user."""
    shown: ReaderTry
    """The first try that is not solved, or the first."""

    def row(self) -> dict[str, Any]:
        """The reading as a dict of plain values, to be written as JSON."""
        return asdict(self)

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Reading:
        """Makes a Reading of what row() gave."""
        shown = row["shown"]
        first = ReaderTry(shown["solved"], tuple(shown["writes"]), tuple(shown["missing"]), shown["transcript"])
        texts = {name: tuple(row[name]) for name in ("intents", "gold", "told")}
        return cls(**{**row, **texts, "shown": first})

    def text(self) -> str:
        """The reading in a sentence or two, without the transcript."""
        did = "; ".join(self.shown.writes) or "nothing"
        gold = "; ".join(self.gold) or "nothing"
        lacks = f"; not told or looked at: {', '.join(self.shown.missing)}" if self.shown.missing else ""
        agreed = ", and the tries agree with each other" if self.kind == "differs" and self.tries > 1 else ""
        return (
            f"task {self.task_id} ({', '.join(self.intents)}): {self.solved} of {self.tries} tries end as gold does"
            f"{agreed}. Gold changes: {gold}. The reader changed: {did}{lacks}"
        )


@dataclass(frozen=True)
class SecondReader:
    """Reads tasks with one model."""

    paid_model: PaidModel
    tries: int = 3

    async def read(self, arena: Arena, task_id: str) -> Reading:
        """All tries at one task. Raises SpendCapReached."""
        task = arena.domain.tasks[task_id]
        made = [await self._try(arena, task_id, seed) for seed in range(self.tries)]
        solved = sum(one.solved for one in made)
        same = len({one.writes for one in made}) == 1
        kind: Kind = "agrees" if solved else "differs" if same else "unsure"
        shown = next((one for one in made if not one.solved), made[0])
        intents = tuple(request.intent for request in task.requests)
        gold = written(arena, task.actions)
        return Reading(task_id, intents, kind, solved, self.tries, gold, task.communicate, shown)

    async def _try(self, arena: Arena, task_id: str, seed: int) -> ReaderTry:
        options = {"task_id": f"toolscale/{arena.domain.name}/{task_id}"}
        observation, info = arena.env.reset(seed=seed, options=options)
        reward, outcome = 0.0, None
        for _ in range(MOST_MOVES):
            text = await self._move(observation, seed)
            if not text:
                break
            observation, reward, terminated, truncated, info = arena.env.step(text)
            if terminated or truncated:
                outcome = info.get("outcome")
                break
        episode = arena.env.episode
        calls: Sequence[Any] = episode.world.calls if episode is not None else ()  # type: ignore[attr-defined]
        evidence = outcome["evidence"] if outcome else {}
        missing = tuple(map(str, evidence.get("missing", ())))
        writes = written(arena, [called.action for called in calls])
        return ReaderTry(reward == 1.0, writes, missing, transcript(observation["messages"]))

    async def _move(self, observation: Any, seed: int) -> str:
        grammar = _GRAMMAR.format(tools=json.dumps(list(observation["tools"]), ensure_ascii=False))
        messages = (Message(role="system", content=grammar), *observation["messages"])
        answer = await self.paid_model.ask(PaidRequest(STAGE, JUDGE, messages, seed))
        return answer.text


def written(arena: Arena, calls: Sequence[GoldCall]) -> tuple[str, ...]:
    """The calls that change something, in an order that does not depend on theirs."""
    shown = [
        f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False, sort_keys=True)})"
        for call in calls
        if arena.domain.tools[call.name].kind == "write"
    ]
    return tuple(sorted(shown))


def transcript(messages: Sequence[Message]) -> str:
    """What was said and called, without the policy, from the end where it is long."""
    lines = [f"{m['role']}: {m['content']}" for m in messages if m["role"] != "system"]
    text = "\n".join(lines)
    return text if len(text) <= MOST_SHOWN else f"[...]{text[-MOST_SHOWN:]}"


def sample(ids: Sequence[str], count: int) -> list[str]:
    """So many tasks, spread evenly over all; all of them for 0."""
    return list(ids) if not count or count >= len(ids) else [ids[i * len(ids) // count] for i in range(count)]
