"""A second preference for each group: its plays, as another user would count them.

What a play cost, and how likely it was right, does not hang on who asked for it. So a group is scored again by another
preference, and learnt from with that user's sentence in its prompt. A play then counts as many times as it is likelier
for that user than it was for the one who asked, MOST times at most: importance sampling, truncated. Nothing is played
for it. It shows the policy what tells users apart, on one task, in one step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.rollouts.grpo import Advantages, Algorithm, Group, TokenSequence, Trajectory
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.envs.base import preference as preferences
from toolorchestra.envs.base.preference import Preference, Wording

MOST = 2.0
"""How many times a play counts at most."""
LEAST = 0.05
"""How often a play counts that is still learnt from: what the other user would hardly have played costs time alone."""
TRIES = 20
"""Preferences that are drawn at most, until one weighs other things than the group's own."""

Rescore = Callable[[Sequence[Datum]], list[list[float]]]
"""Gives the log-probabilities of the tokens that count, by the weights of now."""


@dataclass(frozen=True)
class SecondBatch:
    """What a step learns from plays under second preferences."""

    data: list[Datum] = field(default_factory=list)
    samples: float = 0.0
    """Effective number of plays of a group, in the mean: of weights w, the square of their sum over that of their
    squares. As many as there are where both users are played for alike."""


def second_batch(groups: Sequence[Group], algorithm: Algorithm, rescore: Rescore) -> SecondBatch:
    """Score groups whose preference was changed, and weigh each play's advantages. Their mean over a group is taken by
    the same weights: it is what that user's plays come to."""
    rescored = iter(
        rescore([d for group in groups for t in group.trajectories for d in t.data([1.0] * t.sampled_turns)])
    )
    groups, weights = [*groups], []
    for place, group in enumerate(groups):
        pairs = [_by_now(t, [next(rescored) for _ in t.sequences]) for t in group.trajectories]
        groups[place] = replace(group, trajectories=[t for t, _ in pairs])
        weights.append([weight for _, weight in pairs])
    made = algorithm.advantages(groups, [algorithm.score(group) for group in groups])
    data = []
    for group, row, of_plays in zip(groups, made, weights, strict=True):
        for trajectory, of_turns in zip(group.trajectories, weighed(row, of_plays), strict=True):
            data += [] if of_turns is None else trajectory.data(of_turns)
    sizes = [sum(some) ** 2 / sum(weight * weight for weight in some) for some in weights if sum(some)]
    return SecondBatch(data, sum(sizes) / len(sizes) if sizes else 0.0)


def weighed(row: Sequence[Advantages | None], weights: Sequence[float]) -> list[Advantages | None]:
    """Advantages of a group's turns, less their mean by these weights, each times its play's weight; None for a play
    that hardly counts."""
    kept = [(sum(a) / len(a), weight) for a, weight in zip(row, weights, strict=True) if a]
    together = sum(weight for _, weight in kept)
    mean = sum(one * weight for one, weight in kept) / together if together else 0.0
    return [
        None if a is None or weight < LEAST else [weight * (one - mean) for one in a]
        for a, weight in zip(row, weights, strict=True)
    ]


def _by_now(trajectory: Trajectory, logprobs: Sequence[Sequence[float]]) -> tuple[Trajectory, float]:
    """A trajectory with the log-probabilities that its tokens have now, for the user that it is shown to; and how many
    times it counts."""
    before = sum(p for s in trajectory.sequences for p, sampled in zip(s.logprobs, s.sampled, strict=True) if sampled)
    sequences = []
    for sequence, of_tokens in zip(trajectory.sequences, logprobs, strict=True):
        given = iter(of_tokens)
        now = [next(given) if sampled else 0.0 for sampled in sequence.sampled]
        sequences.append(TokenSequence(sequence.tokens, now, sequence.sampled))
    gap = sum(map(sum, logprobs)) - before
    return replace(trajectory, sequences=sequences), math.exp(min(gap, math.log(MOST)))


# -- another user ------------------------------------------------------------------------------------------------------


def for_others(
    groups: Sequence[Group], chat: Chat, wordings: Mapping[str, Wording], most_tokens: int, rng: random.Random
) -> list[Group]:
    """The groups as if another user had asked; those alone whose prompt says the preference. `wordings`: by the labels
    of the environments whose preferences are sampled, the set their sentences are from."""
    made = []
    for group in groups:
        first = group.trajectories[0]
        if group.label not in wordings or not first.preference.sentence:
            continue
        other = _another(first, wordings[group.label], rng)
        told = _Retold(chat, first.preference.sentence, other.sentence, most_tokens)
        retold = [told.trajectory(trajectory, other) for trajectory in group.trajectories]
        if kept := [one for one in retold if one is not None]:
            made.append(replace(group, trajectories=kept))
    return made


def _another(trajectory: Trajectory, wording: Wording, rng: random.Random) -> Preference:
    for _ in range(TRIES):
        drawn = preferences.sample(rng, trajectory.keys, wording)
        if drawn.weights() != trajectory.preference.weights():
            break
    return drawn


class _Retold:
    """Prompts with another sentence in them, each made once."""

    def __init__(self, chat: Chat, before: str, after: str, most_tokens: int) -> None:
        self._chat, self._before, self._after, self._most = chat, before, after, most_tokens
        self._known: dict[tuple[int, ...], list[int] | None] = {}

    def trajectory(self, trajectory: Trajectory, other: Preference) -> Trajectory | None:
        """The trajectory as shown to the other user; None where its tokens do not tell where the sentence is, or where
        it would be too long."""
        sequences = []
        for sequence in trajectory.sequences:
            begins = (*sequence.sampled, True).index(True)
            prompt = self._prompt(tuple(sequence.tokens[:begins]))
            if prompt is None or len(prompt) + len(sequence.tokens) - begins > self._most:
                return None
            given = len(prompt)
            sequences.append(
                TokenSequence(
                    [*prompt, *sequence.tokens[begins:]],
                    [0.0] * given + sequence.logprobs[begins:],
                    [False] * given + sequence.sampled[begins:],
                )
            )
        return replace(trajectory, preference=other, sequences=sequences)

    def _prompt(self, tokens: tuple[int, ...]) -> list[int] | None:
        if tokens not in self._known:
            text = self._chat.decode(tokens)
            whole = text.count(self._before) == 1 and self._chat.encode(text) == [*tokens]
            self._known[tokens] = self._chat.encode(text.replace(self._before, self._after)) if whole else None
        return self._known[tokens]
