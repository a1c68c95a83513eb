"""A tokenizer and its chat template: transcripts as text, text as ids, ids as text.

A text from outside must not say what the template says by itself: its marks are found here, by asking the tokenizer,
and taken out of what is shown (envs/base/marks.py). What the template does not show is written as text
(template_form.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from toolorchestra.agents.engines.pretrained import compiled_template
from toolorchestra.agents.engines.tiny import TERSE
from toolorchestra.agents.rollouts.template_form import form_of, name_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.marks import Marks
from toolorchestra.envs.base.types import Observation, Rows

MOST_SCHEMAS = 512
"""Tools of so many episodes are kept as the template is given them."""
_Tools = tuple[Sequence[Mapping[str, Any]] | None, str]


class ChatTemplate:
    """A tokenizer of transformers with a chat template, as episodes are shown to it."""

    def __init__(self, tokenizer: Any, template_arguments: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer {type(tokenizer).__name__} has no chat template, so messages cannot be rendered; "
                "load one that has, or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self.arguments = dict(template_arguments or {})
        self._quick = QuickTokenizer(tokenizer, self.arguments)
        self.stop = int(tokenizer.eos_token_id)
        self.stop_text = str(tokenizer.decode([self.stop], skip_special_tokens=False))
        self.marks = Marks([self.stop_text, *written_by(tokenizer, self.arguments)])
        """What texts in a transcript must not say."""
        self.form = form_of(tokenizer, self.arguments)
        """What the template shows by itself, and what is written as text."""
        self.apart = TERSE in str(tokenizer.chat_template)
        """Whether each message is rendered on its own, so that those that were shown need not be rendered again."""
        asked = _tried(tokenizer, ("user",), {}, prompting=True) if self.apart else ""
        self.prompt_length = len(asked) - len(_tried(tokenizer, ("user",), {}, prompting=False)) if self.apart else 0
        """Characters that ask the agent for its turn, where messages are rendered on their own."""
        self._tools: dict[int, tuple[Any, _Tools]] = {}

    def render(self, observation: Observation, *, prompting: bool = True) -> str:
        """The transcript as the template writes it. Some templates refuse marks that the model itself has sampled
        (gpt-oss), and show the turn without them."""
        schemas, text = self._told(observation["tools"])
        for spoken in (False, True):
            told = self.marks.told(observation["messages"], spoken=spoken)
            try:
                return self._quick.render(self.form.messages(told, text), schemas, prompting=prompting)
            except Exception as err:  # noqa: BLE001 - a template's own complaint has any type
                refused = err
        roles = ", ".join(message["role"] for message in observation["messages"])
        name = name_of(self.tokenizer)
        raise ConfigError(f"the chat template of {name} refuses {roles:.200}: {refused!s:.200}") from refused

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

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, special tokens too."""
        return self._quick.decode(ids)


# -- quickly -----------------------------------------------------------------------------------------------------------

CHECKED = 2
"""First calls of each kind that are compared: of a template, one without a past and one with."""
SHORT = 1024
"""Characters of a text whose ids are kept: a group has one prompt, and results come again and again."""
SHORT_TURN = 64
"""Tokens of a turn whose text is kept."""
KEPT = 4096
"""How many of them are kept."""
Made = TypeVar("Made")


class QuickTokenizer:
    """Renders, encodes and decodes as the tokenizer does, without the copies that transformers makes at each call,
    which take as long as a small model itself: the compiled template and the encoder underneath are called as they are.
    At its first calls the quick way is compared with the tokenizer's own; where they differ, or where the quick way is
    missing, the tokenizer's own is used from then on."""

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


# -- marks -------------------------------------------------------------------------------------------------------------

_WORD = "qzx{}xzq"
"""A content that no template holds."""
_CONTENT = re.compile(_WORD.format("[a-z]+"))
_CONVERSATIONS = (
    ("system", "user", "assistant", "user", "assistant"),
    ("user", "assistant", "user"),
    ("system", "user", "assistant", "tool", "assistant"),
    ("user", "assistant", "tool", "tool"),
)
"""Some templates refuse a role, or an order; the others then tell."""
_TAG = re.compile(r"</?[^\s<>]{1,80}>|\[/?[A-Z][A-Z_]{1,80}\]")
_LABEL = re.compile(r"#* ?\w[\w '-]{0,40}:|#{2,} ?\w[\w '-]{0,40}")
_STRUCTURAL = re.compile(r"[<>\[\]|\uff5c]")


def written_by(tokenizer: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Every mark of a tokenizer and its template: its added tokens, and what the template writes around the turns of
    conversations whose contents are known. Added tokens that are mere words, blanks or digits are no marks."""
    added = [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special or _STRUCTURAL.search(str(t))]
    return [*added, *dict.fromkeys(_around_turns(tokenizer, arguments))]


def _around_turns(tokenizer: Any, arguments: Mapping[str, Any]) -> Iterator[str]:
    for roles in _CONVERSATIONS:
        for prompting in (False, True):
            for piece in _CONTENT.split(_tried(tokenizer, roles, arguments, prompting=prompting)):
                yield from _TAG.findall(piece)
                lines = (line.strip() for line in _TAG.sub("\n", piece).splitlines())
                yield from (line for line in lines if _LABEL.fullmatch(line))


def _tried(tokenizer: Any, roles: Sequence[str], arguments: Mapping[str, Any], *, prompting: bool) -> str:
    said = [{"role": role, "content": _WORD.format(role)} for role in roles]
    try:
        return str(
            tokenizer.apply_chat_template(said, add_generation_prompt=prompting, tokenize=False, **dict(arguments))
        )
    except Exception:  # noqa: BLE001 - a template's own complaint has any type
        return ""
