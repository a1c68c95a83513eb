"""The environments of this package: their ids, and the splits of each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import NAMESPACE, OF_YOUR_OWN, ids, spec_of


@dataclass(frozen=True)
class IdsOptions:
    """`toolorchestra ids` takes no options."""


def run(_: IdsOptions) -> int:
    """Print a line for each."""
    for env_id in (*ids(), *(f"{NAMESPACE}/{name}" for name in OF_YOUR_OWN)):
        source = resolve_name(spec_of(env_id).kwargs["source"])
        about = sys.modules[source.__module__].__doc__ or ""
        say(f"{env_id:28} {' '.join(about.split()).partition('. ')[0]}")
        try:
            splits = ", ".join(source().splits)
        except ConfigError as err:  # a package of the benchmark's own is missing
            splits = f"unknown, since {err}"
        say(f"{'':28} splits: {splits}")
    return DONE


main = partial(command, IdsOptions, run, about=__doc__)
