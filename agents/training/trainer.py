"""The training loop, to be read from top to bottom: start, warm start, then rollouts, rewards, one step, again.

A run lives in a folder: checkpoints/, metrics.jsonl, rollouts.jsonl, sessions.jsonl, tensorboard/, report/. All that
the next step depends on is in the checkpoint, so a run that was killed and resumed ends with the same weights as one
that was not (on a CPU).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import chosen_tasks, seed_of
from toolorchestra.agents.engines.base import Datum, Engine, EngineLost, TrainingFailed
from toolorchestra.agents.engines.machine import this_machine
from toolorchestra.agents.evaluation.heldout import POLICY, baseline_measures
from toolorchestra.agents.rollouts.grpo import Group, training_batch
from toolorchestra.agents.rollouts.rollout import OUTAGE, Chat, siblings
from toolorchestra.agents.training import sessions
from toolorchestra.agents.training.metrics import Progress
from toolorchestra.agents.training.rollouts_ahead import TakenGroups
from toolorchestra.agents.training.sessions import opening
from toolorchestra.agents.training.step_log import StepTimes, log_evaluation, log_step
from toolorchestra.agents.training.training_run import Say, TrainingRun, open_run, rollout_params, stops_after_the_step
from toolorchestra.agents.training.warmstart import warm_start
from toolorchestra.envs.base.errors import Outage, SpendCapReached, WrongSetting
from toolorchestra.envs.money.journal import require_money

MOST_MOVED = 0.02
"""How far the optimiser steps of one step may move the policy: KL divergence from what they began with, in nats a
token. Runs that learn seldom pass it; in runs that unlearnt their grammar it was passed by far, before all else."""
FIRST = ("mismatch", "kl_sampler", "prefix_hits")
"""What is told of the sampler."""
MOST_UNSAMPLED = 3
"""Steps in a row of which the sampler broke off every rollout; then the run ends. One may come back after fewer."""
MOST_FAILED = 0.9
"""Share of a step's rollouts that may fail while experts are away, where nothing can be learnt from the others."""
MOST_LOST = 0.25
"""Share of an evaluation's episodes that may fail where it is to choose the best step."""
SLOWER, FASTER = 0.5, 1.03
"""Factors of the pace, for a step that moved the policy too far and for an optimiser step that did not."""


def train(
    config: TrainConfig, folder: Path, engine: Engine, chat: Chat, *, resume: bool, say: Say = print
) -> TrainingRun:
    """Run to the end, or to the first Ctrl-C or SIGTERM, which saves first. Gives the run for its report."""
    run = open_run(config, folder, engine, chat, resume=resume, say=say)
    with ExitStack() as unfinished:
        unfinished.callback(run.rollouts.close)
        machine = this_machine(config.model.device)
        size = engine.size()
        for line in opening(run, machine, size):
            say(line)
        beside = closing(run.ahead) if run.ahead else nullcontext()
        with sessions.recorded(folder, machine, size, run.step), beside, stops_after_the_step(run):
            if not run.warm:
                warm_start(run)
                if run.warm:
                    run.engine.take_reference()
                    run.save()
            if run.warm:
                try:
                    _reinforce(run)
                except (SpendCapReached, TrainingFailed, Outage):
                    if run.whole and not run.engine.lost():
                        run.save()
                    raise
        unfinished.pop_all()  # the report goes on with them
    run.log.close()
    return run


def _reinforce(run: TrainingRun) -> None:
    """All steps that are left, or those until the run is to stop."""
    config = run.config
    _evaluate_where_due(run)
    if run.ahead:
        run.ahead.publish(run.step)
    progress, stopping = Progress(config.steps, run.step), run.stopping
    while run.step < config.steps and not stopping:
        line = take_step(run)
        run.step, run.whole = run.step + 1, True
        last, stopping = run.step == config.steps, run.stopping  # looked at once: the last step is saved
        if run.step % config.save_every == 0 or last or stopping or _due(run):
            run.save()  # before the evaluation, which takes long and may break
        stopping = _evaluate_where_due(run) or stopping
        progress.show(run.step, line, always=last)


def _due(run: TrainingRun) -> bool:
    """Whether an evaluation is to be made: before the first step, after the last one and every so many, where that was
    not done. A stop, a crash or the spend cap may have come first."""
    due = run.step % run.config.evaluate_every == 0 or run.step == run.config.steps
    return due and run.evaluated != run.step


def _evaluate_where_due(run: TrainingRun) -> bool:
    """Evaluate and save, unless the run is to stop: it does so when it goes on. Gives whether it was told to stop
    meanwhile."""
    if run.stopping or not _due(run):
        return False
    evaluate(run)
    stopping = run.stopping
    run.save()
    return stopping


def take_step(run: TrainingRun) -> str:
    """Rollouts, rewards, one optimiser step. Gives the line to show."""
    started = time.monotonic()
    taken = run.ahead.take(run.step) if run.ahead else TakenGroups(collect_groups(run))
    collected = time.monotonic()
    require_money()
    batch = training_batch(taken.groups, run.algorithm)
    run.unsampled = 0 if batch.data else _unsampled(run, taken.groups)
    run.whole = False
    learned = _learn(run, batch.data)
    if not batch.data:
        run.say(f"step {run.step}: none of {len(taken.groups)} groups has rewards that differ; no step taken")
    learnt = time.monotonic()
    publishing = run.ahead.publish(run.step + 1) if run.ahead else 0.0
    times = StepTimes(collected - started, learnt - collected, publishing)
    return log_step(run, taken, batch, learned, times)


