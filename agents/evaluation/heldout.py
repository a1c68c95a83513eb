"""Held-out evaluation: tasks, prices, tools and preference wordings never trained on, beside baselines.

The validation split picks the best checkpoint, the test split is what is reported. They share nothing: neither tasks,
nor wordings, nor sets of tools, nor prices; and each environment and each seed of training has generated tasks of its
own. Where a mix names one split for both, they share its tasks.

Every player is scored by himself on one scale: the bills, seconds and calls of the baselines of this task (random,
cheapest, strongest, oracle), widened by his own. An answer that is not right earns nothing. So nobody's score depends
on who else is looked at. Divided by the sum of the preference's weights it lies in [0, 1]; terms of the user's own
(gym.make's `reward_terms`) are added to that for everybody, right or wrong. The oracle knows the question, everybody's
skill and the preference, and plans by expectation. Shares of it are over the same tasks, with the interval of a
bootstrap of tasks.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import every_task, held_out, job_of, labels
from toolorchestra.agents.engines.base import Sample
from toolorchestra.agents.evaluation.rows import grouped
from toolorchestra.agents.evaluation.statistics import Interval, mean_interval, ratio_interval, wilson
from toolorchestra.agents.evaluation.trials import mixed
from toolorchestra.agents.policies.baselines import NAMES, Baseline, baseline, players
from toolorchestra.agents.policies.oracle import Oracle, Scale
from toolorchestra.agents.rollouts.grpo import (
    AdvantageParams,
    Group,
    GroupReward,
    Measure,
    TokenSequence,
    Trajectory,
    rewards_of,
    whole,
)
from toolorchestra.agents.rollouts.rollout import Chat, Job, Rollouts, measured, opens
from toolorchestra.envs.base.preference import Preference, kinds
from toolorchestra.envs.env import play_turn
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage

POLICY, ORACLE = "policy", "oracle"


class Scored(NamedTuple):
    """What a player came to on a task, and its reward: from 0 to 1, and the user's own terms."""

    measure: Measure
    reward: float


class TaskScores(NamedTuple):
    """What each policy scored on one task."""

    preference: str
    """Kind of the preference."""
    players: Mapping[str, Scored]


@dataclass
class Standing:
    """How one player did over some tasks."""

    reward: float = 0.0
    accuracy: float = 0.0
    cents: float = 0.0
    seconds: float = 0.0
    calls: dict[str, float] = field(default_factory=dict)
    tasks: int = 0

    @property
    def cents_per_solved(self) -> float:
        return self.cents / self.accuracy if self.accuracy else float("inf")


@dataclass(frozen=True)
class OracleShare:
    """A player's reward as a share of the oracle's, and its interval of 95 %."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        return f"{self.value:.1%} [{self.interval.low:.1%}, {self.interval.high:.1%}]"


def scores(
    keys: Sequence[str], preference: Preference, policy: Measure, fixed: Mapping[str, Measure]
) -> Mapping[str, Scored] | None:
    """Everybody's score on a task. None where the policy's episode failed: the task then counts for nobody. A baseline
    whose episode failed is left out. Where none is left, the reward is the outcome."""
    if policy.failed:
        return None
    fixed = {name: measure for name, measure in fixed.items() if not measure.failed}
    if not fixed:
        return {POLICY: Scored(policy, policy.outcome + sum(policy.terms.values()))}
    reward = GroupReward(preference, keys)
    weight = whole(preference.weights())
    wrong = replace(next(iter(fixed.values())), outcome=0.0)  # being right counts where everybody is
    scale = [*fixed.values(), wrong]

    def scored(measure: Measure) -> Scored:
        (made,) = reward.score([measure], scale)
        assert made  # its episode did not fail
        return Scored(measure, made.total / weight)

    return {name: scored(measure) for name, measure in {POLICY: policy, **fixed}.items()}


def standing(tasks: Sequence[TaskScores], name: str) -> Standing:
    """A player's means, over the tasks that he played."""
    rows = [task.players[name] for task in tasks if name in task.players]
    if not rows:
        return Standing()
    calls, n = Counter[str](), len(rows)
    for measure, _ in rows:
        calls.update(measure.calls)
    return Standing(
        reward=sum(reward for _, reward in rows) / n,
        accuracy=sum(m.outcome for m, _ in rows) / n,
        cents=100 * sum(m.usd for m, _ in rows) / n,
        seconds=sum(m.seconds for m, _ in rows) / n,
        calls={key: count / n for key, count in sorted(calls.items())},
        tasks=n,
    )


