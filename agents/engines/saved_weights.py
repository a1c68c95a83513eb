"""Weights on disk, of a checkpoint or of an exported folder: read, held against a model, and put into it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolorchestra.envs.base.errors import ConfigError

ENGINE = "engine.pt"
"""What a checkpoint keeps an engine's state in."""
ADAPTER = "adapter_model.safetensors"


def names_of(model: Any) -> list[str]:
    """Of the weights that are trained, in the optimiser's order."""
    return [name for name, p in model.named_parameters() if p.requires_grad]


def read_engine(path: Path, device: Any = "cpu") -> dict[str, Any]:
    """What an engine saved into a checkpoint."""
    state: dict[str, Any] = torch.load(path / ENGINE, map_location=device, weights_only=True)
    return state


def average_of(state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Tensor]:
    """The averaged weights by their names; none where the run kept none. Earlier checkpoints have a list of them, in
    the order of the trained weights."""
    kept = state["average"]
    if isinstance(kept, Mapping):
        return dict(kept)
    return dict(zip(names, kept, strict=True)) if kept else {}


def kept_names(model: Any) -> list[str]:
    """Of the weights that a checkpoint keeps: an adapter's alone, where there is one."""
    adapted = hasattr(model, "get_base_model")
    return [name for name in model.state_dict() if not adapted or "lora_" in name]


def take_evaluated(path: Path, model: Any) -> bool:
    """Put a checkpoint's weights into a model, those that its run's evaluations were of: the averaged ones where it
    kept any, which is what the answer says, or else the last ones."""
    state = read_engine(path)
    put(state["weights"], model, kept_names(model), path)
    average = average_of(state, names_of(model))
    put(average, model, (), path)  # behind the others: a tensor may have two names, and an average has one
    return bool(average)


def exported_weights(folder: Path) -> dict[str, Tensor]:
    """Those of a folder that `export model` wrote, by the names that a run trains them under."""
    from safetensors.torch import load_file

    adapter = (folder / ADAPTER).is_file()
    found: dict[str, Tensor] = {}
    for part in [folder / ADAPTER] if adapter else sorted(folder.glob("*.safetensors")):
        found |= load_file(part)
    if not found:
        raise ConfigError(f"no *.safetensors in {folder}; name a folder that `toolorchestra export model` wrote")
    if adapter:  # in a file an adapter has no name, in a model it is called "default"
        return {f"{name.removesuffix('.weight')}.default.weight": value for name, value in found.items()}
    return found


def put(weights: Mapping[str, Tensor], model: Any, wanted: Collection[str], where: Path) -> None:
    """These weights into a model, by name. Raises ConfigError where they are another model's: where a wanted one is
    missing, or one is unknown to the model or of another shape."""
    own = model.state_dict()
    missing = [name for name in wanted if name not in weights]
    unknown = [name for name in weights if name not in own]
    other = [name for name, value in weights.items() if name in own and own[name].shape != value.shape]
    if missing or unknown or other:
        first = (missing + unknown + other)[0]
        shapes = f", {tuple(weights[first].shape)} there and {tuple(own[first].shape)} here" if first in other else ""
        raise ConfigError(
            f"{where} holds another model: {len(missing)} weights missing, {len(unknown)} unknown, {len(other)} of "
            f"another shape (first: {first}{shapes}); give the configuration it was trained with"
        )
    model.load_state_dict(weights, strict=False)
