"""The seam between the algorithm and whatever runs the model: tokens in, tokens out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from toolorchestra.envs.base.errors import NOT_NEGATIVE, POSITIVE, ConfigError, WithOption, no_such, require

if TYPE_CHECKING:
    from torch import Tensor


class TrainingFailed(WithOption, RuntimeError):
    """A training that broke off. The text is a sentence for people; commands print it and end."""


class EngineLost(TrainingFailed):
    """What an engine raises when its model is gone or out of reach for good: the run ends, and its last checkpoint is
    what it goes on from. The text says so."""


class ModelSize(NamedTuple):
    """How large a model is."""

    parameters: int
    """All numbers that its weights hold, those of an adapter among them."""
    trained: int
    """The numbers that training changes."""


class SamplingParams(NamedTuple):
    """How one turn is sampled."""

    max_tokens: int
    temperature: float = 1.0
    """0 takes the likeliest token."""


def check_length(prompt: Sequence[int], params: SamplingParams, length: int) -> None:
    """Refuse a turn that a context of this length does not hold."""
    if len(prompt) + params.max_tokens > length:
        need = f"{len(prompt)} tokens of prompt and {params.max_tokens} to sample"
        raise ValueError(f"the context is too long for the sampler: {need}, of {length}")


class Sample(NamedTuple):
    """One sampled turn: the exact ids, with their log-probabilities under the distribution they were drawn from."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool
    """Whether the model ended its turn; False when it ran into max_tokens."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One append-only sequence of tokens, to be learnt from."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Log-probabilities of the sampler; 0 where nothing was sampled."""
    advantages: Sequence[float]
    """How much better than its siblings the rollout of each token was; for demonstrations 1."""
    mask: Sequence[bool]
    """Whether the loss looks at a token: at what was sampled, and not at prompts and results."""


Kind = Literal["ppo", "cross_entropy"]


@dataclass(frozen=True, slots=True)
class LossParams:
    """The loss of one optimiser step, a mean over all tokens that are not masked."""

    kind: Kind = "ppo"
    """"ppo" clips the ratio of new to old probabilities; "cross_entropy" imitates."""
    clip_low: float = 0.2
    """The ratio is clipped below 1 minus this."""
    clip_high: float = 0.28
    """The ratio is clipped above 1 plus this."""
    kl_weight: float = 0.0
    """The weight of the KL to the reference model in the loss; 0 leaves it out."""
    entropy_weight: float = 0.0
    """The weight of the entropy bonus in the loss at first; it falls with the learning rate. The bonus keeps choices
    varied. It looks at likely tokens alone, so random words earn nothing."""
    temperature: float = 1.0
    """The temperature at which the data were sampled: log-probabilities are of that distribution."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(no_such("loss.kind", self.kind, map(repr, get_args(Kind))))
        require(self, NOT_NEGATIVE, "clip_low", "clip_high", "kl_weight", "entropy_weight", where="loss.")
        require(self, POSITIVE, "temperature", where="loss.")


class Samples(Protocol):
    """A model that can be sampled from: all that rollouts ask of one."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """Continue a prompt. Prompts of one session extend each other, which lets an engine keep its cache."""

    def release(self, session: str) -> None:
        """The session is over: its cache may go."""


class Engine(Samples, Protocol):
    """A model that can be sampled from and trained."""

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """One optimiser step over all of the data; the loss is a mean over the tokens that their masks let through.
        Gives metrics as plain numbers."""

    def take_reference(self) -> None:
        """The weights of now are what a KL term holds the model to, where the engine keeps any for it."""

    def averaged(self) -> AbstractContextManager[None]:
        """Sample, while it lasts, from the running average of the weights, where the engine keeps one. Where the
        sampler's random numbers can be kept, what is drawn meanwhile changes nothing that is drawn afterwards."""

    def save(self, path: Path) -> None:
        """Weights, optimiser and random state into a folder."""

    def load(self, path: Path) -> None:
        """Loads what save() wrote into a folder: weights, optimiser and random state."""

    def start_from(self, path: Path) -> None:
        """The weights alone of what another engine's save() wrote (the averaged ones where it kept any), or of a folder
        that `export model` wrote. Raises ConfigError where they are of another shape."""

    def publish(self) -> Samples:
        """Let the sampler take the weights of now; no turn may be under way. What is given samples with them until the
        next publish(), whatever training does meanwhile. Called by the thread that trains."""

    def lost(self) -> str:
        """A sentence where one of several processes that hold it together is gone; "" where all are there."""

    def size(self) -> ModelSize:
        """The model's parameters, and how many of them are trained."""

    def sync_seconds(self) -> float:
        """The seconds since the last call in which its sampler got new weights."""

    def close(self) -> None:
        """End every process and connection that the engine has. May be called twice."""


