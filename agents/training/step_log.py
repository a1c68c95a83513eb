"""What a training step and an evaluation leave in the log, and what is said where it looks wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import TellsSyncTime
from toolorchestra.agents.evaluation.heldout import Evaluation, as_metrics
from toolorchestra.agents.rollouts.grpo import Group, RewardBreakdown, TrainingBatch, Trajectory
from toolorchestra.agents.rollouts.time_split import IDLE
from toolorchestra.agents.training import choice_metrics, environment_metrics, group_dumps
from toolorchestra.agents.training.environment_metrics import ByEnvironment, mean
from toolorchestra.agents.training.rollouts_ahead import TakenGroups
from toolorchestra.agents.training.training_run import TrainingRun


@dataclass(frozen=True)
class StepTimes:
    """How long the parts of a step took."""

    rollouts: float
    """Seconds until the groups of the step were there."""
    training: float
    """Seconds of rewards, advantages and optimiser steps."""
    publishing: float
    """Seconds until rollouts go on with the new weights, where they go on beside the training."""

    @property
    def whole(self) -> float:
        """The seconds of all parts together."""
        return self.rollouts + self.training + self.publishing


def _seconds(run: TrainingRun, times: StepTimes) -> dict[str, float]:
    """Where the seconds went. Without rollouts beside the training these add up to the step; "idle" is the rest, such
    as waiting for other processes. With them "idle" is the trainer's waiting for groups, and sampling, tokenisation and
    tools are what the rollouts did meanwhile."""
    split = run.ahead.seconds() if run.ahead else run.rollouts.split.taken()
    away = split.pop(IDLE)
    sync = run.engine.sync_seconds() if isinstance(run.engine, TellsSyncTime) else 0.0
    if run.ahead:
        own = {"sync": times.publishing, "idle": times.rollouts, "rollouts_idle": away}
    else:
        split["sampling"] = max(0.0, split["sampling"] - sync)  # a sync is waited for like a turn
        own = {"sync": sync, "idle": max(0.0, times.rollouts - sync - sum(split.values()))}
    parts = {**split, "training": times.training, **own, "step": times.whole}
    return {f"time/{name}": value for name, value in parts.items()}


def log_step(
    run: TrainingRun,
    taken: TakenGroups,
    batch: TrainingBatch,
    learned: Mapping[str, float],
    times: StepTimes,
) -> str:
    """Write a step's numbers and some rollouts, warn where they look like a collapse, and give the line to show."""
    groups = taken.groups
    found = environment_metrics.of_groups(groups)
    rollouts = [t for played in found.values() for t in played]
    kept = [t for t in rollouts if not t.measure.failed]
    seen = choice_metrics.choices(kept)
    valid = mean([t.measure.valid_format for t in kept])
    sampling = times.whole if run.ahead else times.rollouts
    values: dict[str, Any] = {
        "group_reward": mean(_totals(batch.rewards)),
        **environment_metrics.regret_metric(groups),
        "accuracy": mean([t.measure.outcome for t in kept]),
        "cents": 100 * mean([t.measure.usd for t in kept]),
        "seconds": mean([t.measure.seconds for t in kept]),
        "turns": mean([t.turns for t in kept]),
        "sequences": mean([len(t.sequences) for t in kept]),
        "valid": valid,
        "used": batch.used,
        "flat_groups": batch.flat_groups,
        "flat_share": batch.flat_groups / len(groups),
        "failed": len(rollouts) - len(kept),
        "context": environment_metrics.context_cuts(rollouts),
        "choice_entropy": seen.entropy,
        "most_used_share": seen.share,
        "controllability": seen.controllability,
        "sampled_tokens_per_second": sum(t.sampled_tokens for t in rollouts) / sampling,
        **_seconds(run, times),
        **environment_metrics.term_metrics(rollouts),
        **taken.metrics,
        **{f"loss/{k}": v for k, v in learned.items()},
        **_apart(run, found, _rewards(groups, batch), "group_reward"),
    }
    run.log.write("train", run.step, values)
    group_dumps.write(run.folder, run.step, groups, batch, run.config, run.say)
    treated = "count as wrong" if run.config.advantage.count_context_cuts else "are left out"
    for warning in [
        *choice_metrics.failures(rollouts),
        *environment_metrics.context_warnings(run.config, found, treated),
        *(choice_metrics.warnings(seen, valid) if kept else ()),
        *_rewriting(run, kept),
        *far_from_sampler(learned),
    ]:
        run.say(f"warning, step {run.step}: {warning}")
    return (
        f"group reward {values['group_reward']:.3f}, accuracy {values['accuracy']:.0%}, {values['cents']:.2f} ¢, "
        f"{values['turns']:.1f} turns, {values['sampled_tokens_per_second']:,.0f} tokens/s"
    )


MOST_MISMATCH = 0.1
"""Mean distance of the policy from what sampled, in nats a token, above which a run is warned."""


def far_from_sampler(learned: Mapping[str, float]) -> list[str]:
    """What to do where the policy is far from the probabilities with which its rollouts were sampled."""
    distance = learned.get("mismatch", 0.0)
    if distance <= MOST_MISMATCH:
        return []
    return [
        f"the policy is {distance:.2f} nats a token from what sampled these rollouts (loss/mismatch), more than "
        f"{MOST_MISMATCH}: lower learning_rate, updates or max_staleness, or look whether the sampler has the "
        "trainer's weights"
    ]


def _rewriting(run: TrainingRun, rollouts: Sequence[Trajectory]) -> list[str]:
    """Said once: it is so at every step. A state that is told anew each turn is wanted, and nobody is warned of it."""
    if run.rewriting_said:
        return []
    retold = {mix.env_id for mix in run.config.environments if training(mix).settings.history == "state"}
    said = choice_metrics.rewriting([t for t in rollouts if t.env_id not in retold])
    run.rewriting_said = bool(said)
    return said


def log_evaluation(run: TrainingRun, evaluation: Evaluation) -> None:
    """Write a held-out evaluation's numbers, and warn where episodes broke or were cut."""
    found = environment_metrics.of_evaluation(run.config, evaluation)
    apart = _apart(run, found, environment_metrics.rewards_of(run.config, evaluation), "reward")
    terms = environment_metrics.term_metrics(evaluation.trajectories)
    run.log.write("eval", run.step, {**as_metrics(evaluation), **terms, **apart})
    for warning in [
        *choice_metrics.failures(evaluation.trajectories),
        *environment_metrics.context_warnings(run.config, found, "count as wrong"),
    ]:
        run.say(f"warning, held out, step {run.step}: {warning}")


def _apart(run: TrainingRun, found: ByEnvironment, rewards: Mapping[str, float], called: str) -> Mapping[str, float]:
    """By environment, where there are several. `called` is the reward's name: of a group, or held out."""
    return environment_metrics.metrics(found, rewards, called) if len(run.config.environments) > 1 else {}


def _rewards(groups: Sequence[Group], batch: TrainingBatch) -> dict[str, float]:
    """The mean reward of what was learnt from, by environment."""
    rows: dict[str, list[Sequence[RewardBreakdown | None]]] = {}
    for group, row in zip(groups, batch.rewards, strict=True):
        rows.setdefault(group.label, []).append(row)
    return {label: mean(_totals(of)) for label, of in rows.items()}


def _totals(rows: Sequence[Sequence[RewardBreakdown | None]]) -> list[float]:
    return [reward.total for row in rows for reward in row if reward is not None]
