"""SkyRL's generator over our rollouts: its trainers, synchronous and fully asynchronous, sample episodes of ours.

SkyRL gives rows of tasks (`toolorchestra export prompts` writes them) and a client of its inference servers. Each row
is played by token ids, at its own pace, and comes back as samples with log-probabilities, times and bill. A sample's
reward is its episode's outcome: skyrl_advantages.py makes advantages of what a whole group did.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.agents.adapters import skyrl_packages  # noqa: F401 - says what is missing, before skyrl is imported

# isort: split
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.generators.base import GeneratorInterface
from skyrl.train.generators.utils import build_vllm_cache_salt

from toolorchestra.agents.adapters.prompt_rows import Row, check_same_wish, job_of_row, named
from toolorchestra.agents.adapters.skyrl_batch import Played, batch_of
from toolorchestra.agents.adapters.skyrl_samples import SampleForm
from toolorchestra.agents.adapters.skyrl_turns import SkyrlTurns
from toolorchestra.agents.evaluation.simulated_evaluation import baseline_measures
from toolorchestra.agents.rollouts.grpo import Measure
from toolorchestra.agents.rollouts.rollout import Chat, RolloutParams, Rollouts
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached
from toolorchestra.envs.runtime.invoke import Gates


class RolloutError(RuntimeError):
    """A rollout raised what no episode catches: a bug, in words that name its task."""


@dataclass(frozen=True)
class RolloutSettings:
    """What SkyRL's own configuration has no name for."""

    concurrency: int = 256
    """Episodes side by side."""
    deadline_seconds: float = 3_600.0
    """Of one episode, pauses in which weights are handed over included."""
    stop_at_call: bool = False
    """End a turn behind its first tool call."""
    policy_item: str = ""
    """Price sheet item for the policy's own tokens; "" takes the environment's."""
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
        played = await asyncio.gather(*(self._play(rollouts, turns, row) for row in rows))
        if played and all(one.trajectory.truncated_by == "outage" for one in played):
            heard = (played[0].trajectory.failure or {}).get("error")
            raise Outage(f"none of {len(played)} rollouts could be sampled; the first heard: {heard}")
        told = [
            one._replace(baselines=fixed.get(which.instance_id, ())) for one, which in zip(played, ids, strict=True)
        ]
        return batch_of(told, ids, self.form, self.chat.stop, scored=turns.scored)

    async def _play(self, rollouts: Rollouts, turns: SkyrlTurns, row: Row) -> Played:
        self._count += 1
        name = f"toolorchestra-{id(self):x}-{self._count}"
        async with self._places:
            started = time.monotonic()
            try:
                job = job_of_row(row)
                made = await rollouts.play(job, name)
                check_same_wish(row, made.preference)
            except (ConfigError, SpendCapReached):
                raise
            except Exception as err:
                raise RolloutError(f"{named(row)} raised {type(err).__name__}: {err}") from err
            finally:
                sampling = await turns.end(name)
            label = str(row.get("data_source") or row["gym_id"])
            return Played(made, label, time.monotonic() - started, sampling)

    def _rollouts(self, turns: SkyrlTurns) -> Rollouts:
        """As this batch is sampled. What limits calls and episodes is shared by all batches of an event loop."""
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._gates, self._places = Gates(), asyncio.Semaphore(self.settings.concurrency)
        params = RolloutParams(
            max_tokens=turns.max_tokens,
            max_context=self.cfg.max_input_length + turns.max_tokens,
            temperature=turns.temperature,
            deadline_seconds=self.settings.deadline_seconds,
            stop_at_call=self.settings.stop_at_call,
            policy_item=self.settings.policy_item,
        )
        return Rollouts(turns, self.chat, params, self._gates)

    def _baselines(self, rows: Sequence[Row], ids: Sequence[Any]) -> dict[str, list[Measure]]:
        """Of each task once."""
        first = {which.instance_id: row for row, which in reversed(list(zip(rows, ids, strict=True)))}
        names, chat = self.settings.baselines, self.chat
        return {task: baseline_measures(job_of_row(row), names, chat) for task, row in first.items()}

    def _salt(self) -> str | None:
        """So that what was cached under earlier weights is not read under these."""
        version = getattr(self.client, "weight_version", None)
        return build_vllm_cache_salt(version, self.model) if self.cfg.use_cache_salt and version is not None else None


def refuse_ignored(generator: Any) -> None:
    """Settings of SkyRL's own generator that would change nothing here are refused, not ignored."""
    instead = {
        "batched": "episodes have turns",
        "apply_overlong_filtering": "use toolorchestra.advantage.count_context_cuts or drop_invalid_output",
        "zero_reward_on_non_stop": "use toolorchestra.advantage.drop_invalid_output",
        "vision_language_generator": "tasks are text",
    }
    for name, why in instead.items():
        if getattr(generator, name):
            raise ConfigError(f"generator.{name}=true has no meaning with this generator: set it to false; {why}")
    if generator.sampling_params.stop or generator.chat_template.name_or_path:
        raise ConfigError(
            "generator.sampling_params.stop and generator.chat_template are SkyRL's own generator's; leave them out: "
            "turns end with the model's own token, or behind a call with toolorchestra.stop_at_call=true"
        )