def intervals(tasks: Sequence[TaskScores], name: str) -> dict[str, Interval]:
    """Intervals of 95 % of a player's means over the tasks that he played: reward and cents by a bootstrap of tasks,
    accuracy by Wilson's. Empty where he played none."""
    rows = [task.players[name] for task in tasks if name in task.players]
    rewards = mean_interval([reward for _, reward in rows], outcomes=True)
    cents = mean_interval([100 * measure.usd for measure, _ in rows], never_below_0=True)
    if rewards is None or cents is None:
        return {}
    share = sum(measure.outcome for measure, _ in rows) / len(rows)
    return {"reward": rewards, "accuracy": wilson(share, len(rows)), "cents": cents}


def share_of_oracle(tasks: Sequence[TaskScores]) -> OracleShare | None:
    """The policy's share, over the tasks that both played; None where they say nothing of it, as the oracle earns
    nothing or might."""
    both = [task.players for task in tasks if ORACLE in task.players]
    mine, best = ([players[who].reward for players in both] for who in (POLICY, ORACLE))
    interval = ratio_interval(mine, best)
    if not math.isfinite(interval.high - interval.low):
        return None
    return OracleShare(sum(mine) / sum(best), interval)


def preference_score(measure: Measure, baseline: Measure, preference: Preference) -> float:
    """The paper's preference-aware evaluation of one task (its appendix L), against a baseline's run of the same task.

    Counts and outcome as a ratio to the baseline's, at least 1 below the line; cents and minutes the other way round.
    """
    if not measure.solved:
        return 0.0
    total = preference.outcome * measure.outcome / max(1.0, baseline.outcome)
    total += preference.usd * (100 * baseline.usd) / max(1.0, 100 * measure.usd)
    total += preference.seconds * (baseline.seconds / 60) / max(1.0, measure.seconds / 60)
    for key, weight in preference.tools.items():
        total += weight * measure.calls.get(key, 0) / max(1, baseline.calls.get(key, 0))
    return total


# -- playing the held-out tasks ----------------------------------------------------------------------------------------


T = TypeVar("T")
Split = Literal["validation", "test"]
CALLS = f"{POLICY}/calls/"
"""What the policy's calls a task begin with among the metrics."""
_FIRST, _LAST = 1_000_000_007, 1_999_000_000
"""Seeds of held-out episodes lie between these; training draws its own elsewhere."""


@dataclass
class PreferenceStanding:
    """How policy and oracle did for one kind of preference."""

    policy: Standing
    oracle: Standing
    share: OracleShare | None


@dataclass
class Evaluation:
    """Everybody's standing on the same tasks by environment and by preference, and over all that he can play."""

    standings: dict[str, Standing]
    by_environment: dict[str, dict[str, Standing]]
    by_preference: dict[str, PreferenceStanding]
    """Where the oracle plays."""
    valid: float
    of_oracle: OracleShare | None
    """The policy's reward as a share of the oracle's, over the tasks that both play; None: over none."""
    failed: int = 0
    """Episodes of the policy that failed: their tasks count for nobody."""
    trajectories: list[Trajectory] = field(default_factory=list)
    tasks: list[TaskScores | None] = field(default_factory=list)
    """One for each of them; None where the policy's episode failed."""

    def expected_reward(self) -> float:
        """The policy's mean reward by what was to be expected of its calls, where its rollouts measured that. It has
        less luck in it than what was drawn, so a checkpoint is chosen by it; what is reported is what was drawn."""
        both = zip(self.trajectories, self.tasks, strict=True)
        rewards = [_expected(trajectory, task) for trajectory, task in both if task is not None]
        return statistics.fmean(rewards) if rewards else 0.0


