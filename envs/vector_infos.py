"""Vector infos: the dicts of single environments as one dict of arrays, exactly as Gymnasium's SyncVectorEnv gives it
where each key has values of one type.

    infos["cost"]["usd"]     an array with a place for each environment; "cost" is a dict in each info, so it is here
    infos["cost"]["_usd"]    which environments said it

Gymnasium's own `VectorEnv._add_info` goes through the environments one by one, which takes longer than their steps do.
Here each key is gathered at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = frozenset({int, float, bool})


def gathered(infos: Mapping[int, Mapping[str, Any]], num_envs: int) -> dict[str, Any]:
    """`infos` by the environment's number. Environments that are not there have a False in every mask."""
    env_ids = sorted(infos)
    return _gathered([infos[i] for i in env_ids], env_ids, num_envs)


def _gathered(infos: Sequence[Mapping[str, Any]], env_ids: Sequence[int], num_envs: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    columns = _columns_of_the_same_keys(infos)
    if columns is not None:
        mask = _mask(env_ids, num_envs)
        for key, values in columns.items():
            made[key], made[f"_{key}"] = _column(key, values, env_ids, num_envs), mask.copy()
        return made
    for key, (values, places) in _columns(infos, env_ids).items():
        made[key], made[f"_{key}"] = _column(key, values, places, num_envs), _mask(places, num_envs)
    return made


def _columns_of_the_same_keys(infos: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]] | None:
    """Make columns where all say the same, by far the commonest case. None where they do not."""
    keys = list(infos[0]) if infos else []
    if len(set(map(len, infos))) > 1:
        return None
    try:
        if len(keys) < 2:  # itemgetter would give values, not tuples of them
            return {key: [info[key] for info in infos] for key in keys}
        return dict(zip(keys, zip(*map(itemgetter(*keys), infos), strict=True), strict=True))
    except KeyError:
        return None


def _columns(infos: Sequence[Mapping[str, Any]], env_ids: Sequence[int]) -> dict[str, tuple[list[Any], list[int]]]:
    values: dict[str, list[Any]] = {}
    places: dict[str, list[int]] = {}
    for i, info in zip(env_ids, infos, strict=True):
        for key, value in info.items():
            values.setdefault(key, []).append(value)
            places.setdefault(key, []).append(i)
    return {key: (column, places[key]) for key, column in values.items()}


def _mask(places: Sequence[int], num_envs: int) -> NDArray[np.bool_]:
    if len(places) == num_envs:
        return np.ones(num_envs, np.bool_)
    mask = np.zeros(num_envs, np.bool_)
    mask[places] = True
    return mask


def _numbers(values: Sequence[Any]) -> NDArray[Any] | None:
    """Numbers of one type as an array. None where they are none: Gymnasium's own raises, or cuts them to the first's
    type."""
    kind = type(values[0])
    if not (kind in _NUMBERS or issubclass(kind, np.number)) or any([type(value) is not kind for value in values]):
        return None
    try:
        return np.array(values, kind)
    except OverflowError:  # an integer of more than 64 bits
        return None


def _column(key: str, values: Sequence[Any], places: Sequence[int], num_envs: int) -> Any:
    """A column as the first environment's value wants it."""
    first = values[0]
    if isinstance(first, dict) and key != "final_obs" and all(isinstance(value, dict) for value in values):
        return _gathered(values, places, num_envs)
    everywhere = len(places) == num_envs
    array: NDArray[Any]
    if (numbers := _numbers(values)) is not None:
        if everywhere:
            return numbers
        array = np.zeros(num_envs, numbers.dtype)
        array[places] = numbers
        return array
    if isinstance(first, np.ndarray):
        array = np.zeros((num_envs, *first.shape), first.dtype)
    elif everywhere:
        return np.fromiter(values, np.object_, num_envs)  # array() would look into values that are lists
    else:
        array = np.full(num_envs, None, np.object_)
    for place, value in zip(places, values, strict=True):
        array[place] = value
    return array


def info_of(infos: Mapping[str, Any], env_id: int) -> dict[str, Any]:
    """One environment's info out of a vector's, with Python's own numbers."""
    made: dict[str, Any] = {}
    for key, column in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or not mask[env_id]:  # a mask itself, or a key that this environment did not say
            continue
        if isinstance(column, dict):
            made[key] = info_of(column, env_id)
        else:
            value = column[env_id]
            made[key] = value.item() if isinstance(value, np.generic) else value
    return made
