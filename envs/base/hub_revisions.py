"""Rows of the Hugging Face hub's data sets, at a pinned revision: what was measured can be measured again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, install, no_such

Row = Mapping[str, Any]
PINNED: Mapping[str, str] = {
    "cais/hle": "5a81a4c7271a2a2a312b9a690f0c2fde837e4c29",  # 2,500 questions, 2,158 of them without an image
    "google/frames-benchmark": "58d9fb6330f3ab1316d1eca12e5e8ef23dcc22ef",  # 824 questions
}
"""The revision that is taken of a set named without one."""


def pinned(where: str) -> str:
    """NAME@REVISION of what was named, with or without its revision."""
    name, _, revision = where.partition("@")
    revision = revision or PINNED.get(name, "")
    if not revision:
        known = ", ".join(PINNED)
        raise ConfigError(
            f"data set {name!r} is no file here, and a hub set needs its revision pinned: {name}@COMMIT "
            f"(its commits: https://huggingface.co/datasets/{name}/commits/main; {name}@main takes today's newest; "
            f"without a revision: {known})"
        )
    return f"{name}@{revision}"


def rows(where: str, part: str = "") -> Iterable[Row]:
    """The rows of a part ("": test where there is one, else the only one). Raises ConfigError with what to do."""
    where = pinned(where)
    name, _, revision = where.partition("@")
    try:
        import datasets
    except ImportError:
        raise ConfigError(f"data set {name!r} needs the hub library: {install('data')}") from None
    try:
        parts = datasets.load_dataset(name, revision=revision)
    except datasets.exceptions.DatasetNotFoundError as err:
        hint = f"accept its terms at https://huggingface.co/datasets/{name} and export HF_TOKEN=..."
        raise ConfigError(f"data set {where} is not there or is gated; if gated: {hint} ({str(err)[:160]})") from None
    except (OSError, ValueError) as err:
        hint = f"download a file of it and give its path: dataset={name.rpartition('/')[2]}.parquet"
        raise ConfigError(f"data set {where} cannot be fetched ({str(err)[:160]}); without a network, {hint}") from None
    return _part(where, part, parts)


def _part(where: str, part: str, parts: Mapping[str, Any]) -> Iterable[Row]:
    names: Sequence[str] = list(parts)
    chosen = part or ("test" if "test" in names else names[0] if len(names) == 1 else "")
    if chosen not in names:
        raise ConfigError(f"data set {where}: {no_such('part', chosen, names)}")
    made = parts[chosen]
    for column, feature in made.features.items():
        if getattr(feature, "decode", False):  # a picture or sound: decoding needs more packages
            made = made.cast_column(column, type(feature)(decode=False))
    found: Iterable[Row] = made
    return found
