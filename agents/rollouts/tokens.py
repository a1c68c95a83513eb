"""Transcripts as tokens: what was sampled stays as it was sampled, and only new messages are tokenised."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolorchestra.agents.engines.base import Sample
from toolorchestra.envs.base.actions import CLOSE
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Observation
from toolorchestra.envs.models.wire import clean


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    chat_template: Any
    eos_token_id: Any
    added_tokens_decoder: Any

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...
    def encode(self, text: str, **kwargs: Any) -> list[int]: ...
    def decode(self, token_ids: Any, **kwargs: Any) -> Any: ...
    def get_added_vocab(self) -> dict[str, int]: ...


@dataclass
class Sequences:
    """One append-only sequence of a rollout: ids, and for each whether (and how likely) it was sampled."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    text: str = ""
    """What the tokens say."""

    def force(self, ids: Sequence[int], text: str) -> None:
        """Append tokens that were given."""
        self.tokens.extend(ids)
        self.logprobs.extend([0.0] * len(ids))
        self.sampled.extend([False] * len(ids))
        self.text += text

    def take(self, sample: Sample, text: str) -> None:
        """Append tokens that were sampled."""
        self.tokens.extend(sample.tokens)
        self.logprobs.extend(sample.logprobs)
        self.sampled.extend([True] * len(sample.tokens))
        self.text += text


class Chat:
    """A tokenizer with a chat template, and how a transcript grows under it."""

    def __init__(self, tokenizer: Tokenizer, template_arguments: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer {type(tokenizer).__name__} has no chat template, so messages cannot be rendered; "
                "load one that has, or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self._arguments = dict(template_arguments or {})
        self.stop = int(tokenizer.eos_token_id)
        self._stop_text = str(tokenizer.decode([self.stop], skip_special_tokens=False))
        special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._marks = re.compile("|".join(map(re.escape, [self._stop_text, *special])))

    @property
    def call_ends(self) -> tuple[int, ...]:
        """The tokens that end a tool call: its last tag, and what a tokenizer has fused with it."""
        ids = self.encode(CLOSE)
        if len(ids) != 1:
            raise ConfigError(
                f"stop_at_call needs {CLOSE} to be one token, and this tokenizer makes {len(ids)} of it; set "
                "stop_at_call=false"
            )
        added = self.tokenizer.get_added_vocab()
        return tuple(sorted({*ids, *(number for text, number in added.items() if text.endswith(CLOSE))}))

    def plain(self, text: str) -> str:
        """A text that was given, with a space in what the tokenizer would read as a mark of the template's: a tool's
        result that says so ends no turn. Half surrogates, which no tokenizer takes, become question marks."""
        return self._marks.sub(lambda found: f"{found[0][:1]} {found[0][1:]}", clean(text))

    def _told(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message for the template. What the model said stays as it was sampled."""
        mine = message["role"] == "assistant"
        return dict(message) if mine else {**message, "content": self.plain(message["content"])}

    def render(self, observation: Observation, *, prompting: bool = True) -> str:
        """The transcript as the template writes it."""
        return str(
            self.tokenizer.apply_chat_template(
                [self._told(m) for m in observation["messages"]],
                tools=[dict(t) for t in observation["tools"]] or None,
                add_generation_prompt=prompting,
                tokenize=False,
                **self._arguments,
            )
        )

    def encode(self, text: str) -> list[int]:
        """Text as ids, nothing added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def follow(self, sequence: Sequences | None, observation: Observation) -> tuple[Sequences, bool]:
        """The sequence extended by what is new in the observation; or a new one where the template (or the history)
        rewrote the past, which happens when it drops old thoughts. True when it is new."""
        full = self.render(observation)
        if sequence is not None and full.startswith(sequence.text):
            new = full[len(sequence.text) :]
            sequence.force(self.encode(new), new)
            return sequence, False
        fresh = Sequences()
        fresh.force(self.encode(full), full)
        return fresh, True

    def take(self, sequence: Sequences, sample: Sample) -> str:
        """Append a sampled turn; its text, as the episode should see it."""
        whole = str(self.tokenizer.decode(sample.tokens, skip_special_tokens=False))
        sequence.take(sample, whole)
        return whole.removesuffix(self._stop_text) if sample.finished else whole
