"""Serve a policy behind OpenAI's chat API: `toolorchestra serve runs/mine --backends my.toml --keys keys.toml`.

Any client of that API asks it. A request may say budget_usd, deadline_seconds, preference and tools of its own; the
answer has its bill. `toolorchestra serve cascade --sim` answers embedded questions without any key.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.agents.commands.evaluation_setup import factory_for
from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.agents.policies.base import unreal
from toolorchestra.agents.policies.players import CHECKPOINT, check_name, player
from toolorchestra.agents.serving.accounts import Accounts, new_key, read_keys
from toolorchestra.agents.serving.canary import Canary
from toolorchestra.agents.serving.service import PolicyService, ServingLimits
from toolorchestra.agents.serving.solving import QuestionSolver
from toolorchestra.envs.base.errors import AT_LEAST_ONE, POSITIVE, SHARE, ConfigError, install, require
from toolorchestra.envs.retrieval.remote import LOOPBACK


@dataclass(frozen=True)
class ServeOptions:
    """What `toolorchestra serve` takes."""

    policy: tyro.conf.Positional[tuple[str, ...]] = ()
    """A run's folder, or a policy's name such as chat or cascade; several are served side by side. A request's model
    is one of the names that /v1/models lists."""
    env: tuple[str, ...] = ()
    """An id, then NAME=VALUE for gym.make: whose tools there are. What the policy was trained on when left out, or
    HLE-v0."""
    backends: str = ""
    """A file of the real models, searches and sandboxes behind the tools."""
    sim: bool = False
    """Simulated experts, which answer questions of the embedded worlds alone."""
    canary: str = ""
    """A second policy that answers a share of the first one's requests, until it fails more, is right less often, or
    costs too much; compared at 50, 100, 200, ... requests of each."""
    canary_share: float = 0.1
    """The share of the first policy's requests that the canary answers."""
    canary_cost: float = 1.5
    """How many times as much as the first policy the canary may cost."""
    host: str = "127.0.0.1"
    """Where to listen. Anything but the loopback needs --keys."""
    port: int = 8080
    """0 takes a free one."""
    keys: str = ""
    """A TOML file of the keys that may ask, with their limits."""
    database: str = ""
    """What the keys have spent: a file of SQLite, or a postgresql:// address that several servers share. In --out when
    left out."""
    replica: str = ""
    """Name of this server among those that share the database. HOST:PORT when left out, and of those on one Postgres
    the machine's name and the port."""
    release_lost: bool = False
    """Give back what requests had set aside whose server was killed."""
    new_key: str = ""
    """Print a fresh key for this name with its lines for the file, and end."""
    most_usd: float = 1.0
    """The most that one request may spend, and what it may where it says nothing."""
    deadline_seconds: float = 600.0
    """The most that one request may take."""
    session_seconds: float = 300.0
    """How long a conversation waits for the results of the client's own tools."""
    at_once: int = 64
    """Requests that run at once."""
    queue: int = 256
    """Requests that wait; more are refused."""
    drain_seconds: int = 30
    """How long requests may go on after SIGTERM."""
    out: str = ""
    """Folder of the trajectories; runs/served/TIME when left out."""
    no_texts: bool = False
    """Keep no message in the trajectories."""

    def __post_init__(self) -> None:
        require(self, POSITIVE, "most_usd", "deadline_seconds", "session_seconds")
        require(self, AT_LEAST_ONE, "at_once", "queue", "drain_seconds")
        require(self, SHARE, "canary_share")
        require(self, POSITIVE, "canary_cost")


def run(given: ServeOptions) -> int:
    """Serve until SIGTERM or Ctrl-C, then let requests in flight end."""
    if given.new_key:
        key, lines = new_key(given.new_key)
        say(f"The key, which is shown once: {key}\n\nIts lines for the file of --keys:\n{lines}")
        return DONE
    check(given)
    folder = Path(given.out or f"runs/served/{datetime.now():%Y%m%d-%H%M%S}")
    check_folder("--out", folder)
    with listening(given.host, given.port) as (url, serve):  # a port that is taken leaves no folder behind
        service = service_of(given, folder)
        simulated = " (SIMULATED experts)" if is_simulated(service) else ""
        say(f"{', '.join(service.solvers)} at {url}/v1{simulated}; the page: {url}/ ; trajectories: {folder}")
        serve(app_of(service), given.drain_seconds)
    return DONE


