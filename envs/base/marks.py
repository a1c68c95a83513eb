"""Marks: what a chat template and a tokenizer read as structure, and how a text from outside is kept from saying it.

A mark that a text spells out gets a space behind its first character: `<|im_end|>` becomes `< |im_end|>`. It can
still be read, and is no mark any more. A text without marks stays as it is, byte by byte. Transcripts for the trainer
(`agents/rollouts/chat_template.py`) and requests to servers (`envs/models/wire.py`) go through here, so both show one
text.

- Tools' results, tasks, a user's words and tools' schemas lose every mark.
- System messages, and the grammar's complaint about an action, may show the grammar's own tags; they lose the others.
- What the agent wrote stays as it was sampled. Only a request, which carries text and no tokens, goes by `spoken`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import CLOSE, OPEN, THINK, UNTHINK, parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.types import Message

GRAMMAR = (OPEN, CLOSE, THINK, UNTHINK)
COMPLAINT = "parser"
"""The name under which an episode shows what was wrong with an action."""

KNOWN = (
    *GRAMMAR,
    *("<tool_response>", "</tool_response>", "<tools>", "</tools>"),
    *("<s>", "</s>", "<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
    *("<end_of_utterance>", "<sop>", "[gMASK]"),
    *("<BOS_TOKEN>", "<EOS_TOKEN>", "<用户>", "<AI>"),
    *("<<SYS>>", "<</SYS>>", "]~b]", "]~!b[", "[e~["),
    *("### Instruction:", "### Input:", "### Response:", "### System:", "### User:", "### Assistant:"),
    *(f"<{slash}{name}>" for slash in ("", "/") for name in (
        "TOOLCALL", "AVAILABLE_TOOLS", "TOOL_RESPONSE", "role", "arg_key", "arg_value",
    )),
    *(f"[{slash}{name}]" for slash in ("", "/") for name in (
        "INST", "AVAILABLE_TOOLS", "TOOL_RESULTS", "TOOL_CALLS", "TOOL_CONTENT", "SYSTEM_PROMPT", "THINK", "CALL_ID",
    )),
    "[ARGS]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
)  # fmt: skip
"""Marks of open models' templates, for servers whose tokenizer nobody has shown us."""
_SHAPES = (
    "<(?=[|\uff5c][^\\s<>|\uff5c]{1,80}[|\uff5c]?>)",  # <|im_end|>, <|eot_id|>, <|user|>, <|turn>, and with wide bars
    "<(?=[^\\s<>|\uff5c]{1,80}[|\uff5c]>)",  # <turn|>
    "<(?=/?(?:(?:seed|minimax):\\w{1,40}|SPECIAL_\\d{1,5}|extra_id_\\d{1,5}|unused\\d{1,5}|reserved_\\d{1,5})>)",
    "\\[(?=\\|[a-z_]{4,40}\\|\\])",  # [|endofturn|]
)
"""Patterns for whole families of marks: up to and with the first character, and what has to follow it."""

_HIDING = re.compile(r"[^\t\n\r -~]")
_UNSEEN_RANGES = ((0, 9), (0xB, 0xD), (0xE, 0x20), (0x7F, 0x80), (0xAD, 0xAE), (0x61C, 0x61D), (0x180E, 0x180F),
                  (0x200B, 0x2010), (0x202A, 0x202F), (0x2060, 0x2070), (0xFE00, 0xFE10), (0xFEFF, 0xFF00),
                  (0xE0000, 0xE0080))  # fmt: skip
_UNSEEN = dict.fromkeys(code for first, end in _UNSEEN_RANGES for code in range(first, end))
"""Characters that are not seen, and that some tokenizers leave out before they look for marks."""


class Marks:
    """The known marks and those of one tokenizer and template; immutable, and quick on texts without any."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        known = _pattern(KNOWN)
        own = [text for text in map(str.strip, more) if len(text) > 1]
        self._every = _pattern([*KNOWN, *(text for text in own if not known.search(text))])
        foreign = [text for text in (*KNOWN, *own) if not any(tag in text for tag in GRAMMAR)]
        self._foreign = _pattern(foreign)

    def broken(self, text: str) -> str:
        """A text from outside, with every mark broken. Linear in its length; again changes nothing."""
        return _broken(self._every, text)

    def spoken(self, text: str) -> str:
        """A text in the action grammar: its own tags stay, other marks are broken."""
        return _broken(self._foreign, text)

    def told(self, messages: Sequence[Mapping[str, Any]], *, spoken: bool) -> list[Message]:
        """A transcript's messages, for a template. `spoken`: the agent's own too, which otherwise stay as they are."""
        made, before = [], None
        for message in messages:
            made.append(self._told(message, before, spoken=spoken))
            before = message
        return made

    def _told(self, message: Mapping[str, Any], before: Mapping[str, Any] | None, *, spoken: bool) -> Message:
        role, content = message["role"], message["content"]
        if role == "assistant":
            return Message({**message, "content": self.spoken(content)} if spoken else message)
        ours = role == "system" or (message.get("name") == COMPLAINT and _complains(content, before))
        told = {**message, "content": self.spoken(content) if ours else self.broken(content)}
        if "name" in message:
            told["name"] = self._within(message["name"])
        return Message(told)

    def schemas(self, tools: Iterable[Any]) -> list[dict[str, Any]]:
        """Tools' schemas, as plain data of their own."""
        return [self._within(tool) for tool in tools]

    def _within(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.broken(value)
        if isinstance(value, Mapping):
            return {self._within(key): self._within(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._within(part) for part in value]
        return value


def clean(text: str) -> str:
    """The text without lone surrogates, which no encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def quoted(text: str) -> str:
    """A text in which no call is read: the tags of those that it quotes are broken."""
    for tag in (OPEN, CLOSE):
        text = text.replace(tag, f"{tag[:1]} {tag[1:]}")
    return text


def _complains(content: str, before: Mapping[str, Any] | None) -> bool:
    """Whether this is what the grammar says of the turn before it. A tool may be called `parser` too."""
    if before is None or before["role"] != "assistant":
        return False
    try:
        parse(before["content"])
    except ActionError as err:
        return bool(content == f"Error: {err}")
    return False


def _broken(pattern: re.Pattern[str], text: str) -> str:
    made = _spaced(pattern, clean(text))
    if _HIDING.search(made):
        # Some tokenizers read wide letters as plain ones and leave out what is not seen: a mark may be written so.
        seen = unicodedata.normalize("NFKC", made.translate(_UNSEEN))
        if pattern.search(seen):
            return _spaced(pattern, seen)
    return made


def _spaced(pattern: re.Pattern[str], text: str) -> str:
    """A space behind the first character of each mark, again where the space itself has made one."""
    while pattern.search(text):
        text = pattern.sub(r"\g<0> ", text)
    return text


def _pattern(texts: Iterable[str]) -> re.Pattern[str]:
    """Finds the first character of each mark, of overlapping ones too."""
    by_first = _by_first(texts)
    found = [f"{re.escape(first)}(?={_any_of(rests)})" for first, rests in by_first.items()]
    return re.compile("|".join((*_SHAPES, *found)))


def _by_first(texts: Iterable[str]) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for text in texts:
        made.setdefault(text[0], []).append(text[1:])
    return made


def _any_of(texts: Sequence[str]) -> str:
    """A pattern for any of the texts in which no beginning is tried twice: hundreds of marks cost as one."""
    if "" in texts:
        return ""
    parts = [f"{re.escape(first)}{_any_of(rests)}" for first, rests in _by_first(texts).items()]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


STANDARD = Marks()
"""The known marks, for servers."""
