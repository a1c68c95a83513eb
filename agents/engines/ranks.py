"""The processes of torchrun that train one model, each of which holds a part of every weight: PyTorch's own FSDP2.

torchrun --nproc-per-node 4 scripts/train_agent.py --preset 8b-node --model.path MODEL

The first process is the run: it plays, keeps the folder, and hands weights over. What needs the weights of all is a
method that is marked as `together`: the first process tells the others of its call, and each of them does the same.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

from toolorchestra.agents.engines.base import NONE, Adapter, Sample, Sampler, SamplingParams, TrainingFailed
from toolorchestra.agents.engines.update import scored

LONGEST_WAIT = timedelta(days=7)
"""How long a process waits for the next call: rollouts of real experts may take hours."""
_SECONDS_TO_BE_GONE = 5.0


class Ranks:
    """This process among those that torchrun started on this machine."""

    def __init__(self, device: str) -> None:
        self.number, self.count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        kind = torch.device(device).type
        self.device = torch.device(kind) if kind == "cpu" else torch.device(kind, int(os.environ["LOCAL_RANK"]))
        if kind == "cuda":
            torch.cuda.set_device(self.device)
        dist.init_process_group("gloo" if kind == "cpu" else "cpu:gloo,cuda:nccl")
        self.mesh = init_device_mesh(kind, (self.count,))
        self._calls = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
        self._lock, self._depth, self._whole = threading.RLock(), 0, True
        self._pids: list[int] = [0] * self.count
        dist.all_gather_object(self._pids, os.getpid(), group=self._calls)

    def shard(self, model: Any, *, narrow: bool) -> None:
        """Keep a part of each weight here. A block's are put together while it runs, and those above the blocks while
        scored() does. `narrow`: what is multiplied then is of 16 bits; the weights are kept as they are."""
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if narrow else MixedPrecisionPolicy()
        for block in base.model.layers:
            fully_shard(block, mesh=self.mesh, mp_policy=policy)
        fully_shard(base, mesh=self.mesh, mp_policy=policy, reshard_after_forward=True)
        base.scored = MethodType(scored, base)
        register_fsdp_forward_method(base, "scored")

    def added(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The sums of all processes, added up."""
        values = torch.tensor(list(sums.values()), dtype=torch.float64)
        dist.all_reduce(values, group=self._calls)
        return dict(zip(sums, values.tolist(), strict=True))

    # -- calls -------------------------------------------------------------------------------------------------------

    @contextmanager
    def calling(self, name: str, given: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[None]:
        """Tell the others of a call, in the first process. What is called within it they find by themselves."""
        with self._lock:
            tells = self.number == 0 and not self._depth
            self._depth += 1
            try:
                if tells:
                    self._broadcast((name, given, dict(named)))
                yield
            except BaseException as err:
                self._whole = False  # where the others stand is not known
                if tells and isinstance(err, RuntimeError) and (gone := self._who_is_gone()):
                    raise TrainingFailed(gone, command_line="--resume") from err
                raise
            finally:
                self._depth -= 1

    def _broadcast(self, call: object) -> Any:
        box = [call]
        dist.broadcast_object_list(box, src=0, group=self._calls)
        return box[0]

    def follow(self, engine: Any) -> None:
        """Do what the first process calls, until it ends. It alone hears signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        try:
            while call := self._broadcast(None):
                name, given, named = call
                getattr(engine, name)(*given, **named)
        except RuntimeError:
            if not (gone := self._who_is_gone()):
                raise
            if self.number == 1:  # one is enough to say it
                raise TrainingFailed(gone, command_line="--resume") from None
            raise SystemExit(1) from None
        self.end()

    def end(self) -> None:
        """Let the others end. Where a call broke off they wait for what does not come, and end when this process
        has."""
        if not self._whole:
            return
        self._whole = False
        with suppress(RuntimeError):
            if self.number == 0:
                self._broadcast(None)
            dist.destroy_process_group()

    def lost(self) -> str:
        """A sentence where one of the processes is gone; "" where all are there."""
        gone = [number for number, pid in enumerate(self._pids) if not _runs(pid)]
        if not gone:
            return ""
        return (
            f"rank {gone[0]} of the {self.count} processes that train is gone (killed, or out of memory; what it said "
            "itself stands above): go on from the last checkpoint with resume=True"
        )

    def _who_is_gone(self) -> str:
        """The same, with some patience: connections break before a process has ended."""
        until = time.monotonic() + _SECONDS_TO_BE_GONE
        while not (gone := self.lost()) and time.monotonic() < until:
            time.sleep(0.1)
        return gone


def _runs(pid: int) -> bool:
    """Whether a process is there, and not a dead one that nobody has asked for."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or no /proc on this system
        return True


class Following(Sampler):
    """What the other processes have for a sampler: they help to put weights together, and ask nothing."""

    suspends = False
    version = NONE

    def __init__(self, *, takes_adapters: bool) -> None:
        self.takes_adapters = takes_adapters

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """Nothing: the first process plays."""
        raise NotImplementedError

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """Put each weight together. Those below an adapter the first process does not ask for."""
        for _ in () if adapter else weights:
            pass
