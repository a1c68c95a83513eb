"""A model's weights by transformers' names, for whoever samples with a copy; and as files, for other processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolorchestra.agents.engines.base import Adapter
from toolorchestra.envs.base.errors import ConfigError

NAME = "default"
"""PEFT's of the one adapter that there is."""
HEAD = "lm_head.weight"
SHARD_BYTES = 2 << 30


def named_weights(
    model: Any, dtype: torch.dtype | None = None, *, adapted: bool = True, copies: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """One weight after the other, with LoRA added in where there is any: a whole second model is never held. Each is
    rounded to `dtype`, which is the model's own where none is named: one of 16 bits rounds away what changes a weight
    by less than its last digit. Not `adapted`: the weights below LoRA. `copies`: later training changes none of what is
    given; what an adapter leaves frozen is no copy."""
    if not hasattr(model, "get_base_model"):
        for name, value in model.state_dict().items():
            yield name, value.detach().to(dtype or value.dtype, copy=copies)
        return
    base = model.get_base_model()
    for name, module in base.named_modules():
        for key, value in module.named_parameters(recurse=False):
            if "base_layer" in name:
                place = name.removesuffix(".base_layer")
                delta = base.get_submodule(place).get_delta_weight(NAME) if adapted and key == "weight" else 0.0
                yield f"{place}.{key}", (value + delta).detach().to(dtype or value.dtype)
            elif "lora_" not in name:
                yield f"{name}.{key}", value.detach().to(dtype or value.dtype)


def held_in(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The model on a device, with its weights in a dtype. Its buffers keep theirs: the frequencies of rotary positions
    are rounded by 16 bits so far that late positions are other ones."""
    model = model.to(device)
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def merged_weights(model: Any, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """All of named_weights() at once."""
    return dict(named_weights(model, dtype))


def adapter_of(model: Any, base: int) -> Adapter:
    """The adapter of a model of PEFT; `base` numbers the weights below it."""
    pairs = {
        place: (layer.lora_A[NAME].weight.detach(), layer.lora_B[NAME].weight.detach())
        for place, layer in model.get_base_model().named_modules()
        if hasattr(layer, "lora_A")
    }
    made = model.peft_config[NAME]
    return Adapter(base, made.r, made.lora_alpha, pairs)


def write_adapter(adapter: Adapter, folder: Path) -> None:
    """A new folder that PEFT and vLLM load the adapter from, in float32, which it is trained in."""
    from safetensors.torch import save_file

    folder.mkdir()
    names = sorted({place.rpartition(".")[2] for place in adapter.pairs})
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": adapter.rank, "lora_alpha": adapter.alpha}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": names}), encoding="utf-8")
    weights = {
        f"base_model.model.{place}.lora_{letter}.weight": value.to("cpu", copy=True).contiguous()
        for place, pair in adapter.pairs.items()
        for letter, value in zip("AB", pair, strict=True)
    }
    save_file(weights, folder / "adapter_model.safetensors")


class Handover:
    """A folder that another process loads weights from: safetensors in parts, and the model's config.json.

    vLLM reads whatever is there and says nothing of what is not. A head that is tied to the embedding is two names and
    one tensor, and left out it stays as it was, so a hand-over without it is refused.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], dtype: torch.dtype | None = None) -> None:
        """`dtype`: what the weights are written in, whatever they come in; None leaves each as it comes."""
        self.folder, self._dtype = folder, dtype
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dict(config), indent=1, default=str), encoding="utf-8")

    def write(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace what is there. Old parts are unlinked first: a process that still maps one keeps what it maps."""
        for old in self.folder.glob("*.safetensors"):
            old.unlink()
        names: set[str] = set()
        part: dict[str, Tensor] = {}
        size = number = 0
        for name, given in weights:
            names.add(name)
            # A copy: tied weights share one storage, which the format refuses.
            value = given.to("cpu", self._dtype or given.dtype, copy=True).contiguous()
            if size and size + value.nbytes > SHARD_BYTES:
                self._save(part, number)
                part, size, number = {}, 0, number + 1
            part[name] = value
            size += value.nbytes
        if HEAD not in names:
            raise ConfigError(
                f"the weights to hand over lack {HEAD} ({len(names)} came): without it the sampler keeps an old head "
                "and says nothing; give all of named_weights(model), a tied head too"
            )
        self._save(part, number)

    def _save(self, part: dict[str, Tensor], number: int) -> None:
        from safetensors.torch import save_file

        save_file(part, self.folder / f"part-{number:05d}.safetensors")
