"""SkyRL's generator over our rollouts, and our group reward as its advantages.

SkyRL gives rows of tasks (`toolorchestra export prompts` writes them) and a client of its inference servers. Each row
is played by token ids, at its own pace, and comes back as samples. In `postprocess_generator_output` each rollout is
scored among its siblings, its advantage written as the reward of its last token, and what is not learnt from is masked;
the estimator "toolorchestra" then spreads that number over the rollout's tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.agents.adapters.prompt_rows import Row, check_same_preference, job_of_row, named
from toolorchestra.agents.adapters.skyrl_samples import PLAYED, Played, SampleForm, SkyrlTurns, batch_of, check_skyrl
from toolorchestra.agents.evaluation.heldout import baseline_measures
from toolorchestra.agents.rollouts.grpo import (
    AdvantageParams,
    Group,
    Grpo,
    Measure,
    TrainingBatch,
    teaches,
    training_batch,
)
from toolorchestra.agents.rollouts.rollout import OUTAGE, Chat, RolloutParams, Rollouts, siblings
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached
from toolorchestra.envs.runtime.invoke import Gates

try:
    from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
    from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator
    from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
    from skyrl.train.fully_async_trainer_sim import FullyAsyncTrainerSim
    from skyrl.train.generators.base import GeneratorInterface
    from skyrl.train.generators.utils import build_vllm_cache_salt
    from skyrl.train.trainer import RayPPOTrainer
except ImportError:
    check_skyrl()  # says which is missing or of another version
    raise
check_skyrl()


class RolloutError(RuntimeError):
    """A rollout raised what no episode catches: a bug, in words that name its task."""


@dataclass(frozen=True)
class RolloutSettings:
    """What SkyRL's own configuration has no name for."""

    concurrency: int = 256
    """Episodes side by side."""
    deadline_seconds: float = 3_600.0
    """Seconds of one episode, pauses in which weights are handed over included."""
    baselines: tuple[str, ...] = ()
    """Baselines that play each task that is learnt from too, and widen the scale of its reward."""


class ToolOrchestraGenerator(GeneratorInterface):  # type: ignore[misc]
    """Plays the tasks of a batch. One object serves any number of batches at once."""

    def __init__(self, cfg: Any, tokenizer: Any, client: Any, settings: RolloutSettings | None = None) -> None:
        refuse_ignored(cfg.generator)
        self.cfg, self.client, self.settings = cfg.generator, client, settings or RolloutSettings()
        self.model = resolve_policy_model_name(cfg)
        self.chat = Chat(tokenizer, dict(cfg.generator.chat_template_kwargs))
        self.form: SampleForm = "one"
        if cfg.generator.step_wise_trajectories:
            self.form = "merged" if cfg.generator.merge_stepwise_output else "turns"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._count = 0

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """Every row of the batch, in its order."""
        rows: Sequence[Row] = input_batch["env_extras"] or []
        met, ids = input_batch.get("batch_metadata"), input_batch["trajectory_ids"]
        turns = SkyrlTurns(self.client, self.model, input_batch.get("sampling_params"), self._salt())
        rollouts = self._rollouts(turns)
        learning = met is None or met.training_phase == "train"
        fixed = self._baselines(rows, ids) if learning and self.settings.baselines else {}
        numbered = [(row, which.repetition_id) for row, which in zip(rows, ids, strict=True)]
        played = await asyncio.gather(*(self._play(rollouts, turns, *one) for one in numbered))
        if played and all(one.trajectory.truncated_by == OUTAGE for one in played):
            heard = (played[0].trajectory.failure or {}).get("error")
            raise Outage(f"none of {len(played)} rollouts could be sampled; the first heard: {heard}")
        told = [
            one._replace(baselines=fixed.get(which.instance_id, ())) for one, which in zip(played, ids, strict=True)
        ]
        return batch_of(told, ids, self.form, self.chat.stop, scored=turns.scored)

    async def _play(self, rollouts: Rollouts, turns: SkyrlTurns, row: Row, number: int) -> Played:
        self._count += 1
        name = f"toolorchestra-{id(self):x}-{self._count}"
        async with self._places:
            started = time.monotonic()
            try:
                *_, job = siblings(job_of_row(row), number + 1)  # its own draws
                made = await rollouts.play(job, name)
                check_same_preference(row, made.preference)
            except (ConfigError, SpendCapReached):
                raise
            except Exception as err:
                raise RolloutError(f"{named(row)} raised {type(err).__name__}: {err}") from err
            finally:
                sampling = await turns.end(name)
            label = str(row.get("data_source") or row["gym_id"])
            return Played(made, label, time.monotonic() - started, sampling)

    def _rollouts(self, turns: SkyrlTurns) -> Rollouts:
        """Rollouts as this batch is sampled. Limits of calls and episodes are those of all batches of an event loop."""
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._gates, self._places = Gates(), asyncio.Semaphore(self.settings.concurrency)
        params = RolloutParams(
            max_tokens=turns.max_tokens,
            max_context=self.cfg.max_input_length + turns.max_tokens,
            temperature=turns.temperature,
            deadline_seconds=self.settings.deadline_seconds,
        )
        return Rollouts(turns, self.chat, params, self._gates)

    def _baselines(self, rows: Sequence[Row], ids: Sequence[Any]) -> dict[str, list[Measure]]:
        """Measures of the baselines on each task, played once."""
        first = {which.instance_id: row for row, which in reversed(list(zip(rows, ids, strict=True)))}
        names, chat = self.settings.baselines, self.chat
        return {task: baseline_measures(job_of_row(row), names, chat) for task, row in first.items()}

    def _salt(self) -> str | None:
        """A salt, so that what was cached under earlier weights is not read under these."""
        version = getattr(self.client, "weight_version", None)
        return build_vllm_cache_salt(version, self.model) if self.cfg.use_cache_salt and version is not None else None


