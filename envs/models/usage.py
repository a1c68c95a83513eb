"""What a reply says that it used, and whether that can be true."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolorchestra.envs.models.endpoints import Served
from toolorchestra.envs.models.output_limits import allowed
from toolorchestra.envs.models.streamed_reply import StreamedReply
from toolorchestra.envs.models.wire import CHARACTERS_PER_TOKEN
from toolorchestra.envs.money.prices import Tokens

CHARACTERS_OF_THE_LONGEST_TOKEN = 200
"""More text than this for each token that is said to be used cannot be true: the longest tokens are rows of blanks."""
TEMPLATE_TOKENS = 1_024
"""What a server's chat template may add to the text of a request."""


class Sent(NamedTuple):
    """How large a request is."""

    characters: int
    """How many characters its messages have."""
    most_tokens: int
    """The most tokens that its input may be: a token is a byte at least."""
    output_tokens: int
    """The most tokens that its reply was allowed to have."""

    @classmethod
    def of(cls, made: Mapping[str, Any], served: Served) -> Sent:
        """Measures a request from its JSON."""
        text = str(made.get("messages") or made.get("prompt"))
        asked = json.dumps([made.get("messages"), made.get("prompt"), made.get("tools")], ensure_ascii=False)
        return cls(
            len(text), len(asked.encode("utf-8", "replace")) + TEMPLATE_TOKENS, allowed(made, served.output_tokens)
        )

    @property
    def guessed(self) -> float:
        """Tokens of its input, as they are counted before the reply counts them."""
        return self.characters / CHARACTERS_PER_TOKEN


def usage_of(reply: Mapping[str, Any], sent: Sent, raw: str, said: str) -> tuple[Tokens, bool]:
    """The tokens by disjoint class, and whether they had to be estimated since the reply's count makes no sense."""
    counted = counted_of(reply, sent, raw)
    if counted is not None and len(said) <= CHARACTERS_OF_THE_LONGEST_TOKEN * (counted.output + counted.reasoning):
        return counted, False
    out = min(-(-len(said) // CHARACTERS_PER_TOKEN), sent.output_tokens)
    return Tokens(sent.characters // CHARACTERS_PER_TOKEN, 0, out, 0), True


def used_so_far(streamed: StreamedReply, sent: Sent) -> Tokens:
    """The tokens of a streamed reply that broke off: those that the server had counted, and by estimate those of the
    characters that came after."""
    known, characters = counted_of({"usage": streamed.usage}, sent, streamed.raw), streamed.characters_counted
    if known is None or characters > CHARACTERS_OF_THE_LONGEST_TOKEN * (known.output + known.reasoning):
        known, characters = Tokens(sent.characters // CHARACTERS_PER_TOKEN, 0, 0, 0), 0
    room = max(0, sent.output_tokens - known.output - known.reasoning)
    more = -(-(streamed.characters - characters) // CHARACTERS_PER_TOKEN)
    return known._replace(output=known.output + min(more, room))


def counted_of(reply: Mapping[str, Any], sent: Sent, raw: str) -> Tokens | None:
    """The tokens that the reply says it used, or None where that cannot be: more input than the request has bytes, more
    output than was allowed and than the reply has bytes, or next to none for a long text."""
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = _whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens", 0))
    cached = _whole(_detail(usage, "prompt_tokens_details", "cached_tokens"))
    reasoning = _whole(_detail(usage, "completion_tokens_details", "reasoning_tokens"))
    if prompt is None or completion is None or cached is None or reasoning is None:
        return None
    if cached > prompt or reasoning > completion:
        return None
    if not sent.characters / CHARACTERS_OF_THE_LONGEST_TOKEN <= prompt <= sent.most_tokens:
        return None
    if completion > max(sent.output_tokens, len(raw.encode("utf-8", "replace"))):
        return None
    return Tokens(prompt - cached, cached, completion - reasoning, reasoning)


def _detail(usage: Mapping[str, Any], table: str, key: str) -> Any:
    details = usage.get(table)
    value = details.get(key) if isinstance(details, Mapping) else None
    return 0 if value is None else value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
