"""The engine in this process: transformers for training, the lean decoder for sampling, on a CPU or one GPU."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from toolorchestra.agents.engines import agreement
from toolorchestra.agents.engines.base import NONE, Datum, LossParams, Probed, Sample, Sampler, SamplingParams
from toolorchestra.agents.engines.decoder import Decoder, check_shape
from toolorchestra.agents.engines.losses import kl_to, token_losses
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.settings import EngineSettings
from toolorchestra.agents.engines.weights import merged_weights, named_weights
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class LocalConfig(EngineSettings):
    """What a user says of the engine, and what follows from the run."""

    length: int = 512
    """Tokens of context the sampler keeps for each rollout."""
    training_threads: int = 1
    """Of torch, in training. Their number changes the last digits."""
    average: float = 0.0
    """Decay, per optimiser step, of the running average of the trained weights; 0 keeps none."""
    seed: int = 0
    reference: bool = False
    """Keep weights that a KL term holds the model to: the starting ones until take_reference(). With LoRA the starting
    ones are there anyway: the adapter is switched off."""


_VERSIONS = itertools.count()
"""Of all weights in this process: two engines that share a sampler never take each other's for their own."""


class LocalEngine:
    """A causal language model of transformers. Qwen3- and Llama-shaped ones can be sampled from here; others, and all
    that are large, with a sampler of their own."""

    def __init__(self, model: Any, stop: Sequence[int], config: LocalConfig, sampler: Sampler | None = None) -> None:
        torch.set_num_threads(config.threads)
        self.config = config
        self.device = torch.device(config.device)
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        if self.dtype.itemsize < 4 and not config.lora_rank:
            raise ConfigError(
                f"model.dtype={config.dtype} rounds most steps of full weights away, and those of their average; set "
                "model.dtype=float32, or model.lora_rank above 0: an adapter is kept in float32"
            )
        model = model.to(self.device, self.dtype)
        self._reference = _frozen_copy(model) if config.reference and not config.lora_rank else None
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model = _with_lora(model, config) if config.lora_rank else model
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained,
            lr=1e-3,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=self.device.type == "cuda",
        )
        self._taken: list[Tensor] = []
        """The trained weights as take_reference() found them; none where they were still those of construction."""
        self._average = [p.detach().clone() for p in self.trained] if config.average else []
        self.sampler: Sampler = sampler or self._local_sampler(model.config, stop)
        self.drift = agreement.Agreement(0.0, 0.0)
        """Of the last sync that was verified."""
        self._version = next(_VERSIONS)
        self._agreed = NONE
        """The version that the sampler was last seen to hold as the trainer does."""
        self._syncing: asyncio.Task[None] | None = None

    def _local_sampler(self, shape: Any, stop: Sequence[int]) -> LocalSampler:
        check_shape(shape)
        decoder = Decoder(shape, self.config.rows, self.config.length, self.device, self.dtype)
        return LocalSampler(decoder, stop, self.config.seed)

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """See Engine. What follows a change of the weights waits until the sampler has them."""
        if not self.sampler.version == self._agreed == self._version:
            await self._catch_up()
        made: Sample = await self.sampler.sample(prompt, params, session)
        return made

    def release(self, session: str) -> None:
        """See Engine."""
        self.sampler.release(session)

    async def _catch_up(self) -> None:
        if not self.sampler.suspends:
            self._sync()
            return
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(asyncio.to_thread(self._sync))
        await asyncio.shield(self._syncing)  # who is cancelled here must not cancel it for the others

    def _sync(self) -> None:
        if self.device.type == "cuda" and self.sampler.suspends:  # its memory is what the sampler wakes up into
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        version = self._version
        self.sampler.sync(named_weights(self.model), version)
        if isinstance(self.sampler, Probed):
            config = self.config
            prompts = agreement.probe_prompts(self.model.config.vocab_size, config.length, config.seed)
            self.drift = agreement.measure(self.sampler, self.logprobs, prompts)
            agreement.check(self.drift, config.tolerance or agreement.TOLERANCE[config.dtype])
        self._agreed = version

    def _changed(self) -> None:
        """The weights are others now. The sampler takes them when it is next asked for something: after the last of
        several steps, and after a supervised start."""
        self._version = next(_VERSIONS)

    def snapshot(self) -> bytes:
        """The weights that are sampled from now, for a copy of this engine in another process."""
        file = io.BytesIO()
        torch.save(merged_weights(self.model), file)
        return file.getvalue()

    def adopt(self, snapshot: bytes, seed: int) -> None:
        """Sample from the weights of another engine, with random numbers that start at this seed."""
        self.sampler.sync(torch.load(io.BytesIO(snapshot), weights_only=True).items(), self._version)
        self._agreed = self._version
        self.sampler.set_random_state(torch.Generator(device=self.device).manual_seed(seed).get_state())

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """See Engine."""
        self._swap_average()
        try:
            yield
        finally:
            self._swap_average()

    def _swap_average(self) -> None:
        self._exchange(self._average)
        if self._average:
            self._changed()

    def _exchange(self, others: Sequence[Tensor]) -> None:
        """These for the trained weights, and the trained weights for these."""
        with torch.no_grad():
            for other, p in zip(others, self.trained, strict=bool(others)):
                now = p.detach().clone()
                p.copy_(other)
                other.copy_(now)

    # -- training ----------------------------------------------------------------------------------------------------

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """One optimiser step over all of `data`, in batches of bounded size; the loss is a mean over its tokens."""
        total = sum(1 for d in data for a in d.advantages if a)
        if not total:
            return {"tokens": 0.0}
        self.sampler.sleep()
        self.model.train()
        torch.set_num_threads(self.config.training_threads)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        for batch in batches(data, self.config.tokens_per_batch):
            for name, value in self._backward(batch, loss, total).items():
                sums[name] = sums.get(name, 0.0) + value
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained, self.config.clip_norm))
        if not torch.isfinite(torch.tensor(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            raise FloatingPointError(f"the gradient's norm is {norm}; the step was not taken")
        self.optimizer.step()
        for mean, p in zip(self._average, self.trained, strict=bool(self._average)):
            mean.lerp_(p.detach(), 1 - self.config.average)
        torch.set_num_threads(self.config.threads)
        self._changed()
        made = {k: v / total for k, v in sums.items()}
        return {**made, "tokens": float(total), "gradient_norm": norm, **self._sampler_stats()}

    def _sampler_stats(self) -> dict[str, float]:
        drift = {"drift": self.drift.mean, "worst_drift": self.drift.worst} if isinstance(self.sampler, Probed) else {}
        return {**drift, **self.sampler.stats()}

    def logprobs(self, data: Sequence[Datum], temperature: float = 1.0) -> list[list[float]]:
        """The trainer's own log-probabilities of the tokens that count, to hold against the sampler's."""
        self.model.eval()
        made: list[list[float]] = []
        with torch.no_grad():
            for datum in data:
                new, _, _ = self._score(self.model, [datum], temperature)
                made.append(new.tolist())
        return made

    def take_reference(self) -> None:
        """See Engine."""
        if self.config.reference and self._has_moved():
            self._refer_to(self.trained)

    def _has_moved(self) -> bool:
        """Whether the model is another than the reference of construction; an adapter is none while its B are 0."""
        if self._reference is None:
            return any(bool(p.any()) for name, p in self.model.named_parameters() if "lora_B" in name)
        pairs = zip(self._reference.parameters(), self.model.parameters(), strict=True)
        return any(not torch.equal(kept, p) for kept, p in pairs)

    def _refer_to(self, weights: Sequence[Tensor]) -> None:
        if self._reference is None:
            self._taken = [w.detach().clone() for w in weights]
            return
        self._taken = [p.detach() for p in self._reference.parameters()]
        for kept, w in zip(self._taken, weights, strict=True):
            kept.copy_(w.detach())

    def _backward(self, batch: list[Datum], loss: LossParams, total: int) -> dict[str, float]:
        # First, while no graph holds the weights: they may be exchanged in place.
        reference = self._score_reference(batch, loss.temperature) if loss.kl else None
        new, entropy, places = self._score(self.model, batch, loss.temperature)
        old = self._picked([d.logprobs for d in batch], places)
        advantage = self._picked([d.advantages for d in batch], places)
        losses = token_losses(new, old, advantage, loss) - loss.entropy_weight * entropy
        sums = {"entropy": float(entropy.detach().sum())}
        if reference is not None:
            divergence = kl_to(reference, new, loss.kl)
            losses = losses + loss.kl_weight * divergence
            sums["kl_reference"] = float(divergence.detach().sum())
        torch.autograd.backward(losses.sum() / total)
        with torch.no_grad():
            gap = (new - old).float()
            outside = (gap.exp() > 1 + loss.clip_high) | (gap.exp() < 1 - loss.clip_low)
            sums |= {"loss": float(losses.detach().sum()), "kl_sampler": float(-gap.sum())}
            sums |= {"mismatch": float(gap.abs().sum()), "clipped": float(outside.sum())}
        return sums

    def _score_reference(self, batch: list[Datum], temperature: float) -> Tensor:
        with torch.no_grad():
            if self._reference is not None:
                return self._score(self._reference, batch, temperature)[0]
            if not self.config.lora_rank:
                raise ConfigError("a KL term needs the starting weights: set reference=True, or train with LoRA")
            if not self._taken:
                with self.model.disable_adapter():
                    return self._score(self.model, batch, temperature)[0]
            self._exchange(self._taken)
            try:
                return self._score(self.model, batch, temperature)[0]
            finally:
                self._exchange(self._taken)

    def _score(self, model: Any, batch: list[Datum], temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and entropies at the tokens that count, and where these are."""
        width = max(len(d.tokens) for d in batch)
        tokens = torch.tensor([[*d.tokens, *[0] * (width - len(d.tokens))] for d in batch], device=self.device)
        counts = [[bool(a) for a in d.advantages] + [False] * (width - len(d.tokens)) for d in batch]
        places = torch.tensor(counts, device=self.device)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # Padding stands on the right, so causal attention alone keeps it out of sight.
        hidden = base.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1][places[:, 1:]]
        drawn = tokens[:, 1:][places[:, 1:]]
        # A large vocabulary's logits are never all alive: the head is run in parts, and again in the backward pass.
        size = max(1, self.config.logit_bytes // (4 * base.lm_head.out_features))
        if len(hidden) <= size:
            return *_head(base.lm_head, hidden, drawn, temperature), places
        parts = [
            checkpoint(_head, base.lm_head, h, d, temperature, use_reentrant=False)
            for h, d in zip(torch.split(hidden, size), torch.split(drawn, size), strict=True)
        ]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), places

    def _picked(self, rows: Sequence[Sequence[float]], places: Tensor) -> Tensor:
        width = places.shape[1]
        full = torch.tensor([[*r, *[0.0] * (width - len(r))] for r in rows], device=self.device)
        return full[:, 1:][places[:, 1:]]

    # -- keeping -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Weights, optimiser and random state into a folder that exists."""
        state = {
            "weights": {k: v for k, v in self.model.state_dict().items() if self._kept(k)},
            "optimizer": self.optimizer.state_dict(),
            "average": self._average,
            "sampler_rng": self.sampler.random_state(),
            "torch_rng": torch.get_rng_state(),
            **({"reference": self._taken} if self._taken else {}),
        }
        with (path / "engine.pt").open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as err:
                if isinstance(err.__context__, OSError):  # a full disk's, which torch covers with one of its own
                    raise err.__context__ from None
                raise
        (path / "model.json").write_text(json.dumps(self.model.config.to_dict(), indent=1, default=str))

    def load(self, path: Path) -> None:
        """What save() wrote, into a model of the same shape, constructed alike where it keeps a reference."""
        state = torch.load(path / "engine.pt", map_location=self.device, weights_only=True)
        missing, unexpected = self.model.load_state_dict(state["weights"], strict=False)
        missing = [name for name in missing if self._kept(name)]
        if missing or unexpected:
            raise ConfigError(
                f"{path} holds another model: {len(missing)} weights missing, {len(unexpected)} unknown "
                f"(first: {(missing + unexpected)[0]}); give the configuration it was trained with"
            )
        self.optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for mean, kept in zip(self._average, state["average"], strict=True):
                mean.copy_(kept)
        reference = state.get("reference", [])
        if reference or self._taken:
            self._refer_to(reference)
        self.sampler.set_random_state(state["sampler_rng"])
        torch.set_rng_state(state["torch_rng"].cpu())
        self._changed()

    def close(self) -> None:
        """See Engine."""
        self.sampler.close()

    def _kept(self, name: str) -> bool:
        return not self.config.lora_rank or "lora_" in name


def _head(head: Any, hidden: Tensor, drawn: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities of what was drawn, and entropies."""
    logprobs = torch.log_softmax(head(hidden).float() / temperature, -1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(1, drawn[:, None])[:, 0], entropy


def _frozen_copy(model: Any) -> Any:
    import copy

    return copy.deepcopy(model).requires_grad_(False).eval()


def _with_lora(model: Any, config: LocalConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = LoraConfig(r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules=targets, lora_dropout=0.0)
    with torch.random.fork_rng(devices=[]):  # peft draws on the CPU, before it moves what it drew
        torch.manual_seed(config.seed)
        return get_peft_model(model, settings)


def batches(data: Sequence[Datum], tokens: int) -> Iterator[list[Datum]]:
    """Sequences of like length together, at most this many padded tokens at a time. Those without a token to learn from
    are left out."""
    left = sorted((d for d in data if any(d.advantages)), key=lambda d: len(d.tokens))
    while left:
        size = len(left[-1].tokens)
        count = max(1, tokens // size)
        batch, left = left[-count:], left[:-count]
        yield batch
