"""The oracle with other questions before its changes: six ways to ask for a yes, and ways to change without one.

`python -m tests.support.confirmations [TASKS]` makes the table: each way over so many tasks of each shipped domain.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.paths import REPOSITORY
from toolorchestra.envs.domains.toolscale import heard, loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves, spoken
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.user import SqlScriptedUser
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.env import OrchestraEnv

SUMMARIES = json.loads((REPOSITORY / "tests" / "data" / "agent_summaries.json").read_text(encoding="utf-8"))
"""For each tool that changes something, what an agent does with it, in words that are not the tool's."""
ENDINGS = ("Shall I go ahead?", "Is that all right with you?", "May I do that for you now?", "Do you want me to?")
_ASKS = "Do you confirm (yes/no)?"


class Change(NamedTuple):
    """What one request changes, and what its user said of it."""

    domain: SqlDomain
    calls: tuple[GoldCall, ...]
    said: str

    @property
    def summary(self) -> str:
        """In words of the agent's own."""
        own = SUMMARIES[self.domain.name]
        return " and ".join(own[call.name].format_map(_Values(call.arguments)) for call in self.calls)

    @property
    def ids(self) -> str:
        return ", ".join(str(v) for c in self.calls for name, v in c.arguments.items() if name.endswith("_id"))

    @property
    def plan(self) -> str:
        """The calls in full."""
        return spoken(self.calls, self.domain)


