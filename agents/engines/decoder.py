"""A lean decoder for Qwen3- and Llama-shaped models: fused weights, one preallocated cache, any mix of rows per call.

It equals transformers' logits to rounding (tested) and exists because sampling many short turns is bound by overhead:
rows come and go, prompts grow by a few tokens at a time, and nothing is ever run through the model twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from toolorchestra.agents.engines.base import Adapter
from toolorchestra.envs.base.errors import ConfigError

KNOWN = ("qwen3", "qwen2", "llama")
_PLAIN: Mapping[str, object] = {
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "hidden_act": "silu",
}
"""The only values that the decoder knows; another value has weights, masks or functions that it would leave out."""


def check_shape(config: Any) -> None:
    """Refuse a model that the decoder would run as another one."""
    if config.model_type not in KNOWN:
        raise ConfigError(
            f"the local sampler runs models of type {', '.join(KNOWN)}, not {config.model_type!r}; use vLLM for others"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    found = {"rope_type": rope.get("rope_type"), **{name: getattr(config, name, None) for name in _PLAIN}}
    for name, plain in {"rope_type": "default", **_PLAIN}.items():
        if (came := found[name]) not in (plain, None):
            raise ConfigError(
                f"the local sampler knows {name}={plain!r} only, and the model has {name}={came!r}; set "
                "model.sampler=vllm"
            )


class _AdaptedProduct:
    """The product with the weights of one layer, or of several that are fed alike, and beside it with their
    adapters."""

    __slots__ = ("_bias", "_down", "_names", "_up", "_weight")

    def __init__(self, weights: Mapping[str, Tensor], *names: str) -> None:
        self._names = names
        parts = [weights[f"{name}.weight"] for name in names]
        self._weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        biases = [weights.get(f"{name}.bias") for name in names]
        self._bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        self._down = self._up = torch.empty(0)

    def adapt(self, adapter: Adapter | None) -> None:
        """Take copies of the adapter, so that training may go on."""
        pairs = [adapter.pairs[name] for name in self._names] if adapter else []
        self._down = torch.cat([a for a, _ in pairs]) if adapter else torch.empty(0)
        side_by_side: Any = torch.block_diag
        self._up = side_by_side(*[b for _, b in pairs]) * adapter.scale if adapter else torch.empty(0)

    def __call__(self, x: Tensor) -> Tensor:
        made = F.linear(x, self._weight, self._bias)
        if not len(self._down):
            return made
        more = F.linear(F.linear(x.to(self._down.dtype), self._down), self._up)  # in the adapter's dtype, as in PEFT
        return (made + more).to(made.dtype)


class _Layer:
    __slots__ = ("down", "gate_up", "k_norm", "norm_in", "norm_mlp", "out", "q_norm", "qkv")

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        self.qkv = _AdaptedProduct(weights, *(f"{attention}.{part}_proj" for part in "qkv"))
        self.out = _AdaptedProduct(weights, f"{attention}.o_proj")
        self.gate_up = _AdaptedProduct(weights, f"{mlp}.gate_proj", f"{mlp}.up_proj")
        self.down = _AdaptedProduct(weights, f"{mlp}.down_proj")
        self.q_norm = weights.get(f"{attention}.q_norm.weight")
        self.k_norm = weights.get(f"{attention}.k_norm.weight")
        self.norm_in = weights[f"{prefix}.input_layernorm.weight"]
        self.norm_mlp = weights[f"{prefix}.post_attention_layernorm.weight"]

    def adapt(self, adapter: Adapter | None) -> None:
        for product in (self.qkv, self.out, self.gate_up, self.down):
            product.adapt(adapter)


class Decoder:
    """Forward passes over rows of a cache. `load` takes weights by transformers' names."""

    def __init__(self, config: Any, rows: int, length: int, device: torch.device, dtype: torch.dtype) -> None:
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.width: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps: float = config.rms_norm_eps
        self.rows, self.length = rows, length
        shape = (config.num_hidden_layers, rows, self.kv_heads, length, self.width)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        rope = getattr(config, "rope_parameters", None) or {}
        theta = rope.get("rope_theta") or getattr(config, "rope_theta", 10_000.0)
        inverse = theta ** (-torch.arange(0, self.width, 2, device=device, dtype=torch.float32) / self.width)
        angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), inverse)
        self.cos = torch.cat([angles.cos(), angles.cos()], -1).to(dtype)
        self.sin = torch.cat([angles.sin(), angles.sin()], -1).to(dtype)
        self._places = torch.arange(length, device=device)
        self._numbers = torch.arange(rows, device=device)
        self.layers: list[_Layer] = []

    def load(self, weights: Mapping[str, Tensor], layers: int) -> None:
        """Take new weights, of any dtype: they get the cache's. What is fused is a copy. The others are copies where
        the dtype differs; else they change with the originals."""
        weights = {name: value.to(self.keys.dtype) for name, value in weights.items()}
        self.embed = weights["model.embed_tokens.weight"]
        self.head = weights.get("lm_head.weight", self.embed)
        self.norm = weights["model.norm.weight"]
        self.layers = []  # what was fused goes before it is fused anew
        self.layers = [_Layer(weights, f"model.layers.{i}") for i in range(layers)]

    def adapt(self, adapter: Adapter | None) -> None:
        """Run this adapter beside the weights that were loaded; None runs them alone."""
        for layer in self.layers:
            layer.adapt(adapter)

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Give another row these positions of a row."""
        for cache in (self.keys, self.values):
            cache[:, target, :, start:end] = cache[:, source, :, start:end]

    @torch.inference_mode()
    def forward(self, tokens: Tensor, rows: Tensor | slice, starts: Tensor, last: Tensor, most: int) -> Tensor:
        """Logits after tokens[i, last[i]]. Row i's tokens start at position starts[i]; `most`: the longest row now.

        What lies beyond a row's last token is written too, and overwritten by that row's next call.
        """
        count, width = tokens.shape
        places = starts[:, None] + self._places[:width]
        places = places.clamp(max=self.length - 1)
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        mask = (self._places[None, None, :most] <= places[:, :, None])[:, None]
        at = self._numbers[:count] if isinstance(rows, slice) else rows
        x = F.embedding(tokens, self.embed)
        for index, layer in enumerate(self.layers):
            x = x + self._attend(index, layer, x, (at, rows, places, cos, sin, mask, most))
            x = x + self._mlp(layer, x)
        x = x[torch.arange(count, device=x.device), last]
        return F.linear(self._rms(x, self.norm), self.head).float()

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.eps)

    def _attend(self, index: int, layer: _Layer, x: Tensor, scene: tuple[Any, ...]) -> Tensor:
        at, rows, places, cos, sin, mask, most = scene
        count, width, _ = x.shape
        qkv = layer.qkv(self._rms(x, layer.norm_in))
        qkv = qkv.view(count, width, self.heads + 2 * self.kv_heads, self.width)
        q, k, v = torch.split(qkv, [self.heads, self.kv_heads, self.kv_heads], 2)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._rms(q, layer.q_norm), self._rms(k, layer.k_norm)
        q, k = self._turn(q.transpose(1, 2), cos, sin), self._turn(k.transpose(1, 2), cos, sin)
        keys, values = self.keys[index], self.values[index]
        keys[at[:, None], :, places] = k.transpose(1, 2)
        values[at[:, None], :, places] = v
        out = self._look(q, keys[rows, :, :most], values[rows, :, :most], mask)
        return layer.out(out.transpose(1, 2).reshape(count, width, -1))

    def _look(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        if q.shape[2] > 1 or q.device.type != "cpu":
            return F.scaled_dot_product_attention(q, keys, values, mask, enable_gqa=self.heads != self.kv_heads)
        # One token a row on a CPU: written out it takes half the time of the general kernel with a mask. In 16 bits it
        # would copy all keys and values first; there the heads that share them are given as several tokens.
        count = q.shape[0]
        q = q.view(count, self.kv_heads, -1, self.width)
        if q.dtype.itemsize < 4:
            return F.scaled_dot_product_attention(q, keys, values, mask).view(count, self.heads, 1, self.width)
        scores = torch.matmul(q, keys.transpose(2, 3)) * self.width**-0.5
        weights = scores.masked_fill_(~mask, float("-inf")).softmax(-1)
        return torch.matmul(weights, values).view(count, self.heads, 1, self.width)

    @staticmethod
    def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def _mlp(self, layer: _Layer, x: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._rms(x, layer.norm_mlp)).chunk(2, -1)
        return layer.down(F.silu(gate) * up)
