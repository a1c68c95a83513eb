"""Owns the table of all subjects of the HLE-like questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.subjects_calendar import calendar_astronomy
from toolorchestra.envs.domains.hle.subjects_code import code_tracing, graph_algorithms
from toolorchestra.envs.domains.hle.subjects_counting import combinatorics, probability
from toolorchestra.envs.domains.hle.subjects_form import LEVELS
from toolorchestra.envs.domains.hle.subjects_logic import logic
from toolorchestra.envs.domains.hle.subjects_math import linear_algebra, number_theory
from toolorchestra.envs.domains.hle.subjects_science import chemistry, physics

__all__ = ["LEVELS", "SUBJECTS"]

SUBJECTS: Mapping[str, Callable[[random.Random, int], Question]] = MappingProxyType(
    {
        "number theory": number_theory,
        "combinatorics": combinatorics,
        "linear algebra": linear_algebra,
        "probability": probability,
        "physics": physics,
        "chemistry": chemistry,
        "calendar astronomy": calendar_astronomy,
        "code tracing": code_tracing,
        "graph algorithms": graph_algorithms,
        "logic": logic,
    }
)