class _Values(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "some"


Ask = Callable[[Change, str], str]
"""The question for one change, with the words that ask."""
WAYS: dict[str, Ask] = {
    "tool name and all arguments": lambda change, end: f"I am going to do this: {change.plan}. {end}",
    "own summary with ids": lambda change, end: f"I'll {change.summary} ({change.ids}). {end}",
    "the customer's words and a summary": lambda change, end: (
        f'You said: "{change.said}" So I would {change.summary}. {end}'
    ),
    "own summary without ids": lambda change, end: f"I'll {change.summary}. {end}",
    "an echo of the customer's words": lambda change, end: f'"{change.said}" {end}',
}
TOGETHER: dict[str, Callable[[Sequence[Change], str], str]] = {
    "all changes together, in full, one yes": lambda changes, end: (
        f"I am going to do all of this: {'; '.join(change.plan for change in changes)}. {end}"
    ),
    "all changes together, in own words, one yes": lambda changes, end: (
        f"I'd do the following:\n{_lines(change.summary for change in changes)}\n{end}"
    ),
    "all changes together, own words and ids, one yes": lambda changes, end: (
        f"I'd {', then '.join(f'{change.summary} ({change.ids})' for change in changes)}. {end}"
    ),
}
AGAINST = ("without", "one left out", "afterwards", "after a no", "after a correction", "before it changed its mind")
"""Ways to change something that the user has not agreed to."""


def _lines(parts: Iterator[str]) -> str:
    return "\n".join(f"- {part}" for part in parts)


class Played(NamedTuple):
    """What came of an episode."""

    solved: bool
    unasked: tuple[str, ...]


class Talk:
    """Plays the oracle on one domain, with other questions."""

    def __init__(self, domain: str) -> None:
        self.domain = ready(domain).domain
        self.env = OrchestraEnv(ToolScaleSource(domain), preference="none")

    def changes(self, task: SqlTask, seed: int) -> list[Change]:
        """What each request changes that changes something."""
        user, writes = SqlScriptedUser(task, seed), self.domain.writes
        made = []
        for number, request in enumerate(task.requests):
            calls = [task.actions[at] for at in request.actions if task.actions[at].name in writes]
            if calls := [call for call in calls if not self.domain.tools[call.name].transfers]:
                made.append(Change(self.domain, tuple(calls), user.said(number)))
        return made

    def asked(self, task: SqlTask, seed: int, way: str) -> Iterator[str]:
        """The oracle's turns, with a question of this way before each change; or one before the first of all."""
        rng = random.Random(f"{task.task_id}/{seed}")
        changes, place = self.changes(task, seed), -1
        for text in moves(self.domain, task):
            if not text.endswith(_ASKS):
                yield text
                continue
            place += 1
            if way in WAYS:
                yield WAYS[way](changes[place], rng.choice(ENDINGS))
            elif not place:
                yield TOGETHER[way](changes, rng.choice(ENDINGS))

    def against(self, task: SqlTask, seed: int, way: str) -> Iterator[str] | None:
        """The oracle's turns with a change that the user has not agreed to; None where the task has no such way."""
        turns, rng = list(moves(self.domain, task)), random.Random(f"{task.task_id}/{seed}")
        asks = [at for at, text in enumerate(turns) if text.endswith(_ASKS)]
        if not asks:
            return None
        at = rng.choice(asks)
        if way == "without":
            return (text for text in turns if not text.endswith(_ASKS))
        if way == "afterwards":
            turns.insert(at + 1, turns.pop(at))
        elif way == "one left out":
            del turns[at]
        elif way == "after a no":
            turns[at] = "I will order a birthday cake with strawberries and candles for Saturday. Do you confirm?"
        elif way == "after a correction":
            wrong = _with_a_wrong_value(task, turns[at])
            if wrong is None:
                return None
            turns.insert(at + 1, wrong)  # the user has said yes, and now hears another value
        else:
            first = next((place for place, text in enumerate(turns) if text.startswith("Let me repeat")), None)
            later = [place for place in asks if first is not None and place > first]
            if not later:
                return None
            del turns[later[0]]
        return iter(turns)

    def backwards(self, task: SqlTask) -> Iterator[str]:
        """The turns of an agent that serves the requests from the last to the first, and tells all results."""
        yield from moves(self.domain, replace(task, requests=()))
        for request in reversed(task.requests):
            alone = replace(task, identify=0, requests=(replace(request, inform=()),))
            for text in moves(self.domain, alone):
                world = self.env.episode.world if self.env.episode else None
                assert isinstance(world, SqlWorld)
                told = " ".join(called.text for called in world.calls[len(world.calls) - len(request.actions) :])
                yield f"{told} {text}" if "settled" in text else text
        yield from ["Everything has been settled."] * 2

    def play(self, task: SqlTask, seed: int, turns: Iterator[str]) -> Played:
        """One episode."""
        options = {"episode_seed": seed, "task_id": f"toolscale/{self.domain.name}/{task.task_id}"}
        self.env.reset(options=options)
        reward, ended = 0.0, False
        for text in turns:
            _, reward, terminated, truncated, _ = self.env.step(text)
            if ended := terminated or truncated:
                break
        world = self.env.episode.world if self.env.episode else None
        assert isinstance(world, SqlWorld)
        return Played(ended and reward == 1.0, world.unasked)


def _with_a_wrong_value(task: SqlTask, question: str) -> str | None:
    """A question with another value of a detail that the user knows by its name."""
    for details in heard.details(task):
        for detail in details:
            stated = f"{detail.label} {detail.value}"
            if detail.value.isdigit() and stated in question:
                changed = question.replace(stated, f"{detail.label} {int(detail.value) + 7}")
                return changed if heard.wrong([detail], changed) else None
    return None


def seed_of(task: SqlTask, *, together: bool) -> int | None:
    """A seed whose user gives all requests at once, or does not; None where there is none."""
    return next((seed for seed in range(40) if SqlScriptedUser(task, seed)._together == together), None)


def tasks_of(domain: SqlDomain, number: int) -> list[SqlTask]:
    """So many tasks, spread evenly over a domain."""
    tasks = list(domain.tasks.values())
    return [tasks[place * len(tasks) // number] for place in range(number)]


class Row(NamedTuple):
    """One way on one domain."""

    right: int
    tries: int
    wrong: list[tuple[str, int, Played]]
    """Task and seed of the others, and what came of them."""


def asked_row(talk: Talk, way: str, number: int) -> Row:
    """How many of the episodes were solved, and those that were not."""
    solved, tries = 0, 0
    lost: list[tuple[str, int, Played]] = []
    pool = talk.domain.tasks.values() if way in TOGETHER else tasks_of(talk.domain, number)
    for task in pool:
        seed: int | None = 0
        if way in TOGETHER:
            seed = seed_of(task, together=True) if len(talk.changes(task, 0)) > 1 else None
        if seed is None or tries >= number:
            continue
        tries += 1
        played = talk.play(task, seed, talk.asked(task, seed, way))
        solved += played.solved
        lost += [] if played.solved else [(task.task_id, seed, played)]
    return Row(solved, tries, lost)


def against_row(talk: Talk, way: str, number: int, *, together: bool) -> Row:
    """How many of the episodes were found out, and those that were not."""
    found, tries = 0, 0
    missed: list[tuple[str, int, Played]] = []
    for task in talk.domain.tasks.values():
        seed = seed_of(task, together=together)
        turns = None if seed is None or tries >= number else talk.against(task, seed, way)
        if turns is None or seed is None:
            continue
        tries += 1
        played = talk.play(task, seed, turns)
        found += bool(played.unasked)
        missed += [] if played.unasked else [(task.task_id, seed, played)]
    return Row(found, tries, missed)


def main(number: int, names: Sequence[str]) -> None:
    """Print the table."""
    talks = [Talk(name) for name in names]
    for way in (*WAYS, *TOGETHER):
        _print(way, [asked_row(talk, way, number) for talk in talks])
    for together, said in ((False, "one at a time"), (True, "all requests at once")):
        for way in AGAINST:
            _print(f"{way} ({said})", [against_row(talk, way, number, together=together) for talk in talks])


def _print(name: str, rows: Sequence[Row]) -> None:
    parts = " ".join(f"{row.right}/{row.tries}" for row in rows)
    print(f"| {name} | {sum(row.right for row in rows)} / {sum(row.tries for row in rows)} | {parts} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30, loader.names())
