"""Endpoint files: which servers there are, and which model behind which of them stands for each priced name.

[endpoints.local]
base_url = "http://127.0.0.1:8000/v1"

[models.gpt-5]
model = "qwen3-32b"
endpoints = ["local"]
price = "qwen3-32b"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import NOT_NEGATIVE, POSITIVE, ConfigError, no_such, require
from toolorchestra.envs.base.secrets import HTTP_FORM, Address
from toolorchestra.envs.models import ContextLimits
from toolorchestra.envs.money.prices import Price, PriceSheet

_MOST_SHEETS = 32
ANY = "*"
"""The model entry that stands for every name that has none of its own."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One OpenAI-compatible server: its address, its key, and how many requests it may be sent."""

    name: str
    """The name of its table in the backends file. Models refer to it by this name."""
    base_url: str = field(repr=False)
    """The address as it was given; it may hold a login, http://USER:PASSWORD@HOST, so `address` is what texts show."""
    key_env: str = ""
    """The environment variable that holds the key; "" for a server that wants none."""
    in_flight: int = 64
    """The most requests that the server is sent at the same time."""
    requests_per_minute: float = 0.0
    """The most requests that the server is sent in a minute. 0: no limit."""
    tokens_per_minute: float = 0.0
    """The most tokens that the server is sent in a minute. 0: no limit. Input is counted as characters / 4 before the
    call, and corrected by the count in the reply."""
    failures_to_open: int = 5
    """Failures in a row of one model after which the server is not asked for it for `rest_seconds`. Then one call tries
    it again."""
    rest_seconds: float = 30.0
    """How long the server is not asked for a model after `failures_to_open` failures in a row."""
    tells_cost: bool = False
    """Whether what the server says that a reply cost, in dollars, is booked in place of what the price comes to:
    `usage.cost`, as OpenRouter and LiteLLM send it, or LiteLLM's header. A cost of 0 is not believed where the price is
    none: LiteLLM tells it of models that it does not know."""

    def __post_init__(self) -> None:
        require(self, POSITIVE, "in_flight", "failures_to_open", "rest_seconds")
        require(self, NOT_NEGATIVE, "requests_per_minute", "tokens_per_minute")
        if not self.address.is_http:
            raise ConfigError(f"base_url is an http(s) address, as {HTTP_FORM}; got {self.address.shown!r:.60}")

    @property
    def address(self) -> Address:
        """The address, and the login apart from it."""
        return Address.of(self.base_url)


@dataclass(frozen=True, slots=True)
class Served:
    """A model as it is served: what the server calls it, what it can do, and what it costs."""

    name: str
    """The name that tools and price sheets use; "*" stands for every name without an entry of its own."""
    endpoints: tuple[str, ...]
    """The servers that have this model, in the order in which they are tried. A call goes on to the next when one is
    down."""
    model: str = ""
    """What the server calls it; "" is the name itself."""
    price: str | Price = ""
    """A row of the price sheet, or a price of its own; "" is the row of its own name."""
    native_tools: bool | None = None
    """Whether the server takes tool schemas. Otherwise they are described in the prompt and called as text. None: as
    the request asks, which is natively for the models of τ²-Bench, and as text for all others."""
    stream: bool | None = None
    """Whether replies come in pieces, as they are made (server-sent events). What they say and cost is the same; of one
    that breaks off, what had come is known, and told apart. None: as the request asks, which is in one piece."""
    seeded: bool = False
    """Whether the server takes a seed."""
    context_tokens: int = 32_768
    """The model's window; longer prompts are cut to it."""
    output_tokens: int = 4_096
    """The most tokens that one reply may have."""
    image_tokens: int = 0
    """The most tokens that a picture may be billed with. Set, the model is shown pictures; 0: it takes none, and
    questions with a picture are left out where it may be asked."""
    output_key: str = "max_tokens"
    """The parameter that bounds the output; OpenAI's newer models want "max_completion_tokens". A server that refuses
    the one of the two is asked again with the other."""
    temperature: float | None = None
    """None: as the request asks, which is 0.0 for the models of τ²-Bench; for all others it is left to the server."""
    deadline_seconds: float = 120.0
    """The most seconds that one HTTP request may take."""
    patience_seconds: float = 300.0
    """The most seconds that one call may take, with all its retries and the waits between them."""
    queue_seconds: float = 3_600.0
    """How long a call may wait for its turn before it is given up unsent."""
    retries: int = 4
    """How many times a failed request is sent again, where what went wrong may pass."""
    reply_bytes: int = 0
    """The most of a reply that is read, unpacked; 0: a mebibyte and 256 bytes for each of `output_tokens`; streamed
    1,024, since each token has an event of its own."""
    note: str = ""
    """What an agent is told of it, such as "strong at mathematics"; "" says nothing."""
    typical_seconds: float = 0.0
    """How long an agent is told that a call takes; 0 says nothing."""
    shown: ContextLimits = field(default_factory=ContextLimits)
    """Characters that the model sees of each document, of each kind of results, and in all."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of the request, as the server's manual names them."""

    def __post_init__(self) -> None:
        windows = ("context_tokens", "output_tokens", "deadline_seconds", "patience_seconds", "queue_seconds")
        require(self, POSITIVE, *windows)
        require(self, NOT_NEGATIVE, "retries", "reply_bytes", "typical_seconds", "image_tokens")
        require(self.shown, NOT_NEGATIVE, *ContextLimits._fields, where="shown: ")
        if self.output_tokens >= self.context_tokens:
            raise ConfigError(
                f"output_tokens {self.output_tokens} leave nothing of context_tokens "
                f"{self.context_tokens} for the prompt; lower the one or raise the other"
            )
        if several := [name for name in ("n", "best_of") if self.extra.get(name, 1) != 1]:
            raise ConfigError(
                f"extra: {several[0]}={self.extra[several[0]]!r} asks for several replies, of which one is read and "
                "all are paid; leave it out"
            )

    def most_reply_bytes(self, streamed: bool) -> int:
        """The most of a reply that is read."""
        return self.reply_bytes or (1 << 20) + (1024 if streamed else 256) * self.output_tokens


