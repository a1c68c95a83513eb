"""The weights that a KL term holds a model to: a frozen copy, or with LoRA the adapter as it once was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from toolorchestra.envs.base.errors import ConfigError


class ReferenceWeights:
    """Those of construction, until take() is called. With LoRA they are there anyway: the adapter is switched off."""

    def __init__(self, model: Any, *, kept: bool, lora: bool) -> None:
        """Before the adapter is put on. `kept`: a full model's weights are copied."""
        self._wanted, self._lora = kept, lora
        self._copy = _frozen_copy(model) if kept and not lora else None
        self._model: Any = None
        self._trained: list[Tensor] = []
        self.taken: list[Tensor] = []
        """The trained weights as take() found them; none where they were still those of construction."""

    def attach(self, model: Any) -> None:
        """The model that is trained, with its adapter."""
        self._model = model
        self._trained = [p for p in model.parameters() if p.requires_grad]

    def take(self) -> None:
        """Makes the present weights the reference."""
        if self._wanted and self._has_moved():
            self.refer_to(self._trained)

    def _has_moved(self) -> bool:
        """Whether the model is another than the reference of construction; an adapter is none while its B are 0."""
        if self._copy is None:
            return any(bool(p.any()) for name, p in self._model.named_parameters() if "lora_B" in name)
        pairs = zip(self._copy.parameters(), self._model.parameters(), strict=True)
        return any(not torch.equal(kept, p) for kept, p in pairs)

    def refer_to(self, weights: Sequence[Tensor]) -> None:
        """Makes these weights the reference."""
        if self._copy is None:
            self.taken = [w.detach().clone() for w in weights]
            return
        self.taken = [p.detach() for p in self._copy.parameters()]
        for kept, w in zip(self.taken, weights, strict=True):
            kept.copy_(w.detach())

    def ask(self, question: Callable[[Any], Tensor]) -> Tensor:
        """What a function of the model gives with the reference's weights, without gradients."""
        with torch.no_grad():
            if self._copy is not None:
                return question(self._copy)
            if not self._lora:
                raise ConfigError("a KL term needs the starting weights: set reference=True, or train with LoRA")
            if not self.taken:
                with self._model.disable_adapter():
                    return question(self._model)
            exchange(self.taken, self._trained)
            try:
                return question(self._model)
            finally:
                exchange(self.taken, self._trained)


def exchange(others: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Each holds what the other held."""
    with torch.no_grad():
        for other, p in zip(others, weights, strict=bool(others)):
            now = p.detach().clone()
            p.copy_(other)
            other.copy_(now)


def _frozen_copy(model: Any) -> Any:
    import copy

    return copy.deepcopy(model).requires_grad_(False).eval()
