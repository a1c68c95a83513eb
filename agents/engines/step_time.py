"""How long a step of a training takes on GPUs: arithmetic from rates that were measured on one H200.

Training is bound by operations, sampling by the memory that is read for each token. Episodes are played through as vLLM
does: turns are batched, their pasts stay in the cache while there is room, and wait for tools.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from toolorchestra.agents.engines.gpu_arithmetic import Shape, training_operations

COMPUTED = 0.5
"""Share of a GPU's peak that training reached, counting what is computed twice: 50 % from 16,384 tokens on."""
LAYER_SECONDS = 4.1e-3 / 36
"""What a token takes in each layer besides reading memory, for however many sequences."""
SEQUENCE_SECONDS = 80e-6
"""What each sequence adds to it, besides reading its past."""
READ_SHARE = 0.8
"""Share of the memory's stated speed at which pasts are read."""
PREFILL_SHARE = 0.5
"""Share of the peak at which prompts are run; not measured."""
HANDOVER_SECONDS = 4.0
"""New adapter, waking up and verification."""
FILE_BYTES_PER_SECOND = 3e9
"""Speed of files, to which whole weights are written and from which they are read; not measured."""


@dataclass(frozen=True)
class Gpu:
    """What a GPU's maker states, in dense 16 bits, and what an hour costs; prices are those of late 2026, rounded."""

    teraflops: float
    terabytes_per_second: float
    dollars: float


GPUS = {24.0: Gpu(165, 1.01, 0.4), 80.0: Gpu(989, 3.35, 2.5), 141.0: Gpu(989, 4.8, 3.5)}
"""GPUs by their memory in GB: an RTX 4090, an H100, an H200."""


@dataclass(frozen=True)
class Episodes:
    """How long episodes are, in tokens; each has between 2 and 9 turns, and each turn a length of its own."""

    opening: int = 1_100
    """What an episode of HLE-v0 begins with."""
    sampled: int = 1_455
    """A turn's mean; 8,000 in an episode."""
    result: int = 820
    """What a tool's answer adds."""
    most: int = 8_000
    """Tokens of the longest turn."""
    context: int = 32_000
    tool_seconds: float = 15.0

    @property
    def tokens(self) -> float:
        """Tokens of a whole episode, on average."""
        rng = random.Random(0)
        return sum(given + said for _ in range(2_000) for given, said in self.drawn(rng)) / 2_000

    def drawn(self, rng: random.Random) -> list[tuple[int, int]]:
        """New tokens of each turn's prompt, and sampled ones."""
        turns = rng.randint(2, 9)
        made, left = [], self.context
        for number in range(turns):
            given = self.result if number else self.opening
            said = min(self.most, 1 + int(rng.expovariate(1 / self.sampled)), left - given - 1)
            if said < 1:
                break
            made.append((given, said))
            left -= given + said
        return made


_CHUNK = 256
"""Tokens that a turn samples between two looks at what else there is."""


@dataclass(slots=True)
class _SimulatedTurn:
    """A turn that is sampled, or waits to be."""

    episode: int
    past: int
    given: int
    left: int


@dataclass
class SimulatedPlay:
    """What a simulation of a step's rollouts on one GPU saw."""

    seconds: float = 0.0
    prompts: int = 0
    """Tokens of all prompts."""
    prefilled: int = 0
    """Tokens of prompts that were not in the cache."""

    @property
    def hits(self) -> float:
        """Share of the prompts' tokens that the cache held."""
        return 1 - self.prefilled / max(1, self.prompts)


