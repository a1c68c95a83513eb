"""The optimisers by name: AdamW for all weights, or Muon for the matrices of the layers and AdamW for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from toolorchestra.agents.engines.base import EngineSettings
from toolorchestra.envs.base.errors import ConfigError

BETAS = (0.9, 0.95)
"""Decay rates of AdamW's running averages. Neither optimiser decays weights."""
MUON_STATE = "muon"
"""The key of Muon's part in a saved state; the rest is AdamW's."""


def make_optimizer(model: nn.Module, settings: EngineSettings, *, fused: bool) -> torch.optim.AdamW | MuonAndAdamW:
    """The optimiser of the settings, over all weights of a model that are trained."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if settings.optimizer == "muon":
        return MuonAndAdamW(model, trained, fused=fused)
    return _adamw(trained, fused=fused)


def _adamw(trained: list[nn.Parameter], *, fused: bool) -> torch.optim.AdamW:
    return torch.optim.AdamW(trained, lr=1e-3, betas=BETAS, weight_decay=0.0, fused=fused)


class MuonAndAdamW:
    """Muon (Keller Jordan, 2024) for the matrices of the layers; AdamW for embeddings, the head and vectors, as its
    author advises. Muon's steps are scaled to be as long as AdamW's, so that one rate serves both."""

    def __init__(self, model: nn.Module, trained: list[nn.Parameter], *, fused: bool) -> None:
        looked_up = {
            id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()
        }
        head = getattr(model, "get_output_embeddings", lambda: None)()
        looked_up |= {id(p) for p in head.parameters()} if head is not None else set()
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in looked_up]
        others = [p for p in trained if p.ndim != 2 or id(p) in looked_up]
        self._muon = BatchedMuon(matrices, lr=1e-3, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
        if not others:
            raise ConfigError(
                "model.optimizer=muon has nothing to do for AdamW: only matrices are trained, such as an adapter's; "
                "set model.optimizer=adamw"
            )
        self._adamw = _adamw(others, fused=fused)
        self.param_groups = [*self._adamw.param_groups, *self._muon.param_groups]

    def step(self) -> None:
        """Takes a step with both optimisers."""
        self._adamw.step()
        self._muon.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of both optimisers."""
        self._adamw.zero_grad(set_to_none=set_to_none)
        self._muon.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The state of both optimisers in one dict."""
        return {**self._adamw.state_dict(), MUON_STATE: self._muon.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the state of both optimisers from what state_dict() gave."""
        self._muon.load_state_dict(state[MUON_STATE])
        self._adamw.load_state_dict({name: value for name, value in state.items() if name != MUON_STATE})
        self.param_groups = [*self._adamw.param_groups, *self._muon.param_groups]


QUINTIC = (3.4445, -4.7750, 2.0315)
"""Factors of the Newton-Schulz iteration, as Muon's author chose them."""
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