class HeldOut:
    """The fixed evaluation tasks of a run. The baselines play them once."""

    def __init__(self, mixes: Sequence[EnvMix], tasks: int, split: Split = "validation", seed: int = 0) -> None:
        self._tasks, self._split, self._seed = tasks, split, seed
        of = dict(zip(labels(mixes, short=False), mixes, strict=True))  # their seeds depend on the whole ids
        self._factories = {label: held_out(mix, split) for label, mix in of.items()}
        self._jobs = {label: self._jobs_of(label, mix) for label, mix in of.items()}
        self._baselines: dict[str, list[dict[str, Measure]]] = {}

    def jobs(self) -> list[Job]:
        """The rollouts to make: one for each held-out task."""
        return [job for some in self._jobs.values() for job in some]

    def _jobs_of(self, label: str, mix: EnvMix) -> list[Job]:
        """An environment's tasks, with seeds found nowhere else. Each once, where the split says which there are."""
        name = repr((self._split, label, self._seed)).encode()
        first = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") % (_LAST - _FIRST) + _FIRST
        made, seeds = self._factories[label], range(first, first + self._tasks)
        if (listed := every_task(made)) is None:
            return [job_of(mix, made, seed) for seed in seeds]
        order = mixed(made.source, listed, first)
        return [job_of(mix, made, seed, {"task_id": task}) for seed, task in zip(seeds, order, strict=False)]

    def fewer(self) -> list[str]:
        """Lines for the log, of environments whose split has fewer tasks than were asked for."""
        return [
            f"held out: {label} has {len(jobs)} tasks in split {self._factories[label].settings.split!r}, and each is "
            f"played once: {self._tasks} were asked for"
            for label, jobs in self._jobs.items()
            if len(jobs) < self._tasks
        ]

    def by_environment(self, of_jobs: Sequence[T]) -> dict[str, list[T]]:
        """What belongs to each job, in their order, by environment."""
        left = iter(of_jobs)
        return {label: list(islice(left, len(jobs))) for label, jobs in self._jobs.items()}

    def baselines(self, label: str, chat: Chat) -> list[dict[str, Measure]]:
        """Each baseline's measure of each task of an environment. What it says is billed by the policy's tokens."""
        if label not in self._baselines:
            self._baselines[label] = [self._play(job, chat) for job in self._jobs[label]]
        return self._baselines[label]

    @staticmethod
    def _play(job: Job, chat: Chat) -> dict[str, Measure]:
        names = players(job.factory.source)
        found = {name: _measured(job, baseline(name, job.seed), chat) for name in names if name != ORACLE}
        if ORACLE in names:
            most: dict[str, float] = {}
            sound = [measure for measure in found.values() if not measure.failed]
            for measure in sound:
                most |= {key: max(most.get(key, 0.0), count) for key, count in measure.calls.items()}
            scale = Scale.over(sound, most) if sound else None
            found[ORACLE] = _measured(job, Oracle(scale), chat)
        return found

    def evaluate(self, rollouts: Rollouts, *, record: bool = False) -> Evaluation:
        """Play and score. With `record` each trajectory keeps its turns and charges, to be read afterwards."""
        trajectories = rollouts.collect([replace(job, record=record) for job in self.jobs()])
        tasks = self._scored(trajectories, [t.measure for t in trajectories], rollouts.chat)
        apart = self.by_environment(tasks)
        found = {label: [task for task in mine if task is not None] for label, mine in apart.items()}
        every = [task for some in found.values() for task in some]
        return Evaluation(
            _standings(every, self._factories.values()),
            {label: _standings(tasks, [self._factories[label]]) for label, tasks in found.items()},
            _by_preference(every),
            statistics.fmean(t.measure.valid_format for t in trajectories),
            share_of_oracle(every),
            sum(t.measure.failed for t in trajectories),
            trajectories,
            tasks,
        )

    def beside(self, policy: Callable[[], Baseline], evaluation: Evaluation, chat: Chat) -> list[TaskScores | None]:
        """How a policy that is no language model does as the policy of the same tasks; each gets one of its own."""
        found = [_measured(job, policy(), chat) for job in self.jobs()]
        return self._scored(evaluation.trajectories, found, chat)

    def _scored(self, of: Sequence[Trajectory], measures: Sequence[Measure], chat: Chat) -> list[TaskScores | None]:
        """Measures on the tasks of these trajectories, each beside the baselines of its task."""
        everybody = [baselines for label in self._factories for baselines in self.baselines(label, chat)]
        made: list[TaskScores | None] = []
        for task, measure, baselines in zip(of, measures, everybody, strict=True):
            found = scores(task.keys, task.preference, measure, baselines)
            made.append(None if found is None else TaskScores(task.preference.kind, found))
        return made


