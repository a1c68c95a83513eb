"""The supervised start: demonstrations are learnt from until the gate opens.

Reinforcement learning starts only when the result is readable: what is rarely a call is rarely rewarded.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import statistics
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from toolorchestra.agents.configuration.config import TrainConfig, as_json
from toolorchestra.agents.configuration.environments import job_of, simulated, training
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.policies.base import digest
from toolorchestra.agents.rollouts.rollout import Rollouts
from toolorchestra.agents.training.demonstrations import (
    FIRST_SEED,
    KeptDemonstrations,
    check_plans,
    demonstrations,
    recorded,
)
from toolorchestra.agents.training.metrics import Progress
from toolorchestra.agents.training.step_log import failures
from toolorchestra.agents.training.training_run import FREE, WARM, TrainingRun, flat, may_end_at_once
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.journal import require_money

LOGGED = ("loss", "entropy", "tokens", "gradient_norm", "not_finite")
"""What a step tells that means something where nothing was sampled."""
RISING = 20
"""Steps in which the learning rate rises."""
ROUNDS = 3
"""How often the steps may be taken before the run gives up."""
SAVES = 10
"""How often the supervised start saves in each round."""


def warm_start(run: TrainingRun) -> None:
    """Train on demonstrations until the gate opens, which makes the run warm, or until the run is to stop; after
    three rounds give up with what was seen."""
    start = run.config.warm_start
    if not start.steps:
        run.warm = True
        return
    if start.planned and not start.trajectories:
        check_plans(run.config)
    with may_end_at_once(run):
        data = _data(run)
    require_money()
    seen = ""
    for attempt in range(ROUNDS if start.gate else 1):
        last = (attempt + 1) * start.steps
        if run.warm_steps > last:
            continue  # the run was stopped behind this round, whose gate did not open
        loss = _train(run, data, last)
        if run.warm_steps < last or run.stopping:  # the gate is looked at when the run goes on
            return
        with may_end_at_once(run):
            run.warm, seen = gate(run.rollouts, run.config) if start.gate else (True, "")
        require_money()
        run.say(f"warm start, round {attempt + 1}: {'; '.join(filter(None, (loss, seen)))}")
        if run.warm:
            return
    raise ConfigError(
        f"the warm start did not reach what reinforcement learning needs in {ROUNDS} rounds: {seen}; "
        "raise warm_start.steps, or give better demonstrations"
    )


def _data(run: TrainingRun) -> list[Datum]:
    """Found again when a run goes on: the same ones."""
    start = run.config.warm_start
    if start.trajectories:
        data = recorded(run.chat, Path(start.trajectories), run.say)
    else:
        shows = "the plan that random ones tell is best" if start.planned else "one random play"
        run.say(f"warm start: {shows} on each of {start.demonstrations:,} tasks")
        shown: dict[str, Progress] = {}

        def watch(what: str, number: int) -> None:
            shown.setdefault(what, Progress(start.demonstrations, number)).show(number, what)

        data = demonstrations(run.chat, run.config, watch, None if simulated(run.config.environments) else _kept(run))
    if not data:
        raise ConfigError(
            "the warm start found nothing to learn from: every episode that it played failed; play one with `play` to "
            "see why"
        )
    run.say(f"warm start: {len(data)} demonstrations")
    return data


def _kept(run: TrainingRun) -> KeptDemonstrations:
    """Demonstrations of real models, which cost money. They go with the checkpoints of the supervised start."""
    settings = {name: value for name, value in flat(as_json(run.config)).items() if name not in FREE}
    return KeptDemonstrations(run.folder / WARM / "demonstrations.jsonl", digest(json.dumps(settings)))


def _train(run: TrainingRun, data: Sequence[Datum], last: int) -> str:
    """Optimiser steps up to that one, or to the end of the step in which the run is stopped; saves now and then and at
    its end. Gives the last loss, to be said; nothing where no step was left to take."""
    start = run.config.warm_start
    progress = Progress(last, run.warm_steps)
    said = ""
    while run.warm_steps < last and not run.stopping:
        loss = _step(run, data)
        run.warm_steps += 1
        said = f"loss {loss:.3f} a token"
        ended = run.warm_steps == last
        if ended or run.stopping or run.warm_steps % max(1, start.steps // SAVES) == 0:
            run.save()
        progress.show(run.warm_steps, f"warm start, loss {loss:.3f} a token", always=ended)
    return said


def _step(run: TrainingRun, data: Sequence[Datum]) -> float:
    """One optimiser step. What it looks at and its rate follow from its number alone."""
    start, number, began = run.config.warm_start, run.warm_steps, time.monotonic()
    within = number % start.steps
    rate = start.learning_rate * min(1.0, (within + 1) / RISING) * (1 - 0.9 * within / start.steps)
    batch = batch_of(data, start.batch, run.config.seed, number)
    learned = run.engine.train(batch, LossParams("cross_entropy"), rate)
    seconds = time.monotonic() - began
    told = {name: learned[name] for name in LOGGED if name in learned}
    speed = sum(len(d.tokens) for d in batch) / seconds
    run.log.write("warm", number, {**told, "learning_rate": rate, "seconds": seconds, "tokens_per_second": speed})
    return learned["loss"]


def batch_of(data: Sequence[Datum], size: int, seed: int, number: int) -> list[Datum]:
    """What a step looks at: in an epoch nothing comes twice."""
    size = min(size, len(data))
    epoch, place = divmod(number, len(data) // size)
    return [data[i] for i in _order(seed, epoch, len(data))[place * size : (place + 1) * size]]


@lru_cache(maxsize=1)
def _order(seed: int, epoch: int, count: int) -> Sequence[int]:
    """Order of the data in an epoch, which has many steps."""
    named = repr(("warm start", seed, epoch)).encode()
    rng = random.Random(int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big"))
    return rng.sample(range(count), count)


def gate(rollouts: Rollouts, config: TrainConfig) -> tuple[bool, str]:
    """Whether reinforcement learning may start, and what was seen."""
    checked, least = config.groups * config.rollouts, config.warm_start.gate
    jobs = []
    for number in range(checked):
        mix = config.environments[number % len(config.environments)]
        jobs.append(job_of(mix, training(mix), FIRST_SEED - checked + number))
    progress, played = Progress(checked), itertools.count(1)
    trajectories = rollouts.collect(jobs, lambda _: progress.show(next(played), "rollouts of the gate"))
    sound = [t.measure for t in trajectories if not t.measure.failed]
    valid = statistics.fmean(m.valid_format for m in sound) if sound else 0.0
    outcome = statistics.fmean(m.outcome for m in sound) if sound else 0.0
    said = f"readable {valid:.1%} (needs {least:.0%}), accuracy {outcome:.1%}"
    return valid >= least, "; ".join([said, *failures(trajectories)])
