"""Translation between the transcript and an OpenAI-compatible server: messages out; text, usage and refusals in. No
I/O."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.envs.base.actions import THINK, UNTHINK, parse, tools_as_text
from toolorchestra.envs.base.errors import ActionError, ConfigError, Outage, ToolError, WrongSetting
from toolorchestra.envs.base.marks import STANDARD, clean, quoted
from toolorchestra.envs.base.openai_messages import as_text, from_openai, to_openai
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoint, Served
from toolorchestra.envs.models.streamed_reply import Unreadable, in_one
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN

REPLY_CHARACTERS = 200_000
"""Characters of a reply; a longer one keeps its end, where answers stand."""
TEMPLATE_TOKENS = 1_024
"""What a server's chat template may add to the text of a request."""
KEYS = ("max_completion_tokens", "max_tokens")
MOST_CORRECTIONS = 2
"""Corrections of one request: the name, and the number."""
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
_PASSING = frozenset({408, 409, 425, 429})
"""Statuses that may pass, beside 5xx: the request is made again."""
_OF_THE_REQUEST = frozenset({400, 422})
"""Statuses that speak of what was sent."""
_OF_ITS_TEXT = re.compile(
    r"context[ _](?:length|window|size)|above_max_length|too[ _](?:long|many tokens)|reduce the length|"
    r"(?:string|prompt|input|messages?|text)\b.{0,40}\btoo large|token count.{0,40}exceeds|inputs. tokens|"
    r"content[ _](?:filter|policy|management)|moderation|flagged|safety|usage polic|invalid_prompt",
    re.IGNORECASE,
)
"""What a refusal says that speaks of the text or its length, which the agent can change; account, key, model and
parameters it cannot."""


def body(request: ChatRequest, served: Served) -> dict[str, Any]:
    """The JSON body of a request to an OpenAI-compatible server."""
    room = CHARACTERS_PER_TOKEN * (served.context_tokens - served.output_tokens)
    tools = STANDARD.schemas(request.tools)
    described = len(str(tools)) if tools else 0
    messages = fit(STANDARD.told(request.messages, spoken=True), max(1000, room - described))
    most = request.most_output_tokens or served.output_tokens
    made: dict[str, Any] = {
        "model": served.model or request.model,
        served.output_key: min(most, served.output_tokens),
    }
    if request.stream if served.stream is None else served.stream:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    made |= served.extra
    temperature = request.temperature if served.temperature is None else served.temperature
    if temperature is not None:
        made["temperature"] = temperature
    if served.seeded:
        made["seed"] = (request.seed + request.attempt) % 2**31
    if tools and (request.native_tools if served.native_tools is None else served.native_tools):
        native = [_native(message) for message in to_openai(messages)]
        return {**made, "messages": _with_pictures(native, request, served), "tools": tools}
    return {**made, "messages": _with_pictures(as_text(messages, tools_as_text(tools)), request, served)}


def _with_pictures(messages: Sequence[Any], request: ChatRequest, served: Served) -> list[Any]:
    """The messages, with the request's pictures as parts of the user's first one."""
    made = list(messages)
    at = next((place for place, message in enumerate(made) if message["role"] == "user"), None)
    if not request.images or at is None:
        return made
    if not served.image_tokens:
        raise ConfigError(f"model {served.name!r} takes no pictures; set image_tokens in its entry if it does")
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in request.images]
    made[at] = {**made[at], "content": [{"type": "text", "text": made[at]["content"]}, *shown]}
    return made


def _without_pictures(messages: Any) -> tuple[Any, int]:
    """A request's messages with text alone, and how many pictures they had."""
    made, pictures = [], 0
    for message in messages or ():
        parts = message.get("content")
        if isinstance(parts, list):
            pictures += sum(part["type"] == "image_url" for part in parts)
            message = {**message, "content": parts[0]["text"]}
        made.append(message)
    return made or messages, pictures


def fit(messages: Sequence[Message], characters: int) -> list[Message]:
    """Keep as many messages as fit: the first two and the latest stay, the middle goes; then the longest loses its
    start."""
    kept = list(messages)
    size = sum(len(m["content"]) for m in kept)
    while size > characters and len(kept) > 3:
        size -= len(kept.pop(2)["content"])
    while size > characters:
        at = max(range(len(kept)), key=lambda i: len(kept[i]["content"]))
        cut = min(size - characters, len(kept[at]["content"]) - 1)
        if cut <= 0:
            break
        kept[at] = Message({**kept[at], "content": kept[at]["content"][cut:]})
        size -= cut
    return kept


def _native(message: dict[str, Any]) -> dict[str, Any]:
    """A message in OpenAI's form; one with calls without its thought, and without any mark in it."""
    if "tool_calls" not in message:
        return message
    said = message["content"].rpartition(UNTHINK)[2].strip()
    return STANDARD.schemas([{**message, "content": said}])[0]


# -- the reply ---------------------------------------------------------------------------------------------------------


def read(raw: str) -> Mapping[str, Any]:
    """The reply's JSON, an object. Raises Unreadable."""
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise Unreadable(f"the reply is not JSON ({err}): {raw[:80]!r}") from None
    if not isinstance(reply, Mapping):
        raise Unreadable(f"the reply is a JSON object, got {type(reply).__name__}")
    return reply


