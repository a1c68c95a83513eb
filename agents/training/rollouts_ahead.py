"""Rollouts that go on while the trainer steps: `max_staleness` steps ahead of it at most.

Groups have numbers, which say what tasks are played. The groups of `max_staleness` + 1 steps are under way or done. A
step takes those begun first, and of those begun at the same step the ones that ended first. A younger group never goes
before an older one: the older ones would become too many for the step that must take them. So nothing that was played
is thrown away, and no token that is learnt from is older than `max_staleness` steps. A checkpoint says which numbers
have been taken; a run that goes on plays the others again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import ChosenTask, chosen_tasks
from toolorchestra.agents.engines.base import Engine, Samples
from toolorchestra.agents.engines.guarded_processes import LoopThread
from toolorchestra.agents.evaluation.heldout import baseline_measures
from toolorchestra.agents.rollouts.grpo import Group
from toolorchestra.agents.rollouts.rollout import Chat, RolloutParams, Rollouts, siblings
from toolorchestra.agents.rollouts.time_split import TimeSplit
from toolorchestra.envs.money.journal import require_money
from toolorchestra.envs.runtime.invoke import Gates


@dataclass(frozen=True)
class TakenGroups:
    """What a step learns from."""

    groups: list[Group]
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class GroupNumbers:
    """Numbers of the groups that have been taken. What a checkpoint keeps of rollouts ahead."""

    taken_below: int = 0
    """All groups with lower numbers were taken."""
    taken: set[int] = field(default_factory=set)
    """The groups with higher numbers that were taken too."""

    def take(self, number: int) -> None:
        """Raises ValueError where it was taken before."""
        if number < self.taken_below or number in self.taken:
            raise ValueError(f"group {number} would be learnt from twice")
        self.taken.add(number)
        while self.taken_below in self.taken:
            self.taken.discard(self.taken_below)
            self.taken_below += 1

    def left(self, end: int) -> list[int]:
        """Numbers below `end` that were not taken."""
        return [number for number in range(self.taken_below, end) if number not in self.taken]

    def state(self) -> dict[str, Any]:
        """Groups that were taken, as a dict for a checkpoint."""
        return {"taken_below": self.taken_below, "taken": sorted(self.taken)}


class TurnGate:
    """A gate that turns pass: it is closed at first, while the sampler takes new weights, and while an evaluation
    samples. Turns that are under way end with the weights they began with, new ones wait, tools go on working, and
    deadlines stand still. It is for the episodes of one event loop, on which everything here is called."""

    def __init__(self, most: int) -> None:
        """`most`: turns that may be sampled at a time."""
        self._free = most
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of those that wait for a place, by their order and then by when they came."""
        self._numbers = itertools.count()
        self._open = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0
        self._deadlines: set[asyncio.Timeout] = set()
        self._left: dict[asyncio.Timeout, float] = {}
        """Seconds that were left of each deadline when the gate was closed."""
        self.step = 0
        """The step of the weights that turns are sampled with now."""

    @asynccontextmanager
    async def deadline(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError when the gate has been open for so many seconds."""
        async with asyncio.timeout(seconds) as limit:
            self._deadlines.add(limit)
            if not self._open.is_set():
                self._stop_clock(limit)
            try:
                yield
            finally:
                self._deadlines.discard(limit)
                self._left.pop(limit, None)

    @asynccontextmanager
    async def turn(self, order: int = 0) -> AsyncIterator[int]:
        """One turn, once there is a place and the gate is open. Of those that wait the lowest order comes first. Gives
        the step of the weights that the turn is sampled with."""
        await self._take_place(order)
        try:
            while not self._open.is_set():
                await self._open.wait()
            self._inside += 1
            self._empty.clear()
            try:
                yield self.step
            finally:
                self._inside -= 1
                if not self._inside:
                    self._empty.set()
        finally:
            self._give_place()

    async def _take_place(self, order: int) -> None:
        if self._free:
            self._free -= 1
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (order, next(self._numbers), given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():  # it was given a place in the same moment
                self._give_place()
            raise

    def _give_place(self) -> None:
        while self._queue:
            *_, waiting = heapq.heappop(self._queue)
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1

    async def close(self) -> None:
        """Let nobody in any more, and wait until all turns that are under way have ended."""
        self._open.clear()
        for limit in self._deadlines - self._left.keys():
            self._stop_clock(limit)
        await self._empty.wait()

    async def open(self, step: int) -> None:
        """Let turns in again, which are sampled with the weights of that step."""
        now = asyncio.get_running_loop().time()
        for limit, seconds in self._left.items():
            if not limit.expired():
                limit.reschedule(now + seconds)
        self._left.clear()
        self.step = step
        self._open.set()

    def _stop_clock(self, limit: asyncio.Timeout) -> None:
        if (at := limit.when()) is not None and not limit.expired():
            self._left[limit] = at - asyncio.get_running_loop().time()
            limit.reschedule(None)


class GatedRollouts(Rollouts):
    """Rollouts whose turns pass a gate."""

    def __init__(self, engine: Samples, chat: Chat, params: RolloutParams, gate: TurnGate, split: TimeSplit) -> None:
        super().__init__(engine, chat, params, Gates())
        self._gate, self.split = gate, split

    def deadline(self) -> AbstractAsyncContextManager[Any]:
        """The limit of an episode. It stands still while the gate is closed."""
        return self._gate.deadline(self.params.deadline_seconds)

    def turn(self, name: str) -> AbstractAsyncContextManager[int]:
        """A turn's place at the gate. Groups that were begun first go first: they are waited for, and their past is in
        the cache."""
        return self._gate.turn(int(name.partition(".")[0]))


class RolloutsAhead:
    """Plays groups in a thread of its own. All methods are called by the thread that trains."""

    def __init__(
        self, config: TrainConfig, engine: Engine, chat: Chat, params: RolloutParams, state: Mapping[str, Any]
    ):
        self._config, self._engine, self._params = config, engine, params
        self._chat = chat.copy()
        """The other thread's own: a tokenizer is not for two at a time."""
        self.numbers = GroupNumbers(state.get("taken_below", 0), set(state.get("taken", ())))
        self._gate = TurnGate(config.model.rows)
        self._split = TimeSplit()
        self._thread = LoopThread("rollouts")
        self._rollouts: GatedRollouts | None = None
        self._begun: dict[int, int] = {}
        """Groups that were not taken, each with the step of the weights that were there when they were begun."""
        self._ended: dict[int, Group] = {}
        """Groups among them that have ended, in that order."""
        self._taken: list[int] = []
        """Groups of the step that is being learnt."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._broke: BaseException | None = None
        self._news = asyncio.Event()
        """Set whenever a group ends."""

    # -- the trainer's side ------------------------------------------------------------------------------------------

    def publish(self, step: int) -> float:
        """Go on with the weights of now, which are of that step; what was taken for the one before is learnt. Gives
        the seconds until the turns that were under way had ended and the sampler had the weights."""
        began = time.monotonic()
        while self._taken:
            self.numbers.take(self._taken.pop())
        self._thread.wait(self._gate.close())
        samples = self._engine.publish()
        if self._rollouts is None:
            self._rollouts = GatedRollouts(samples, self._chat, self._params, self._gate, self._split)
        self._thread.wait(self._gate.open(step))
        return time.monotonic() - began

    def take(self, step: int) -> TakenGroups:
        """The groups that this step learns from, waiting until there are enough. They count as taken once publish()
        follows: a step that ends the run is taken again when it goes on."""
        began = time.monotonic()
        played = self._thread.wait(self._take(step))
        waited = time.monotonic() - began
        require_money()
        self._taken = list(played)
        groups = list(played.values())
        return TakenGroups(groups, {**_ages(groups, step), "waited": waited, "groups_taken": list(played)})

    def seconds(self) -> dict[str, float]:
        """Where the rollouts' seconds went since the last call."""
        return self._thread.call(self._split.taken)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No turn is sampled meanwhile; tools go on. Afterwards turns are sampled with the weights that the trainer has
        then, which count as those of the same step. Does nothing before the first publish()."""
        if self._rollouts is None:
            yield
            return
        self._thread.wait(self._gate.close())
        yield
        self.publish(self._gate.step)
        self.seconds()  # the pause is no part of a step

    def close(self) -> None:
        """Stop what is under way: it is played again when the run goes on."""
        self._thread.close()

    # -- the rollouts' side, on their loop ---------------------------------------------------------------------------

    async def _take(self, step: int) -> dict[int, Group]:
        config = self._config
        end = min(step + config.max_staleness + 1, config.steps)
        for number in self.numbers.left(end * config.groups):
            if number not in self._begun:
                self._begun[number] = step
                task = asyncio.create_task(self._play(number))
                self._tasks.add(task)
                task.add_done_callback(self._heard)
        while True:
            self._news.clear()
            if self._broke is not None:
                raise self._broke
            ready = self._ready(config.groups)
            if len(ready) == config.groups:
                break
            await self._news.wait()
        for number in ready:
            del self._begun[number]
        return {number: self._ended.pop(number) for number in sorted(ready)}

    def _ready(self, count: int) -> list[int]:
        """Groups that have ended, of the next `count` to be taken that have ended."""
        last = sorted(self._begun.values())[count - 1]
        """The step at which the youngest of them was begun."""
        older = sum(begun < last for begun in self._begun.values())
        of_older = [number for number in self._ended if self._begun[number] < last]
        of_last = [number for number in self._ended if self._begun[number] == last]
        return [*of_older, *of_last[: count - older]]

    def _heard(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (broke := task.exception()) is not None:
            self._broke = broke
        self._news.set()

    async def _play(self, number: int) -> None:
        step, place = divmod(number, self._config.groups)
        self._ended[number] = await self._group(chosen_tasks(self._config, step)[place], number)

    async def _group(self, task: ChosenTask, number: int) -> Group:
        config, rollouts = self._config, self._rollouts
        assert rollouts is not None, "publish() comes first"
        jobs = siblings(task.job, config.rollouts)
        made = await asyncio.gather(*(rollouts.play(job, f"{number}.{one}") for one, job in enumerate(jobs)))
        return Group(list(made), baseline_measures(task.job, config.baselines, self._chat), task.label)


def _ages(groups: list[Group], now: int) -> dict[str, float]:
    """How many steps old the weights were that the tokens of these groups were sampled with."""
    tokens: Counter[int] = Counter()
    for group in groups:
        for trajectory in group.trajectories:
            tokens.update(trajectory.sampled_with)
    together = tokens.total()
    mean = sum((now - step) * count for step, count in tokens.items()) / together if together else 0.0
    return {"staleness": mean, "oldest": float(now - min(tokens, default=now))}
