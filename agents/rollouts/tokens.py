"""Transcripts as tokens: what was sampled stays as it was sampled, and only new messages are tokenised."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolorchestra.agents.engines.base import Datum, Sample
from toolorchestra.agents.engines.tiny import TERSE
from toolorchestra.agents.rollouts.past import new_behind
from toolorchestra.agents.rollouts.quick_tokenizer import QuickTokenizer
from toolorchestra.agents.rollouts.template_form import form_of, name_of
from toolorchestra.agents.rollouts.template_marks import written_by
from toolorchestra.envs.base.actions import CLOSE
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.marks import Marks
from toolorchestra.envs.base.types import Observation, Rows

MOST_SCHEMAS = 512
"""Tools of so many episodes are kept as the template is given them."""
MOST_TURNS = 1024
"""So many turns, with their results, are kept as the template writes them: those of a group are often alike."""
_Tools = tuple[Sequence[Mapping[str, Any]] | None, str]


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    chat_template: Any
    eos_token_id: Any
    added_tokens_decoder: Any

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...
    def encode(self, text: str, **kwargs: Any) -> list[int]: ...
    def decode(self, token_ids: Any, **kwargs: Any) -> Any: ...
    def get_added_vocab(self) -> dict[str, int]: ...


def _prompt_length(tokenizer: Tokenizer) -> int:
    """Characters that ask the agent for its turn."""
    said = [{"role": "user", "content": "a"}]
    with_prompt, without = (
        str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=asked)) for asked in (True, False)
    )
    return len(with_prompt) - len(without)


def _begins_with(messages: Sequence[Any], shown: Sequence[Any]) -> bool:
    """Whether these are the messages that were shown, and then others."""
    return len(messages) > len(shown) and all(map(operator.is_, shown, messages))


@dataclass
class TokenSequence:
    """Tokens of a rollout, only ever appended to: ids, and for each whether (and how likely) it was sampled."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    text: str = ""
    """What the tokens say."""
    shown: Sequence[Mapping[str, Any]] = ()
    """The messages before its last turn."""
    turn_at: int = 0
    """Where in the text that turn begins, with what prompts for it."""

    def datum(self, advantage: float) -> Datum:
        """To be learnt from: each sampled token has this advantage."""
        return Datum(self.tokens, self.logprobs, [advantage if s else 0.0 for s in self.sampled], self.sampled)

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
        arguments = dict(template_arguments or {})
        self._arguments = arguments
        self._quick = QuickTokenizer(tokenizer, arguments)
        self.stop = int(tokenizer.eos_token_id)
        self._stop_text = str(tokenizer.decode([self.stop], skip_special_tokens=False))
        self.marks = Marks([self._stop_text, *written_by(tokenizer, arguments)])
        """What the texts in a transcript must not say: see there."""
        self.form = form_of(tokenizer, arguments)
        """What the template shows by itself, and what is written as text."""
        self._tools: dict[int, tuple[Any, _Tools]] = {}
        self._apart = TERSE in str(tokenizer.chat_template)
        """Each message is rendered on its own, so those that were shown need not be rendered again."""
        self._prompt = _prompt_length(tokenizer) if self._apart else 0
        self._turns: dict[tuple[tuple[str, str, str | None], ...], str] = {}

    def copy(self) -> Chat:
        """The same with a tokenizer of its own, for another thread: tokenizers are not for two threads at a time."""
        return Chat(copy.deepcopy(self.tokenizer), self._arguments)

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

    def render(self, observation: Observation, *, prompting: bool = True) -> str:
        """The transcript as the template writes it."""
        try:
            return self._render(observation, prompting, spoken=False)
        except Exception:  # noqa: BLE001 - a template's own complaint has any type
            pass  # some refuse marks that the model itself has sampled (gpt-oss), and show the turn without them
        try:
            return self._render(observation, prompting, spoken=True)
        except Exception as err:
            roles = ", ".join(message["role"] for message in observation["messages"])
            name = name_of(self.tokenizer)
            raise ConfigError(f"the chat template of {name} refuses {roles:.200}: {err!s:.200}") from err

    def _render(self, observation: Observation, prompting: bool, *, spoken: bool) -> str:
        schemas, text = self._told(observation["tools"])
        told = self.marks.told(observation["messages"], spoken=spoken)
        return self._quick.render(self.form.messages(told, text), schemas, prompting=prompting)

    def _told(self, tools: Any) -> _Tools:
        """Tools without marks, made once for each episode and not at each turn: they cannot change."""
        if not isinstance(tools, Rows):
            return self.form.tools_given(self.marks.schemas(tools))
        known = self._tools.get(id(tools))
        if known is None or known[0] is not tools:
            if len(self._tools) >= MOST_SCHEMAS:
                self._tools.clear()
            known = self._tools[id(tools)] = tools, self.form.tools_given(self.marks.schemas(tools))
        return known[1]

    def encode(self, text: str) -> list[int]:
        """Text as ids, nothing added."""
        return self._quick.encode(text)

    def follow(self, sequence: TokenSequence | None, observation: Observation) -> tuple[TokenSequence, bool]:
        """The sequence extended by what is new in the observation, in whatever form the template writes what was
        sampled; or a new one where the template (or the history) rewrote the past, which happens when it drops old
        thoughts. True when it is new."""
        messages = observation["messages"]
        seen = 0
        if sequence is not None and self._apart and _begins_with(messages, sequence.shown):
            seen = len(sequence.shown)
        now = self._rendered_apart(messages[seen:], observation["tools"]) if seen else self.render(observation)
        if sequence is not None:
            new = new_behind(sequence.text[sequence.turn_at if seen else 0 :], now)
            if new is not None:
                self._show(sequence, messages, new)
                return sequence, False
        fresh = TokenSequence()
        self._show(fresh, messages, self.render(observation) if seen else now)
        return fresh, True

    def _rendered_apart(self, messages: Sequence[Any], tools: Any) -> str:
        """Messages behind the opening, where each is rendered on its own, by its role and content."""
        key = tuple([(message["role"], message["content"], message.get("name")) for message in messages])
        known = self._turns.get(key)
        if known is None:
            known = self.render({"messages": Rows(messages), "tools": tools})
            if len(self._turns) >= MOST_TURNS:
                self._turns.clear()
            if all(role != "system" for role, _, _ in key):  # with it, tools are shown
                self._turns[key] = known
        return known

    def _show(self, sequence: TokenSequence, messages: Sequence[Mapping[str, Any]], text: str) -> None:
        sequence.force(self.encode(text), text)
        sequence.shown, sequence.turn_at = messages, len(sequence.text) - self._prompt

    def take(self, sequence: TokenSequence, sample: Sample) -> str:
        """Append a sampled turn; its text, as the episode should see it."""
        whole = self._quick.decode(sample.tokens)
        sequence.take(sample, whole)
        return whole.removesuffix(self._stop_text) if sample.finished else whole
