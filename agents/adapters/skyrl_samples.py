"""A rollout as the samples that SkyRL trains on: prompt, response, mask and log-probabilities, by its token ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from toolorchestra.agents.rollouts.grpo import TokenSequence, Trajectory
from toolorchestra.envs.base.errors import ConfigError

SampleForm = Literal["one", "merged", "turns"]
"""One sample a rollout; one for each stretch in which no turn rewrote the past; or one a turn."""


class TrainingSample(NamedTuple):
    """One row of SkyRL's batch."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    """1 where a token was sampled and is learnt from."""
    logprobs: list[float]


def samples_of(trajectory: Trajectory, form: SampleForm, filler: int) -> list[TrainingSample]:
    """At least one, since each rollout has its place in the batch: of one in which nothing was sampled, a masked token.
    Of one whose episode failed every token is masked."""
    if form == "one" and len(trajectory.sequences) > 1:
        raise ConfigError(
            f"the chat template rewrote the past of task {trajectory.task_id} {len(trajectory.sequences) - 1} times, "
            "so it is several samples: set generator.step_wise_trajectories=true"
        )
    made = [
        s for sequence in trajectory.sequences for s in (_turns(sequence) if form == "turns" else _merged(sequence))
    ]
    if trajectory.measure.failed:
        made = [sample._replace(mask=[0] * len(sample.mask)) for sample in made]
    prompt = trajectory.sequences[0].tokens if trajectory.sequences else [filler]
    return made or [TrainingSample(list(prompt), [filler], [0], [0.0])]


def _merged(sequence: TokenSequence) -> Iterator[TrainingSample]:
    """From the first sampled token to the last."""
    if any(sequence.sampled):
        end = len(sequence.sampled) - sequence.sampled[::-1].index(True)
        yield _cut(sequence, sequence.sampled.index(True), end)


def _turns(sequence: TokenSequence) -> Iterator[TrainingSample]:
    begin = None
    for place, sampled in enumerate([*sequence.sampled, False]):
        if sampled and begin is None:
            begin = place
        elif not sampled and begin is not None:
            yield _cut(sequence, begin, place)
            begin = None


def _cut(sequence: TokenSequence, begin: int, end: int) -> TrainingSample:
    mask = [int(sampled) for sampled in sequence.sampled[begin:end]]
    return TrainingSample(sequence.tokens[:begin], sequence.tokens[begin:end], mask, sequence.logprobs[begin:end])