def _expected(trajectory: Trajectory, task: TaskScores) -> float:
    fixed = [scored.measure for name, scored in task.players.items() if name != POLICY]
    if trajectory.measure.expected is None or not fixed:
        return task.players[POLICY].reward
    (made,) = rewards_of(Group([trajectory], fixed), AdvantageParams(count_context_cuts=True))
    assert made  # its episode did not fail
    return made.total / whole(trajectory.preference.weights())


def _standings(tasks: Sequence[TaskScores], factories: Iterable[Any]) -> dict[str, Standing]:
    able = {POLICY}.union(*(players(made.source) for made in factories))
    return {name: standing(tasks, name) for name in (POLICY, *NAMES) if name in able}


def _by_preference(tasks: Sequence[TaskScores]) -> dict[str, PreferenceStanding]:
    """Sort in the order of the bank of preferences, and behind it what a user said in his own words."""
    split = grouped((task for task in tasks if ORACLE in task.players), lambda task: task.preference)
    return {
        preference: PreferenceStanding(standing(some, POLICY), standing(some, ORACLE), share_of_oracle(some))
        for preference in dict.fromkeys((*kinds(), *split))
        if (some := split.get(preference))
    }


def as_metrics(evaluation: Evaluation) -> dict[str, Any]:
    """Flat numbers for the log."""
    made: dict[str, Any] = {"valid": evaluation.valid, "failed": evaluation.failed}
    if evaluation.of_oracle is not None:
        made["of_oracle"] = evaluation.of_oracle.value
    made |= {f"{CALLS}{key}": count for key, count in evaluation.standings[POLICY].calls.items()}
    for name, s in evaluation.standings.items():
        known_of = (s.reward, s.accuracy, s.cents) if s.tasks else (math.nan,) * 3
        made |= dict(zip((f"{name}/reward", f"{name}/accuracy", f"{name}/cents"), known_of, strict=True))
    known = [task for task in evaluation.tasks if task is not None]
    for name, interval in intervals(known, POLICY).items():
        made |= {f"{POLICY}/{name}_low": interval.low, f"{POLICY}/{name}_high": interval.high}
    for preference, found in evaluation.by_preference.items():
        made[f"preference/{preference}/reward"] = found.policy.reward
        if found.share is not None:
            made[f"preference/{preference}/of_oracle"] = found.share.value
    return made


# -- simulated episodes, one by one ------------------------------------------------------------------------------------


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
        play_turn(episode, text, usage)
    return episode


def baseline_measures(job: Job, names: Sequence[str], chat: Chat) -> list[Measure]:
    """What these baselines come to on the task of a job, those of them that can play it."""
    able = [name for name in names if name in players(job.factory.source)]
    return [_measured(job, baseline(name, job.seed), chat) for name in able]


def _measured(job: Job, policy: Baseline, chat: Chat) -> Measure:
    try:
        return measured(played(job.factory, policy, job.seed, job.options, chat))
    except Exception:
        if opens(job):
            raise
        return Measure(0.0, 0.0, 0.0, {}, failed=True)
