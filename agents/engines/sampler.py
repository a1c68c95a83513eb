"""Batched sampling with a cache that lives as long as its session.

Every step gives each active row one token: a forced one of its prompt or the one it sampled. A row whose episode waits
for a tool is not active and holds up nobody; when it comes back only what is new is run. Long new parts are run as one
chunk; what they have in common with another row (the tools' part of an environment's tasks, the whole prompt of
a group) is run once and copied. A free row keeps the prompt that it began with until it is taken again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from toolorchestra.agents.engines.base import NONE, Adapter, Sample, Sampler, SamplingParams, check_length
from toolorchestra.agents.engines.decoder import Decoder

CHUNK = 24
"""New parts longer than this are run at once instead of token by token."""
PREFILL_TOKENS = 16_384
"""Tokens of one prefill call, to bound its memory."""


@dataclass
class _Row:
    """A place in the cache, of a session or free."""

    number: int
    cached: list[int] = field(default_factory=list)
    """The tokens whose keys and values it has."""
    begun_with: int = 0
    """Tokens of its session's first prompt: others may begin alike."""


@dataclass
class _QueuedTurn:
    """A turn being sampled."""

    row: _Row
    forced: list[int]
    """Tokens that are still to be fed, in order."""
    params: SamplingParams
    done: asyncio.Future[Sample]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class LocalSampler(Sampler):
    """Samples for any number of coroutines on one event loop."""

    suspends = False

    def __init__(self, decoder: Decoder, stop: Sequence[int], seed: int) -> None:
        self.decoder = decoder
        self._stop = frozenset(stop)
        self._device = decoder.keys.device
        self.generator = torch.Generator(device=self._device).manual_seed(seed)
        self._all = [_Row(number) for number in range(decoder.rows)]
        self._free = list(range(decoder.rows))
        """A heap: the lowest row is taken, whatever was free before, so that a resumed run has its rows where the other
        one had them. Where a row stands can change the last digit of a sum."""
        self._rows: dict[str, _Row] = {}
        self._waiting: list[_QueuedTurn] = []
        self._active: list[_QueuedTurn] = []
        self._pump: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.version = self._base = NONE
        self.takes_adapters = decoder.keys.dtype.itemsize < 4
        """Whether adapters come apart from the weights. In 32 bits nothing is lost when they are added in."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """Continue a prompt. What a session has cached and the prompt repeats is not run again."""
        check_length(prompt, params, self.decoder.length)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Rollouts that are collected together run on one loop. They find the cache as empty as a resumed run has
            # it: what is copied and what is run can differ in a sum's last digit.
            self._loop, self._pump = loop, None
            self._forget()
        row = self._row(session, len(prompt))
        # The last token is always fed: its logits are what is sampled from.
        kept = min(_common(row.cached, prompt), len(prompt) - 1)
        del row.cached[kept:]
        self.prompt_tokens += len(prompt)
        self.cached_tokens += kept
        done: asyncio.Future[Sample] = loop.create_future()
        self._waiting.append(_QueuedTurn(row, list(prompt[kept:]), params, done))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
            self._pump.add_done_callback(lambda pump: pump.cancelled() or pump.exception())  # all heard of it already
        try:
            return await done
        finally:
            if not session:
                self._give_back(row)

    def release(self, session: str) -> None:
        """Frees the row of the cache that a session has."""
        if (row := self._rows.pop(session, None)) is not None:
            self._give_back(row)

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """Take new weights, and forget every cache."""
        base = adapter.base if adapter else NONE
        if base == NONE or base != self._base:
            self.decoder.load(dict(weights), len(self.decoder.keys))
        self.decoder.adapt(adapter)
        self._base = base
        self._forget()
        self.version = version

    def random_state(self) -> Tensor:
        """The state of the generator that draws."""
        return self.generator.get_state()

    def set_random_state(self, state: Tensor) -> None:
        """Set the state of the generator that draws. After one of vLLM's, or of another kind of device, it draws
        anew."""
        mine = self.generator.get_state()
        if (state.dtype, state.shape) == (mine.dtype, mine.shape):
            self.generator.set_state(state.cpu())

    def _forget(self) -> None:
        for row in self._all:
            row.cached.clear()

    def _row(self, session: str, length: int) -> _Row:
        """The row of a session. Where none is free it takes that of the session that samples nothing, as its tool
        works, and did so for longest: what that had cached is run again when it comes back."""
        if session in self._rows:
            self._rows[session] = self._rows.pop(session)  # the last of them was used last
            return self._rows[session]
        if not self._free:
            busy = {request.row.number for request in (*self._waiting, *self._active)}
            idle = next((name for name, row in self._rows.items() if row.number not in busy), None)
            if idle is None:
                rows = self.decoder.rows
                raise RuntimeError(f"all {rows} rows of the sampler are in use; release sessions or add rows")
            self.release(idle)
        row = self._all[heapq.heappop(self._free)]
        row.begun_with = length
        if session:
            self._rows[session] = row
        return row

    def _give_back(self, row: _Row) -> None:
        del row.cached[row.begun_with :]
        heapq.heappush(self._free, row.number)

    async def _run(self) -> None:
        try:
            while self._waiting or self._active:
                self._admit()
                self._step()
                if not (self._waiting or self._active):
                    return  # before anybody hears of it: whoever samples next may do so on another loop
                await asyncio.sleep(0)  # whoever got a turn acts now, and its next request joins the next step
        except BaseException as err:
            self._break_off(err)
            raise

    def _break_off(self, err: BaseException) -> None:
        """Whoever waits when a step broke hears of it now, instead of waiting for ever."""
        waiting, self._waiting, self._active = [*self._waiting, *self._active], [], []
        for request in waiting:
            if request.done.done():
                continue
            if isinstance(err, Exception):
                request.done.set_exception(err)
            else:
                request.done.cancel()

    def _admit(self) -> None:
        fresh = [r for r in self._waiting if not r.done.cancelled()]
        self._active += fresh  # before anything can break: who stands in neither list would never hear of it
        self._waiting = []
        self._prefill([r for r in fresh if len(r.forced) > CHUNK])

    # -- long parts --------------------------------------------------------------------------------------------------

    def _prefill(self, requests: list[_QueuedTurn]) -> None:
        """Run all but the last token of each new part, and nothing that another row has or is about to have."""
        while requests:
            now: list[_QueuedTurn] = []
            later: list[_QueuedTurn] = []
            begun: list[list[int]] = []
            for request in requests:
                self._share(request)
                prompt, least = _prompt(request), len(request.row.cached) + CHUNK + 1
                if len(prompt) >= least and any(other[:least] == prompt[:least] for other in begun):
                    later.append(request)
                elif len(request.forced) > 1:
                    now.append(request)
                    begun.append(prompt)
            self._prefill_all(now)
            requests = later

    def _share(self, request: _QueuedTurn) -> None:
        """Copy what another row has of the prompt, from the one that has most of it; of equal ones the lowest."""
        row, prompt, have = request.row, _prompt(request), len(request.row.cached)
        least = have + CHUNK + 1
        worth = prompt[:least]  # most rows differ early: to compare a few tokens is sooner than to count what is alike
        able = [other for other in self._all if len(other.cached) >= least and other.cached[:least] == worth]
        source = max(able, key=lambda other: _common(other.cached, prompt), default=row)
        common = min(_common(source.cached, prompt), len(prompt) - 1)
        if common <= have + CHUNK:
            return
        self.decoder.copy(source.number, row.number, have, common)
        row.cached.extend(request.forced[: common - have])
        del request.forced[: common - have]
        self.cached_tokens += common - have

    def _prefill_all(self, requests: list[_QueuedTurn]) -> None:
        requests.sort(key=lambda r: len(r.forced))
        while requests:
            batch = [requests.pop()]
            size = len(batch[0].forced)
            while requests and (len(batch) + 1) * size <= PREFILL_TOKENS:
                batch.append(requests.pop())
            self._prefill_batch(batch)

    def _prefill_batch(self, batch: list[_QueuedTurn]) -> None:
        parts = [r.forced[:-1] for r in batch]
        width = max(map(len, parts))
        tokens = torch.tensor([p + [0] * (width - len(p)) for p in parts], device=self._device)
        starts = [len(r.row.cached) for r in batch]
        most = min(max(starts) + width, self.decoder.length)
        last = torch.zeros(len(batch), dtype=torch.long, device=self._device)
        rows = torch.tensor([r.row.number for r in batch], device=self._device)
        self.decoder.forward(tokens, rows, torch.tensor(starts, device=self._device), last, most)
        for request in batch:
            self._fed(request, len(request.forced) - 1)

    def _fed(self, request: _QueuedTurn, count: int) -> None:
        request.row.cached.extend(request.forced[:count])
        del request.forced[:count]

    # -- one token for everybody -------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._active = [r for r in self._active if not r.done.cancelled()]
        if not self._active:
            return
        logits = self._forward(self._active)
        deciding: list[tuple[int, _QueuedTurn]] = []
        for index, request in enumerate(self._active):
            self._fed(request, 1)
            if not request.forced:
                deciding.append((index, request))
        if deciding:
            self._decide(logits, deciding)
        self._active = [r for r in self._active if not r.done.done()]

    def _forward(self, active: list[_QueuedTurn]) -> Tensor:
        """Feed each active row its next token; logits in the order of `active`."""
        device, lengths = self._device, [len(r.row.cached) for r in active]
        most = max(lengths) + 1
        top = max(r.row.number for r in active) + 1
        zero = torch.zeros(1, dtype=torch.long, device=device)
        if 2 * len(active) < top:
            rows = torch.tensor([r.row.number for r in active], device=device)
            tokens = torch.tensor([[r.forced[0]] for r in active], device=device)
            starts = torch.tensor(lengths, device=device)
            return self.decoder.forward(tokens, rows, starts, zero.expand(len(active)), most)
        # Nearly all rows are active: running all of them costs less than gathering their caches. An idle or free row's
        # write lands just behind its last token, where its own next token will overwrite it.
        fed, starts_all = [0] * top, [len(row.cached) for row in self._all[:top]]
        most = min(max(*starts_all, most - 1) + 1, self.decoder.length)
        for request in active:
            fed[request.row.number], starts_all[request.row.number] = request.forced[0], len(request.row.cached)
        tokens = torch.tensor(fed, device=device)[:, None]
        starts = torch.tensor(starts_all, device=device)
        logits = self.decoder.forward(tokens, slice(0, top), starts, zero.expand(top), most)
        return logits[torch.tensor([r.row.number for r in active], device=device)]

    def _decide(self, logits: Tensor, deciding: list[tuple[int, _QueuedTurn]]) -> None:
        chosen = logits[torch.tensor([i for i, _ in deciding], device=self._device)]
        heat = torch.tensor([r.params.temperature for _, r in deciding], device=self._device)[:, None]
        logprobs = torch.log_softmax(chosen / torch.where(heat > 0, heat, torch.ones_like(heat)), -1)
        drawn = torch.where(heat[:, 0] > 0, self._draw(logprobs), logprobs.argmax(-1))
        picked = logprobs.gather(1, drawn[:, None])[:, 0].tolist()
        for (_, request), token, logprob in zip(deciding, drawn.tolist(), picked, strict=True):
            request.tokens.append(token)
            request.logprobs.append(logprob)
            finished = token in self._stop
            if finished or len(request.tokens) == request.params.max_tokens:
                request.done.set_result(Sample(request.tokens, request.logprobs, finished))
            else:
                request.forced.append(token)

    def _draw(self, logprobs: Tensor) -> Tensor:
        """One token a row, by the inverse of the cumulative distribution: a single random number each."""
        heights = logprobs.exp().cumsum(-1)
        at = torch.rand(len(heights), 1, generator=self.generator, device=self._device) * heights[:, -1:]
        return torch.searchsorted(heights, at, right=True)[:, 0].clamp(max=heights.shape[1] - 1)


def _prompt(request: _QueuedTurn) -> list[int]:
    return [*request.row.cached, *request.forced]


def _common(cached: Sequence[int], prompt: Sequence[int]) -> int:
    """How many tokens two sequences share at their beginning."""
    same, most = 0, min(len(cached), len(prompt))
    if list(cached[:most]) == list(prompt[:most]):
        return most
    while most - same > 1:  # all up to `same` are alike, and not all up to `most`
        middle = (same + most) // 2
        if list(cached[same:middle]) == list(prompt[same:middle]):
            same = middle
        else:
            most = middle
    return same
