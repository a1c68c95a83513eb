"""What RLlib's learner knows, in one file of tensors: nothing in it is run when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

PARTS = ("rl_module", "optimizer")


def save_learner(algorithm: Any, path: Path) -> None:
    """Write the weights and what the optimiser knows."""
    learner = algorithm.learner_group.get_state()["learner"]
    torch.save({part: _as_tensors(learner[part]) for part in PARTS}, path)


def load_learner(algorithm: Any, path: Path) -> None:
    """Take them over, and hand the weights to who plays."""
    algorithm.learner_group.set_state({"learner": torch.load(path, weights_only=True)})
    algorithm.env_runner_group.sync_weights(from_worker_or_learner_group=algorithm.learner_group)


def _as_tensors(kept: Any) -> Any:
    """The same with tensors for arrays."""
    if isinstance(kept, Mapping):
        return {name: _as_tensors(part) for name, part in kept.items()}
    if isinstance(kept, list | tuple):
        return [_as_tensors(part) for part in kept]
    return torch.as_tensor(kept) if hasattr(kept, "dtype") else kept
