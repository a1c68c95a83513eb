"""torch's Muon, in the weights' own precision and for matrices of one shape together.

torch's own rounds to bfloat16, which GPUs multiply fast and CPUs slowly, and turns one matrix after the other: with the
tiny model on a CPU, a quarter of the time of a training step went there.
"""

from __future__ import annotations

from collections import defaultdict
from math import sqrt
from typing import Any

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Of the Newton-Schulz iteration, as Muon's author chose them."""
ITERATIONS = 5


class BatchedMuon(torch.optim.Muon):
    """Takes the steps of torch.optim.Muon with `adjust_lr_fn="match_rms_adamw"` and its defaults, but for rounding."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step of all weights that have a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[weight.shape].append(weight)
            for shape, weights in alike.items():
                turned = orthogonal(torch.stack([self._direction(w, group["momentum"]) for w in weights]))
                length = group["lr"] * 0.2 * sqrt(max(shape))
                for weight, update in zip(weights, turned, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-length)

    def _direction(self, weight: Tensor, momentum: float) -> Tensor:
        """Nesterov's: the gradient, pulled towards its running mean."""
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        mean: Tensor = state["momentum_buffer"]
        assert weight.grad is not None
        mean.lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(mean, momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """Each matrix with its directions kept and its singular values brought near 1."""
    wide = matrices.shape[-1] >= matrices.shape[-2]
    x = matrices if wide else matrices.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    turned: Tensor = x if wide else x.mT
    return turned
