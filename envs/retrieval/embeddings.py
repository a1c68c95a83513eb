"""Vectors from servers of /v1/embeddings (vLLM, TEI, OpenAI and alike): in batches, billed by the token."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError, ToolError, WrongSetting
from toolorchestra.envs.base.http_client import HttpPoster
from toolorchestra.envs.base.secrets import key_in
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, TOOL, Tokens, Usage
from toolorchestra.envs.retrieval.remote import RequestRefused, asked, patience

Vectors = NDArray[np.float32]
BATCH = 64
"""Texts of one request. A server that takes fewer says so, and is sent fewer from then on."""


@dataclass(frozen=True)
class EmbeddingServer:
    """A server, as the backends file names it."""

    base_url: str = field(repr=False)
    """The address; it may hold a login."""
    key_env: str = ""
    in_flight: int = 64


class ServedEmbedder:
    """An embedding model behind one server, or behind several that are asked in turn when one is down."""

    def __init__(
        self,
        name: str,
        servers: Sequence[EmbeddingServer],
        model: str = "",
        deadline_seconds: float = 120.0,
        retries: int = 4,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """`name` is the row of the price sheet, `model` what the server calls it where that differs, and `extra` goes
        with each request."""
        self.name, self._retries = name, retries
        self._request = {"model": model or name, "encoding_format": "base64", **(extra or {})}
        self._posters = [HttpPoster(s.base_url.rstrip("/"), _key(s), deadline_seconds, s.in_flight) for s in servers]
        self._most = BATCH
        self.built_with = Bill()
        """What encode() has used: a build's."""

    @property
    def patience_seconds(self) -> float:
        """The longest that a request can take, with all that is tried."""
        return patience(self._retries, self._posters[0].deadline_seconds)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts, each of length 1. The caller's thread waits."""
        with ThreadPoolExecutor(1) as pool:  # this thread may run a loop already
            try:
                return pool.submit(lambda: asyncio.run(self.vectors(texts, self.built_with))).result()
            except ToolError as err:
                raise ConfigError(f"{err}; if a passage is too long, cut the corpus smaller (`words`: 200)") from None

    async def vectors(self, texts: Sequence[str], bill: Bill) -> Vectors:
        """The same, booked on a bill as each reply comes. Raises ToolError where the server refuses a text."""
        parts = [texts[at : at + self._most] for at in range(0, len(texts), self._most)]
        made = np.concatenate(await asyncio.gather(*(self._part(part, bill) for part in parts)))
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        return np.ascontiguousarray(made / np.where(lengths > 0, lengths, 1), dtype=np.float32)

    async def _part(self, texts: Sequence[str], bill: Bill) -> Vectors:
        """One request's vectors; of one that is refused, its halves' in two requests."""
        try:
            return await self._asked(texts, bill)
        except RequestRefused as err:
            where = f"embedder {self.name!r} at {self._posters[0].base_url}"
            if err.status not in (400, 413, 422):
                raise WrongSetting(f"{where} refuses: {err}") from None
            if len(texts) == 1:
                raise ToolError(f"{where} refuses the text: {err}") from None
            half = len(texts) // 2
            if err.status == 413:
                self._most = min(self._most, half)
        return np.concatenate([await self._part(texts[:half], bill), await self._part(texts[half:], bill)])

    async def _asked(self, texts: Sequence[str], bill: Bill) -> Vectors:
        size = sum(len(text.encode("utf-8", "replace")) + 8 for text in texts)
        most = Usage(self.name, TOOL, Tokens(size), estimated=True, unconfirmed=True)
        began = time.monotonic()

        def read(reply: Mapping[str, Any]) -> Vectors:
            counted = said if isinstance(said := reply.get("usage"), Mapping) else {}
            told = counted.get("prompt_tokens") or counted.get("total_tokens")
            known = told if type(told) is int and 0 < told <= size else 0  # each token is a byte at least
            tokens = known or sum(map(len, texts)) // CHARACTERS_PER_TOKEN
            seconds = round(time.monotonic() - began, 3)
            bill.add(Usage(self.name, TOOL, Tokens(tokens), seconds=seconds, estimated=not known))
            if not known:
                bill.add_unread(self.name, TOOL, size - tokens, 0)
            return _vectors_in(reply, len(texts))

        body = {**self._request, "input": [text.encode("utf-8", "replace").decode() for text in texts]}
        return await asked(self._posters, "embeddings", body, self._retries, read, (bill, most))


def _vectors_in(reply: Mapping[str, Any], count: int) -> Vectors:
    """A reply's vectors in the order of the texts. Raises what a reply of another shape makes it raise."""
    rows = sorted(reply["data"], key=lambda row: row["index"])
    made = np.array([
        np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
        if isinstance(row["embedding"], str)
        else np.asarray(row["embedding"], np.float32)
        for row in rows
    ])  # fmt: skip
    if made.ndim != 2 or len(made) != count or not np.isfinite(made).all():
        raise ValueError(f"{count} vectors of finite numbers expected, got an array of {made.shape}")
    return made


def _key(server: EmbeddingServer) -> str:
    key = key_in(server.key_env) if server.key_env else ""
    if server.key_env and not key:
        raise ConfigError(f"the embedding server needs a key: export {server.key_env}=... (or take key_env out)")
    return key