def _unsampled(run: TrainingRun, groups: Sequence[Group]) -> int:
    """How many steps in a row the sampler has broken off every rollout of, with this one. After a few the run ends:
    nothing is learnt, so no weights are handed out, which else would find out that it is away. It ends at once where
    hardly a rollout is left because experts are away or refuse: the next steps would learn nothing either."""
    rollouts = [one for group in groups for one in group.trajectories]
    failed = [one for one in rollouts if one.measure.failed]
    away = [one.failure["error"] for one in failed if one.failure and one.truncated_by != OUTAGE]
    away = [error for error in away if error.startswith((Outage.__name__, WrongSetting.__name__))]
    if away and len(failed) > MOST_FAILED * len(rollouts):
        raise Outage(
            f"{len(failed)} of {len(rollouts)} rollouts of a step failed, the first of these by {away[0]}; the step is "
            "not taken. See to the models and tools, and go on with resume=True",
            command_line="--resume",
        )
    if any(one.truncated_by != OUTAGE for one in rollouts):
        return 0
    if run.unsampled + 1 == MOST_UNSAMPLED:
        raise EngineLost(
            f"in {MOST_UNSAMPLED} steps in a row the sampler broke off every rollout; the last one heard: "
            f"{(rollouts[-1].failure or {}).get('error')}. Look into the sampler's log, and go on with resume=True",
            command_line="--resume",
        )
    return run.unsampled + 1


def collect_groups(run: TrainingRun) -> list[Group]:
    """The groups of this step: rollouts of one task share its seed, and with it preference, prices and tools, but not
    the draws of what experts answer."""
    names, size = run.config.baselines, run.config.rollouts
    tasks = chosen_tasks(run.config, run.step)
    made = run.rollouts.collect([job for task in tasks for job in siblings(task.job, size)])
    parts = [made[i : i + size] for i in range(0, len(made), size)]
    return [
        Group(part, baseline_measures(task.job, names, run.chat) if names else (), task.label)
        for part, task in zip(parts, tasks, strict=True)
    ]


def _learn(run: TrainingRun, data: Sequence[Datum]) -> Mapping[str, float]:
    """The optimiser steps of one step's data. Groups, which share a prompt, stay together in a shuffled order, which is
    cut into equal parts: a group at a cut is in two. They end early where they move the policy too far. Gives the means
    of their metrics; what is told of the sampler is the first one's, which saw the sampler's own weights."""
    config = run.config
    rng = random.Random(seed_of(config.seed, run.step, "updates"))
    fall = (config.final_learning_rate / config.learning_rate) ** (run.step / max(1, config.steps - 1))
    loss, rate = replace(run.loss, entropy_weight=run.loss.entropy_weight * fall), config.learning_rate * fall
    size = -(-len(data) // config.updates)
    by_prompt: dict[tuple[int, ...], list[Datum]] = {}
    for d in data:
        by_prompt.setdefault(tuple(d.tokens[: (*d.mask, True).index(True)]), []).append(d)
    shuffled = [d for some in rng.sample([*by_prompt.values()], len(by_prompt)) for d in some]
    steps: list[Mapping[str, float]] = []
    for i in range(0, len(data), max(1, size)):
        steps.append(run.engine.train(shuffled[i : i + size], loss, rate * run.pace))
        if steps[-1].get("kl_sampler", 0.0) - steps[0].get("kl_sampler", 0.0) > MOST_MOVED:
            run.pace *= SLOWER
            break  # the rest was played by a policy that is no more
        run.pace = min(1.0, run.pace * FASTER)
    means = {name: statistics.fmean(s[name] for s in steps if name in s) for s in steps for name in s}
    first = {name: value for name, value in (steps or [{}])[0].items() if name in FIRST}
    return {**means, **first, "learning_rate": rate, "pace": run.pace}


# -- evaluation --------------------------------------------------------------------------------------------------------


def evaluate(run: TrainingRun) -> None:
    """Play the held-out tasks with the averaged weights, and write down how it went; the best step is kept in mind."""
    evaluating = run.rollouts.with_params(rollout_params(run.config, run.config.evaluation_temperature))
    with run.ahead.paused() if run.ahead else nullcontext(), run.engine.averaged():
        evaluation = run.held_out.evaluate(evaluating)
    require_money()
    run.evaluated = run.step
    mine, oracle = evaluation.standings[POLICY], evaluation.standings.get("oracle")
    if not mine.tasks:  # unknown weights are no cheaper than others
        run.say(f"held out, step {run.step}: every episode failed, and nothing is known of these weights")
        log_evaluation(run, evaluation)
        return
    share = "" if evaluation.of_oracle is None else f" ({evaluation.of_oracle.value:.0%} of the oracle's)"
    right = f" (oracle {oracle.accuracy:.0%})" if oracle else ""
    run.say(
        f"held out, step {run.step}: held-out reward {mine.reward:.3f}{share}, accuracy {mine.accuracy:.0%}{right}, "
        f"{mine.cents:.2f} ¢ a task"
    )
    log_evaluation(run, evaluation)
    if evaluation.failed > MOST_LOST * len(evaluation.tasks):  # the long and expensive tasks fail first
        run.say(f"held out, step {run.step}: so many episodes failed that it is not compared with other steps")
        return
    worth = evaluation.expected_reward()
    if (worth, -mine.cents) > (run.best, -run.best_cents):
        run.best, run.best_cents, run.best_step = worth, mine.cents, run.step