@dataclass(frozen=True)
class _EndpointTables:
    endpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoints:
    """What an endpoint file says."""

    endpoints: Mapping[str, Endpoint]
    models: Mapping[str, Served]
    _sheets: dict[tuple[Any, ...], tuple[PriceSheet, PriceSheet]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str) -> Endpoints:
        """Read a parsed file with the tables `endpoints` and `models`."""
        tables = {name: data[name] for name in ("endpoints", "models") if name in data}
        named = shapes.read(_EndpointTables, tables, where)
        ends = {name: shapes.read(Endpoint, row, f"{where}: endpoints.{name}", name=name)
                for name, row in named.endpoints.items()}  # fmt: skip
        if not ends:
            raise ConfigError(f'{where}: no endpoint; add one: [endpoints.local] base_url = "http://127.0.0.1:8000/v1"')
        models = {name: _served(name, row, tuple(ends), f"{where}: models.{name}")
                  for name, row in named.models.items()}  # fmt: skip
        for served in models.values():
            if not served.endpoints:
                raise ConfigError(f"{where}: models.{served.name}: endpoints: at least one name expected, got none")
            for name in served.endpoints:
                if name not in ends:
                    raise ConfigError(f"{where}: models.{served.name}: {no_such('endpoint', name, ends)}")
        return cls(ends, models)

    def names(self, name: str) -> bool:
        """Whether the file has an entry for a priced name, or one for all that it does not name."""
        return name in self.models or ANY in self.models

    def take_images(self, names: Iterable[str]) -> bool:
        """Whether all of these models are shown pictures."""
        return all(self.names(name) and self.served(name).image_tokens for name in names)

    def served(self, name: str) -> Served:
        """The entry of a priced name."""
        if name in self.models:
            return self.models[name]
        if ANY not in self.models:
            hint = f'; add [models."{name}"] to the endpoint file, or [models."{ANY}"] for all that it does not name'
            raise ConfigError(no_such("model", name, self.models) + hint)
        return replace(self.models[ANY], name=name)

    def priced(self, sheet: PriceSheet, names: list[str]) -> PriceSheet:
        """The sheet with these models' own prices: what is shown to the agent is what is billed here. The same object
        each time."""
        key = (id(sheet), *names)
        if key not in self._sheets:
            if len(self._sheets) >= _MOST_SHEETS:
                self._sheets.clear()
            self._sheets[key] = (sheet, self._with_prices(sheet, names))  # held, so that its id stays taken
        return self._sheets[key][1]

    def _with_prices(self, sheet: PriceSheet, names: list[str]) -> PriceSheet:
        prices = dict(sheet.prices)
        for name in names:
            price = self.served(name).price
            if isinstance(price, Price):
                prices[name] = price
            elif price:
                prices[name] = sheet.price(price)
        if prices == dict(sheet.prices):
            return sheet
        return PriceSheet(f"{sheet.sheet_id}+endpoints", sheet.date, f"{sheet.source}; and the endpoint file", prices)


def _served(name: str, row: Mapping[str, Any], ends: tuple[str, ...], where: str) -> Served:
    own = row.get("price", "")
    price = own if isinstance(own, str) else Price.read(own, f"{where}.price")  # as a price sheet has it
    row = {"endpoints": ends, **row, "price": ""}
    return replace(shapes.read(Served, row, where, name=name), price=price)
