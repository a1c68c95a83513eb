"""The engine of this project: transformers for training, the lean decoder for sampling, on a CPU or on GPUs.

Where torchrun has started several processes, each holds a part of every weight: ranks.py."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

try:
    import torch
except ModuleNotFoundError as err:
    from toolorchestra.envs.base.errors import install

    raise ModuleNotFoundError(
        f"engines need {err.name}, which is not installed: pip install torch==2.13.0, then {install('train')}",
        name=err.name,
    ) from None

from toolorchestra.agents.engines import agreement
from toolorchestra.agents.engines.base import (
    NONE,
    Datum,
    EngineSettings,
    Helpers,
    LossParams,
    ModelSize,
    Probed,
    Sample,
    Sampler,
    Samples,
    SamplingParams,
)
from toolorchestra.agents.engines.decoder import Decoder, check_shape
from toolorchestra.agents.engines.lora import adapter_of, keep_few_activations, with_lora
from toolorchestra.agents.engines.pretrained import device_of, take_kernels
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.sharded import for_disk, like
from toolorchestra.agents.engines.update import PolicyUpdate, from_bytes, to_bytes
from toolorchestra.agents.engines.weights import (
    ENGINE,
    ReferenceWeights,
    exchange,
    exported_weights,
    held_in,
    kept_names,
    named_weights,
    names_of,
    put,
    read_engine,
    take_evaluated,
)
from toolorchestra.envs.base.errors import ConfigError

if TYPE_CHECKING:
    from toolorchestra.agents.engines.ranks import Ranks


P = ParamSpec("P")
T = TypeVar("T")


def together(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Mark a method of an engine that every process runs when the first one calls it."""

    @wraps(method)
    def called(self: Any, /, *given: P.args, **named: P.kwargs) -> T:
        with self.ranks.calling(method.__name__, given, named) if self.ranks else nullcontext():
            return method(self, *given, **named)

    return called


@dataclass(frozen=True)
class LocalConfig(EngineSettings):
    """What a user says of the engine, and what follows from the run."""

    length: int = 512
    """Tokens of context the sampler keeps for each rollout."""
    average: float = 0.0
    """Decay, per optimiser step, of the running average of the trained weights; 0 keeps none."""
    seed: int = 0
    reference: bool = False
    """Keep weights that a KL term holds the model to: the starting ones until take_reference(). With LoRA the starting
    ones are there anyway: the adapter is switched off."""


_VERSIONS = itertools.count()
"""Numbers of all weights in this process: two engines that share a sampler never take each other's for their own."""


