"""Our group reward as SkyRL's advantages: what our own trainer computes of a batch, put where SkyRL's looks for it.

SkyRL's trainer hands the samples of a batch to `postprocess_generator_output`. There each rollout is scored among its
siblings, its advantage written as the reward of its last token, and what is not learnt from is masked; the estimator
"toolorchestra" then spreads that number over the rollout's tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.adapters import skyrl_packages  # noqa: F401 - as in skyrl.py

# isort: split
from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.fully_async_trainer_sim import FullyAsyncTrainerSim
from skyrl.train.trainer import RayPPOTrainer

from toolorchestra.agents.adapters.skyrl_batch import PLAYED, Played
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Group, TrainingBatch, teaches, training_batch
from toolorchestra.envs.base.errors import ConfigError

ESTIMATOR = "toolorchestra"


@register_advantage_estimator(ESTIMATOR)  # type: ignore[untyped-decorator]
def spread_advantage(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """The sum of a row's rewards, which is its rollout's advantage already, for each of its tokens."""
    made = token_level_rewards.sum(dim=-1, keepdim=True) * response_mask
    return made, made


class GroupAdvantages:
    """Comes before one of SkyRL's trainers in a class of both."""

    advantage: AdvantageParams = AdvantageParams()

    def postprocess_generator_output(self, generator_output: Any, uids: Sequence[str], *more: Any, **named: Any) -> Any:
        """As the trainer does it, and then our advantages for its rewards."""
        played: Sequence[Played] = generator_output.pop(PLAYED)
        rollouts = {_key(which): one for which, one in zip(generator_output["trajectory_ids"], played, strict=True)}
        for other in (*more[:1], named.get("metrics_generator_output")):
            if other is not None:
                other.pop(PLAYED, None)
        made, left = super().postprocess_generator_output(generator_output, uids, *more, **named)  # type: ignore[misc]
        advantages, batch = advantages_of(rollouts, self.advantage)
        last = made.get("is_last_step") or [True] * len(made["rewards"])
        for row, which in enumerate(made["trajectory_ids"]):
            advantage, size = advantages[_key(which)], len(made["response_ids"][row])
            made["rewards"][row] = [0.0] * (size - 1) + [(advantage or 0.0) if last[row] else 0.0]
            if advantage is None:
                made["loss_masks"][row] = [0] * size
        self.all_metrics.update(_figures(batch))  # type: ignore[attr-defined]
        return made, left

    def _should_keep_group(self, group: Any) -> bool:
        """Of trainer.fully_async.sample_full_batch: whether our reward learns anything from a group."""
        output = group.generator_output
        rollouts = {_key(w): one for w, one in zip(output["trajectory_ids"], output[PLAYED], strict=True)}
        return all(teaches(made, self.advantage) for made in _groups(rollouts).values())


class Trainer(GroupAdvantages, RayPPOTrainer):  # type: ignore[misc]
    """SkyRL's synchronous trainer, with our advantages."""


class AsyncTrainer(GroupAdvantages, FullyAsyncRayPPOTrainer):  # type: ignore[misc]
    """SkyRL's fully asynchronous trainer, with our advantages."""


class SimulatedTrainer(GroupAdvantages, FullyAsyncTrainerSim):  # type: ignore[misc]
    """The same without a model to train, as SkyRL has it to measure rollouts alone."""

    def init_weight_sync_state(self) -> None:
        """SkyRL 0.4.0's stand-in for what hands weights over lacks two methods that its own loop calls."""
        super().init_weight_sync_state()
        for name, nothing in (("get_timing_metrics", dict), ("finalize_pending_saves", lambda _model: None)):
            if not hasattr(self.dispatch, name):
                setattr(self.dispatch, name, nothing)


_Key = tuple[str, int]


def _key(which: Any) -> _Key:
    return which.instance_id, which.repetition_id


def _groups(rollouts: Mapping[_Key, Played]) -> dict[str, Group]:
    """Rollouts of one row of the data set, in the order of their repetitions."""
    members: dict[str, list[Played]] = {}
    for (task, _number), one in sorted(rollouts.items()):
        members.setdefault(task, []).append(one)
    return {t: Group([one.trajectory for one in m], m[0].baselines, m[0].label) for t, m in members.items()}


def advantages_of(
    rollouts: Mapping[_Key, Played], params: AdvantageParams
) -> tuple[dict[_Key, float | None], TrainingBatch]:
    """Of each rollout, None where nothing is learnt from it; and what our own trainer makes of the same groups."""
    groups = _groups(rollouts)
    batch = training_batch(list(groups.values()), params)
    made: dict[_Key, float | None] = {}
    for task, row in zip(groups, batch.advantages, strict=True):
        keys = sorted(key for key in rollouts if key[0] == task)
        made |= dict(zip(keys, row, strict=True))
    return made, batch


def _figures(batch: TrainingBatch) -> dict[str, float]:
    scored = [one.total for row in batch.rewards for one in row if one is not None]
    return {
        "reward/toolorchestra": sum(scored) / len(scored) if scored else 0.0,
        "reward/flat_groups": float(batch.flat_groups),
        "reward/failed_rollouts": float(batch.failed),
        "reward/used_rollouts": float(batch.used),
    }


def check_algorithm(cfg: Any) -> None:
    """Refuse settings under which this hook would be passed by."""
    algorithm = cfg.trainer.algorithm
    if algorithm.advantage_estimator != ESTIMATOR:
        raise ConfigError(
            f"trainer.algorithm.advantage_estimator is {algorithm.advantage_estimator!r}, which would take "
            f"advantages for rewards: set it to {ESTIMATOR}"
        )
    if algorithm.dynamic_sampling.type is not None:
        raise ConfigError(
            "trainer.algorithm.dynamic_sampling looks at outcomes, so groups whose answers are all right but differ in "
            "price would go: leave it out; trainer.fully_async.sample_full_batch=true samples until a batch teaches"
        )
    if algorithm.use_kl_in_reward:
        raise ConfigError("trainer.algorithm.use_kl_in_reward=true would change advantages: set use_kl_loss=true")
