"""Engines: what samples tokens and takes optimiser steps. The only place that may import torch."""

import os

from toolorchestra.envs.base.errors import install

# Threads that wait for each other by spinning make an optimiser step several times as long where something else
# wants a core. Read when torch loads its OpenMP, so it stands before any import of torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def without(err: ModuleNotFoundError) -> ModuleNotFoundError:
    """What is raised where torch, or what is used with it, is not installed."""
    return ModuleNotFoundError(
        f"engines need {err.name}, which is not installed: pip install torch==2.13.0, then {install('train')}",
        name=err.name,
    )