class LocalEngine:
    """A causal language model of transformers. Qwen3- and Llama-shaped ones can be sampled from here; others, and all
    that are large, with a sampler of their own."""

    def __init__(
        self,
        model: Any,
        stop: Sequence[int],
        config: LocalConfig,
        sampler: Sampler | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        torch.set_num_threads(config.threads)
        self.config, self.ranks = config, ranks
        self.device = device_of(config.device)
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        if self.dtype.itemsize < 4 and not config.lora_rank:
            raise ConfigError(
                f"model.dtype={config.dtype} rounds most steps of full weights away, and those of their average; set "
                "model.dtype=float32, or model.lora_rank above 0: an adapter is kept in float32"
            )
        model = held_in(model, torch.device("cpu") if ranks else self.device, self.dtype)
        self._reference = ReferenceWeights(model, kept=config.reference, lora=bool(config.lora_rank))
        self.fused = take_kernels(model, config.kernels, self.device)
        """Whether liger-kernel computes what torch would."""
        if config.gradient_checkpointing:
            keep_few_activations(model)
        adapted = bool(config.lora_rank)
        self.model = with_lora(model, config, config.seed) if adapted else model
        narrow = ranks is not None and self.device.type == "cuda" and not adapted
        """Whether all weights, which are kept in float32, are multiplied in 16 bits."""
        self._computed_in = "bfloat16" if narrow else config.dtype
        for one in filter(None, (self.model, self._reference.copy) if ranks else ()):
            ranks.shard(one, narrow=narrow)  # type: ignore[union-attr]
        self._reference.attach(self.model)
        self._update = PolicyUpdate(self.model, config, self._reference, ranks)
        self.trained, self.optimizer = self._update.trained, self._update.optimizer
        self._average = [p.detach().clone() for p in self.trained] if config.average else []
        self.sampler: Sampler = sampler or self._local_sampler(model.config, stop)
        if config.lora_rank and self.dtype.itemsize < 4 and not self.sampler.takes_adapters:
            raise ConfigError(
                f"model.dtype={config.dtype}: a sampler that takes merged weights alone would lose most of an adapter "
                "to their rounding; make it one that takes adapters (VllmConfig.lora_rank, ServedConfig.adapters), or "
                "set model.dtype=float32"
            )
        self.drift = agreement.Agreement(0.0, 0.0)
        """The gaps that the last verified sync had."""
        self._asked: list[Sequence[int]] = []
        """The first prompts that were to be continued: what each sync is verified on."""
        self._base = next(_VERSIONS)
        """The version of the weights below an adapter, which stay as they are."""
        self._version = next(_VERSIONS)
        self._agreed = NONE
        """The version that the sampler was last seen to hold as the trainer does."""
        self._syncing: asyncio.Task[None] | None = None
        self._apart = False
        """Whether the sampler goes on while the weights change: it gets copies then."""
        self._sync_seconds = 0.0
        self._still = threading.Lock()
        """A lock for who changes the weights, and for who reads them for the sampler."""

    def _local_sampler(self, shape: Any, stop: Sequence[int]) -> LocalSampler:
        check_shape(shape)
        decoder = Decoder(shape, self.config.rows, self.config.length, self.device, self.dtype)
        return LocalSampler(decoder, stop, self.config.seed)

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """Continue a prompt. What follows a change of the weights waits until the sampler has them."""
        return await self._sample(
            prompt, params, session, current=self.sampler.version == self._agreed == self._version
        )

    async def _sample_held(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """Continue a prompt with the weights that the sampler holds. One that holds none, since it crashed, is given
        those of now, between two optimiser steps."""
        return await self._sample(prompt, params, session, current=self.sampler.version != NONE)

    async def _sample(self, prompt: Sequence[int], params: SamplingParams, session: str, *, current: bool) -> Sample:
        if len(self._asked) < agreement.PROBES:
            self._asked.append(prompt)
        if not current:
            await self._catch_up()
        made: Sample = await self.sampler.sample(prompt, params, session)
        return made

    def release(self, session: str) -> None:
        """Free what is kept for a session."""
        self.sampler.release(session)

    async def _catch_up(self) -> None:
        if not self.sampler.suspends:
            self._sync()
            return
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(asyncio.to_thread(self._sync))
        await asyncio.shield(self._syncing)  # who is cancelled here must not cancel it for the others

    def publish(self) -> Samples:
        """Let the sampler take the weights of now, and go on while they change."""
        self._apart = True
        self._sync()
        return cast("Samples", SimpleNamespace(sample=self._sample_held, release=self.release))

    def _sync(self) -> None:
        began = time.monotonic()
        with self._still:
            if self.device.type == "cuda" and self.sampler.suspends:  # its memory is what the sampler wakes up into
                self.optimizer.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
            version, config = self._version, self.config
            self._hand_over(version)
            if isinstance(self.sampler, Probed):
                vocabulary = self.model.config.vocab_size
                prompts = agreement.probe_prompts(vocabulary, config.length, config.seed, list(self._asked))
                start = self.first_logprobs if config.lora_rank else None
                batched = partial(self.logprobs, batched=True)
                self.drift = agreement.measure(self.sampler, self.logprobs, prompts, start, batched)
                agreement.check(self.drift, agreement.TOLERANCE[self._computed_in])
            self._agreed = version
        self._sync_seconds += time.monotonic() - began

    @together
    def _hand_over(self, version: int) -> None:
        if self.config.lora_rank and self.sampler.takes_adapters:
            below = named_weights(self.model, adapted=False)
            self.sampler.sync(below, version, adapter_of(self.model, self._base))
        else:
            self.sampler.sync(named_weights(self.model, copies=self._apart), version)

    def _changed(self) -> None:
        """The weights are others now. The sampler takes them when it is next asked for something: after the last of
        several steps, and after a supervised start."""
        self._version = next(_VERSIONS)

    def snapshot(self) -> bytes:
        """The trained weights of now, for a copy of this engine in another process."""
        return to_bytes(self.trained)

    def adopt(self, snapshot: bytes, seed: int | None = None) -> None:
        """Take the weights of another engine over the same model, with random numbers that start at this seed."""
        with torch.no_grad():
            for weight, part in zip(self.trained, from_bytes(snapshot, self.trained), strict=True):
                weight.copy_(part)
        self._changed()
        if seed is not None:
            self.sampler.set_random_state(torch.Generator(device=self.device).manual_seed(seed).get_state())

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Sample from the running average of the weights, where there is one, until the block ends."""
        drawn = self.sampler.random_state()
        self._swap_average()
        try:
            yield
        finally:
            self._swap_average()
            self.sampler.set_random_state(drawn)

    @together
    def _swap_average(self) -> None:
        if self._average:
            exchange(self._average, self.trained)
            self._changed()

    # -- training ----------------------------------------------------------------------------------------------------

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """Take one optimiser step over all of the data."""
        if not any(any(d.mask) for d in data):
            return {"tokens": 0.0}
        self.sampler.sleep()
        with self._still:
            made = self._take(data, loss, learning_rate)
        self._changed()
        return {**made, **self._sampler_stats()}

    def take_help(self, helpers: Helpers | None) -> None:
        """Share each optimiser step with these from now on; with nobody where there are none."""
        self._update.helpers = helpers

    def gradient(
        self, snapshot: bytes, batches: Sequence[list[Datum]], loss: LossParams, total: int, referred_to: bytes = b""
    ) -> tuple[bytes, dict[str, float]]:
        """The gradient of these weights over some batches of a step with `total` tokens that count, and what they
        tell: a helper's part. A KL term refers to those other weights."""
        self.adopt(snapshot)
        if referred_to:
            self._reference.refer_to(from_bytes(referred_to, self.trained))
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        sums = self._update.gradient(batches, loss, total)
        return to_bytes(torch.zeros_like(p) if p.grad is None else p.grad for p in self.trained), sums

    @together
    def _take(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> dict[str, float]:
        made = self._update.take(data, loss, learning_rate)
        if not made["not_finite"]:
            for mean, p in zip(self._average, self.trained, strict=bool(self._average)):
                mean.lerp_(p.detach(), 1 - self.config.average)
        return made

    def size(self) -> ModelSize:
        """The model's parameters, with its adapter where it has one. A weight that stands in two places counts once."""
        return ModelSize(sum(p.numel() for p in self.model.parameters()), sum(p.numel() for p in self.trained))

    def sync_seconds(self) -> float:
        """How long the hand-overs took since the last call."""
        taken, self._sync_seconds = self._sync_seconds, 0.0
        return taken

    def _sampler_stats(self) -> dict[str, float]:
        made = dict(self.sampler.stats())
        if isinstance(self.sampler, Probed):
            made |= {"drift": self.drift.mean, "worst_drift": self.drift.worst}
            if self.config.lora_rank:
                made |= {"moved": self.drift.moved, "lost_change": self.drift.lost}
        return made

    @together
    def logprobs(self, data: Sequence[Datum], temperature: float = 1.0, *, batched: bool = False) -> list[list[float]]:
        """The trainer's own log-probabilities of the tokens that count, to hold against the sampler's: of each sequence
        alone, or `batched` together, which differs by what the kernels round."""
        self.model.eval()
        made: list[list[float]] = []
        with torch.no_grad():
            for batch in [data] if batched else [[datum] for datum in data]:
                new, _, _ = self._update.score(self.model, batch, temperature)
                made += [row.tolist() for row in torch.split(new, [sum(d.mask) for d in batch])]
        return made

    @together
    def first_logprobs(self, data: Sequence[Datum], temperature: float = 1.0) -> list[list[float]]:
        """Log-probabilities by the model below the adapter."""
        with self.model.disable_adapter():
            return self.logprobs(data, temperature)

    @together
    def take_reference(self) -> None:
        """Let a KL term hold the model to the weights of now."""
        self._reference.take()

    # -- keeping -----------------------------------------------------------------------------------------------------

    @together
    def save(self, path: Path) -> None:
        """Weights, optimiser and random state into a folder that exists."""
        weights = self.model.state_dict()
        average = zip(names_of(self.model), self._average, strict=bool(self._average))
        taken = [for_disk(value) for value in self._reference.taken]
        state = {
            "weights": {name: for_disk(weights[name]) for name in kept_names(self.model)},
            **self._update.state(),
            "average": {name: for_disk(mean) for name, mean in average},
            "sampler_rng": self.sampler.random_state(),
            "torch_rng": torch.get_rng_state(),
            "asked": [list(prompt) for prompt in self._asked],
            **({"reference": taken} if taken else {}),
        }
        if self.ranks and self.ranks.number:
            return
        with (path / ENGINE).open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as err:
                if isinstance(err.__context__, OSError):  # a full disk's, which torch covers with one of its own
                    raise err.__context__ from None
                raise
        (path / "model.json").write_text(json.dumps(self.model.config.to_dict(), indent=1, default=str))

    @together
    def load(self, path: Path) -> None:
        """Load what save() wrote into a model of the same shape, constructed alike where it keeps a reference."""
        state = read_engine(path, "cpu", mapped=True) if self.ranks else read_engine(path, self.device)
        put(state["weights"], self.model, kept_names(self.model), path)
        self._update.load(state)
        names = names_of(self.model)
        with torch.no_grad():
            for name, mean in zip(names, self._average, strict=bool(self._average)):
                mean.copy_(like(state["average"][name], mean))
        reference = state.get("reference", [])
        if reference or self._reference.taken:
            self._reference.refer_to(reference)
        self._asked = [*state.get("asked", [])]  # a resumed run hands its weights over before anything is asked
        self.sampler.set_random_state(state["sampler_rng"])
        torch.set_rng_state(state["torch_rng"].cpu())
        self._changed()

    @together
    def start_from(self, path: Path) -> None:
        """Take the weights of a checkpoint or of an exported folder, and nothing else."""
        if (path / ENGINE).is_file():
            take_evaluated(path, self.model)
        else:  # files leave out one name of a tensor that has two
            put(exported_weights(path), self.model, names_of(self.model), path)
        with torch.no_grad():
            for mean, p in zip(self._average, self.trained, strict=bool(self._average)):
                mean.copy_(p)
        self._changed()

    def lost(self) -> str:
        """A sentence where one of several processes is gone; "" where all are there."""
        return self.ranks.lost() if self.ranks else ""

    def close(self) -> None:
        """End the sampler, and the other processes."""
        self.sampler.close()
        if self.ranks:
            self.ranks.end()
