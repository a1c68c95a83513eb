"""What a training step and an evaluation leave in the log, by environment too, and what looks wrong in it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.environments import labels, training
from toolorchestra.agents.evaluation.heldout import POLICY, Evaluation, as_metrics
from toolorchestra.agents.evaluation.statistics import entropy, most_used
from toolorchestra.agents.rollouts.grpo import Group, TrainingBatch, Trajectory
from toolorchestra.agents.rollouts.time_split import IDLE
from toolorchestra.agents.training import group_dumps
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
    sync = run.engine.sync_seconds()
    if run.ahead:
        own = {"sync": times.publishing, "idle": times.rollouts, "rollouts_idle": away}
    else:
        split["sampling"] = max(0.0, split["sampling"] - sync)  # a sync is waited for like a turn
        own = {"sync": sync, "idle": max(0.0, times.rollouts - sync - sum(split.values()))}
    parts = {**split, "training": times.training, **own, "step": times.whole}
    return {f"time/{name}": value for name, value in parts.items()}


def log_step(
    run: TrainingRun, taken: TakenGroups, batch: TrainingBatch, learned: Mapping[str, float], times: StepTimes
) -> str:
    """Write a step's numbers and some rollouts, warn where they look like a collapse, and give the line to show."""
    groups = taken.groups
    found: dict[str, list[Trajectory]] = {}
    totals: dict[str, list[float]] = {}
    for group, rewards in zip(groups, batch.rewards, strict=True):
        found.setdefault(group.label, []).extend(group.trajectories)
        totals.setdefault(group.label, []).extend(reward.total for reward in rewards if reward is not None)
    rollouts = [t for played in found.values() for t in played]
    kept = [t for t in rollouts if not t.measure.failed]
    seen = choices(kept)
    valid = mean([t.measure.valid_format for t in kept])
    sampling = times.whole if run.ahead else times.rollouts
    values: dict[str, Any] = {
        "group_reward": mean([total for some in totals.values() for total in some]),
        "accuracy": mean([t.measure.outcome for t in kept]),
        "cents": 100 * mean([t.measure.usd for t in kept]),
        "seconds": mean([t.measure.seconds for t in kept]),
        "turns": mean([t.turns for t in kept]),
        "sequences": mean([len(t.sequences) for t in kept]),
        "valid": valid,
        "used": batch.used,
        "flat_groups": batch.flat_groups,
        "flat_share": batch.flat_groups / len(groups),
        **different(groups, batch),
        "failed": len(rollouts) - len(kept),
        "context": context_cuts(rollouts),
        "choice_entropy": seen.entropy,
        "most_used_share": seen.share,
        "controllability": seen.controllability,
        "sampled_tokens_per_second": sum(t.sampled_tokens for t in rollouts) / sampling,
        **_seconds(run, times),
        **term_metrics(rollouts),
        **taken.metrics,
        **{f"loss/{k}": v for k, v in learned.items()},
        **_apart(run, found, {label: mean(some) for label, some in totals.items()}, "group_reward"),
    }
    run.log.write("train", run.step, values)
    group_dumps.write(run.folder, run.step, groups, batch, run.config, run.say)
    treated = "count as wrong" if run.config.advantage.count_context_cuts else "are left out"
    for warning in [
        *failures(rollouts),
        *context_warnings(run.config, found, treated),
        *(warnings(seen, valid) if kept else ()),
        *_rewriting(run, kept),
        *far_from_sampler(learned),
    ]:
        run.say(f"warning, step {run.step}: {warning}")
    return (
        f"group reward {values['group_reward']:.3f}, accuracy {values['accuracy']:.0%}, {values['cents']:.2f} ¢, "
        f"{values['turns']:.1f} turns, {values['sampled_tokens_per_second']:,.0f} tokens/s"
    )


def different(groups: Sequence[Group], batch: TrainingBatch) -> dict[str, float]:
    """How many different trajectories a group had, in the mean; and the effective number of samples: the different
    trajectories of all groups that taught something."""
    counts = [len({tuple(s.text for s in t.sequences) for t in group.trajectories}) for group in groups]
    taught = [any(one is not None for one in row) for row in batch.advantages]
    return {"different": mean(counts), "samples": float(sum(n for n, one in zip(counts, taught, strict=True) if one))}


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
    said = rewriting([t for t in rollouts if t.env_id not in retold])
    run.rewriting_said = bool(said)
    return said


def log_evaluation(run: TrainingRun, evaluation: Evaluation) -> None:
    """Write a held-out evaluation's numbers, and warn where episodes broke or were cut."""
    names = labels(run.config.environments)
    found = dict(zip(names, run.held_out.by_environment(evaluation.trajectories).values(), strict=True))
    standings = zip(names, evaluation.by_environment.values(), strict=True)
    apart = _apart(run, found, {name: one[POLICY].reward for name, one in standings if one[POLICY].tasks}, "reward")
    terms = term_metrics(evaluation.trajectories)
    run.log.write("eval", run.step, {**as_metrics(evaluation), **terms, **apart})
    for warning in [
        *failures(evaluation.trajectories),
        *context_warnings(run.config, found, "count as wrong"),
    ]:
        run.say(f"warning, held out, step {run.step}: {warning}")


# -- by environment of the mix -----------------------------------------------------------------------------------------

MOST_CUT = 0.03
"""Share of an environment's rollouts that may run out of context before it is said."""

ByEnvironment = Mapping[str, Sequence[Trajectory]]


