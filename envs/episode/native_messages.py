"""An episode's observations with calls as structures, for messages="native". Each message is rewritten once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.openai_messages import to_native
from toolorchestra.envs.base.types import Message, Observation, Rows, Transcript, freeze
from toolorchestra.envs.episode.episode import Episode, Step


class NativeMessages:
    """Follows one episode. Its transcript only grows, so what has been rewritten stays as it is."""

    __slots__ = ("_read", "_told", "_turns")

    def __init__(self) -> None:
        self._told: Transcript = ()
        self._read = 0
        """Messages of the episode that have been rewritten."""
        self._turns = 0
        """Assistant's messages among them."""

    def observation(self, episode: Episode) -> Observation:
        """The observation that the agent sees now, with calls as structures."""
        self._follow(episode)
        seen = episode.observation
        if episode.rules.history == "full":
            return {**seen, "messages": Rows(self._told)}
        return {**seen, "messages": Rows(_rewritten(seen["messages"], 0))}

    def step(self, episode: Episode, step: Step) -> Step:
        """A step with its observation and its new messages rewritten."""
        before = len(self._told)
        observation = self.observation(episode)
        return step._replace(observation=observation, info={**step.info, "new_messages": self._told[before:]})

    def _follow(self, episode: Episode) -> None:
        new = episode.messages[self._read :]
        self._told += _rewritten(new, self._turns)
        self._read += len(new)
        self._turns += sum(message["role"] == "assistant" for message in new)


def _rewritten(messages: Sequence[Mapping[str, Any]], turn: int) -> Transcript:
    return tuple(Message(freeze(message)) for message in to_native(messages, turn=turn))
