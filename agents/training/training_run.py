"""A run in progress: what it holds, how it is opened or gone on with, how it is saved, and how a signal stops it."""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import toolorchestra
from toolorchestra.agents.algorithms import algorithm_of
from toolorchestra.agents.configuration.config import EnvMix, TrainConfig, as_json
from toolorchestra.agents.configuration.environments import check_order
from toolorchestra.agents.engines.base import Engine
from toolorchestra.agents.evaluation.heldout import HeldOut
from toolorchestra.agents.evaluation.rows import PAGE, ROWS
from toolorchestra.agents.rollouts.grpo import Algorithm
from toolorchestra.agents.rollouts.rollout import Chat, RolloutParams, Rollouts
from toolorchestra.agents.training import checkpoint, group_dumps
from toolorchestra.agents.training.metrics import Log
from toolorchestra.agents.training.rollouts_ahead import RolloutsAhead
from toolorchestra.agents.training.saved_model import base_name, check_can_start, saved_model
from toolorchestra.agents.training.workers import SharedRollouts, Workers
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import held

Say = Callable[[str], None]

WARM = "warm_start"
"""The folder of the checkpoints within the supervised start. The first one behind it takes their place."""
KEPT = ("step", "warm", "warm_steps", "evaluated", "best", "best_cents", "best_step", "pace")
"""What a checkpoint keeps of a run beside its engine."""
_HOSTS = ("server", "handover", "memory_share", "rows", "tokens_per_batch", "threads")
FREE = frozenset(
    (
        *("steps", "save_every", "evaluate_every", "evaluation_tasks", "wandb", "dump_every", "spend_cap"),
        *(f"model.{name}" for name in _HOSTS),
    )
)
"""Settings that may change when a run goes on: what they change comes after, and what was done stays as it is. Those of
the model say where it runs: it learns the same elsewhere, but for the rounding of sums."""


@dataclass
class TrainingRun:
    """A training run in progress: its folder, its model and its environments."""

    config: TrainConfig
    folder: Path
    engine: Engine
    chat: Chat
    rollouts: Rollouts
    held_out: HeldOut
    log: Log
    say: Say
    algorithm: Algorithm
    ahead: RolloutsAhead | None = None
    """What plays groups beside the training, where max_staleness is above 0."""
    step: int = 0
    """Optimiser steps of reinforcement learning taken."""
    warm: bool = False
    """Whether the supervised start is done."""
    warm_steps: int = 0
    """Optimiser steps of the supervised start taken, in all rounds together."""
    evaluated: int = -1
    """The step of the last evaluation that was made to its end."""
    best: float = float("-inf")
    """Reward on the validation split, as it was to be expected; of equal ones, the cheaper evaluation is the better."""
    best_cents: float = float("inf")
    best_step: int = -1
    pace: float = 1.0
    """Factor of the learning rate: it falls by half when a step moves the policy too far, and grows back."""
    unsampled: int = 0
    """Steps in a row of which the sampler broke off every rollout."""
    whole: bool = True
    """Whether the weights are those of the step: false while one is learnt, until it counts."""
    stopping: bool = False
    """Whether the run is to stop after the step it is in."""
    ends_at_once: bool = False
    """Whether nothing would be lost if it ended now instead: see interrupts."""
    rewriting_said: bool = False
    """Whether it was said that the chat template rewrites the past."""

    def __post_init__(self) -> None:
        self.loss = replace(self.config.loss, temperature=self.config.temperature)

    def save(self) -> None:
        """A checkpoint of now, and no more old ones than the configuration keeps."""
        state = {
            **{name: value if math.isfinite(value := getattr(self, name)) else None for name in KEPT},
            "config": as_json(self.config),
            "version": toolorchestra.__version__,
            **({"groups": self.ahead.numbers.state()} if self.ahead else {}),
        }
        if not self.warm:
            checkpoint.save(self.folder / WARM, self.warm_steps, state, self.engine.save)
            checkpoint.prune(self.folder / WARM, [], self.warm_steps)
            return
        folder = self.folder / "checkpoints"
        checkpoint.save(folder, self.step, state, self.engine.save)
        shutil.rmtree(self.folder / WARM, ignore_errors=True)
        started = {0} if self.config.warm_start.steps else set()
        kept = [folder / f"step-{step:06d}" for step in {self.best_step, *started}]
        checkpoint.prune(folder, [path for path in kept if path.exists()], self.step)


