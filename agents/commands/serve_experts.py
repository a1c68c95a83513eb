"""Start the `vllm serve` processes that a TOML names, write their backends file, and stop them all on Ctrl-C:

    toolorchestra serve experts experts.toml --out backends.toml
    toolorchestra evaluate --backends backends.toml --policy chat

docs/serving.md has the file's format.
"""

from __future__ import annotations

import signal
import threading
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, command, make_room, say
from toolorchestra.agents.serving.expert_servers import endpoint_file, read_servers, serving
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class ServeExpertsOptions:
    """What `toolorchestra serve experts` takes."""

    servers: tyro.conf.Positional[Path]
    """A TOML that names the models and how to serve them."""
    out: Path = Path("backends.toml")
    """The backends file, written when all servers answer."""
    logs: Path = Path("runs/servers")
    """Folder for the servers' output."""
    start_seconds: float = 900.0
    """How long they may take to answer."""


def run(given: ServeExpertsOptions) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    make_room("--out", given.out)
    ended = threading.Event()

    def end(*_: object) -> None:
        if not ended.is_set():
            ended.set()
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        servers = read_servers(tomllib.loads(given.servers.read_text(encoding="utf-8-sig")), str(given.servers))
        with serving(servers, given.logs, given.start_seconds, say) as running:
            given.out.write_text(endpoint_file(running), encoding="utf-8")
            say(f"{given.out} written; Ctrl-C stops the servers")
            while not ended.wait(1.0):
                for one in running:
                    one.answers()
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise ConfigError(f"{given.servers} is not TOML: {err}") from None
    except OSError as err:
        raise ConfigError(
            f"{err.filename or given.servers}: {err.strerror}; docs/serving.md shows a file of servers"
        ) from None
    except KeyboardInterrupt:
        pass
    say("stopped")
    return DONE


main = partial(command, ServeExpertsOptions, run, about=__doc__)