class Helpers(Protocol):
    """Other processes with copies of an engine, each of which is given a part of some work."""

    def __len__(self) -> int:
        """How many there are."""

    def begin(self, name: str, parts: Sequence[tuple[Any, ...]]) -> None:
        """Let each call this method of its engine with its part."""

    def receive(self, number: int) -> Any:
        """What one of them gave, waiting for it."""


@dataclass(frozen=True)
class Adapter:
    """What LoRA adds to a model whose own weights stay as they are: to the weight of each layer, scale x B A."""

    base: int
    """Number of the weights below it, of the same row as the versions': who holds them needs them no second time."""
    rank: int
    alpha: int
    pairs: Mapping[str, tuple[Tensor, Tensor]]
    """A and B, by the names of the layers in transformers. They are trained in float32."""
    dtype: str = "float32"
    """What the layers multiply them in."""

    @property
    def scale(self) -> float:
        """The factor by which B A is multiplied before it is added to a weight."""
        return self.alpha / self.rank


class Sampler(Protocol):
    """What an engine samples with. It holds a copy of the weights of its own. One that inherits from it, and has
    nothing to free, to draw or to end, as its model is on another machine, need not say so."""

    version: int
    """The version of its weights; NONE when it holds none, as before the first sync() and after a crash."""
    takes_adapters: bool
    """Whether sync() is to be given an adapter apart from the weights below it. Others get them added together."""
    suspends: bool = True
    """Whether sync() takes so long that it has to run beside the event loop."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Tokens of prompts since the last stats(), and those of them that did not have to be run."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """Continue a prompt; cancelling it leaves nothing behind. A sampler that is away raises Outage."""

    def release(self, session: str) -> None:
        """Frees what is kept for a session, which has ended."""
        return

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """Hold these weights (all of them, by transformers' names), and forget what was cached with others. With an
        adapter they are those below it, and are left unread where they are held already."""

    def sleep(self) -> None:
        """Give the device's memory back until the next sync()."""
        return

    def random_state(self) -> Tensor:
        """What set_random_state() takes, for a checkpoint. Where it cannot be read a resumed run draws anew."""
        import torch

        return torch.tensor([0])

    def set_random_state(self, state: Tensor) -> None:
        """Go on drawing as the sampler of that checkpoint would have."""
        return

    def stats(self) -> Mapping[str, float]:
        """Plain numbers for the log, since the last call: the share of prompt tokens that came from a cache."""
        hits = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        self.prompt_tokens = self.cached_tokens = 0
        return {"prefix_hits": hits}

    def close(self) -> None:
        """End its processes and connections. May be called twice."""
        return


NONE = -1
"""The version of no weights at all."""


@runtime_checkable
class Probed(Protocol):
    """A sampler whose arithmetic is not the trainer's: each sync is verified by comparing log-probabilities."""

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """Continue prompts while nothing else runs, and wait for them."""


# -- what a user says of the local engine. No torch here: configurations are read where torch may be missing -----------


OptimizerKind = Literal["adamw", "muon"]
Kernels = Literal["auto", "torch", "flash", "compiled"]

DTYPES = ("float32", "bfloat16", "float16")

LOGIT_BYTES = 1 << 30
"""Bytes of one copy of a batch's logits. What training and prompts need of the vocabulary's width goes through it."""


@dataclass(frozen=True)
class EngineSettings:
    """How a model is held and trained."""

    device: str = "cpu"
    """"cpu", "cuda", or a device of torch's such as "cuda:1"."""
    dtype: str = "float32"
    """The weights' own: float32, bfloat16 or float16. Full fine-tuning wants float32."""
    threads: int = 1
    """CPU threads of torch. More do not help a small model. Another number changes the last digits of the results."""
    rows: int = 128
    """How many rollouts the sampler holds in its cache at a time."""
    tokens_per_batch: int = 16_384
    """How many tokens, padding included, go through the model in one forward and backward pass."""
    lora_rank: int = 0
    """Rank of the adapter that is trained; 0 trains all weights."""
    lora_alpha: int = 32
    """The adapter's scale is alpha over rank."""
    gradient_checkpointing: bool = False
    """Compute activations twice and keep few: slower, and much less memory."""
    kernels: Kernels = "auto"
    """What computes training. "auto": norms, rotary positions and gates by the fused kernels of liger-kernel, on a GPU
    where that is installed, and the rest by torch. "flash": attention by FlashAttention too, which must be installed.
    "compiled": blocks that torch.compile has made. "torch": torch as it is."""
    optimizer: OptimizerKind = "adamw"
    """The optimiser of engine "local". "adamw" is AdamW for all weights. "muon" is Muon for the matrices of the layers
    and AdamW for the rest; it needs fewer steps where a model is trained from scratch."""