def open_run(config: TrainConfig, folder: Path, engine: Engine, chat: Chat, *, resume: bool, say: Say) -> TrainingRun:
    """A new run in a folder, or the one that is there, from its last whole checkpoint."""
    check_order(config, say)
    algorithm = algorithm_of(config)
    found, state = found_in(folder, config, resume=resume, say=say)
    if found:
        engine.load(found)
        say(f"resuming from {_name(found)}")
    elif config.init_from:
        _start_from(config, engine, say)
    known: dict[str, Any] = {name: state[name] for name in KEPT if state.get(name) is not None}
    step, warm_steps = known.get("step", 0), known.get("warm_steps", 0)
    evaluated = known.setdefault("evaluated", step or -1)  # a state of earlier versions has none
    group_dumps.rewind(folder, step)
    held_out = HeldOut(config.environments, config.evaluation_tasks, seed=config.seed)
    for line in held_out.fewer():
        say(line)
    shown = as_json(config) if config.wandb else None
    log = Log(folder, step, warm_steps=warm_steps, evaluated=evaluated, wandb=shown)
    params, groups = rollout_params(config), state.get("groups", {"taken_below": step * config.groups})
    rollouts = Rollouts(engine, chat, params)
    if others := config.model.processes - 1:  # behind all that may fail: it starts processes
        rollouts = SharedRollouts(engine, chat, params, workers := Workers(config, others))
        rollouts.engine.take_help(workers)
    ahead = RolloutsAhead(config, engine, chat, params, groups) if config.max_staleness else None
    return TrainingRun(config, folder, engine, chat, rollouts, held_out, log, say, algorithm, ahead, **known)


def found_in(folder: Path, config: TrainConfig, *, resume: bool, say: Say) -> tuple[Path | None, dict[str, Any]]:
    """The last whole checkpoint in a folder, with its state. Raises ConfigError where the run may not go on from it."""
    now = _as_kept(config)
    kept = (folder / "checkpoints", folder / WARM)
    written = [path for place in kept for path in checkpoint.all_of(place)]
    found = next(filter(None, (checkpoint.latest(place, say) for place in kept)), None)
    if written and not found:
        raise ConfigError(
            f"no checkpoint of the run in {folder} is whole; move the folder away, or begin in another",
            command_line="another --out FOLDER",
        )
    if found and not resume:
        raise _there_already(folder, found, config.steps)
    state = checkpoint.read_state(found) if found else {}
    if state:
        _check_same(now, state["config"], folder, say)
    return found, state


def _as_kept(config: TrainConfig) -> dict[str, Any]:
    """The settings as a checkpoint keeps them. Raises ConfigError where JSON holds no such argument."""
    for mix in config.environments:
        for name, given in mix.arguments.items():
            try:
                json.dumps(asdict(replace(mix, arguments={name: given})))
            except (TypeError, ValueError) as err:
                raise ConfigError(
                    f"{mix.env_id}: {name}={given!r:.60} is nothing that a checkpoint can keep ({err}); give text, "
                    "numbers, or lists and objects of these, and a function by its name, 'module:function'"
                ) from None
    kept: dict[str, Any] = json.loads(json.dumps(as_json(config)))
    return kept


def _start_from(config: TrainConfig, engine: Engine, say: Say) -> None:
    """Take the weights of another run. The checkpoints to come hold all of them, so a resumed run needs it no more."""
    saved = saved_model(Path(config.init_from))
    check_can_start(saved, config.model)
    engine.start_from(saved.path)
    kind = "averaged weights" if saved.how.averaged else "weights"
    say(f"starting from the {kind} of step {saved.how.step} in {saved.path}")
    if config.warm_start.steps:
        say("the warm start follows; a model that speaks the grammar already needs none: warm_start.steps=0")


def _there_already(folder: Path, found: Path, steps: int) -> ConfigError:
    """What is said where a run is begun in the folder of another: how to go on with that one, or begin beside it."""
    state = checkpoint.read_state(found, checked=True)
    what, how = "already", "; go on with it: resume=True, or"
    ended = state.get("warm", False) and int(state["step"]) >= steps
    reported = (folder / "report" / "summary.json").exists()
    if ended:
        what, how = "that has ended", f"; its report is {folder / PAGE};"
        if not reported:
            how = " without a report: give resume=True, and what train() gives to write_report(); or"
    told = f"{folder} holds a run {what} ({_name(found)}){how} name another folder"
    return ConfigError(
        told,
        command_line=(
            ("--resume writes its report, " if ended and not reported else "")
            + ("the same command and --resume go on with it (make train OPTIONS=--resume), " if not ended else "")
            + '--out FOLDER begins another one (make train OPTIONS="--out FOLDER")'
        ),
    )


