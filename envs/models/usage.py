"""What a reply used, by what its server says of it, in OpenAI's words or in others."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from toolorchestra.envs.models.streamed_reply import INPUT, OUTPUT, SUMMED, StreamedReply, count_in, usage_in
from toolorchestra.envs.models.wire import Sent
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, MOST_USD, NANO, Tokens

CHARACTERS_OF_THE_LONGEST_TOKEN = 200
"""More text than this for each token that is said to be used cannot be true: the longest tokens are rows of blanks."""
MOST_TOKENS = 10_000_000
"""No model reads and writes more in one request, whatever its server says."""


class Counted(NamedTuple):
    """What a server says that a reply used."""

    tokens: Tokens
    odd: bool
    """Whether it is more than can be checked: more than was sent or allowed. It is billed, since it adds up."""


def usage_of(reply: Mapping[str, Any], sent: Sent, raw: str, said: str) -> tuple[Counted, bool]:
    """The tokens by disjoint class; and whether the server has counted them, or they had to be estimated since its
    count makes no sense. An estimate knows nothing of thoughts that are not shown."""
    counted = counted_of(reply, sent, raw)
    if counted is not None and len(said) <= CHARACTERS_OF_THE_LONGEST_TOKEN * sum(counted.tokens[2:]):
        return counted, True
    out = min(-(-len(said) // CHARACTERS_PER_TOKEN), sent.output_tokens)
    return Counted(Tokens(sent.characters // CHARACTERS_PER_TOKEN, 0, out, 0), True), False


def used_so_far(streamed: StreamedReply, sent: Sent) -> tuple[Tokens, bool]:
    """The tokens of a streamed reply that broke off: those that the server had counted, and by estimate those of the
    characters that came after; and whether its input was counted."""
    counted, characters = counted_of({"usage": streamed.usage}, sent, streamed.raw), streamed.characters_counted
    if counted is None or characters > CHARACTERS_OF_THE_LONGEST_TOKEN * sum(counted.tokens[2:]):
        counted, characters = None, 0
    known = Tokens(sent.characters // CHARACTERS_PER_TOKEN) if counted is None else counted.tokens
    room = max(0, sent.output_tokens - known.output - known.reasoning)
    more = -(-(streamed.characters - characters) // CHARACTERS_PER_TOKEN)
    return known._replace(output=known.output + min(more, room)), counted is not None


def counted_of(reply: Mapping[str, Any], sent: Sent, raw: str) -> Counted | None:
    """What the reply says it used, or None where that cannot be: next to none for a long text; and where its total does
    not bear it out, more input than the request has bytes, or more output than was allowed and than the reply has
    bytes. Tokens of thought that stand beside the output, and tokens that the total alone has, are output too."""
    usage = usage_in(reply)
    found = tokens_in(usage) if usage is not None else None
    if usage is None or found is None:
        return None
    tokens, more = found
    prompt, wrote = sum(tokens[:2]), sum(tokens[2:])
    if prompt < sent.characters / CHARACTERS_OF_THE_LONGEST_TOKEN:
        return None
    odd = bool(more or usage.get(SUMMED) or prompt > sent.most_tokens
               or wrote > max(sent.output_tokens, len(raw.encode("utf-8", "replace"))))  # fmt: skip
    adds_up = count_in(usage, ("total_tokens",)) == prompt + wrote <= MOST_TOKENS
    if odd and not (adds_up or usage.get(SUMMED)):
        return None
    return Counted(tokens, odd)


def tokens_in(usage: Mapping[str, Any]) -> tuple[Tokens, int] | None:
    """The tokens of a server's count by disjoint class, and how many of them its total alone has. None where it has no
    input, or makes no sense."""
    prompt, completion = count_in(usage, INPUT), count_in(usage, OUTPUT, 0)
    cached = detail_in(usage, INPUT, "cached_tokens", "prompt_cache_hit_tokens")
    reasoning, total = detail_in(usage, OUTPUT, "reasoning_tokens"), count_in(usage, ("total_tokens",))
    if prompt is None or completion is None or cached is None or reasoning is None or cached > prompt:
        return None
    apart = reasoning > completion or (total is not None and total == prompt + completion + reasoning)
    output = completion if apart else completion - reasoning
    more = max(0, (total or 0) - prompt - output - reasoning)
    return Tokens(prompt - cached, cached, output + more, reasoning), more


COST_HEADER = "x-litellm-response-cost"
"""Where LiteLLM tells the cost of a reply that is not streamed."""


def told_cost(reply: Mapping[str, Any], header: str | None) -> int | None:
    """What a server says that a reply cost, in whole nano-dollars; None where it tells nothing that can be, or 0.

    OpenRouter charges its fee alone where a user's own key paid the model's maker: the maker's part stands beside it.
    """
    usage = usage_in(reply) or {}
    told, parts = _dollars(usage.get("cost")), usage.get("cost_details")
    if told is not None and isinstance(parts, Mapping) and usage.get("is_byok") is not False:
        told += _dollars(parts.get("upstream_inference_cost")) or 0
    told = _dollars(header) if told is None else told
    nano = int((told * NANO).to_integral_value(ROUND_HALF_UP)) if told is not None and told <= MOST_USD else 0
    return nano or None


def _dollars(said: Any) -> Decimal | None:
    if isinstance(said, bool) or not isinstance(said, int | float | str) or len(str(said)) > 40:
        return None
    try:
        usd = Decimal(str(said))
    except ArithmeticError:
        return None
    return usd if usd.is_finite() and usd >= 0 else None


def detail_in(usage: Mapping[str, Any], of: tuple[str, ...], key: str, beside: str = "") -> int | None:
    """A part of a count: it stands in a table of its own, or beside the count. 0 where it is not told."""
    tables = [usage[f"{name}_details"] for name in of if isinstance(usage.get(f"{name}_details"), Mapping)]
    for table in tables:
        if table.get(key) is not None:
            return count_in(table, (key,))
    return count_in(usage, (beside,), 0)
