"""Any loss of this project as the one that every Tinker server has: the policy gradient with given advantages.

A server differentiates -advantage * exp(new - old) of each token. With `old` set to the log-probability that the model
has now, the slope of that is -advantage. So the loss is differentiated here, by the same function that engine `local`
uses, at the log-probabilities of a forward pass, and the slopes go to the server as advantages. Clip, dual clip, KL and
truncation are then this project's own, whatever the server would make of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.engines.policy_update import kl_to, token_losses
from toolorchestra.agents.engines.settings import TinkerBackend
from toolorchestra.envs.base.errors import ConfigError

Rows = list[list[float]]


class Slopes(NamedTuple):
    """What one step's loss asks for."""

    rows: Rows
    """Of the mean loss, by each token's log-probability, for each datum; 0 where no loss looks."""
    metrics: dict[str, float]
    finite: bool


def check_loss(loss: LossParams) -> None:
    """Refuse what needs more of the model than the log-probability of each token."""
    if loss.entropy_weight:
        raise ConfigError(
            "loss.entropy_weight needs whole distributions, and a Tinker server gives the log-probabilities of the "
            "tokens alone; set loss.entropy_weight=0"
        )
    if loss.temperature != 1:
        raise ConfigError(
            f"a Tinker server's log-probabilities are of temperature 1, and the run samples at {loss.temperature:g}; "
            "set temperature=1"
        )


def slopes(data: Sequence[Datum], new: Rows, reference: Rows | None, loss: LossParams) -> Slopes:
    """`new` and `reference`: log-probabilities of each datum's tokens from its second one on."""
    places = [list(datum.mask[1:]) for datum in data]
    counts = torch.tensor([counted for row in places for counted in row])
    now = _flat(new)[counts].requires_grad_()
    old = _flat([datum.logprobs[1:] for datum in data])[counts]
    advantage = _flat([datum.advantages[1:] for datum in data])[counts]
    losses = token_losses(now, old, advantage, loss)
    sums: dict[str, float] = {}
    if reference is not None:
        divergence = kl_to(_flat(reference)[counts], now, loss.kl)
        losses = losses + loss.kl_weight * divergence
        sums["kl_reference"] = float(divergence.detach().sum())
    (losses.sum() / len(now)).backward()  # type: ignore[no-untyped-call]
    gap = (now - old).detach()
    outside = (gap.exp() > 1 + loss.clip_high) | (gap.exp() < 1 - loss.clip_low)
    sums |= {"loss": float(losses.detach().sum()), "kl_sampler": float(-gap.sum())}
    sums |= {"mismatch": float(gap.abs().sum()), "clipped": float(outside.sum())}
    slope = torch.zeros(len(counts), dtype=torch.float64)
    assert now.grad is not None
    slope[counts] = now.grad
    rows = [part.tolist() for part in torch.split(slope, [len(row) for row in places])]
    means = {name: value / len(now) for name, value in sums.items()}
    return Slopes(rows, means, bool(slope.isfinite().all()) and math.isfinite(sums["loss"]))


def scaled(rows: Rows, backend: TinkerBackend) -> Rows:
    """Slopes as the advantages that give them. Servers sum over tokens. SkyRL's JAX backend divides each sequence by
    its length and the sum by the number of sequences, which is undone here."""
    if backend != "skyrl-jax":
        return [[-slope for slope in row] for row in rows]
    return [[-slope * len(row) * len(rows) for slope in row] for row in rows]


def _flat(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)
