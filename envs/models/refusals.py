"""What it means when a server says no, by a status or within a stream; the table stands in docs/real-tools.md."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import Outage, ToolError, WrongSetting
from toolorchestra.envs.models.endpoints import Endpoint, Served

_PASSING = frozenset({408, 409, 425, 429})
"""Statuses that may pass, beside 5xx: the request is made again."""
_OF_THE_REQUEST = frozenset({400, 422})
"""Statuses that speak of what was sent, and so of what the agent asked for."""


class MayPass(Exception):
    """A failure that may pass, and how long the server asks to wait."""

    def __init__(self, message: str, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class Refusal(NamedTuple):
    """What a server says. The text holds no key."""

    status: int
    code: object
    """Its own word for the reason."""
    text: str
    after_seconds: float | None = None

    @property
    def of_the_request(self) -> bool:
        """Whether what was sent is refused, not who asks or when."""
        return self.status in _OF_THE_REQUEST


def meaning(said: Refusal, endpoint: Endpoint, served: Served, answered: bool) -> Exception:
    """What to raise. Only what is wrong with the request itself is for the agent to read: everything else is no answer
    of its own, and fails the episode. `answered`: whether it ever did for this model."""
    status, text = said.status, said.text
    if status in _OF_THE_REQUEST:
        return ToolError(f"model {served.name!r} refused the request ({status}): {text}")
    if said.code == "insufficient_quota":
        return Outage(f"endpoint {endpoint.name!r} says that the account's quota is used up: {text}")
    if status in _PASSING or status >= 500:
        return MayPass(f"{status}: {text}", said.after_seconds)
    if status in (401, 403, 404) and not answered:
        return _wrong_setting(endpoint, served, status, text)
    why = "has no credit left for this account" if status == 402 else f"refused model {served.name!r}"
    return Outage(f"endpoint {endpoint.name!r} {why} ({status}): {text}")


def _wrong_setting(endpoint: Endpoint, served: Served, status: int, text: str) -> WrongSetting:
    """Of an endpoint that never answered for a model: key, address or model is wrong, which would end every episode."""
    if status == 404:
        wanted = f"model {served.model or served.name!r}"
        return WrongSetting(f"endpoint {endpoint.name!r} has no {wanted} at {endpoint.address.url} (404): {text}")
    key = f"the key in ${endpoint.key_env}" if endpoint.key_env else "a call without a key; set key_env"
    return WrongSetting(f"endpoint {endpoint.name!r} refused {key} ({status}): {text}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait that a server asks for: seconds, milliseconds, or a date. Nonsense counts as nothing said."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            wait = float(value) / 1000
            return max(0.0, wait) if math.isfinite(wait) else None
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def in_a_stream(error: Any) -> tuple[int, object]:
    """Status and code of an error that stands in a stream. One without a status may pass: 500."""
    row = error if isinstance(error, Mapping) else {}
    for name in ("code", "status", "status_code"):
        said = row.get(name)
        number = int(said) if isinstance(said, str) and said.isascii() and said.isdecimal() and len(said) == 3 else said
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number <= 599:
            return number, row.get("code")
    return 500, row.get("code")
