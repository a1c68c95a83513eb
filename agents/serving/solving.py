"""One question as one episode: opened with its limits, played by a policy to its end, and told with its bill.

    solver = QuestionSolver(factory, player)
    solution = await solver.solve(Asked("How many ...?", budget_usd=0.05, preference="frugal"))

`Policy.solve` and the server of `toolorchestra serve` are made of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolorchestra.agents.policies.base import Player, digest
from toolorchestra.agents.policies.chat_player import ChatPolicy
from toolorchestra.envs.base import preference as preferences
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.answer_grading import final_answer
from toolorchestra.envs.base.errors import POSITIVE, ActionError, ConfigError, ToolError, no_such, one_line, require
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.base.types import Message, Outcome, Transcript
from toolorchestra.envs.domains.source import Asks, Scene, models_of, ungraded
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models import output_tokens_of
from toolorchestra.envs.money.ledger import most_nano_usd, total_tokens
from toolorchestra.envs.money.prices import NANO, Charge, Tokens
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import Gates, advance, begin
from toolorchestra.envs.tools import Tool, Toolbox, tool
from toolorchestra.envs.wrappers.record import trajectory

FAILURE_CHARACTERS = 300
_ENDS = {"": "answered", "spend_cap": "budget", "usd": "budget", "seconds": "deadline"}
"""What ended an episode, in the words of who asked, where they are others."""
Watch = Callable[[Episode, Step], None]


@dataclass(frozen=True)
class Asked:
    """What somebody asks, and what may be spent on it."""

    question: str
    budget_usd: float | None = None
    """The most that the answer may cost. A request that could cost more than what is left is not sent."""
    deadline_seconds: float | None = None
    preference: Any = "none"
    """A kind's name, weights, a Preference, or a sentence of one's own."""
    tools: Sequence[str] | None = None
    """The environment's tools to keep, by name; none at all: the conversation is played with `own` alone."""
    own: Sequence[Tool] = ()
    """Further tools."""
    seed: int = 0
    said: Transcript = ()
    """The conversation so far, where it is played with `own` alone."""
    system: str = ""
    """The system message of it."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the trajectory says of the task beside the question."""

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise ConfigError(f"a question is a text, got {self.question!r:.60}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ConfigError(f"seed is a whole number, got {self.seed!r:.60}")
        limits = ("budget_usd", "deadline_seconds")
        require(self, POSITIVE, *(name for name in limits if getattr(self, name) is not None))


def asked(question: str, *, tools: Sequence[Any] | None = None, **limits: Any) -> Asked:
    """What `Policy.solve` is given: in `tools`, names keep tools of the environment, functions and Tools are added."""
    valid = ("budget_usd", "deadline_seconds", "preference", "seed")
    for name in limits:
        if name not in valid:
            raise ConfigError(no_such("argument of solve()", name, (*valid, "tools")))
    given = [tools] if isinstance(tools, str | Tool) or callable(tools) else list(tools or ())
    names = tuple(one for one in given if isinstance(one, str))
    own = tuple(one if isinstance(one, Tool) else tool(one) for one in given if not isinstance(one, str))
    none = tools is not None and not given
    return Asked(question, tools=names if names or none else None, own=own, **limits)


@dataclass(frozen=True)
class Solution:
    """What came of it."""

    text: str
    ended: str
    """"answered"; or the limit that cut it off: "turns", "context", "deadline", "budget"; or "cancelled", "failed"."""
    usd: float
    usd_by_role: Mapping[str, float]
    seconds: float
    """The episode's clock: simulated time where the models are simulated."""
    calls: Mapping[str, int]
    tokens: Tokens
    trajectory: Mapping[str, Any] = field(repr=False)
    failure: str = ""
    right: float | None = None
    """Whether it is right, where that is known: for the questions of simulated worlds."""
    unconfirmed_usd: float = 0.0
    """The part of `usd` that nobody has confirmed: the most that replies may have cost that nobody read to the end, or
    counted."""
    savings_usd: float | None = None
    """An estimate: what the answering call's tokens would have cost at the most expensive answerer, less `usd`."""


class ClientWorld(World):
    """A conversation whose tools all belong to who asks."""

    def __init__(self, asked: Asked) -> None:
        self.system = asked.system or World.system
        self.toolbox = Toolbox(asked.own)
        self._said = asked.said or (Message(role="user", content=asked.question),)

    def opening(self) -> Transcript:
        """Give what was said."""
        return self._said

    def grade(self, *, finished: bool) -> Outcome:
        """Leave it ungraded."""
        return ungraded(None)


class Solving:
    """One episode on its way."""

    def __init__(self, asked: Asked, episode: Episode, opening: Mapping[str, Any]) -> None:
        self.asked, self.episode, self._opening = asked, episode, opening
        self._turns: list[int] = []
        self._rewards: list[float] = []
        self._last: Step | None = None
        self.said = ""
        """The policy's latest move."""

    def take(self, step: Step) -> None:
        """Note what a turn came to."""
        self._last = step
        self._rewards.append(step.reward)
        self._date()

    def settle(self) -> None:
        """Bill what calls have booked that were broken off."""
        self.episode.settle()
        self._date()

    def _date(self) -> None:
        self._turns += [self.episode.turn] * (len(self.episode.ledger) - len(self._turns))

    def broken(self, err: Exception) -> Solution:
        """Tell what an error broke off: it failed, or the policy's own next turn did not fit into the budget."""
        cap = self.episode.rules.spend_cap
        if isinstance(err, ToolError) and cap is not None and cap.used_up:
            return self.solution("budget")
        return self.solution("failed", f"{type(err).__name__}: {err}")

    def solution(self, ended: str = "", failure: str = "") -> Solution:
        """Tell what came of it. `ended`: what broke it off, where it did not end by itself."""
        self._date()
        episode, info = self.episode, self._last.info if self._last is not None else {}
        if not ended:
            cut = str(info.get("truncated_by", ""))
            ended = _ENDS.get(cut, cut)
        if episode.failure and not failure and ended != "budget":  # which is the asker's own
            failure = f"{episode.failure.where}: {episode.failure.error}"
        value = episode.outcome.value if episode.outcome and ended != "failed" else float("nan")
        ledger = episode.ledger
        terminated = self._last is not None and self._last.terminated
        row = trajectory(episode, self._opening, self._turns, self._rewards, info, terminated=terminated)
        return Solution(
            _answer_of(episode) if ended == "answered" else "",
            ended,
            ledger.usd,
            ledger.usd_by_role(),
            ledger.seconds,
            dict(episode.calls),
            total_tokens([*ledger]),
            row,
            one_line(failure)[:FAILURE_CHARACTERS],
            None if value != value else value,
            ledger.unconfirmed_nano_usd / NANO,
            _savings(episode),
        )


class QuestionSolver:
    """Plays questions with one policy, any number at once, on one event loop."""

    def __init__(self, factory: EpisodeFactory, player: Player) -> None:
        """Raises ConfigError for a player that would have to learn first, from real models."""
        getattr(player, "require_learnt", lambda: None)()
        self.factory, self.player = factory, player
        self._gates = Gates()
        self._asks: Asks | None = factory.source if isinstance(factory.source, Asks) else None

    def open(self, asked: Asked) -> Solving:
        """Open an episode for what is asked. Raises ConfigError where it cannot be."""
        rules = self.factory.rules
        limits = replace(rules.limits, seconds=asked.deadline_seconds or rules.limits.seconds)
        cap = SpendCap(asked.budget_usd) if asked.budget_usd is not None else rules.spend_cap
        scene = self._scene(asked)
        told = preference_of(asked.preference, asked.seed, scene.world.toolbox.keys)
        task_id = f"{self.factory.source.name}/asked/{digest(asked.question, asked.said)[:12]}"
        rules = replace(rules, limits=limits, spend_cap=cap)
        episode, _, info = self.factory.begin(task_id, scene, asked.seed, told, rules)
        kept = {name: info[name] for name in ("preference", "price_sheet")}
        return Solving(asked, episode, {"task": {**asked.metadata, **info["task"]}, **kept})

    def least_usd(self, running: Solving) -> float:
        """The least that the first call has to have set aside: of the model that plays, or else of any tool."""
        episode, models = running.episode, models_of(self.factory.source)
        into = len(running.asked.question.encode("utf-8", "replace"))

        def least(item: str) -> int:
            price = episode.sheet.price(item)
            if price.pico_usd_per_token is None:
                return price.nano_usd_per_unit or 0
            out = output_tokens_of(models(), item, 1) if models is not None else 1
            return most_nano_usd(episode.sheet, item, into, out)

        if isinstance(self.player, ChatPolicy):
            return least(episode.rules.orchestrator) / NANO
        toolbox = episode.world.toolbox
        items = [[offer.model for offer in tool.offers] or list(tool.bills) for tool in toolbox]
        return min((min(map(least, some), default=0) for some in items), default=0) / NANO

    def _scene(self, asked: Asked) -> Scene:
        source, sheet = self._asks, self.factory.sheet
        own: Sequence[Tool] = Toolbox(asked.own).priced(sheet).tools if asked.own else ()
        if asked.tools is not None and not asked.tools:
            return Scene(ClientWorld(replace(asked, own=own)), sheet, {"asked": asked.question})
        if source is None:
            raise ConfigError(
                f"{self.factory.source.name} has tools for its own tasks alone: a question from outside is played with "
                "tools of who asks, and none of the environment's (tools=[]); or give the source a method asked()"
            )
        scene = source.asked(asked.question, asked.seed, sheet, asked.tools)
        if own:
            world: Any = scene.world  # each of them has a slot for its tools
            world.toolbox = Toolbox([*scene.world.toolbox, *own])
        return scene

    async def solve(self, asked: Asked) -> Solution:
        """Open it and play it to its end."""
        return await self.play(self.open(asked))

    async def play(self, running: Solving, watch: Watch | None = None) -> Solution:
        """Play to the end. Whatever breaks down is told in the solution, with what was paid. Only a cancelled one
        raises; then `running.solution("cancelled")` tells it."""
        episode = running.episode

        async def turns() -> None:
            await begin(episode, self._gates)
            while not episode.over:
                running.said, usage = await self.player.move(episode)
                step = await advance(episode, running.said, self._gates, usage)
                running.take(step)
                if watch is not None:
                    watch(episode, step)

        return await self._broken_down(running, turns()) or running.solution()

    async def move(self, running: Solving) -> Solution:
        """Make one move, which is billed and not carried out: `running.said` has it, where the solution's `ended` is
        "moved". Whatever breaks down is told as by `play`."""
        episode = running.episode

        async def turn() -> None:
            running.said, usage = await self.player.move(episode)
            episode.act(running.said, usage)

        if broken := await self._broken_down(running, turn()):
            return broken
        solution = running.solution("moved")
        said = {"role": "assistant", "content": running.said}
        return replace(solution, trajectory={**solution.trajectory, "messages": (*episode.messages, said)})

    async def _broken_down(self, running: Solving, playing: Awaitable[None]) -> Solution | None:
        """Play within the request's deadline. Gives what tells of the break where something broke down."""
        try:
            async with asyncio.timeout(running.asked.deadline_seconds):
                await playing
        except TimeoutError:
            running.settle()
            return running.solution("deadline")
        except Exception as err:  # noqa: BLE001 - who asked is told, and what was paid is billed
            running.settle()
            return running.broken(err)
        except asyncio.CancelledError:
            running.settle()
            raise
        finally:
            getattr(self.player, "forget", lambda _: None)(running.episode)
        return None

    async def aclose(self) -> None:
        """Close the connections to models that belong to the running loop, before it ends."""
        backing = getattr(self.factory.source, "backing", None)
        if backing is not None:
            await backing.aclose()


def preference_of(value: Any, seed: int, keys: Sequence[str]) -> Preference:
    """What may be given as a preference in a request: as gym.make takes it, or a sentence of one's own, which weighs
    nothing: the policy reads it."""
    if isinstance(value, str) and value not in ("none", "sampled", *preferences.kinds()) and " " in value.strip():
        return Preference(kind="own", sentence=one_line(value.strip()))
    preferences.known(value)
    return preferences.read(value, random.Random(seed), keys, "train")


def _answer_of(episode: Episode) -> str:
    """What was answered: what the world says of it, or else the last message."""
    evidence = episode.outcome.evidence if episode.outcome else {}
    if isinstance(said := evidence.get("answer"), str):
        return said
    last = episode.messages[-1]
    try:
        return final_answer(parse(last["content"]).said if last["role"] == "assistant" else last["content"])
    except ActionError:
        return str(last["content"])


def _savings(episode: Episode) -> float | None:
    """What the answer's tokens would have cost at the most expensive model that answers, less what everything cost."""
    answering = episode.world.toolbox.of_kind("answer")
    charges: list[Charge] = [
        c for c in episode.ledger if answering is not None and c.tool in answering.keys and not c.usage.unconfirmed
    ]
    if answering is None or not charges:
        return None
    used = charges[-1].usage
    highest = max(episode.sheet.charge(used._replace(item=offer.model)).nano_usd for offer in answering.offers)
    return (highest - episode.ledger.nano_usd) / NANO