def _name(found: Path) -> str:
    return f"{found.name} of the warm start" if found.parent.name == WARM else found.name


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Each setting by its whole name, such as warm_start.steps. What gym.make is given stays one value."""
    made: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "environments":
            for number, mix in enumerate(value):
                made |= {f"environments.{number}.{one}": given for one, given in mix.items()}
        else:
            made |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return made


def _check_same(now: Mapping[str, Any], before: Mapping[str, Any], folder: Path, say: Say) -> None:
    """Both as a checkpoint keeps them, of which earlier versions kept the model's path as it was given, and whether the
    start had a gate. What they do not name they had as it is by default."""
    by_default = as_json(TrainConfig(environments=(EnvMix(""),) * max(1, len(before["environments"]))))
    mine, theirs = flat(now), flat(json.loads(json.dumps(by_default))) | flat(before)
    for settings in (mine, theirs):
        settings["model.path"] = base_name(settings.get("model.path", ""))
    if theirs["warm_start.gate"] is True:
        theirs["warm_start.gate"] = by_default["warm_start"]["gate"]
    names = mine.keys() | {name for name in theirs if name.startswith("environments.")}
    differing = sorted(name for name in names if theirs.get(name) != mine.get(name))
    told = ["environments" if name.startswith("environments.") else name for name in differing if name not in FREE]
    if refused := dict.fromkeys(told):
        raise ConfigError(
            f"{folder} was trained with other settings ({', '.join(refused)}); give the same ones, or begin another "
            f"run from its weights: init_from={str(folder)!r}, in another folder. These may change: "
            f"{', '.join(sorted(FREE))}",
            command_line=f"--init-from {folder} --out FOLDER",
        )
    for name in differing:
        say(f"from here on {name} is {mine[name]}; it was {theirs.get(name)}")


def rollout_params(config: TrainConfig, temperature: float | None = None) -> RolloutParams:
    """How this run's rollouts are made."""
    return RolloutParams(
        max_tokens=config.max_tokens,
        max_context=config.max_context,
        temperature=config.temperature if temperature is None else temperature,
        concurrency=config.model.rows,
        expected_outcome=config.expected_outcome,
    )


# -- signals -----------------------------------------------------------------------------------------------------------


@contextmanager
def stops_after_the_step(run: TrainingRun) -> Iterator[None]:
    """Stop after the step: while this lasts, the first of either signal makes the run stop after its step; a second one
    ends it at once, and so does the first where may_end_at_once() says so."""
    before = {}

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if lost := run.engine.lost():
            run.say(lost)
        if lost or run.ends_at_once:
            raise KeyboardInterrupt
        run.stopping = True
        again = "Ctrl-C" if number == signal.SIGINT else "the signal"
        run.say(f"stopping after this step; {again} again to stop at once")

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop)
    except ValueError:  # not the main thread, where there is no signal to catch
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def may_end_at_once(run: TrainingRun) -> Iterator[None]:
    """Mark what takes minutes and learns nothing: all that is worth saving is saved before."""
    run.ends_at_once = True
    try:
        yield
    finally:
        run.ends_at_once = False


# -- its folder, for one process at a time -----------------------------------------------------------------------------


@contextmanager
def claimed(folder: Path, within: Sequence[str] = ("checkpoints", "report")) -> Iterator[None]:
    """Hold the folder, with what is to be within it, while this lasts."""
    busy = f"another process is training in {folder}; wait until it has ended, or name another folder"
    other = "--out FOLDER, another one"
    if (folder / ROWS).is_file():
        raise ConfigError(f"{folder} holds an evaluation; name another folder", command_line=other)
    with ExitStack() as stack:
        try:
            for name in within:
                (folder / name).mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(folder, busy, other))
        except OSError as err:
            raise ConfigError(
                f"the run's folder cannot be written: {err}; name another folder", command_line=other
            ) from None
        yield
