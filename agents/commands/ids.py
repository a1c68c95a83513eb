"""The environments of this package: their ids, and the splits of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import ids, spec_of


@dataclass(frozen=True)
class IdsOptions:
    """`toolorchestra ids` takes no options."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(IdsOptions, run, given, about=__doc__)


def run(_: IdsOptions) -> int:
    """Print a line for each."""
    for env_id in ids():
        source = resolve_name(spec_of(env_id).kwargs["source"])
        about = (source.__module__ and __import__(source.__module__, fromlist=["x"]).__doc__) or ""
        say(f"{env_id:28} {about.strip().splitlines()[0]}")
        say(f"{'':28} splits: {_splits(source)}")
    return DONE


def _splits(source: type) -> str:
    try:
        return ", ".join(source().splits)
    except ConfigError as err:  # a package of the benchmark's own is missing
        return f"unknown, since {err}"