class SimulatedServer:
    """vLLM on one GPU, turn by turn: a cache of so many tokens, and so many episodes at a time."""

    def __init__(self, shape: Shape, gpu: Gpu, cached: int, rows: int, *, kv_width: int = 2) -> None:
        speed = gpu.terabytes_per_second * 1e12
        self._fixed = LAYER_SECONDS * shape.layers + 2 * shape.parameters / speed
        self._a_token = shape.kv_bytes_per_token(kv_width) / (READ_SHARE * speed)
        self._prefill = 2 * shape.parameters / (PREFILL_SHARE * gpu.teraflops * 1e12)
        self._room, self._rows = cached, rows

    def _token_seconds(self, sequences: int, tokens: int) -> float:
        return self._fixed + SEQUENCE_SECONDS * sequences + self._a_token * tokens

    def play(self, episodes: Sequence[Sequence[tuple[int, int]]], tool_seconds: float) -> SimulatedPlay:
        """All of them to their end."""
        self._seen, self._running = SimulatedPlay(), list[_SimulatedTurn]()
        self._kept: OrderedDict[int, int] = OrderedDict()  # tokens of pasts that wait for a tool
        self._queue: deque[_SimulatedTurn] = deque()
        away: list[tuple[float, int]] = []
        begun, left = 0, [deque(turns) for turns in episodes]
        pasts = [0] * len(left)
        open_ = 0
        while begun < len(left) or open_:
            while begun < len(left) and open_ < self._rows:
                away.append((self._seen.seconds, begun))
                begun, open_ = begun + 1, open_ + 1
            away.sort()
            while away and away[0][0] <= self._seen.seconds:
                _, number = away.pop(0)
                given, said = left[number].popleft()
                self._queue.append(_SimulatedTurn(number, pasts[number], given, said))
            self._admit()
            if not self._running:
                self._seen.seconds = max(self._seen.seconds, away[0][0])
                continue
            until = away[0][0] if away else float("inf")
            for turn in self._advance(until):
                pasts[turn.episode] = turn.past
                if left[turn.episode]:
                    self._kept[turn.episode] = turn.past
                    away.append((self._seen.seconds + tool_seconds, turn.episode))
                else:
                    open_ -= 1
        return self._seen

    def _used(self) -> int:
        return sum(turn.past for turn in self._running)

    def _admit(self) -> None:
        while self._queue:
            turn = self._queue[0]
            need = turn.past + turn.given
            if self._running and self._used() + need + _CHUNK * (1 + len(self._running)) > self._room:
                return
            self._queue.popleft()
            held = self._kept.pop(turn.episode, 0)
            while self._kept and self._used() + need + sum(self._kept.values()) > self._room:
                self._kept.popitem(last=False)
            self._seen.prompts += need
            self._seen.prefilled += need - held
            self._seen.seconds += (need - held) * self._prefill
            turn.past, turn.given = need, 0
            self._running.append(turn)

    def _advance(self, until: float) -> list[_SimulatedTurn]:
        """Sample until a turn ends, a tool has answered or the cache is full. Gives the turns that ended."""
        count, used = len(self._running), self._used()
        each = self._token_seconds(count, used)
        steps = min(turn.left for turn in self._running)
        steps = min(steps, max(1, int((until - self._seen.seconds) / each)) if until < float("inf") else steps, _CHUNK)
        while self._kept and used + steps * count + sum(self._kept.values()) > self._room:
            self._kept.popitem(last=False)
        if used + steps * count > self._room and count > 1:
            last = self._running.pop()  # it is begun again, with what it has sampled
            last.given, last.past = last.past, 0
            self._queue.appendleft(last)
            return []
        self._seen.seconds += steps * each
        for turn in self._running:
            turn.past += steps
            turn.left -= steps
        ended = [turn for turn in self._running if not turn.left]
        self._running = [turn for turn in self._running if turn.left]
        return ended


@dataclass(frozen=True)
class StepPlan:
    """A step, and the GPUs that it is made on."""

    shape: Shape
    gpu: Gpu
    episodes: int
    sampling: int
    """GPUs that play."""
    training: int
    """GPUs that train: others, or the same ones in turns."""
    cached: int
    """Tokens that the cache of each of the first holds."""
    rows: int
    """Episodes that are played at a time, on all of them."""
    lora: bool
    checkpointing: bool
    reference: bool
    ahead: bool = False
    """Whether the next episodes are played beside the training."""
    kv_width: int = 2


@dataclass(frozen=True)
class StepSeconds:
    """How long each half of a step takes, and both."""

    playing: float
    training: float
    together: float
    hits: float
    """Share of the prompts' tokens that the cache held."""


DRAWS = 3
"""How often a step's episodes are drawn."""


def step_seconds(plan: StepPlan, episodes: Episodes = Episodes()) -> StepSeconds:
    """The seconds of a step, its episodes drawn anew some times and played by the GPU that has most of them. Beside the
    training nobody waits for the last one: there each step adds what a second one of the same GPU takes more."""
    share, rows = -(-plan.episodes // plan.sampling), max(1, plan.rows // plan.sampling)
    server = SimulatedServer(plan.shape, plan.gpu, plan.cached, rows, kv_width=plan.kv_width)
    seconds = hits = 0.0
    for seed in range(DRAWS):
        rng = random.Random(seed)
        drawn = [episodes.drawn(rng) for _ in range(share * (1 + plan.ahead))]
        one, both = (server.play(some, episodes.tool_seconds) for some in (drawn[:share], drawn))
        seconds += (both.seconds - one.seconds if plan.ahead else one.seconds) / DRAWS
        hits += one.hits / DRAWS
    tokens = episodes.tokens
    a_token = training_operations(
        plan.shape, round(tokens), lora=plan.lora, checkpointing=plan.checkpointing, reference=plan.reference
    )
    training = a_token * plan.episodes * tokens / (COMPUTED * plan.gpu.teraflops * 1e12 * plan.training)
    together = max(seconds, training) if plan.ahead else seconds + training
    handover = 0 if plan.lora else 2 * 4 * plan.shape.parameters / FILE_BYTES_PER_SECOND
    return StepSeconds(seconds, training, together + HANDOVER_SECONDS + handover, hits)
