"""What a server says of the limit on a reply's length: another name for it, or a lower number.

Newer models of OpenAI refuse `max_tokens` and want `max_completion_tokens`; other servers know only `max_tokens`. A
server that refuses the one is asked again with the other, and what it takes is remembered for the next requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

KEYS = ("max_completion_tokens", "max_tokens")
MOST_CORRECTIONS = 2
"""Of one request: the name, and the number."""
_LEAST_TOKENS = 16
_REFUSED = re.compile(
    r"unsupported|not supported|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|invalid param|deprecated|"
    r"\binstead\b|extra (?:inputs|fields?)|no such",
    re.IGNORECASE,
)
_MOST = re.compile(
    r"(?:at most|maximum of|less than or equal to|must be (?:<=|below)|<=|up to|no more than)\s*`?(\d{2,7})",
    re.IGNORECASE,
)


class OutputLimit(NamedTuple):
    """How a server takes the limit for one model."""

    key: str = ""
    """Its parameter; "" is as the endpoint file says."""
    most: int = 0
    """The highest that it takes; 0 is not known."""

    def applied(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request's JSON with the limit as the server takes it."""
        key = sent_key(body)
        if not key:
            return dict(body)
        tokens = min(body[key], self.most) if self.most else body[key]
        return {(self.key or key) if name == key else name: tokens if name == key else value
                for name, value in body.items()}  # fmt: skip


def sent_key(body: Mapping[str, Any]) -> str:
    """The limit's parameter in a request; "" where it has none that we know, or both."""
    found = [key for key in KEYS if isinstance(body.get(key), int)]
    return found[0] if len(found) == 1 else ""


def corrected(known: OutputLimit, body: Mapping[str, Any], refusal: str) -> OutputLimit | None:
    """What a refusal of this request teaches, None where it speaks of something else."""
    key = sent_key(body)
    if key and known.applied(body) != body:
        return known  # another request has learnt it meanwhile
    if not key or not re.search(rf"\b{key}\b|completion tokens", refusal):
        return None
    if (found := _MOST.search(refusal)) and _LEAST_TOKENS <= int(found[1]) < body[key]:
        return known._replace(most=int(found[1]))
    if key in refusal and not known.key and _REFUSED.search(refusal):
        return known._replace(key=KEYS[1 - KEYS.index(key)])
    return None


def allowed(body: Mapping[str, Any], otherwise: int) -> int:
    """The tokens that a request allows its reply."""
    return max((body[key] for key in KEYS if isinstance(body.get(key), int)), default=otherwise)
