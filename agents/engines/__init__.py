"""Engines: what samples tokens and takes optimiser steps. The only place that may import torch."""

import os

# Threads that wait for each other by spinning make an optimiser step several times as long where something else
# wants a core. Read when torch loads its OpenMP, so it stands before any import of torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
