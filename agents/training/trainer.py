"""The training loop, to be read from top to bottom: start, warm start, then rollouts, rewards, one step, again.

A run lives in a folder: checkpoints/, metrics.jsonl, tensorboard/, report/. All that the next step depends on is in the
checkpoint, so a run that was killed and resumed ends with the same weights as one that was not (on a CPU).
"""

from __future__ import annotations

import hashlib
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import toolorchestra
from toolorchestra.agents.configuration.config import TrainConfig, as_json
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Datum, Engine
from toolorchestra.agents.evaluation import choice_metrics
from toolorchestra.agents.evaluation.heldout import POLICY, Evaluation, HeldOut, as_metrics
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import baseline, players
from toolorchestra.agents.rollouts.rewards import Measure
from toolorchestra.agents.rollouts.rollout import Job, RolloutParams, Rollouts, measured
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.rollouts.trajectory import Group, Trajectory
from toolorchestra.agents.training import checkpoint, training_batch, warmstart
from toolorchestra.agents.training.metrics import Log, Progress
from toolorchestra.agents.training.workers import SharedRollouts, Workers
from toolorchestra.envs.base.errors import ConfigError

Say = Callable[[str], None]


@dataclass
class TrainingRun:
    """A run in progress."""

    config: TrainConfig
    folder: Path
    engine: Engine
    chat: Chat
    rollouts: Rollouts
    held_out: HeldOut
    log: Log
    say: Say
    step: int = 0
    """Optimiser steps of reinforcement learning taken."""
    warm: bool = False
    best: float = float("-inf")
    """Reward on the validation split; of equal ones, the cheaper evaluation is the better."""
    best_cents: float = float("inf")
    best_step: int = -1
    skipped: int = 0
    """Steps without one usable group."""
    stopping: bool = False
    evaluations: dict[int, Evaluation] = field(default_factory=dict)


def train(
    config: TrainConfig, folder: Path, engine: Engine, chat: Chat, *, resume: bool, say: Say = print
) -> TrainingRun:
    """Run to the end, or to the first Ctrl-C, which saves first. Gives the run for its report."""
    run = _open(config, folder, engine, chat, resume=resume, say=say)
    with ExitStack() as unfinished, _stop_on_interrupt(run):
        unfinished.callback(run.rollouts.close)
        if not run.warm:
            warmstart.warm_start(run.engine, run.chat, run.rollouts, config, say)
            run.engine.take_reference()
            run.warm = True
            _save(run)
        if run.step == 0:
            _evaluate(run)
        progress, stopping = Progress(config.steps, run.step), run.stopping
        while run.step < config.steps and not stopping:
            line = _step(run)
            run.step += 1
            last = run.step == config.steps
            if run.step % config.evaluate_every == 0 or last:
                _evaluate(run)
            stopping = run.stopping  # looked at once: a step that is the last one is saved
            if run.step % config.save_every == 0 or last or stopping or run.best_step == run.step:
                _save(run)
            progress.show(run.step, line, always=last)
        unfinished.pop_all()  # the report goes on with them
    run.log.close()
    return run