def _apart(run: TrainingRun, found: ByEnvironment, rewards: Mapping[str, float], called: str) -> dict[str, float]:
    """`env/HLE-v0/accuracy` and so on, where there are several environments. The reward is called "group_reward" or,
    held out, "reward"."""
    made: dict[str, float] = {}
    for name, played in found.items() if len(run.config.environments) > 1 else ():
        sound = [t.measure for t in played if not t.measure.failed]
        made |= {
            f"env/{name}/{called}": rewards.get(name, float("nan")),
            f"env/{name}/accuracy": mean([m.outcome for m in sound]),
            f"env/{name}/cents": 100 * mean([m.usd for m in sound]),
            f"env/{name}/failed": sum(t.measure.failed for t in played),
            f"env/{name}/context": context_cuts(played),
        }
    return made


def term_metrics(played: Sequence[Trajectory]) -> dict[str, float]:
    """`term/NAME`: what each reward term of the user's own came to, on average over the episodes that did not fail."""
    seen = [t.measure.terms for t in played if not t.measure.failed]
    names = sorted({name for terms in seen for name in terms})
    return {f"term/{name}": mean([terms[name] for terms in seen if name in terms]) for name in names}


def context_cuts(played: Sequence[Trajectory]) -> int:
    """How many ran out of context."""
    return sum(t.measure.context_cut for t in played)


def context_warnings(config: TrainConfig, found: ByEnvironment, treated: str) -> list[str]:
    """Where more than a few per cent ran out of context, with what to raise."""
    mixes = dict(zip(labels(config.environments), config.environments, strict=True))
    return [
        f"{cut} of {len(played)} rollouts of {name} ran out of context and {treated}: {_raise(config, mixes[name])}"
        for name, played in found.items()
        if (cut := context_cuts(played)) > MOST_CUT * len(played)
    ]


def _raise(config: TrainConfig, mix: EnvMix) -> str:
    """What gives the environment more room."""
    if limit := mix.arguments.get("max_context_tokens"):
        return f"raise its max_context_tokens, which is {limit}, or its max_context"
    of_run = f"the run's max_context, which is {config.max_context}"
    if not mix.max_context:
        return f"raise {of_run}"
    also = f", and {of_run}" if mix.max_context == config.max_context else ""
    return f"raise its max_context, which is {mix.max_context}{also}"


def mean(values: Sequence[float]) -> float:
    """The mean of some values; nan where there are none."""
    return statistics.fmean(values) if values else float("nan")


# -- what looks like a collapse, while it happens ----------------------------------------------------------------------


LEAST_ENTROPY, MOST_SHARE = 0.3, 0.9
"""Nats, and the share of one key, beyond which choices have collapsed."""
LEAST_CALLS = 1.05
"""An orchestrator that only answers at once makes one call an episode."""
LEAST_VALID = 0.8
MOST_SEQUENCES = 1.5
"""How many times the sequences that they need rollouts may have."""


@dataclass(frozen=True)
class Choices:
    """What a batch of rollouts chose."""

    entropy: float
    """Entropy of the countable keys called, in nats."""
    most_used: str
    share: float
    """Share of all calls that went to the most used key."""
    calls_per_episode: float
    controllability: float
    """Mean dollars of episodes whose user weighs money, over those whose user does not; below 1 is obedient."""


def choices(trajectories: Sequence[Trajectory]) -> Choices:
    """Read them off a batch."""
    calls: Counter[str] = Counter()
    for t in trajectories:
        calls.update(t.measure.calls)
    key, share = most_used(calls)
    thrifty = [t.measure.usd for t in trajectories if t.preference.usd >= 0.5]
    careless = [t.measure.usd for t in trajectories if t.preference.usd == 0]
    known = thrifty and sum(careless)
    return Choices(
        entropy=entropy(calls),
        most_used=key,
        share=share,
        calls_per_episode=sum(calls.values()) / len(trajectories) if trajectories else 0.0,
        controllability=(sum(thrifty) / len(thrifty)) / (sum(careless) / len(careless)) if known else float("nan"),
    )


def warnings(seen: Choices, valid: float) -> list[str]:
    """What looks like a collapse, in words."""
    said = []
    if seen.most_used and seen.entropy < LEAST_ENTROPY:
        said.append(f"choices have collapsed: entropy {seen.entropy:.2f} nats, {seen.share:.0%} to {seen.most_used}")
    elif seen.share > MOST_SHARE:
        said.append(f"{seen.share:.0%} of all calls go to {seen.most_used}")
    if seen.calls_per_episode < LEAST_CALLS:
        said.append(f"{seen.calls_per_episode:.2f} calls an episode: it answers at once, or calls nothing")
    if valid < LEAST_VALID:
        said.append(f"only {valid:.0%} of the rollouts are readable in every turn")
    return said


def failures(trajectories: Sequence[Trajectory]) -> list[str]:
    """How many failed, and of what the first one, in words."""
    broken = [t for t in trajectories if t.measure.failed]
    if not broken:
        return []
    first = broken[0].failure["error"] if broken[0].failure else f"it ran into its {broken[0].truncated_by}"
    return [f"{len(broken)} of {len(trajectories)} rollouts failed and count for nothing; the first: {first}"]


def rewriting(trajectories: Sequence[Trajectory]) -> list[str]:
    """Whether rollouts are in clearly more sequences than they need, in words. A rollout needs one, and one more at
    each further message of its user, where many templates drop old thoughts."""
    if not trajectories:
        return []
    users = [sum(message["role"] == "user" for message in t.messages) for t in trajectories]
    made = sum(len(t.sequences) for t in trajectories) / len(trajectories)
    needed = sum(max(1, count) for count in users) / len(users)
    if made <= MOST_SEQUENCES * needed:
        return []
    return [
        f"rollouts have {made:.1f} sequences in the mean, where {needed:.1f} would do: the chat template rewrites the "
        "past each turn, which makes training slower; a template that keeps earlier turns as they are would not "
        "(docs/training.md, Tokens)"
    ]
