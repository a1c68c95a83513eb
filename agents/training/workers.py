"""Work shared among processes, each with a copy of the model: rollouts, and the batches of an optimiser step.

A small model on a CPU is bound by overhead, for which one process has one core. The jobs are cut into as many runs of
neighbours as there are processes, this one among them; which process makes which rollout, and its random numbers,
follow from the jobs alone, so that a resumed run repeats them. Gradients are added in one order.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.rollouts.rollout import Chat, Job, RolloutParams, Rollouts
from toolorchestra.envs.episode.calls import FailureGuard

ROLLOUTS = "rollouts"
_SECONDS_TO_END = 5.0


class _Workload(NamedTuple):
    """What a process is sent."""

    number: int
    """Comes back with the answer: one that was not waited for is not taken for the next."""
    name: str
    """ROLLOUTS, or a method of its engine."""
    given: tuple[Any, ...]


class Workers:
    """The other processes. They end with this one, whatever ends it."""

    def __init__(self, config: TrainConfig, count: int) -> None:
        context = get_context("spawn")
        self._ends: list[Connection] = []
        self.processes = []
        self._shared = 0
        self._owing: set[int] = set()
        for number in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, config), name=f"rollouts-{number + 1}", daemon=True)
            with deaf_children():  # this process ends them
                process.start()
            theirs.close()
            self._ends.append(mine)
            self.processes.append(process)
        atexit.register(self.close)  # before multiprocessing's own end, which waits for them

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, name: str, parts: Sequence[tuple[Any, ...]]) -> None:
        """Let each begin with its part: rollouts, or a call of its engine's method. What one still owes of a part
        before is taken first: it reads nothing until then."""
        self._shared += 1
        for number, part in enumerate(parts):
            if number in self._owing:
                self._answer(number)
            try:
                self._ends[number].send(_Workload(self._shared, name, part))
            except OSError:
                raise self._gone(number) from None
            except TypeError as err:
                raise TypeError(f"{err}; or make all rollouts here: model.processes=1") from None
            self._owing.add(number)

    def receive(self, number: int) -> Any:
        """What one made, waiting for it."""
        answered, made = self._answer(number)
        while answered != self._shared:
            answered, made = self._answer(number)
        if isinstance(made, str):
            raise RuntimeError(f"rollout process {number + 1} broke:\n{made}")
        return made

    def _answer(self, number: int) -> tuple[int, Any]:
        try:
            answered, made = self._ends[number].recv()
        except (EOFError, OSError):
            raise self._gone(number) from None
        self._owing.discard(number)
        return answered, made

    def _gone(self, number: int) -> TrainingFailed:
        process = self.processes[number]
        process.join(_SECONDS_TO_END)
        return TrainingFailed(
            f"rollout process {number + 1} is gone (exit code {process.exitcode}; -9 is often a lack of memory): "
            "go on with resume=True, or begin a run that needs less memory, with model.processes=1",
            command_line="--resume, or a new run with --model.processes 1",
        )

    def close(self) -> None:
        """End them all; nothing is left of them afterwards."""
        atexit.unregister(self.close)
        for end in self._ends:
            end.close()
        for process in self.processes:
            process.join(_SECONDS_TO_END)
            if process.is_alive():
                process.kill()
                process.join()
        self._ends, self.processes = [], []


class SharedRollouts(Rollouts):
    """Rollouts that this process makes a part of. The engine's snapshot() is adopted by those of the others."""

    engine: Any

    def __init__(self, engine: Any, chat: Chat, params: RolloutParams, workers: Workers) -> None:
        super().__init__(engine, chat, params)
        self._workers = workers

    def with_params(self, params: RolloutParams) -> Rollouts:
        """Rollouts by other settings, shared in the same way."""
        return SharedRollouts(self.engine, self.chat, params, self._workers)

    def close(self) -> None:
        """End the other processes."""
        self.engine.take_help(None)
        self._workers.close()

    def collect(self, jobs: Sequence[Job], watch: Callable[[Trajectory], None] | None = None) -> list[Trajectory]:
        """Make the rollouts, each process a part of them."""
        shares = len(self._workers) + 1
        cuts = [len(jobs) * k // shares for k in range(shares + 1)]
        parts = [list(jobs[cuts[k] : cuts[k + 1]]) for k in range(1, shares)]
        snapshot = self.engine.snapshot()
        given = [(part, self.params, snapshot, _seed(number, part)) for number, part in enumerate(parts)]
        self._workers.begin(ROLLOUTS, given)
        made = super().collect(jobs[: cuts[1]], watch)
        for number in range(len(parts)):
            for trajectory in self._workers.receive(number):
                made.append(trajectory)
                if watch:
                    watch(trajectory)
        return made


def _seed(number: int, jobs: Sequence[Job]) -> int:
    """A seed of the random numbers of one process for these rollouts."""
    named = repr((number + 1, [(job.env_id, job.seed) for job in jobs]))
    return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=7).digest(), "big")


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started meanwhile see neither Ctrl-C nor SIGTERM, which go to the whole group: a terminal sends the
    one, a scheduler the other. This one sees them afterwards. They begin with bound_to_parent()."""
    resource_tracker.ensure_running()  # where multiprocessing starts it later, it unblocks the signals behind itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def bound_to_parent() -> None:
    """Pass over SIGTERM from now on, in such a process, and end at once when the parent has ended."""
    # No mask, and not SIG_IGN: what tools start in turn would inherit these, and could not be ended by SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, name="parent", daemon=True).start()


def _work(connection: Connection, config: TrainConfig) -> None:
    """The life of one process: take a share, make it, send it, until the other end closes."""
    bound_to_parent()
    from toolorchestra.agents.training.build import build

    engine, chat = build(config)
    made: Any = engine  # whose methods are named

    def rollouts(jobs: Sequence[Job], params: RolloutParams, snapshot: bytes, seed: int) -> list[Trajectory]:
        made.adopt(snapshot, seed)
        return Rollouts(engine, chat, params).collect(jobs)

    while True:
        try:
            share: _Workload = connection.recv()
        except EOFError:
            return
        answer: Any = ""
        with FailureGuard("rollouts") as guard:  # whatever it is, the process that shares out raises it
            answer = (rollouts if share.name == ROLLOUTS else getattr(made, share.name))(*share.given)
        if guard.failure:
            answer = guard.failure.traceback
        try:
            connection.send((share.number, answer))
        except BrokenPipeError:
            return