def _step(run: TrainingRun) -> str:
    """Rollouts, rewards, one optimiser step. Gives the line to show."""
    config = run.config
    started = time.monotonic()
    groups = collect_groups(run)
    collected = time.monotonic()
    batch = training_batch.build(groups, config.advantage)
    share = run.step / max(1, config.steps - 1)
    rate = config.learning_rate + share * (config.final_learning_rate - config.learning_rate)
    learned = _learn(run, batch.data, rate)
    if not batch.data:
        run.skipped += 1
        run.say(f"step {run.step}: none of {len(groups)} groups has rewards that differ; no step taken")
    ended = time.monotonic()

    rollouts = [t for g in groups for t in g.trajectories]
    kept = [t for t in rollouts if not t.measure.failed]
    totals = [r.total for rewards in batch.rewards for r in rewards if r is not None]
    seen = choice_metrics.choices(kept)
    valid = _mean([t.measure.valid_format for t in kept])
    values: dict[str, Any] = {
        "reward": _mean(totals),
        "accuracy": _mean([t.measure.outcome for t in kept]),
        "cents": 100 * _mean([t.measure.usd for t in kept]),
        "seconds": _mean([t.measure.seconds for t in kept]),
        "turns": _mean([t.turns for t in kept]),
        "valid": valid,
        "used": batch.used,
        "flat_groups": batch.flat_groups,
        "failed": batch.failed,
        "choice_entropy": seen.entropy,
        "most_used_share": seen.share,
        "controllability": seen.controllability,
        "regret": choice_metrics.regret(groups),
        "learning_rate": rate,
        "rollout_seconds": collected - started,
        "train_seconds": ended - collected,
        "sampled_tokens_per_second": sum(t.sampled_tokens for t in rollouts) / (collected - started),
        **{f"loss/{k}": v for k, v in learned.items()},
    }
    run.log.write("train", run.step, values)
    for warning in [*choice_metrics.failures(rollouts), *(choice_metrics.warnings(seen, valid) if kept else ())]:
        run.say(f"warning, step {run.step}: {warning}")
    return (
        f"reward {values['reward']:.3f}, accuracy {values['accuracy']:.0%}, {values['cents']:.2f} ¢, "
        f"{values['turns']:.1f} turns, {values['sampled_tokens_per_second']:,.0f} tokens/s"
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else float("nan")


def _learn(run: TrainingRun, data: Sequence[Datum], rate: float) -> Mapping[str, float]:
    """The optimiser steps of one step's data. Gives the first one's metrics, which saw the sampler's own weights."""
    rng = random.Random(_seed(run.config.seed, run.step, "updates"))
    loss = replace(run.config.loss, temperature=run.config.temperature)
    size = -(-len(data) // run.config.updates)
    metrics = []
    for _ in range(run.config.epochs):
        shuffled = rng.sample(data, len(data))
        parts = [shuffled[i : i + size] for i in range(0, len(shuffled), size)] if shuffled else []
        metrics += [run.engine.train(part, loss, rate) for part in parts]
    return metrics[0] if metrics else {}


def collect_groups(run: TrainingRun) -> list[Group]:
    """The groups of this step: rollouts of one task share its seed, and with it preference, prices and tools."""
    config = run.config
    rng = random.Random(_seed(config.seed, run.step))
    mixes = config.environments
    tasks = []
    for _ in range(config.groups):
        mix = rng.choices(mixes, [m.weight for m in mixes])[0]
        tasks.append(Job(mix.env_id, training(mix), rng.randrange(10**9)))
    size = config.rollouts
    rollouts = run.rollouts.collect([task for task in tasks for _ in range(size)])
    return [
        Group(rollouts[i * size : (i + 1) * size], _fixed(task, config.anchors), _oracle(task))
        for i, task in enumerate(tasks)
    ]


def _fixed(job: Job, names: Sequence[str]) -> list[Measure]:
    """Fixed policies on the task of a job, those of them that can play it."""
    able = players(job.factory.source)
    return [measured(played(job.factory, baseline(name, job.seed), job.seed)) for name in names if name in able]


def _oracle(job: Job) -> Measure | None:
    return next(iter(_fixed(job, ["oracle"])), None)


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


# -- evaluation, checkpoints, interruption -----------------------------------------------------------------------------


def _evaluate(run: TrainingRun) -> None:
    greedy = run.rollouts.with_params(rollout_params(run.config, run.config.evaluation_temperature))
    with run.engine.averaged():
        evaluation = run.held_out.evaluate(greedy)
    run.evaluations[run.step] = evaluation
    run.log.write("eval", run.step, as_metrics(evaluation))
    mine, oracle = evaluation.standings[POLICY], evaluation.standings.get("oracle")
    share = "" if evaluation.of_oracle is None else f" ({evaluation.of_oracle:.0%} of the oracle's)"
    right = f" (oracle {oracle.accuracy:.0%})" if oracle else ""
    run.say(
        f"held out, step {run.step}: reward {mine.reward:.3f}{share}, accuracy {mine.accuracy:.0%}{right}, "
        f"{mine.cents:.2f} ¢ a task"
    )
    for warning in choice_metrics.failures(evaluation.trajectories):
        run.say(f"warning, held out, step {run.step}: {warning}")
    if (mine.reward, -mine.cents) > (run.best, -run.best_cents):
        run.best, run.best_cents, run.best_step = mine.reward, mine.cents, run.step


def _save(run: TrainingRun) -> None:
    state = {
        "step": run.step,
        "warm": run.warm,
        "best": run.best if run.best > float("-inf") else None,
        "best_cents": run.best_cents if run.best_cents < float("inf") else None,
        "best_step": run.best_step,
        "skipped": run.skipped,
        "config": as_json(run.config),
        "version": toolorchestra.__version__,
    }
    folder = run.folder / "checkpoints"
    checkpoint.save(folder, run.step, state, run.engine.save)
    best = folder / f"step-{run.best_step:06d}"
    checkpoint.prune(folder, run.config.keep_last, best if best.exists() else None, run.step)


def _open(config: TrainConfig, folder: Path, engine: Engine, chat: Chat, *, resume: bool, say: Say) -> TrainingRun:
    written = checkpoint.all_of(folder / "checkpoints")
    found = checkpoint.latest(folder / "checkpoints", say)
    if written and not found:
        raise ConfigError(f"no checkpoint of the run in {folder} is whole; move it away, or begin in another --out")
    if found and not resume:
        raise ConfigError(f"{folder} holds a run already ({found.name}); use --resume, or another --out")
    state = checkpoint.read_state(found) if found else {}
    if state and state["config"] != _plain(as_json(config)):
        differing = sorted(k for k, v in _plain(as_json(config)).items() if state["config"].get(k) != v)
        raise ConfigError(f"{folder} was trained with other settings ({', '.join(differing)}); give the same ones")
    if found:
        engine.load(found)
        say(f"resuming from {found.name}")
    step, best, cents = int(state.get("step", 0)), state.get("best"), state.get("best_cents")
    held_out, log = HeldOut(config.environments, config.evaluation_tasks), Log(folder, step)
    return TrainingRun(
        config,
        folder,
        engine,
        chat,
        _rollouts(config, engine, chat),  # behind all that may fail: it starts processes
        held_out,
        log,
        say,
        step=step,
        warm=bool(state.get("warm", False)),
        best=float("-inf") if best is None else float(best),
        best_cents=float("inf") if cents is None else float(cents),
        best_step=int(state.get("best_step", -1)),
        skipped=int(state.get("skipped", 0)),
    )


def _rollouts(config: TrainConfig, engine: Any, chat: Chat) -> Rollouts:
    params, others = rollout_params(config), config.model.processes - 1
    if not others:
        return Rollouts(engine, chat, params)
    return SharedRollouts(engine, engine, chat, params, Workers(config, others))


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """As it looks after a journey through JSON."""
    import json

    return dict(json.loads(json.dumps(config)))


def rollout_params(config: TrainConfig, temperature: float | None = None) -> RolloutParams:
    """How this run's rollouts are made."""
    return RolloutParams(
        max_tokens=config.max_tokens,
        max_context=config.max_context,
        temperature=config.temperature if temperature is None else temperature,
        concurrency=config.model.rows,
        deadline_seconds=config.deadline_seconds,
        stop_at_call=config.stop_at_call,
    )


@contextmanager
def _stop_on_interrupt(run: TrainingRun) -> Iterator[None]:
    """The first Ctrl-C lets the step end and saves; the second one is Python's own."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not run.warm:
            raise KeyboardInterrupt  # nothing is learnt yet that could be saved, and a step of it may take minutes
        run.stopping = True
        run.say("stopping after this step; Ctrl-C again to stop at once")

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not the main thread, where there is no signal to catch
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def trajectories_of(evaluation: Evaluation, most: int) -> list[Trajectory]:
    """A few to show."""
    return evaluation.trajectories[:: max(1, len(evaluation.trajectories) // most)][:most]
