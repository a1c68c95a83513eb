"""Fixed policies that play a group's task too, and widen the scale of its reward."""

from __future__ import annotations

from collections.abc import Sequence

from toolorchestra.agents.evaluation.simulated_evaluation import played_by_tokens
from toolorchestra.agents.policies.baselines import baseline, players
from toolorchestra.agents.rollouts.rewards import Measure
from toolorchestra.agents.rollouts.rollout import Job, measured
from toolorchestra.agents.rollouts.tokens import Chat


def anchors(job: Job, names: Sequence[str], chat: Chat) -> list[Measure]:
    """What these baselines come to on the task of a job, those of them that can play it."""
    able = [name for name in names if name in players(job.factory.source)]
    return [
        measured(played_by_tokens(job.factory, baseline(name, job.seed), job.seed, chat, job.options)) for name in able
    ]
