"""The marks of one tokenizer and its chat template, found by asking them: its added tokens, and what the template
writes around the turns of conversations whose contents are known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol


class Templated(Protocol):
    """The part of a transformers tokenizer that is asked."""

    added_tokens_decoder: Any

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


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


def written_by(tokenizer: Templated, arguments: Mapping[str, Any]) -> list[str]:
    """Every mark. Added tokens that are mere words, blanks or digits are vocabulary and no marks."""
    added = [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special or _STRUCTURAL.search(str(t))]
    return [*added, *dict.fromkeys(_around_turns(tokenizer, arguments))]


def _around_turns(tokenizer: Templated, arguments: Mapping[str, Any]) -> Iterator[str]:
    for roles in _CONVERSATIONS:
        for prompting in (False, True):
            for piece in _CONTENT.split(_rendered(tokenizer, roles, arguments, prompting=prompting)):
                yield from _TAG.findall(piece)
                lines = (line.strip() for line in _TAG.sub("\n", piece).splitlines())
                yield from (line for line in lines if _LABEL.fullmatch(line))


def _rendered(tokenizer: Templated, roles: Sequence[str], arguments: Mapping[str, Any], *, prompting: bool) -> str:
    said = [{"role": role, "content": _WORD.format(role)} for role in roles]
    try:
        return str(
            tokenizer.apply_chat_template(said, add_generation_prompt=prompting, tokenize=False, **dict(arguments))
        )
    except Exception:  # noqa: BLE001 - a template's own complaint has any type
        return ""
