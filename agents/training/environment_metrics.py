"""A step's and an evaluation's numbers by environment of the mix, and a word where episodes ran out of context."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.environments import labels
from toolorchestra.agents.evaluation.heldout import POLICY, Evaluation, scores
from toolorchestra.agents.rollouts.grpo import Group, Trajectory

MOST_CUT = 0.03
"""Share of an environment's rollouts that may run out of context before it is said."""

ByEnvironment = Mapping[str, Sequence[Trajectory]]


def of_groups(groups: Sequence[Group]) -> dict[str, list[Trajectory]]:
    """The rollouts of a step by the label of their environment."""
    made: dict[str, list[Trajectory]] = {}
    for group in groups:
        made.setdefault(group.label, []).extend(group.trajectories)
    return made


def of_evaluation(config: TrainConfig, evaluation: Evaluation) -> dict[str, list[Trajectory]]:
    """The rollouts of an evaluation, which are as many of each environment, in the order of the mix."""
    names, played = labels(config.environments), evaluation.trajectories
    each = len(played) // len(names)
    return {name: played[k * each : (k + 1) * each] for k, name in enumerate(names)}


def metrics(found: ByEnvironment, rewards: Mapping[str, float], called: str) -> dict[str, float]:
    """`env/HLE-v0/accuracy` and so on. The reward is called "group_reward" or, held out, "reward"."""
    made: dict[str, float] = {}
    for name, played in found.items():
        sound = [t.measure for t in played if not t.measure.failed]
        made |= {
            f"env/{name}/{called}": rewards.get(name, float("nan")),
            f"env/{name}/accuracy": mean([m.outcome for m in sound]),
            f"env/{name}/cents": 100 * mean([m.usd for m in sound]),
            f"env/{name}/failed": sum(t.measure.failed for t in played),
            f"env/{name}/context": context_cuts(played),
        }
    return made


def regret_metric(groups: Sequence[Group]) -> dict[str, float]:
    """How much reward the rollouts left to the best baseline of their tasks, on the held-out scale from 0
    to 1; below 0 they did better. Tasks that are hard for all weigh out, so it shows progress where rewards are too
    noisy. Nothing where no baseline plays."""
    left = [value for group in groups for value in _regrets(group)]
    return {"regret": mean(left)} if left else {}


def _regrets(group: Group) -> Iterator[float]:
    fixed = {str(place): one for place, one in enumerate(group.baselines) if not one.failed}
    for rollout in group.trajectories if fixed else ():
        found = scores(rollout.keys, rollout.preference, rollout.measure, fixed)
        if found is not None:
            yield max(found[name].reward for name in fixed) - found[POLICY].reward


def term_metrics(played: Sequence[Trajectory]) -> dict[str, float]:
    """`term/NAME`: what each reward term of the user's own came to, on average over the episodes that did not fail."""
    seen = [t.measure.terms for t in played if not t.measure.failed]
    names = sorted({name for terms in seen for name in terms})
    return {f"term/{name}": mean([terms[name] for terms in seen if name in terms]) for name in names}


def rewards_of(config: TrainConfig, evaluation: Evaluation) -> dict[str, float]:
    """The policy's held-out reward in each environment."""
    standings = evaluation.by_environment.values()
    return {name: one[POLICY].reward for name, one in zip(labels(config.environments), standings, strict=True)}


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
