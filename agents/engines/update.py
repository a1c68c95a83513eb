"""One optimiser step: the loss of a token, log-probabilities, batches, the gradient, the step.

update = PolicyUpdate(model, settings, reference)
metrics = update.take(data, LossParams(), 1e-3)

A group's rollouts share their prompt, which is most of a sequence. In one batch it is run once, and the gradients of
all meet in it: the same step, for a fraction of the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from toolorchestra.agents.engines.base import LOGIT_BYTES, Datum, EngineSettings, Helpers, LossParams, TrainingFailed
from toolorchestra.agents.engines.decoder import KNOWN
from toolorchestra.agents.engines.lora import few_kept
from toolorchestra.agents.engines.optimizers import MUON_STATE, make_optimizer
from toolorchestra.agents.engines.sharded import for_disk, like
from toolorchestra.agents.engines.weights import ReferenceWeights
from toolorchestra.envs.base.errors import ConfigError

if TYPE_CHECKING:
    from toolorchestra.agents.engines.ranks import Ranks

DUAL_CLIP = 10.0
"""Bound on the loss of tokens with a negative advantage whose probability has grown."""
CLIP_NORM = 1.0
"""The largest norm of the gradient in one optimiser step. A larger gradient is scaled down to it."""
LEAST_LIKELY = 1e-2
"""Probability below which a token has no share in the entropy. Otherwise the bonus is earned by random words, wherever
they do no harm: there are more of them than there are choices."""
MOST_NOT_FINITE = 5
"""Optimiser steps in a row whose gradient is not finite, after which the run ends; single ones are left out."""
LEAST_PARAMETERS = 10_000_000
"""Size of a model for which fewer tokens make up for more passes; the passes of a smaller one are bound by overhead."""
MOST_PADDING = 0.05
"""Share of a large model's batch that is padding: beyond it the shorter sequences get a batch of their own."""
MOST_PADDING_OF_SMALL = 0.1
"""Share of padding in the batch of a small model, for which one more pass costs more than some padding."""
LEAST_SHARED = 32
"""Tokens in common below which it is not worth two passes."""


def to_bytes(tensors: Iterable[Tensor]) -> bytes:
    """The numbers of tensors of one dtype, one behind the other."""
    return torch.cat([one.detach().cpu().flatten() for one in tensors]).numpy().tobytes()


