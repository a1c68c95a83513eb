"""LoRA in float32 on a CPU: one product with the merged weight in place of three, two of them thin.

The outcome is the adapter's own, to the last digits. In 16 bits it would not be: there a merged weight is rounded, and
an adapter that changes it by less than its last digit is lost.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from toolorchestra.agents.engines.weights import NAME


class _Product(torch.autograd.Function):
    """x (W + scale B A)^T, and the gradients of x, A and B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: MergedLayer, a: Tensor, b: Tensor) -> Tensor:
        weight = layer.weight()
        ctx.save_for_backward(x, weight, a, b)
        ctx.scale = layer.scale
        return F.linear(x, weight, layer.base.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, weight, a, b = ctx.saved_tensors
        (gradient,) = gradients
        flat, given = gradient.reshape(-1, weight.shape[0]), x.reshape(-1, weight.shape[1])
        of_x = (flat @ weight).view_as(x) if ctx.needs_input_grad[0] else None
        of_a = (flat @ b.to(flat.dtype)).T @ given
        of_b = flat.T @ (given @ a.T.to(given.dtype))
        return of_x, None, of_a.to(a.dtype) * ctx.scale, of_b.to(b.dtype) * ctx.scale


class MergedLayer:
    """What an adapted layer of PEFT does instead of its own forward()."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.base = layer.base_layer
        self.scale: float = layer.scaling[NAME]
        self._known: tuple[Any, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        way = partial(_Product.apply, x, self, *self._adapter())
        made: Tensor = self.base(x) if self._layer.disable_adapters else way()
        return made

    def weight(self) -> Tensor:
        """W + scale B A, made anew when any of them has been written to: torch counts that."""
        frozen, (a, b) = self.base.weight, self._adapter()
        now = tuple((t.data_ptr(), t._version) for t in (frozen, a, b))
        if self._known is None or self._known[0] != now:
            with torch.no_grad():
                self._known = now, (frozen + (b @ a) * self.scale).to(frozen.dtype)
        return self._known[1]

    def _adapter(self) -> tuple[Tensor, Tensor]:
        return self._layer.lora_A[NAME].weight, self._layer.lora_B[NAME].weight


def use_merged(model: Any) -> None:
    """Let every adapted layer of a PEFT model go this way. For models whose weights fit twice."""
    from peft.tuners.lora import Linear

    for module in model.modules():
        if isinstance(module, Linear):
            layer: Any = module
            layer.forward = MergedLayer(layer)