def text_of(reply: Mapping[str, Any], request: ChatRequest, *, native: bool = False) -> str:
    """What was said, in the action grammar where a move was asked for. Where the tools were sent natively, only native
    calls are calls: one that the text quotes is text. Raises Unreadable."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise Unreadable(f"the reply has no choices: {str(reply)[:80]!r}")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise Unreadable(f"the choice has no message: {str(choice)[:80]!r}")
    said = in_one(message.get("content")) or ""
    if not isinstance(said, str):
        raise Unreadable(f"a message's content is text, got {type(said).__name__}")
    said, calls = clean(said), message.get("tool_calls")
    thought = message.get("reasoning_content") or message.get("reasoning")
    if request.purpose != "move":
        said, thought = _unthought(said), None
    said = said[-REPLY_CHARACTERS:]
    if request.purpose not in ("move", "user"):
        return said
    told = {"content": quoted(said) if native else said, "tool_calls": calls}
    if isinstance(thought, str):
        told["reasoning"] = clean(thought)[-REPLY_CHARACTERS:]
    try:
        moved = from_openai({"role": "assistant", **told})
        if calls and request.purpose == "user":
            parse(moved)
    except (TypeError, ActionError) as err:  # of the agent's own calls the parser tells it why
        raise Unreadable(f"a native call cannot be read: {err}") from None
    return moved


def _unthought(said: str) -> str:
    """What was said after the thought; nothing, where it broke off in it."""
    said = said.rpartition(UNTHINK)[2].strip() if UNTHINK in said else said
    return "" if said.lstrip().startswith(THINK) else said


def cut_short(reply: Mapping[str, Any]) -> bool:
    """Whether a readable reply says that it broke off at the limit of its length."""
    return bool(reply["choices"][0].get("finish_reason") == "length")


# -- how large a request is --------------------------------------------------------------------------------------------


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
        messages, pictures = _without_pictures(made.get("messages"))
        seen = pictures * served.image_tokens
        asked = json.dumps([messages, None, made.get("tools")], ensure_ascii=False)  # None: recorded bounds stay
        most = len(asked.encode("utf-8", "replace")) + TEMPLATE_TOKENS + seen
        return cls(len(str(messages)) + CHARACTERS_PER_TOKEN * seen, most, allowed(made, served.output_tokens))


# -- the limit of a reply's length -------------------------------------------------------------------------------------


class OutputLimit(NamedTuple):
    """How a server takes the limit for one model."""

    key: str = ""
    """The parameter's name; "" is as the endpoint file says."""
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


# -- refusals ----------------------------------------------------------------------------------------------------------


class MayPass(Exception):
    """A failure that may pass, and how long the server asks to wait. `in_turn`: it is none of the server's, which is
    asked too fast and says when it may be asked again."""

    def __init__(self, message: str, after_seconds: float | None = None, *, in_turn: bool = False) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds
        self.in_turn = in_turn


class Refusal(NamedTuple):
    """What a server says. The text holds no key."""

    status: int
    code: object
    """The server's own word for the reason."""
    text: str
    after_seconds: float | None = None

    @property
    def of_the_request(self) -> bool:
        """Whether what was sent is refused, not who asks or when."""
        return self.status in _OF_THE_REQUEST


def meaning(said: Refusal, endpoint: Endpoint, served: Served, answered: bool) -> Exception:
    """What to raise. Only what is wrong with the text that was sent is for the agent to read: everything else is no
    answer of its own, and fails the episode. `answered`: whether it ever did for this model."""
    status, text = said.status, said.text
    if said.of_the_request and _OF_ITS_TEXT.search(f"{said.code} {text}"):
        return ToolError(f"model {served.name!r} refused the request ({status}): {text}")
    if said.code == "insufficient_quota":
        return Outage(f"endpoint {endpoint.name!r} says that the account's quota is used up: {text}")
    if status in _PASSING or status >= 500:
        return MayPass(f"{status}: {text}", said.after_seconds, in_turn=status == 429 and bool(said.after_seconds))
    if 300 <= status < 400:
        wrong = f"endpoint {endpoint.name!r} {text} as its base_url"
        return Outage(wrong) if answered else WrongSetting(wrong)
    if (said.of_the_request or status in (401, 403, 404)) and not answered:
        return _wrong_setting(endpoint, served, status, text)
    why = "has no credit left for this account" if status == 402 else f"refused model {served.name!r}"
    return Outage(f"endpoint {endpoint.name!r} {why} ({status}): {text}")


def tells_no_credit(failure: str) -> bool:
    """Whether a failure's text says that an account cannot pay for more."""
    return "has no credit left" in failure or "account's quota is used up" in failure


def _wrong_setting(endpoint: Endpoint, served: Served, status: int, text: str) -> WrongSetting:
    """Warn of an endpoint that never answered for a model: account, key, address, model or a parameter is wrong, which
    would end every episode."""
    if status in _OF_THE_REQUEST:
        return WrongSetting(
            f"endpoint {endpoint.name!r} never answered for model {served.name!r}: it refuses how it is asked, or who "
            f"asks ({status}): {text}"
        )
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
        until, said = email.utils.parsedate_to_datetime(value).timestamp(), headers.get("date", "")
        # By the server's clock, where it tells it: ours may differ.
        now = email.utils.parsedate_to_datetime(said).timestamp() if said else time.time()
        return max(0.0, until - now)
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
