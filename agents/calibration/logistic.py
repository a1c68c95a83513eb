"""Logistic regression by Newton's steps: success of each model by a task's family and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolorchestra.agents.calibration.skills_and_lengths import Numbers

RIDGE = 2.0
MOST_WORDS = 40
_STEPS = 12


def fit_logistic(families: Sequence[str], words: Sequence[Sequence[str]], success: Numbers, train: Any) -> Numbers:
    """The expected success, task x model, of a fit on the tasks of `train`."""
    features = _features(families, words, train)
    made = np.zeros_like(success)
    for model in range(success.shape[1]):
        weights = _newton(features[train], success[train, model])
        made[:, model] = _chance(features @ weights)
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


def _newton(features: Numbers, success: Numbers) -> Numbers:
    """With a ridge on all but the constant."""
    ridge = RIDGE * np.eye(features.shape[1])
    ridge[0, 0] = 1e-3
    weights = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        chance = _chance(features @ weights)
        slope = features.T @ (success - chance) - ridge @ weights
        bend = (features * (chance * (1 - chance))[:, None]).T @ features + ridge
        weights = weights + np.linalg.solve(bend, slope)
    return weights


def _chance(value: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -30, 30))))
