"""Any of our ids as an environment of skyrl-gym, for users of its own generator.

    import skyrl_gym
    from toolorchestra.envs.adapters.skyrl_gym import register_skyrl_gym

    register_skyrl_gym()                              # inside the Ray task that trains, not in the driver
    env = skyrl_gym.make("toolorchestra", extras={"gym_id": "ToolOrchestra/HLE-v0", "seed": 7, "max_turns": 20})

A row of `toolorchestra export prompts` is what `extras` wants. The seed is an episode's: the same as in our rollouts.
skyrl-gym cannot mask: an episode that failed ends with reward 0 and `failed` 1 in its metrics. Our own generator can.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import result_as_text, tools_as_text
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.base.marks import STANDARD
from toolorchestra.envs.env import play_turn, run_calls
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import spec_of

try:
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
except ModuleNotFoundError as err:
    raise ConfigError(
        f"this integration is skyrl-gym's, and {err.name} is not installed here: "
        'pip install "toolorchestra[skyrl-gym]"'
    ) from None

ENV_CLASS = "toolorchestra"
Message = dict[str, str]


class ToolOrchestraTextEnv(BaseTextEnv):  # type: ignore[misc, unused-ignore]
    """One episode. Tools and how they are called stand in the system message, since skyrl-gym has no place for them."""

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        del env_config
        given = dict(extras or {})
        if not given.get("gym_id") or given.get("seed") is None:
            raise ConfigError(
                f"extras need gym_id and seed, got {', '.join(given) or 'none'}; a row of `toolorchestra "
                'export prompts` has them, such as {"gym_id": "ToolOrchestra/HLE-v0", "seed": 7}'
            )
        spec = spec_of(str(given["gym_id"]))
        if "source" not in spec.kwargs:
            raise ConfigError(f"{spec.id} is not an environment over a task source: register it with envs.registration")
        arguments = {**spec.kwargs, **json.loads(given.get("arguments") or "{}")}
        self._factory = factory(**arguments)
        if self._factory.settings.history != "full":
            raise ConfigError('skyrl-gym only ever adds messages: make this environment with history="full"')
        self._seed, self._task = int(given["seed"]), given.get("task_id")
        self.max_turns = int(given.get("max_turns") or self._factory.settings.max_turns)
        self.episode: Episode | None = None

    def init(self, prompt: Sequence[Message] = ()) -> tuple[list[Message], dict[str, Any]]:
        """Start the episode. Its own first messages are given, whatever the row's prompt says."""
        del prompt
        started = self._factory.start(self._seed, None if self._task is None else {"task_id": self._task})
        self.episode, self.turns = started.episode, 0
        if started.episode.opening:
            started.episode.begin(run_calls(started.episode.opening))
        told = _told(started.episode.messages)
        if tools := tools_as_text(STANDARD.schemas(started.episode.observation["tools"])):
            system = [told.pop(0)["content"]] if told and told[0]["role"] == "system" else []
            told = [{"role": "system", "content": "\n\n".join([*system, tools])}, *told]
        return told, dict(started.info)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play one turn, given as text."""
        if self.episode is None:
            raise ResetNeeded("step() before init(); call init() first")
        moved = play_turn(self.episode, action)
        self.turns += 1
        done = moved.terminated or moved.truncated or self.turns >= self.max_turns
        fresh = [message for message in _told(moved.info["new_messages"]) if message["role"] != "assistant"]
        reward = moved.reward if self.episode.failure is None else 0.0  # not NaN, which would spoil the weights
        return BaseTextEnvStepOutput(observations=[] if done else fresh, reward=reward, done=done, metadata=moved.info)

    def get_metrics(self) -> dict[str, Any]:
        """The bill and the clock; skyrl-gym averages them."""
        if self.episode is None:
            return {}
        bill, outcome, failed = self.episode.ledger.summary(), self.episode.outcome, self.episode.failure is not None
        return {
            "outcome": outcome.value if outcome and not failed else 0.0,
            "failed": float(failed),
            "turns": float(self.turns),
            "usd": bill["usd"],
            "seconds": bill["seconds"],
            **{f"usd_{role}": usd for role, usd in bill["usd_by_role"].items()},
        }

    def close(self) -> None:
        """Drops the episode, so that its memory can be freed."""
        self.episode = None


def _told(messages: Sequence[Any]) -> list[Message]:
    """Messages without marks that texts from outside may hold. Results are a user's text, in the form that Qwen's
    templates give them too; other templates refuse a role for them."""
    return [
        {"role": "user", "content": result_as_text(told["content"])}
        if told["role"] == "tool"
        else {"role": told["role"], "content": told["content"]}
        for told in STANDARD.told(messages, spoken=False)
    ]


def register_skyrl_gym() -> None:
    """Make `skyrl_gym.make("toolorchestra", extras=...)` work in this process. The same again changes nothing."""
    from skyrl_gym.envs.registration import registry

    if ENV_CLASS not in registry:
        skyrl_gym.register(id=ENV_CLASS, entry_point=ToolOrchestraTextEnv)
