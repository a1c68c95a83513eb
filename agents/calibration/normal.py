"""The normal distribution on arrays: a table of it, read between its lines (off by less than 1e-7)."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
_EDGE, _STEPS = 8.0, 16_000
NODES = 41


@cache
def _table() -> tuple[Numbers, Numbers]:
    points = np.linspace(-_EDGE, _EDGE, _STEPS + 1)
    whole = NormalDist()
    return points, np.array([whole.cdf(float(x)) for x in points])


def below(x: ArrayLike) -> Numbers:
    """The chance of a value below x."""
    points, chances = _table()
    return np.asarray(np.interp(np.asarray(x, float), points, chances))


def quantile(p: ArrayLike) -> Numbers:
    """The value that a share p lies below."""
    points, chances = _table()
    return np.asarray(np.interp(np.asarray(p, float), chances, points))


def density(x: ArrayLike) -> Numbers:
    """The density of the normal distribution at each x."""
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2 * np.pi))


def percentiles(values: ArrayLike, at: ArrayLike) -> Numbers:
    """Of the values that are numbers; nan where none is."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    return np.asarray(np.percentile(known, np.asarray(at, float))) if len(known) else np.full(np.shape(at), np.nan)


@cache
def nodes() -> tuple[Numbers, Numbers]:
    """Points and weights by which a mean over a standard normal is a sum."""
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return points, weights / weights.sum()


def given_shared(z: Numbers, share: float) -> Numbers:
    """The chance of a success whose overall chance is below(z), at each of the nodes of what it shares: `share` is the
    part of its variance that is shared. The nodes are a new last axis."""
    points, _ = nodes()
    return below((z[..., None] + np.sqrt(share) * points) / np.sqrt(1 - share))