def from_bytes(numbers: bytes, like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of these shapes, from what to_bytes() gave of such."""
    flat = torch.frombuffer(bytearray(numbers), dtype=like[0].dtype)  # of bytes it would be read-only
    parts = torch.split(flat, [one.numel() for one in like])
    return [part.view(one.shape).to(one.device) for part, one in zip(parts, like, strict=True)]


def token_losses(new: Tensor, old: Tensor, advantage: Tensor, params: LossParams) -> Tensor:
    """One loss per token: the clipped policy gradient, or plain cross-entropy weighted by the advantage."""
    if params.kind == "cross_entropy":
        return -advantage * new
    ratio = torch.exp(new - old)
    clipped = ratio.clamp(1 - params.clip_low, 1 + params.clip_high)
    loss = torch.maximum(-advantage * ratio, -advantage * clipped)
    bounded = torch.minimum(loss, -advantage * DUAL_CLIP)
    return torch.where(advantage < 0, bounded, loss)


def kl_to(reference: Tensor, new: Tensor) -> Tensor:
    """An estimate of KL(new || reference) per token: half the squared difference, which is called k2."""
    return 0.5 * (reference - new).square()


class PolicyUpdate:
    """The optimiser of a model, and what its steps need."""

    def __init__(
        self, model: Any, settings: EngineSettings, reference: ReferenceWeights, ranks: Ranks | None = None
    ) -> None:
        self._model, self._settings, self._reference, self._ranks = model, settings, reference, ranks
        self._device = torch.device(settings.device)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(model, settings, fused=self._device.type == "cuda")
        self._shares = can_share(model) and ranks is None and settings.kernels != "compiled"
        # On a GPU what follows a prompt has a mask, which takes slower kernels: a prompt that is short does not pay.
        self._long_prompts = self._device.type == "cuda"
        # cuDNN, which computes attention on Hopper, takes a third of a second to prepare for each new width.
        self._few_widths = self._device.type == "cuda" and is_large(model)
        self._most_padding = MOST_PADDING if is_large(model) else MOST_PADDING_OF_SMALL
        self.helpers: Helpers | None = None
        """Other processes that hold the same model, to share the batches of a step with."""
        self.not_finite = 0
        """Steps in a row that were not taken, because their gradient was no number."""

    def take(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> dict[str, float]:
        """One step over all of `data`, in batches of bounded size; the loss is a mean over the tokens that count. A
        step whose gradient is not finite is left out; too many in a row raise TrainingFailed."""
        total = sum(sum(d.mask) for d in data)
        if not total:
            return {"tokens": 0.0}
        self._model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        most, padding = self._settings.tokens_per_batch, self._most_padding
        made = batches(data, most, share=self._shares, most_padding=padding, long_prompts=self._long_prompts)
        if self.helpers:
            sums = self._helped(made, loss, total)
        else:
            sums = self.gradient(self._mine(made, data) if self._ranks else made, loss, total)
        if self._ranks:
            sums = self._ranks.added(sums)
        clipped = torch.nn.utils.clip_grad_norm_(self.trained, CLIP_NORM)
        # Of weights in parts it is in parts too.
        norm = float(clipped.full_tensor() if hasattr(clipped, "full_tensor") else clipped)
        if math.isfinite(norm):
            self.optimizer.step()
            self.not_finite = 0
        else:
            self._leave_out(norm)
        means = {name: value / total for name, value in sums.items()}
        return {**means, "tokens": float(total), "gradient_norm": norm, "not_finite": float(self.not_finite > 0)}

    def gradient(self, made: Iterable[list[Datum]], loss: LossParams, total: int) -> dict[str, float]:
        """Add what these batches give to the gradient of each weight. Gives the sums of what they tell."""
        sums: dict[str, float] = {}
        for batch in made:
            for name, value in self._backward(batch, loss, total).items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def _helped(self, made: Iterable[list[Datum]], loss: LossParams, total: int) -> dict[str, float]:
        """The same over all batches, of which each helper takes as many as this process. The parts are added in one
        order, whoever is done first."""
        assert self.helpers
        mine, *theirs = ([b for b in part if b] for part in zip(*rounds(made, len(self.helpers) + 1), strict=True))
        weights = to_bytes(self.trained)
        referred_to = to_bytes(self._reference.taken) if loss.kl_weight and self._reference.taken else b""
        self.helpers.begin("gradient", [(weights, part, loss, total, referred_to) for part in theirs])
        sums = self.gradient(mine, loss, total)
        for number in range(len(theirs)):
            gradient, told = self.helpers.receive(number)
            for weight, part in zip(self.trained, from_bytes(gradient, self.trained), strict=True):
                weight.grad = part if weight.grad is None else weight.grad.add_(part)
            for name, value in told.items():  # it tells nothing where there was no batch for it
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def _mine(self, made: Iterable[list[Datum]], data: Sequence[Datum]) -> Iterator[list[Datum]]:
        """This process's batch of each round. All take a part in putting weights together: where one has no batch, it
        runs the shortest sequence with a mask that lets no token through."""
        assert self._ranks
        short = min(data, key=lambda d: len(d.tokens))
        nothing = replace(short, mask=[False] * len(short.mask))
        for batch_of in rounds(made, self._ranks.count):
            yield batch_of[self._ranks.number] or [nothing]

    def _leave_out(self, norm: float) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.not_finite += 1
        if self.not_finite >= MOST_NOT_FINITE:
            raise TrainingFailed(
                f"the gradient's norm was {norm} in {self.not_finite} steps in a row, and none of them was taken: look "
                "for what is not finite in the rewards, or begin another run from the weights of the last checkpoint, "
                "init_from=FOLDER, with a lower learning_rate, in another folder",
                command_line="--init-from FOLDER --learning-rate RATE --out ANOTHER",
            )

    def _backward(self, batch: list[Datum], loss: LossParams, total: int) -> dict[str, float]:
        # First, while no graph holds the weights: they may be exchanged in place.
        reference = None
        if loss.kl_weight:
            reference = self._reference.ask(lambda model: self.score(model, batch, loss.temperature)[0])
        new, entropy, places = self.score(self._model, batch, loss.temperature, learnt=loss.entropy_weight > 0)
        given = ([d.logprobs for d in batch], [d.advantages for d in batch])
        old, advantage = (self._wide(rows, places.shape[1], 0.0)[:, 1:][places[:, 1:]] for rows in given)
        losses = token_losses(new, old, advantage, loss) - loss.entropy_weight * entropy
        sums = {"entropy": float(entropy.detach().sum())}
        if reference is not None:
            divergence = kl_to(reference, new)
            losses = losses + loss.kl_weight * divergence
            sums["kl_reference"] = float(divergence.detach().sum())
        processes = self._ranks.count if self._ranks else 1  # whose gradients are averaged
        torch.autograd.backward(losses.sum() * processes / total)
        with torch.no_grad():
            gap = (new - old).float()
            outside = (gap.exp() > 1 + loss.clip_high) | (gap.exp() < 1 - loss.clip_low)
            moved = gap.expm1() - gap  # of tokens that were sampled: never negative, unlike -gap
            sums |= {"loss": float(losses.detach().sum()), "kl_sampler": float(moved.sum())}
            sums |= {"mismatch": float(gap.abs().sum()), "clipped": float(outside.sum())}
        return sums

    def score(
        self, model: Any, batch: Sequence[Datum], temperature: float, *, learnt: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and entropies (`learnt` with gradients) at the tokens that count, and where these are."""
        longest = max(len(d.tokens) for d in batch)
        width = rounded_up(longest) if self._few_widths else longest
        keys = [(*d.tokens, *d.mask) for d in batch]
        rows = dict(zip(keys, batch, strict=True))  # equal sequences are run once
        tokens = self._wide([d.tokens for d in rows.values()], width, 0)
        places = self._wide([d.mask for d in rows.values()], width, False)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        common = run_once([*rows.values()], self._long_prompts) if self._shares else 0
        way = getattr(base, "scored", None) or partial(scored, base)
        found, counts = way(tokens, places, common, temperature, learnt=learnt), places[:, 1:].sum(1).tolist()
        parts = (dict(zip(rows, torch.split(one, counts), strict=True)) for one in found)
        logprobs, entropies = (torch.cat([part[key] for key in keys]) for part in parts)
        return logprobs, entropies, self._wide([d.mask for d in batch], width, False)

    def _wide(self, rows: Sequence[Sequence[float]], width: int, filler: float) -> Tensor:
        return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows], device=self._device)

    def state(self) -> Mapping[str, Any]:
        """The state of the optimiser, and how many steps in a row had no finite gradient, for a checkpoint."""
        made = self.optimizer.state_dict()
        kept = {n: {name: for_disk(value) for name, value in one.items()} for n, one in made["state"].items()}
        return {"optimizer": {**made, "state": kept}, "not_finite": self.not_finite}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes up a state that state() gave."""
        found = state["optimizer"]
        groups = [*found["param_groups"], *found.get(MUON_STATE, {}).get("param_groups", ())]
        if (there := sum(len(group["params"]) for group in groups)) != len(self.trained):
            raise ConfigError(
                f"a checkpoint of another model, maybe of an earlier version: it trained {there} weights, this model "
                f"has {len(self.trained)}; play it with the version that trained it"
            )
        held = {
            n: {name: like(value, self.trained[n]) if value.ndim else value for name, value in one.items()}
            for n, one in found["state"].items()
        }
        self.optimizer.load_state_dict({**found, "state": held} if self._ranks else found)
        self.not_finite = int(state.get("not_finite", 0))


def scored(
    base: Any, tokens: Tensor, places: Tensor, common: int, temperature: float, *, learnt: bool
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the tokens at these places, and entropies there: a forward pass of the model, whose first
    `common` tokens all rows have alike."""
    hidden = hidden_states(base, tokens, common)[:, :-1][places[:, 1:]]
    drawn = tokens[:, 1:][places[:, 1:]]
    # A large vocabulary's logits are never all alive: the head is run in parts, and again in the backward pass.
    size = max(1, LOGIT_BYTES // (4 * base.lm_head.out_features))
    head: Any = partial(_head, base.lm_head, temperature=temperature, learnt=learnt)
    if len(hidden) > size:
        head = partial(checkpoint, head, use_reentrant=False)
    parts = [head(h, d) for h, d in zip(torch.split(hidden, size), torch.split(drawn, size), strict=True)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def _head(head: Any, hidden: Tensor, drawn: Tensor, temperature: float, *, learnt: bool) -> tuple[Tensor, Tensor]:
    """Log-probabilities of what was drawn, and entropies among likely tokens, whose gradients cost as much again."""
    logprobs = torch.log_softmax(head(hidden).float() / temperature, -1)
    with torch.set_grad_enabled(learnt and torch.is_grad_enabled()):
        chances = functional.threshold(logprobs.exp(), LEAST_LIKELY, 0.0)
        together = chances.sum(-1).clamp_min(LEAST_LIKELY)
        entropy = (together.log() - (chances * logprobs).sum(-1) / together).clamp_min(0.0)  # of chances / together
    return logprobs.gather(1, drawn[:, None])[:, 0], entropy


# -- batches -----------------------------------------------------------------------------------------------------------


def can_share(model: Any) -> bool:
    """Whether a prompt is run once for several sequences: of a model all of whose blocks see all of it."""
    config = model.config
    plain = set(getattr(config, "layer_types", None) or ("full_attention",)) == {"full_attention"}
    torchs = getattr(config, "_attn_implementation", "sdpa") == "sdpa"  # others take other masks
    return config.model_type in KNOWN and plain and torchs


def is_large(model: Any) -> bool:
    """Whether a pass takes as long as its tokens, and not as long as its overhead."""
    return bool(sum(p.numel() for p in model.parameters()) >= LEAST_PARAMETERS)


def batches(
    data: Sequence[Datum], tokens: int, *, share: bool = False, most_padding: float = 1.0, long_prompts: bool = False
) -> Iterator[list[Datum]]:
    """Sequences of like length together, at most this many padded tokens at a time, and at most this share of them
    padding; where `share`, those that begin alike, whose beginning counts once, however much is padded behind it; with
    `long_prompts` where it is half of them. Those without a token that counts are left out."""
    learnt = [d for d in data if any(d.mask)]
    groups = alike(learnt, long_prompts=long_prompts) if share else [[d] for d in learnt]
    alone = [group[0] for group in groups if len(group) == 1]
    together = [group for group in groups if len(group) > 1]
    worth = partial(run_once, long_prompts=long_prompts) if share else lambda _: 0
    return chain(*(_cut(group, tokens, worth, most_padding) for group in [*together, alone]))


def rounds(made: Iterable[list[Datum]], processes: int) -> Iterator[list[list[Datum]]]:
    """Batches in rounds of one for each process, of like size, for the largest is waited for. The largest are halved
    until there are enough; an empty batch is one that could not be had."""
    parts = list(made)
    while len(parts) % processes and (large := max((p for p in parts if len(p) > 1), key=padded, default=None)):
        parts.remove(large)
        parts += [large[: len(large) // 2], large[len(large) // 2 :]]
    parts += [[]] * (-len(parts) % processes)
    parts.sort(key=padded, reverse=True)
    return (parts[i : i + processes] for i in range(0, len(parts), processes))


def rounded_up(length: int) -> int:
    """A width that holds this length, of the few that there are: at most a 32nd more."""
    step = 1 << max(0, length.bit_length() - 6)
    return -(-length // step) * step


def padded(batch: Sequence[Datum]) -> int:
    """Tokens of a batch, padding included."""
    return len(batch) * max((len(d.tokens) for d in batch), default=0)


def alike(data: Sequence[Datum], *, long_prompts: bool) -> list[list[Datum]]:
    """Groups of those that have at least half of their tokens in common with the first; or all of their prompt, where
    a prompt need not be long to pay."""
    groups: list[list[Datum]] = []
    for d in sorted(data, key=lambda d: list(d.tokens)):
        pair = [groups[-1][0], d] if groups else []
        same = not long_prompts and pair and shared(pair) + 1 == list(d.mask).index(True)
        if pair and run_once(pair, long_prompts=not same):
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def run_once(batch: Sequence[Datum], long_prompts: bool) -> int:
    """How many tokens at the beginning of a batch are run once; 0 where that does not pay. `long_prompts`: it pays
    where they are half of the longest sequence, but for the prompt's last token, which each needs for itself."""
    common, longest = shared(batch), max((len(d.tokens) for d in batch), default=0)
    pays = len(batch) > 1 and common >= LEAST_SHARED and (not long_prompts or 2 * (common + 1) >= longest)
    return common if pays else 0


def shared(batch: Sequence[Datum]) -> int:
    """How many tokens all of them begin with, before the token whose successor is the first that counts."""
    most = min(list(d.mask).index(True) - 1 for d in batch)
    first, most = batch[0].tokens, max(most, 0)
    for d in batch[1:]:
        most = next((i for i in range(most) if d.tokens[i] != first[i]), most)
    return most


def _cut(
    data: Sequence[Datum], tokens: int, worth: Callable[[Sequence[Datum]], int], most_padding: float
) -> Iterator[list[Datum]]:
    left = sorted(data, key=lambda d: len(d.tokens))
    while left:
        common = worth(left)
        longest = len(left[-1].tokens)
        count = max(1, (tokens - common) // max(1, longest - common))
        if not common:  # what is run once pays for more padding than this
            filled = accumulate(len(d.tokens) for d in reversed(left[-count:]))
            count = sum(1 for n, real in enumerate(filled, 1) if real >= (1 - most_padding) * n * longest)
        batch, left = left[-count:], left[:-count]
        yield batch


def hidden_states(base: Any, tokens: Tensor, common: int) -> Tensor:
    """Hidden states of every place behind the first `common`, which all rows have alike and which are run once."""
    if not common:
        # Padding stands on the right, so causal attention alone keeps it out of sight.
        made: Tensor = base.model(input_ids=tokens, use_cache=False).last_hidden_state
        return made
    model, places = base.model, torch.arange(tokens.shape[1], device=tokens.device)[None]
    asked, rest = model.embed_tokens(tokens[:1, :common]), model.embed_tokens(tokens[:, common:])
    turned = model.rotary_emb(asked, places[:, :common]), model.rotary_emb(rest, places[:, common:])
    sight = torch.ones(rest.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).tril(common)[None, None]
    for layer in model.layers:
        step = partial(_through, layer, turned, sight)
        if getattr(layer, "gradient_checkpointing", False) and layer.training and torch.is_grad_enabled():
            step = partial(checkpoint, step, **few_kept())
        asked, rest = step(asked, rest)
    return torch.nn.functional.pad(model.norm(rest), (0, 0, common, 0))


def _through(layer: Any, turned: tuple[Any, Any], sight: Tensor, asked: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """The prompt through a block, and what follows it, which sees it."""
    # transformers checkpoints a block by itself and drops its cache then: here both parts are checkpointed together.
    set_to = getattr(layer, "gradient_checkpointing", False)
    layer.gradient_checkpointing, seen = False, _Seen()
    try:
        asked = layer(asked, position_embeddings=turned[0], past_key_values=seen)
        return asked, layer(rest, attention_mask=sight, position_embeddings=turned[1], past_key_values=seen)
    finally:
        layer.gradient_checkpointing = set_to


class _Seen:
    """What a block takes for its cache: the keys and values of the prompt, and behind them those of what follows."""

    def __init__(self) -> None:
        self._asked: tuple[Tensor, Tensor] | None = None

    def update(self, keys: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        """Take the prompt's, or put it before these, once for each row."""
        if self._asked is None:
            self._asked = keys, values
            return keys, values
        before = (one.expand(len(keys), -1, -1, -1) for one in self._asked)
        made = [torch.cat(pair, 2) for pair in zip(before, (keys, values), strict=True)]
        return made[0], made[1]
