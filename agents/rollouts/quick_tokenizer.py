"""A tokenizer's template, encoder and decoder, called without the work that transformers does anew at each call.

transformers copies every message and schema before it renders, and sets up truncation before it encodes. A rollout
renders its whole transcript at every turn, so for a small model this takes as long as the model itself. Messages and
schemas are plain data here already, so the compiled template and the encoder underneath are called as they are. Short
texts, and turns of few tokens, come again and again: what was made of them is kept.

The quick way is checked: at its first calls it is compared with the tokenizer's own, and where they differ, or where
the quick way is missing, the tokenizer's own is used from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from toolorchestra.agents.engines.compiled_template import compiled_template

CHECKED = 2
"""First calls of each kind that are compared: of a template, one without a past and one with."""
SHORT = 1024
"""Characters of a text whose ids are kept: a group has one prompt, and results come again and again."""
SHORT_TURN = 64
"""The same of a turn's tokens, whose text is kept."""
KEPT = 4096
"""How many of them are kept."""
Made = TypeVar("Made")


class QuickTokenizer:
    """Renders, encodes and decodes as the tokenizer does."""

    def __init__(self, tokenizer: Any, arguments: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._arguments = dict(arguments)
        self._compiled = compiled_template(tokenizer)
        self._given = {**getattr(tokenizer, "special_tokens_map", {}), **self._arguments}
        self._encoder = getattr(tokenizer, "backend_tokenizer", None)
        self._renders = self._encodes = 0
        self._short = lru_cache(KEPT)(self._encoded)
        self._short_turn = lru_cache(KEPT)(self._decoded)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any, *, prompting: bool) -> str:
        """The text of a transcript under the chat template."""
        if self._renders >= CHECKED:
            return self._rendered(messages, tools, prompting)
        text = str(
            self._tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=prompting, tokenize=False, **self._arguments
            )
        )  # raises where the template refuses the transcript, which says nothing of the quick way
        if self._compiled is not None:
            if _same(text, lambda: self._rendered(messages, tools, prompting)):
                self._renders += 1
            else:
                self._compiled = None
        return text

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: Any, prompting: bool) -> str:
        plain = [dict(message) for message in messages]
        template: Any = self._compiled
        return str(
            template.render(messages=plain, tools=tools, documents=None, add_generation_prompt=prompting, **self._given)
        )

    def encode(self, text: str) -> list[int]:
        """Text as ids, nothing added."""
        if self._encoder is not None and self._encodes >= CHECKED:
            return list(self._short(text) if len(text) <= SHORT else self._encoded(text))
        ids = list(self._tokenizer.encode(text, add_special_tokens=False))
        if self._encoder is not None:
            if _same(ids, lambda: list(self._encoded(text))):
                self._encodes += 1
            else:
                self._encoder = None
        return ids

    def _encoded(self, text: str) -> tuple[int, ...]:
        encoder: Any = self._encoder
        return tuple(encoder.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, special tokens too."""
        return self._short_turn(tuple(ids)) if len(ids) <= SHORT_TURN else self._decoded(ids)

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def _same(expected: Made, quick: Callable[[], Made]) -> bool:
    try:
        return quick() == expected
    except Exception:  # noqa: BLE001 - then the tokenizer's own way is used
        return False
