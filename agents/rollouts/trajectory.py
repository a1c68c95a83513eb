"""What a rollout leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolorchestra.agents.rollouts.rewards import Measure
from toolorchestra.agents.rollouts.tokens import TokenSequence
from toolorchestra.envs.base.preference import Preference


@dataclass
class Trajectory:
    """One episode, with its exact tokens."""

    env_id: str
    task_id: str
    seed: int
    sheet: str
    preference: Preference
    keys: Sequence[str]
    sequences: list[TokenSequence]
    measure: Measure
    turns: int
    truncated_by: str = ""
    failure: Mapping[str, Any] | None = None
    messages: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    bill: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] | None = None
    """In the form of RecordTrajectories, where its job asked for it."""
    sampled_with: Mapping[int, int] = field(default_factory=dict)
    """Sampled tokens by the step of the weights that sampled them, where rollouts go on beside the training."""

    @property
    def sampled_tokens(self) -> int:
        return sum(sum(s.sampled) for s in self.sequences)


@dataclass
class Group:
    """Rollouts of one task under one preference and one price sheet."""

    trajectories: list[Trajectory]
    anchors: Sequence[Measure] = ()
    """Fixed policies on the same task, between which the rewards are scaled; they are not trained on."""
    label: str = ""
    """Which environment of the mix it is of."""

    def __post_init__(self) -> None:
        first = self.trajectories[0]
        for other in self.trajectories[1:]:
            same = (other.task_id, other.sheet, other.preference) == (first.task_id, first.sheet, first.preference)
            if not same:
                raise ValueError(
                    f"a group's rollouts must share task, prices and preference; {first.task_id} ({first.sheet}) "
                    f"stands beside {other.task_id} ({other.sheet})"
                )
