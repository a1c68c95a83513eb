"""The group-relative reward as a reward function of another trainer: one number for each rollout of a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolorchestra.agents.rollouts.grpo import GroupReward, Measure
from toolorchestra.envs.base.errors import ConfigError

MEASURED = ("outcome", "usd", "seconds", "calls", "failed")
"""Columns of a batch that make up its measures."""


def preference_reward(prompts: Sequence[Any], **columns: Any) -> list[float | None]:
    """What each rollout is worth among those of the same prompt, under its user's preference; None where it failed. The
    columns are those that an adapter's rollouts give."""
    terms = columns.get("terms") or [{}] * len(prompts)
    measured = [Measure(*of_one) for of_one in zip(*(columns[name] for name in MEASURED), strict=True)]
    measures = [replace(measure, terms=own) for measure, own in zip(measured, terms, strict=True)]
    groups: dict[str, list[int]] = defaultdict(list)
    for place, prompt in enumerate(prompts):
        groups[str(prompt)].append(place)
    made: list[float | None] = [None] * len(measures)
    for places in groups.values():
        first, size = places[0], columns["siblings"][places[0]]
        if len(places) % size:
            raise ConfigError(
                f"a group of {size} rollouts was expected in one process, got {len(places)}: let "
                "per_device_train_batch_size x steps_per_generation be a multiple of num_generations"
            )
        reward = GroupReward(columns["preference"][first], columns["keys"][first])
        for place, score in zip(places, reward.score([measures[place] for place in places]), strict=True):
            made[place] = score.total if score else None
    return made
