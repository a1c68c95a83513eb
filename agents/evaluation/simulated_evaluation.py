"""Plays simulated episodes one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.engines.base import Sample
from toolorchestra.agents.policies.baselines import Baseline, baseline, players
from toolorchestra.agents.rollouts.grpo import Measure, TokenSequence
from toolorchestra.agents.rollouts.rollout import Chat, Job, measured
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage


def played(
    factory: EpisodeFactory,
    policy: Baseline,
    seed: int,
    options: Mapping[str, Any] | None = None,
    chat: Chat | None = None,
) -> Episode:
    """An episode, played to its end. What the policy reads and says is billed as a model's would be: by the tokens of
    the chat, or without one by an estimate."""
    episode = factory.start(seed, options).episode
    sequence: TokenSequence | None = None
    usage: Usage | None = None
    while not episode.over:
        text = policy(episode)
        if chat is not None:
            sequence, _ = chat.follow(sequence, episode.observation)
            prompt, ids = len(sequence.tokens), [*chat.encode(text), chat.stop]
            chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
            usage = Usage(episode.rules.orchestrator, ORCHESTRATOR, Tokens(prompt, 0, len(ids)))
        moved: Pending | Step = episode.act(text, usage)
        while isinstance(moved, Pending):
            moved = episode.resolve(run_calls(moved.calls))
    return episode


def baseline_measures(job: Job, names: Sequence[str], chat: Chat) -> list[Measure]:
    """What these baselines come to on the task of a job, those of them that can play it."""
    able = [name for name in names if name in players(job.factory.source)]
    return [measured(played(job.factory, baseline(name, job.seed), job.seed, job.options, chat)) for name in able]
