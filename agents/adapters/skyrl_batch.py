"""Rollouts as the batch that SkyRL's trainers read: samples with rewards and masks, times, bills, figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolorchestra.agents.adapters.skyrl_samples import SampleForm, TrainingSample, samples_of
from toolorchestra.agents.rollouts.grpo import Measure, Trajectory
from toolorchestra.agents.training.environment_metrics import mean

PLAYED = "toolorchestra"
"""The key under which a batch has what each sample was made of. SkyRL carries keys that it does not know along."""


class Played(NamedTuple):
    """What samples are made of."""

    trajectory: Trajectory
    label: str
    """Which environment it is of."""
    seconds: float
    """By the wall, from its start to its end."""
    sampling_seconds: float
    """Of these, those in which its turns were sampled."""
    baselines: Sequence[Measure] = ()


class _Placed(NamedTuple):
    sample: TrainingSample
    played: Played
    trajectory_id: Any
    last: bool


def batch_of(
    played: Sequence[Played], ids: Sequence[Any], form: SampleForm, filler: int, *, scored: bool
) -> dict[str, Any]:
    """A GeneratorOutput. The outcome is the reward of the last token; a failed episode has none and is masked."""
    rows = [
        _Placed(sample, one, which, place == len(samples) - 1)
        for one, which in zip(played, ids, strict=True)
        for samples in (samples_of(one.trajectory, form, filler),)
        for place, sample in enumerate(samples)
    ]
    times = {"llm": [r.played.sampling_seconds for r in rows]}
    times["env"] = [r.played.seconds - r.played.sampling_seconds for r in rows]
    return {
        "prompt_token_ids": [r.sample.prompt for r in rows],
        "response_ids": [r.sample.response for r in rows],
        "rewards": [_rewards(r) for r in rows],
        "loss_masks": [r.sample.mask for r in rows],
        "rollout_logprobs": [r.sample.logprobs for r in rows] if scored else None,
        "stop_reasons": ["length" if r.played.trajectory.truncated_by else "stop" for r in rows],
        "trajectory_ids": [r.trajectory_id for r in rows],
        "is_last_step": None if form == "one" else [r.last for r in rows],
        "trajectory_generation_times": [r.played.seconds for r in rows],
        "trajectory_time_splits": times,
        "env_metrics": [figures(r.played) for r in rows],
        "rollout_metrics": figures_of_all(played),
        "rollout_expert_indices": None,
        PLAYED: [r.played for r in rows],
    }


def _rewards(row: _Placed) -> list[float]:
    """By token. SkyRL's own filter of like rewards leaves those alone: right answers of unlike bills do teach."""
    measure = row.played.trajectory.measure
    value = 0.0 if measure.failed or not row.last else measure.outcome
    return [0.0] * (len(row.sample.response) - 1) + [value]


def figures(one: Played) -> dict[str, Any]:
    """Of one rollout: what it came to, its bill by role, its clock."""
    made = one.trajectory
    return {
        "task_id": made.task_id,
        "outcome": made.measure.outcome,
        "usd": made.bill["usd"],
        **{f"usd_{role}": usd for role, usd in made.bill["usd_by_role"].items()},
        "seconds": made.measure.seconds,
        "wall_seconds": one.seconds,
        "turns": made.turns,
        "calls": sum(made.measure.calls.values()),
        "sampled_tokens": made.sampled_tokens,
        "failed": float(made.measure.failed),
        "truncated_by": made.truncated_by,
    }


def figures_of_all(played: Sequence[Played]) -> dict[str, float]:
    """By environment. SkyRL averages what has "mean" in its name when it joins batches, and adds up the rest."""
    by_label: dict[str, list[Played]] = {}
    for one in played:
        by_label.setdefault(one.label, []).append(one)
    made: dict[str, float] = {}
    for label, some in by_label.items():
        sound = [one.trajectory for one in some if not one.trajectory.measure.failed]
        if sound:
            made |= {
                f"environment/{label}/accuracy_mean": mean([t.measure.outcome for t in sound]),
                f"environment/{label}/cents_mean": 100 * mean([t.measure.usd for t in sound]),
                f"environment/{label}/seconds_mean": mean([t.measure.seconds for t in sound]),
                f"environment/{label}/turns_mean": mean([float(t.turns) for t in sound]),
            }
        made[f"environment/{label}/failed"] = float(len(some) - len(sound))
        made[f"environment/{label}/context_cuts"] = float(sum(t.measure.context_cut for t in sound))
    return made
