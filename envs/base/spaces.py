"""Spaces for text episodes: any Unicode action, and the transcript-with-tools observation."""

from __future__ import annotations

from typing import Any, NoReturn

import gymnasium as gym
from gymnasium.vector.utils import create_shared_memory

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message, Observation, Rows

_WORDS = ("what", "river", "sum", "größe", "π", "表", "7", "of", "the", "and")


def _words(rng: Any, most: int) -> str:
    return " ".join(_WORDS[i] for i in rng.integers(len(_WORDS), size=int(rng.integers(1, most + 1))))


class Prose(gym.Space[str]):
    """Every str. Unlike gymnasium's Text it takes any character and the empty string."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A few words, now and then wrapped as a tool call, so that random agents meet both branches."""
        text = _words(self.np_random, 6)
        return text if self.np_random.random() < 0.5 else f'<tool_call>{{"name": "{text.split()[0]}"}}</tool_call>'

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prose)

    def __hash__(self) -> int:
        return hash(Prose)

    def __repr__(self) -> str:
        return "Prose()"


class Transcripts(gym.Space[Observation]):
    """{"messages": Rows of Message, "tools": Rows of schemas}."""

    def sample(self, mask: Any = None, probability: Any = None) -> Observation:
        roles = ("system", "user", "assistant", "tool")
        turns = int(self.np_random.integers(1, len(roles) + 1))
        messages = [Message(role=r, content=_words(self.np_random, 8)) for r in roles[:turns]]
        return {"messages": Rows(messages), "tools": Rows()}

    def contains(self, x: Any) -> bool:
        return (
            isinstance(x, dict)
            and x.keys() == {"messages", "tools"}
            and all(isinstance(x[key], Rows) for key in x)
            and all(isinstance(m, Message) and isinstance(m.get("role"), str) for m in x["messages"])
            and all(isinstance(t, dict) for t in x["tools"])
        )

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcripts)

    def __hash__(self) -> int:
        return hash(Transcripts)

    def __repr__(self) -> str:
        return "Transcripts()"


@create_shared_memory.register(Transcripts)
def _no_shared_memory(space: Transcripts, n: int = 1, ctx: Any = None) -> NoReturn:
    """What AsyncVectorEnv asks first. Its own sentence does not say where its argument is to be given."""
    raise ConfigError(
        "a transcript has no fixed size, so it cannot lie in shared memory; give gym.make_vec("
        '..., vectorization_mode="async", vector_kwargs={"shared_memory": False}), or leave vectorization_mode out: '
        "then the episodes run at the same time without processes"
    )
