"""A session of a run: what it says before it trains, and when, on what and by which version it did: sessions.jsonl."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolorchestra import __version__
from toolorchestra.agents.configuration.config import LAYERS, TrainConfig
from toolorchestra.agents.configuration.environments import labels, simulated, training
from toolorchestra.agents.engines.base import ModelSize
from toolorchestra.agents.engines.machine import Machine
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import processes
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.training_run import TrainingRun
from toolorchestra.agents.training.warmstart import ROUNDS
from toolorchestra.envs.base.files import append_line

SESSIONS = "sessions.jsonl"


@dataclass(frozen=True)
class Session:
    """A stretch of training, from one start to its end or its stop."""

    began: float
    """Seconds since 1970, as all times here."""
    ended: float | None
    """None while it goes on."""
    version: str
    machine: str
    size: ModelSize
    step: int = 0
    """Steps of reinforcement learning that were taken before it."""

    @property
    def date(self) -> str:
        """Date when it began, in UTC."""
        return datetime.fromtimestamp(self.began, UTC).strftime("%Y-%m-%d %H:%M UTC")


@contextmanager
def recorded(folder: Path, machine: Machine, size: ModelSize, step: int = 0) -> Iterator[None]:
    """Write down that the training begins, and at its end or stop that it has ended. A session that was killed ends
    with the newest checkpoint: what came after it was lost."""
    path = folder / SESSIONS
    last: Mapping[str, Any] = next(reversed(list(read(path))), {})
    if "began" in last:
        places = (folder / "checkpoints", folder / "warm_start")
        kept = [one.stat().st_mtime for place in places for one in checkpoint.all_of(place)]
        _append(path, {"ended": max([last["began"], *kept]), "killed": True})
    began = {"began": time.time(), "version": __version__, "machine": str(machine), "parts": asdict(machine),
             "size": size._asdict(), "step": step}  # fmt: skip
    _append(path, began)
    try:
        yield
    finally:
        _append(path, {"ended": time.time()})


def read_sessions(folder: Path) -> list[Session]:
    """All of a run's. Empty for a run of an earlier version, which wrote none."""
    found: list[Session] = []
    for row in read(folder / SESSIONS):
        if "began" in row:
            size = ModelSize(**row["size"])
            found.append(Session(row["began"], None, row["version"], row["machine"], size, row.get("step", 0)))
        elif found and found[-1].ended is None:
            found[-1] = replace(found[-1], ended=row["ended"])
    return found


def seconds_of(sessions: list[Session], clock: Callable[[], float] = time.time) -> float:
    """How long a run was trained in all its sessions together. One that goes on counts until now."""
    return sum((clock() if one.ended is None else one.ended) - one.began for one in sessions)


def _append(path: Path, row: Mapping[str, Any]) -> None:
    append_line(path, json.dumps(row).encode() + b"\n")


# -- what a run says before it trains ----------------------------------------------------------------------------------


def opening(run: TrainingRun, machine: Machine, size: ModelSize) -> list[str]:
    """The lines, in the order in which a reader wants to know them."""
    config, count = run.config, processes()
    started = f"; it starts from {config.init_from}" if config.init_from else ""
    together = f", in {count} processes, each with a part of it" if count > 1 else ""
    board = f"tensorboard --logdir {run.folder / 'tensorboard'}"
    watch = f"watch: {board} (the same numbers are in {run.log.path})"
    if find_spec("tensorboard") is None:
        watch = f"watch: {run.log.path} (pip install tensorboard for curves: {board})"
    return [
        f"training {config.preset}, seed {config.seed}: {model_words(config, size)}{started}",
        *_environments(config),
        *_steps(run),
        f"machine: {machine}; {_threads(config)}{together}",
        f"folder: {run.folder}{_short_of_room(run, size)}",
        watch,
        "stop: Ctrl-C once ends the step and saves; to go on, give the same command with --resume",
        f"chat template: {run.chat.form}",
    ]


def _short_of_room(run: TrainingRun, size: ModelSize) -> str:
    """What is said where the disk has no room for the checkpoints to come: those that are kept, and one that is being
    written. Of a trained number one holds its weight and AdamW's two states, in 32 bits."""
    each = 12 * size.trained
    more = checkpoint.KEEP_LAST + 2 - len(checkpoint.all_of(run.folder / "checkpoints"))
    free = shutil.disk_usage(run.folder).free
    if more * each <= free:
        return ""
    needed = f"{more} more checkpoints of {each / 1e9:.0f} GB"
    return f", WHERE THE RUN MAY END FOR WANT OF ROOM: {free / 1e9:.0f} GB are free, {needed} may lie there at once"


def counted(parameters: int) -> str:
    """A number of parameters in words: 212,480, 1.72 million, 8.19 billion."""
    for size, word in ((1_000_000_000, "billion"), (1_000_000, "million")):
        if parameters >= size:
            return f"{parameters / size:.3g} {word}"
    return f"{parameters:,}"


def model_words(config: TrainConfig, size: ModelSize) -> str:
    """Words for the model, and how many of its parameters are trained."""
    model = config.model
    name = model.path or f"the tiny model ({LAYERS} layers of width {model.hidden}, from random weights)"
    if size.trained == size.parameters:
        return f"{name}, {counted(size.parameters)} parameters, all trained"
    kind = f" by LoRA of rank {model.lora_rank}" if model.lora_rank else ""
    return f"{name}, {counted(size.parameters)} parameters, of which {counted(size.trained)} are trained{kind}"


def _environments(config: TrainConfig) -> Iterator[str]:
    names = labels(config.environments)
    total = sum(mix.weight for mix in config.environments)
    shares = [f"{name} {mix.weight / total:.0%}" for name, mix in zip(names, config.environments, strict=True)]
    told = (
        "simulated experts, nothing is paid"
        if simulated(config.environments)
        else "experts may be real models that cost money"
    )
    yield f"environments: {', '.join(shares)} ({told})"
    with_terms = [mix for mix in config.environments if mix.arguments.get("reward_terms")]
    own = [term.name for mix in with_terms for term in training(mix).rules.terms]
    if own:
        yield f"reward terms of yours: {', '.join(dict.fromkeys(own))} (in the group reward and the held-out reward)"


def _steps(run: TrainingRun) -> Iterator[str]:
    config, start = run.config, run.config.warm_start
    if start.steps and not run.warm:
        shown = start.trajectories or f"{start.demonstrations:,} demonstrations"
        rounds = f", {ROUNDS} times at most" if start.gate else ""
        yield f"first: a supervised start of {start.steps:,} steps on {shown}{rounds}"
    played = config.groups * config.rollouts
    left = config.steps - run.step
    if not left:
        yield f"steps: all {config.steps:,} are taken; what is left is the report"
        return
    yield (
        f"steps: {left:,} of {config.steps:,}; in each, {config.groups} tasks are played {config.rollouts} times "
        f"({played} rollouts), {left * played:,} rollouts in all"
    )
    yield (
        f"held out: {config.evaluation_tasks} tasks of each environment, every {config.evaluate_every} steps. The "
        "held-out reward goes from 0 to 1. The group reward in the lines of steps compares rollouts of one task, has "
        "another scale, and does not show progress"
    )


def _threads(config: TrainConfig) -> str:
    if config.model.device != "cpu":
        return f"model on {config.model.device}"
    threads, processes = config.model.threads, config.model.processes
    if processes > 1:
        return f"{processes} processes play and train"
    return f"{threads} {'thread trains' if threads == 1 else 'threads train'}, 1 process plays"