main = partial(command, ServeOptions, run, about=__doc__)


def check(given: ServeOptions) -> None:
    """Refuse what would be served by mistake."""
    if not given.policy:
        raise ConfigError("name the policy to serve: a run's folder, or a name such as chat or cascade")
    for named in given.policy:
        if not Path(named).is_dir():
            check_name(named)
    if bool(given.backends) == given.sim:
        raise ConfigError(
            "say what stands behind the tools: real models, or simulated ones, which only answer embedded questions",
            command_line="--backends FILE, or --sim",
        )
    if given.host not in LOOPBACK and not given.keys:
        raise ConfigError(
            f"{given.host} is heard beyond this machine, where anybody could spend your money; name a file of keys",
            command_line="--keys FILE, see --new-key",
        )


def service_of(given: ServeOptions, folder: Path) -> PolicyService:
    """The service that the options describe. Its files go into the folder."""
    env = chosen_envs([given.env])[0] if given.env else None
    more: dict[str, Any] = {"backends": given.backends} if given.backends else {}
    solvers: dict[str, QuestionSolver] = {}
    for named in (*given.policy, *([given.canary] if given.canary else [])):
        policy = f"{CHECKPOINT}{named}" if ":" not in named and Path(named).is_dir() else named
        label = Path(named).name if policy.startswith(CHECKPOINT) else named
        if label in solvers:
            raise ConfigError(f"two policies would be served as {label!r}; name folders that end differently")
        factory = factory_for(policy, env, **more)
        solvers[label] = QuestionSolver(factory, player(policy, factory))
    keys = read_keys(given.keys) if given.keys else {}
    shared = given.database.startswith("postgres")  # where all servers listen at 0.0.0.0
    replica = given.replica or f"{socket.gethostname() if shared else given.host}:{given.port}"
    folder.mkdir(parents=True, exist_ok=True)
    accounts = Accounts(keys, given.database or str(folder / "accounts.sqlite"), replica)
    if accounts.lost:
        say(f"{accounts.lost} requests were in flight when this server was killed; what they had set aside counts "
            "against their keys until --release-lost")  # fmt: skip
    if given.release_lost:
        say(f"gave back what {accounts.release_lost()} requests had set aside")
    limits = ServingLimits(given.most_usd, given.at_once, given.queue, given.deadline_seconds, given.session_seconds)
    names = list(solvers)
    canary = Canary(names[0], names[-1], given.canary_share, given.canary_cost) if given.canary else None
    return PolicyService(solvers, accounts, limits, folder, texts=not given.no_texts, canary=canary)


def is_simulated(service: PolicyService) -> bool:
    """Whether no real model stands behind what is served, whatever index or sandbox does."""
    return all(unreal(solver.factory) for solver in service.solvers.values())


def app_of(service: PolicyService) -> Any:
    """The ASGI application over a service, with its page."""
    from toolorchestra.agents.reports.page import page_of_server
    from toolorchestra.agents.serving.server import Server
    from toolorchestra.agents.serving.spans import Spans

    with suppress(ImportError):  # opentelemetry is a namespace, in which its API may be missing
        service.on_end.append(Spans())
    return Server(service, page_of_server("SIMULATED" if is_simulated(service) else "toolorchestra")).app()


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[str, Callable[[Any, int], None]]]:
    """A bound socket: its URL, and what serves an ASGI application there until SIGTERM or Ctrl-C."""
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise ConfigError(f"the server needs uvicorn: {install('serve')}") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: else asyncio leaves small writes waiting for each other, 40 ms an answer.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)  # who asks before the application has started waits, and is not refused
    except (OSError, OverflowError) as err:
        bound.close()
        raise ConfigError(f"cannot serve at {host}:{port}: {err}; name another with --host or --port") from None

    def serve(app: Any, drain_seconds: int) -> None:
        settings = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=drain_seconds, access_log=False
        )  # fmt: skip
        with suppress(KeyboardInterrupt):  # uvicorn has let requests end, and raises the signal again
            uvicorn.Server(settings).run(sockets=[bound])

    with bound:
        named = f"[{host}]" if family == socket.AF_INET6 else host
        yield f"http://{named}:{bound.getsockname()[1]}", serve