def refuse_ignored(generator: Any) -> None:
    """Settings of SkyRL's own generator that would change nothing here are refused, not ignored."""
    instead = {
        "batched": "episodes have turns",
        "apply_overlong_filtering": "use toolorchestra.advantage.count_context_cuts, or unreadable=dropped",
        "zero_reward_on_non_stop": "use toolorchestra.advantage.unreadable=dropped",
        "vision_language_generator": "tasks are text",
    }
    for name, why in instead.items():
        if getattr(generator, name):
            raise ConfigError(f"generator.{name}=true has no meaning with this generator: set it to false; {why}")
    if generator.sampling_params.stop or generator.chat_template.name_or_path:
        raise ConfigError(
            "generator.sampling_params.stop and generator.chat_template are SkyRL's own generator's; leave them out: "
            "turns end with the model's own token"
        )


# -- advantages --------------------------------------------------------------------------------------------------------


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
        """Do as the trainer does, and put our advantages in the place of its rewards."""
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
        scored = [one.total for row in batch.rewards for one in row if one is not None]
        self.all_metrics |= {  # type: ignore[attr-defined]
            "reward/toolorchestra": sum(scored) / len(scored) if scored else 0.0,
            "reward/flat_groups": float(batch.flat_groups),
            "reward/failed_rollouts": float(batch.failed),
            "reward/used_rollouts": float(batch.used),
        }
        return made, left

    def _should_keep_group(self, group: Any) -> bool:
        """Whether our reward learns anything from a group."""
        output = group.generator_output
        rollouts = {_key(w): one for w, one in zip(output["trajectory_ids"], output[PLAYED], strict=True)}
        return all(teaches(made, Grpo(self.advantage)) for made in _groups(rollouts).values())


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
    """Advantage of each rollout, None where it teaches nothing; and what our own trainer makes of the same groups."""
    groups = _groups(rollouts)
    batch = training_batch(list(groups.values()), Grpo(params))
    made: dict[_Key, float | None] = {}
    for task, row in zip(groups, batch.advantages, strict=True):
        keys = sorted(key for key in rollouts if key[0] == task)
        made |= {key: None if turns is None else turns[0] for key, turns in zip(keys, row, strict=True)}  # all alike
    return made, batch


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
