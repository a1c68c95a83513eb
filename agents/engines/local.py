"""The engine in this process: transformers for training, the lean decoder for sampling, on a CPU or one GPU."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.engines.decoder import Decoder
from toolorchestra.agents.engines.losses import kl_to, token_losses
from toolorchestra.agents.engines.sampler import Sampler
from toolorchestra.envs.errors import ConfigError


@dataclass(frozen=True)
class LocalConfig:
    """How the model is held and trained."""

    rows: int = 128
    """Sessions that can be in the sampler's cache at a time."""
    length: int = 512
    """Tokens of context the sampler keeps for each."""
    tokens_per_batch: int = 16_384
    """Padded tokens of one forward and backward pass."""
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    """Of torch, in sampling: more do not help a small model."""
    training_threads: int = 1
    """Their number changes the last digits."""
    lora_rank: int = 0
    """0 trains all weights."""
    lora_alpha: int = 32
    gradient_checkpointing: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float = 1.0
    average: float = 0.0
    """Decay, per optimiser step, of the running average of the trained weights; 0 keeps none."""
    seed: int = 0
    reference: bool = False
    """Keep the starting weights for a KL term. With LoRA they are there anyway: the adapter is switched off."""


class LocalEngine:
    """A causal language model of transformers. Qwen3- and Llama-shaped ones can be sampled from."""

    def __init__(self, model: Any, stop: Sequence[int], config: LocalConfig) -> None:
        torch.set_num_threads(config.threads)
        self.config = config
        self.device = torch.device(config.device)
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        model = model.to(self.device, self.dtype)
        _check_shape(model.config)
        self._layers = int(model.config.num_hidden_layers)
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
        self._average = [p.detach().clone() for p in self.trained] if config.average else []
        decoder = Decoder(model.config, config.rows, config.length, self.device, self.dtype)
        self.sampler = Sampler(decoder, stop, config.seed)
        self._sync()

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """See Engine."""
        return await self.sampler.sample(prompt, params, session)

    def release(self, session: str) -> None:
        """See Engine."""
        self.sampler.release(session)

    def _sync(self) -> None:
        self.sampler.decoder.load(merged_weights(self.model), self._layers)
        self.sampler.reset()

    def snapshot(self) -> bytes:
        """The weights that are sampled from now, for a copy of this engine in another process."""
        file = io.BytesIO()
        torch.save(merged_weights(self.model), file)
        return file.getvalue()

    def adopt(self, snapshot: bytes, seed: int) -> None:
        """Sample from the weights of another engine, with random numbers that start at this seed."""
        self.sampler.decoder.load(torch.load(io.BytesIO(snapshot), weights_only=True), self._layers)
        self.sampler.reset()
        self.sampler.generator.manual_seed(seed)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """See Engine."""
        self._swap_average()
        try:
            yield
        finally:
            self._swap_average()

    def _swap_average(self) -> None:
        with torch.no_grad():
            for mean, p in zip(self._average, self.trained, strict=bool(self._average)):
                now = p.detach().clone()
                p.copy_(mean)
                mean.copy_(now)
        self._sync()

    # -- training ----------------------------------------------------------------------------------------------------

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """One optimiser step over all of `data`, in batches of bounded size; the loss is a mean over its tokens."""
        total = sum(1 for d in data for a in d.advantages if a)
        if not total:
            return {"tokens": 0.0}
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
        self._sync()
        return {**{k: v / total for k, v in sums.items()}, "tokens": float(total), "gradient_norm": norm}

    def logprobs(self, data: Sequence[Datum], temperature: float = 1.0) -> list[list[float]]:
        """The trainer's own log-probabilities of the tokens that count, to hold against the sampler's."""
        self.model.eval()
        made: list[list[float]] = []
        with torch.no_grad():
            for datum in data:
                new, _, _ = self._score(self.model, [datum], temperature)
                made.append(new.tolist())
        return made

    def _backward(self, batch: list[Datum], loss: LossParams, total: int) -> dict[str, float]:
        new, entropy, places = self._score(self.model, batch, loss.temperature)
        old = self._picked([d.logprobs for d in batch], places)
        advantage = self._picked([d.advantages for d in batch], places)
        losses = token_losses(new, old, advantage, loss) - loss.entropy_weight * entropy
        sums = {"entropy": float(entropy.detach().sum())}
        if loss.kl:
            reference = self._score_reference(batch, loss.temperature)
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
            with self.model.disable_adapter():
                return self._score(self.model, batch, temperature)[0]

    def _score(self, model: Any, batch: list[Datum], temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and entropies at the tokens that count, and where these are."""
        width = max(len(d.tokens) for d in batch)
        tokens = torch.tensor([[*d.tokens, *[0] * (width - len(d.tokens))] for d in batch], device=self.device)
        counts = [[bool(a) for a in d.advantages] + [False] * (width - len(d.tokens)) for d in batch]
        places = torch.tensor(counts, device=self.device)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # Padding stands on the right, so causal attention alone keeps it out of sight.
        hidden = base.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1][places[:, 1:]]
        logits = base.lm_head(hidden).float() / temperature
        logprobs = torch.log_softmax(logits, -1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(1, tokens[:, 1:][places[:, 1:]][:, None])[:, 0], entropy, places

    def _picked(self, rows: Sequence[Sequence[float]], places: Tensor) -> Tensor:
        width = places.shape[1]
        full = torch.tensor([[*r, *[0.0] * (width - len(r))] for r in rows], device=self.device)
        return full[:, 1:][places[:, 1:]]

    # -- keeping -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Weights, optimiser and random state into a folder that exists."""
        torch.save(
            {
                "weights": {k: v for k, v in self.model.state_dict().items() if self._kept(k)},
                "optimizer": self.optimizer.state_dict(),
                "average": self._average,
                "sampler_rng": self.sampler.generator.get_state(),
                "torch_rng": torch.get_rng_state(),
            },
            path / "engine.pt",
        )
        (path / "model.json").write_text(json.dumps(self.model.config.to_dict(), indent=1, default=str))

    def load(self, path: Path) -> None:
        """What save() wrote, into a model of the same shape."""
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
        self.sampler.generator.set_state(state["sampler_rng"].cpu())
        torch.set_rng_state(state["torch_rng"].cpu())
        self._sync()

    def _kept(self, name: str) -> bool:
        return not self.config.lora_rank or "lora_" in name


def _check_shape(config: Any) -> None:
    known = ("qwen3", "qwen2", "llama")
    if config.model_type not in known:
        raise ConfigError(
            f"the local sampler runs models of type {', '.join(known)}, not {config.model_type!r}; use vLLM for others"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        raise ConfigError(f"the local sampler knows plain rotary positions only, not {rope['rope_type']!r}; use vLLM")


def _frozen_copy(model: Any) -> Any:
    import copy

    return copy.deepcopy(model).requires_grad_(False).eval()


def _with_lora(model: Any, config: LocalConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = LoraConfig(r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules=targets, lora_dropout=0.0)
    return get_peft_model(model, settings)


def merged_weights(model: Any) -> dict[str, Tensor]:
    """The weights by transformers' names, with LoRA added in where there is any."""
    if not hasattr(model, "get_base_model"):
        return {k: v.detach() for k, v in model.state_dict().items()}
    made: dict[str, Tensor] = {}
    for name, module in model.get_base_model().named_modules():
        for key, value in module.named_parameters(recurse=False):
            if "base_layer" in name:
                owner = model.get_base_model().get_submodule(name.removesuffix(".base_layer"))
                delta = owner.get_delta_weight("default") if key == "weight" else 0.0
                made[f"{name.removesuffix('.base_layer')}.{key}"] = (value + delta).detach()
            elif "lora_" not in name:
                made[f"{name}.{key}"] = value.detach()
    return made


def batches(data: Sequence[Datum], tokens: int) -> Iterator[list[Datum]]:
    """Sequences of like length together, at most this many padded tokens at a time. Those without a token to learn from
    are left out."""
    left = sorted((d for d in data if any(d.advantages)), key=lambda d: len(d.tokens))
    while left:
        size = len(left[-1].tokens)
        count = max(1, tokens // size)
        batch, left = left[-count:], left[:-count]
        yield batch
