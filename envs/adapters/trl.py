"""TRL: GRPOTrainer trains on any id. docs/trainers/trl.md has the few lines that it takes.

TrlRollouts is a `rollout_func`: it plays whole episodes, each with the tools, the seed and the wish of its own task.
TRL hands it prompts and nothing else, so task_rows() writes into a prompt which task is meant.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from gymnasium.utils import seeding

from toolorchestra.envs.adapters.trl_turns import Play, sampled
from toolorchestra.envs.base.errors import ConfigError, install
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import spec_of
from toolorchestra.envs.runtime.background import BackgroundLoop
from toolorchestra.envs.runtime.invoke import begin


def task_rows(env_id: str, seeds: Iterable[int], options: Any = None, **arguments: Any) -> list[dict[str, Any]]:
    """A data set's rows, one a task: that of `gym.make(env_id, **arguments).reset(seed=seed, options=options)`."""
    same = {"id": spec_of(env_id).id, "options": options, "arguments": arguments}
    try:
        return [{"prompt": json.dumps({**same, "seed": seed})} for seed in seeds]
    except TypeError as err:
        raise ConfigError(
            f"a prompt holds what JSON can hold ({err}); give the rest to TrlRollouts(arguments=)"
        ) from None


def environment_reward(reward: list[float | None], **_: Any) -> list[float | None]:
    """A reward function: the environment's own reward; None, which TRL leaves out, where the episode failed."""
    return reward


@dataclass
class TrlRollouts:
    """Episodes for GRPOTrainer(rollout_func=); those of a batch take their turns together."""

    chat: Any
    """toolorchestra.agents.rollouts.rollout.Chat of the tokenizer: how a transcript becomes tokens."""
    turn_tokens: int = 0
    """Of one turn; 0: all that is left of `max_completion_length`, which is for a whole episode."""
    deadline_seconds: float = 600.0
    """Of a turn's calls."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of gym.make, for all tasks: those that no prompt can hold, such as a spend cap."""

    def __post_init__(self) -> None:
        if find_spec("trl") is None:
            raise ConfigError(f"trl is not installed: {install('trl')}")

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        plays = [Play(self._started(prompt), trainer.max_completion_length) for prompt in prompts]
        longest = getattr(trainer.model.config, "max_position_embeddings", 2**31)
        _wait(begin(play.episode, BackgroundLoop.shared().gates) for play in plays)
        while playing := [play for play in plays if play.reads(self.chat, longest)]:
            most = max(play.room for play in playing)
            histories = [play.sequence.tokens for play in playing]
            turns = sampled(trainer, self.chat, histories, min(most, self.turn_tokens or most))
            _wait(p.writes(self.chat, turn, self.deadline_seconds) for p, turn in zip(playing, turns, strict=True))
        if all(play.cut == "rewritten" for play in plays):
            raise ConfigError(
                "the chat template writes earlier turns anew, and TRL trains on one sequence that only grows: set "
                "tokenizer.chat_template = trl.chat_template_utils.get_training_chat_template(tokenizer)"
            )
        siblings = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        rows = [{**play.row(self.chat.stop), "siblings": siblings} for play in plays]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _started(self, prompt: str) -> Episode:
        try:
            env_id, options, arguments, seed = map(
                json.loads(prompt).__getitem__, ("id", "options", "arguments", "seed")
            )
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError):
            raise ConfigError(f"a prompt is one of task_rows(ID, seeds), got {prompt!r:.80}") from None
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
        drawn = seeding.np_random(seed)[0].integers(2**62)  # as reset(seed=seed) draws
        made = factory(**{**spec_of(env_id).kwargs, **self.arguments, **given})
        return made.start(int(drawn), options).episode


def _wait(all_of: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Run them side by side on the loop that all environments share; what one raises is raised."""

    async def run() -> None:
        await asyncio.gather(*all_of)

    future = BackgroundLoop.shared().submit(run())
    try:
        future.result()
    except BaseException:  # interrupted: leave nothing running
        future.cancel()
        raise
