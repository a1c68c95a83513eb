"""Logistic regression by Newton's steps: of plans' features, and of a task's family and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolorchestra.agents.calibration.skills_and_lengths import Numbers

RIDGE = 2.0
MOST_WORDS = 40
_STEPS = 12


def logistic(rows: Any, right: Any, seen: Any, ridge: float) -> Any:
    """The weights of some features, with a ridge on all but the constant, which comes first. Each row was seen so many
    times, and was right so many of them."""
    penalty = np.full(rows.shape[1], ridge, rows.dtype)
    penalty[:1] = 1e-3
    weights = np.zeros(rows.shape[1], rows.dtype)
    for _ in range(_STEPS):
        chance = _chance(rows @ weights)
        slope = rows.T @ (right - seen * chance) - penalty * weights
        bend = (rows * (seen * chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        weights = weights + np.linalg.solve(bend, slope)
    return weights


def _chance(value: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(value, -30, 30)))


def fit_logistic(families: Sequence[str], words: Sequence[Sequence[str]], success: Numbers, train: Any) -> Numbers:
    """The expected success, task x model, of a fit on the tasks of `train`."""
    features = _features(families, words, train)
    made = np.zeros_like(success)
    for model in range(success.shape[1]):
        right = success[train, model]
        made[:, model] = _chance(features @ logistic(features[train], right, np.ones_like(right), RIDGE))
    return made


def _features(families: Sequence[str], words: Sequence[Sequence[str]], train: Any) -> Numbers:
    """One, the family, and the commonest words of the train tasks."""
    names = sorted(set(families))
    counts = Counter(word for at in np.flatnonzero(train) for word in set(words[int(at)]))
    kept = [word for word, count in counts.most_common(MOST_WORDS) if count > 1]
    rows = [
        [1.0, *(float(family == name) for name in names), *(float(word in told) for word in kept)]
        for family, told in zip(families, map(set, words), strict=True)
    ]
    return np.array(rows)
