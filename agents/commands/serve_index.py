"""Serve an index folder to other processes: `toolorchestra index serve indexes/mine --port 8765`.

Beyond this machine (--host) only with a token in $TOOLORCHESTRA_INDEX_TOKEN, which the askers set as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.retrieval.index_and_hybrid import load
from toolorchestra.envs.retrieval.remote import IndexServer
from toolorchestra.envs.tools.backends import read, served_embedder


@dataclass(frozen=True)
class ServeIndexOptions:
    """What `toolorchestra index serve` takes."""

    folder: tyro.conf.Positional[str]
    """The folder of the index, as `toolorchestra index build` built it."""
    host: str = "127.0.0.1"
    """Where to listen; the default is heard on this machine alone."""
    port: int = 8765
    """0 takes a free one."""
    backends: str = ""
    """A file that says where the embedder is served, for an index that a served one made."""
    gpu: bool = False
    """Hold a flat or ivf index on the GPUs, with a GPU build of FAISS."""


def run(given: ServeIndexOptions) -> int:
    """Serve until Ctrl-C."""
    served = partial(served_embedder, read(given.backends)) if given.backends else None
    index = load(given.folder, served, given.gpu)
    try:
        server = IndexServer(index, given.host, given.port)
    except (OSError, OverflowError) as err:
        told = f"cannot serve at {given.host}:{given.port}: {err}; name another with --host or --port"
        raise ConfigError(told) from None
    with server:
        say(f"{given.folder} at {server.url}")
        server.serve_forever()
    return DONE


main = partial(command, ServeIndexOptions, run, about=__doc__)
