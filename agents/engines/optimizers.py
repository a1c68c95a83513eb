"""The optimisers by name: AdamW for all weights, or Muon for the matrices of the layers and AdamW for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from toolorchestra.agents.engines.muon import BatchedMuon
from toolorchestra.agents.engines.settings import EngineSettings

MUON_STATE = "muon"
"""In a saved state, what is Muon's; the rest is AdamW's."""


def make_optimizer(model: nn.Module, settings: EngineSettings, *, fused: bool) -> torch.optim.AdamW | MuonAndAdamW:
    """The optimiser of the settings, over all weights of a model that are trained."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if settings.optimizer == "muon":
        return MuonAndAdamW(model, trained, settings, fused=fused)
    return _adamw(trained, settings, fused=fused)


def _adamw(trained: list[nn.Parameter], settings: EngineSettings, *, fused: bool) -> torch.optim.AdamW:
    return torch.optim.AdamW(trained, lr=1e-3, betas=settings.betas, weight_decay=settings.weight_decay, fused=fused)


class MuonAndAdamW:
    """Muon (Keller Jordan, 2024) for the matrices of the layers; AdamW for embeddings, the head and vectors, as its
    author advises. Muon's steps are scaled to be as long as AdamW's, so that one rate serves both."""

    def __init__(self, model: nn.Module, trained: list[nn.Parameter], settings: EngineSettings, *, fused: bool) -> None:
        looked_up = {
            id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()
        }
        head = getattr(model, "get_output_embeddings", lambda: None)()
        looked_up |= {id(p) for p in head.parameters()} if head is not None else set()
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in looked_up]
        others = [p for p in trained if p.ndim != 2 or id(p) in looked_up]
        self._muon = BatchedMuon(matrices, lr=1e-3, weight_decay=settings.weight_decay, adjust_lr_fn="match_rms_adamw")
        self._adamw = _adamw(others, settings, fused=fused)
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
