"""Real backends by name: a file says which models, judge, index, web search and sandbox stand behind the tools.

    [endpoints.local]                      # and [models.NAME]: see models/endpoints.py
    base_url = "http://127.0.0.1:8000/v1"

    [judge]
    models = ["gpt-5-mini"]

    [retrieval]
    index = "indexes/wikipedia"            # or the address of a served one, or "embedded"
    web = true                             # Tavily

    [sandbox]
    kind = "landlock"
    seconds = 20.0

    [cassette]
    path = "runs/evening.jsonl"
    mode = "record"

What is not named stays as it is without a file: simulated models, the embedded corpus, the arithmetic interpreter.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion, ContextLimits, limits_of, output_tokens_of
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.retrieval import Retriever
from toolorchestra.envs.retrieval.corpus import Manifest
from toolorchestra.envs.sandbox import Bounds, Interpreter
from toolorchestra.envs.sandbox.e2b_and_unsafe import UNSAFE, interpreter
from toolorchestra.envs.tools.assemble import Backends
from toolorchestra.envs.tools.cassette_backends import RecordedInterpreter, RecordedModels, RecordedRetriever

if TYPE_CHECKING:
    from toolorchestra.envs.models.openai import OpenAiModels
    from toolorchestra.envs.retrieval.embeddings import ServedEmbedder

EXAMPLE = """\
[endpoints.local]
base_url = "http://127.0.0.1:8000/v1"
[models.gpt-5-mini]
endpoints = ["local"]"""
EMBEDDED = "embedded"
SLACK_SECONDS = 30.0
UNBOUNDED_SECONDS = 120.0
"""What a part that says nothing of its patience is given."""


@dataclass(frozen=True)
class NamedBackends:
    """What a file and the command line name, nothing of it made yet."""

    where: str
    endpoints: Endpoints | None = None
    judges: tuple[str, ...] = ()
    index: str = field(default="", repr=False)
    """A folder, or an address, which may hold a login."""
    web: bool = False
    web_url: str = field(default="", repr=False)
    sandbox: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    sessions: bool = False
    bubblewrap: bool = True
    """Put the landlock server into namespaces as well, where bwrap is there and can make them."""
    unsafe_exec: bool = False
    """The sandbox "unsafe-exec" is refused without it: a file found somewhere may not ask for it alone."""
    cassette: str = ""
    mode: str = ""

    @property
    def names_search(self) -> bool:
        return bool(self.index or self.web)

    @property
    def names_models(self) -> bool:
        """Whether a model is named that answers: the embedder of an index answers nobody."""
        embedder = ""
        with suppress(ConfigError):
            embedder = str(Manifest.read(Path(self.index)).settings.get("embedder", ""))
        return self.endpoints is not None and bool(self.endpoints.models.keys() - {embedder})


@dataclass(frozen=True)
class _RetrievalTable:
    index: str = ""
    web: bool = False
    web_url: str = ""


@dataclass(frozen=True)
class _SandboxTable(Bounds):
    kind: str = ""
    sessions: bool = False
    bubblewrap: bool = True


@dataclass(frozen=True)
class _BackendsFile:
    """A file of backends, as it is written."""

    endpoints: Any = None
    models: Any = None
    judge: Mapping[Literal["models"], tuple[str, ...]] = field(default_factory=dict)
    retrieval: _RetrievalTable = _RetrievalTable()
    sandbox: _SandboxTable = _SandboxTable()
    cassette: Mapping[Literal["path", "mode"], str] = field(default_factory=dict)


def read(path: str | Path = "", **changes: Any) -> NamedBackends:
    """What a TOML or JSON file names, with single things named otherwise by keyword."""
    wanted = _parse(Path(path)) if path else NamedBackends("the arguments")
    valid = [f.name for f in fields(NamedBackends)]
    for name in changes:
        one_of("backend setting", name, valid)
    return replace(wanted, **{name: value for name, value in changes.items() if value not in ("", (), None)})


def _parse(path: Path) -> NamedBackends:
    if not path.is_file():
        raise ConfigError(f"no file of backends {str(path)!r}; write one, such as:\n{EXAMPLE}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as err:
        raise ConfigError(f"{path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {err}") from None
    if not data:
        raise ConfigError(f"{path} is empty; it names what stands behind the tools, such as:\n{EXAMPLE}")
    named = shapes.read(_BackendsFile, data, str(path))
    box = named.sandbox
    return NamedBackends(
        where=str(path),
        endpoints=Endpoints.read(data, str(path)) if "endpoints" in data or "models" in data else None,
        judges=named.judge.get("models", ()),
        **vars(named.retrieval),
        sandbox=box.kind,
        bounds=Bounds(**{one.name: getattr(box, one.name) for one in fields(Bounds)}),
        sessions=box.sessions,
        bubblewrap=box.bubblewrap,
        cassette=named.cassette.get("path", ""),
        mode=named.cassette.get("mode", ""),
    )


def deadline(models: object, calls: int = 1) -> float:
    """Seconds that a tool may wait: longer than so many calls of a backend can take, one after the other: it gives up
    by itself, and says what was paid. A backend that says nothing of its patience has as long as any tool."""
    patience = calls * getattr(models, "patience_seconds", 0.0)
    return float(max(UNBOUNDED_SECONDS, patience + SLACK_SECONDS))


class BesideSimulated:
    """Models of a file, beside simulated ones for the names that it does not have."""

    suspends = True

    def __init__(self, named: ChatModel, simulated: ChatModel, endpoints: Endpoints) -> None:
        self._named, self._simulated, self._endpoints = named, simulated, endpoints

    async def complete(self, request: ChatRequest) -> Completion:
        """One completion, of whoever it is that has the name."""
        return await self.of(request.model).complete(request)

    def output_tokens_of(self, model: str) -> int:
        """The most tokens that a model's reply may have; 0: nobody knows."""
        return output_tokens_of(self.of(model), model, 0)

    def limits_of(self, model: str) -> ContextLimits:
        """How much of the gathered material a model is shown."""
        return limits_of(self.of(model), model)

    def of(self, model: str) -> ChatModel:
        """The models of whom one is."""
        return self._named if self._endpoints.names(model) else self._simulated


class Backing:
    """The named backends, made once and shared by all that name them: their limits are the process's."""

    def __init__(
        self,
        wanted: NamedBackends,
        around: Callable[[Backends], Backends] | None = None,
        model: ChatModel | None = None,
    ) -> None:
        """`around` puts something of yours around the backends, as tests/support/chaos.py does. `model` is one of
        yours, which stands behind every expert."""
        self.wanted = wanted
        self._own = model
        self._around = around
        self.cassette = Cassette(wanted.cassette, wanted.mode) if wanted.cassette else None  # type: ignore[arg-type]
        if wanted.mode and not wanted.cassette:
            raise ConfigError(f"{wanted.where}: a cassette of mode {wanted.mode!r} needs a path")
        replayed = wanted.mode == "replay"
        if model is None and not replayed:
            _require_judges(wanted)
        self._models: OpenAiModels | None = None
        if wanted.endpoints and not replayed:
            from toolorchestra.envs.models.openai import OpenAiModels

            self._models = OpenAiModels(wanted.endpoints)
        self._retriever = _index(wanted) if wanted.index not in ("", EMBEDDED) and not replayed else None
        self._web: Retriever | None = None
        if wanted.web and not replayed:
            from toolorchestra.envs.retrieval.remote import Service, Tavily

            self._web = Tavily(Service(base_url=wanted.web_url) if wanted.web_url else Service())
        self._interpreter = _sandbox(wanted) if wanted.sandbox and not replayed else None

    def simulates(self, experts: Sequence[str]) -> bool:
        """Whether these stay simulated: where the file names no models, or none of them but others, such as the
        orchestrator. Raises ConfigError where it names some of them alone."""
        wanted = self.wanted
        if self._own is not None or wanted.endpoints is None or not wanted.names_models:
            return not self.names_models and wanted.mode != "replay"
        missing = [name for name in experts if not wanted.endpoints.names(name)]
        if missing and len(missing) < len(set(experts)):
            raise ConfigError(
                f"{wanted.where} does not say where {', '.join(missing)} is served, which the tools ask beside others "
                'that it names; name all of them, or all others by [models."*"], or none: then they are simulated'
            )
        return bool(missing)

    def over(self, embedded: Backends, experts: Sequence[str] = ()) -> Backends:
        """The embedded backends with what is named in their place, over the cassette where there is one. `experts` are
        the models that tools ask."""
        wanted = self.wanted
        answering = self._models if wanted.names_models else None
        models: ChatModel = self._own or answering or embedded.models
        if answering is not None and self.simulates(experts):
            models = BesideSimulated(answering, embedded.models, answering.endpoints)
        retriever: Retriever = self._retriever or embedded.retriever
        web: Retriever | None = self._web
        box: Interpreter = self._interpreter or embedded.interpreter
        named = filter(None, (self._models, self._retriever or web, self._interpreter))
        patience = sum(getattr(part, "patience_seconds", UNBOUNDED_SECONDS) for part in named)
        if self.cassette is not None:
            replayed = wanted.mode == "replay"
            models = RecordedModels(None if replayed else models, self.cassette, wanted.endpoints)
            if wanted.web:
                web = RecordedRetriever(web, self.cassette, "web")
            retriever = RecordedRetriever(None if replayed else retriever, self.cassette)
            box = RecordedInterpreter(None if replayed else box, self.cassette)
        if wanted.web and not wanted.index and web is not None:
            retriever = web  # then every search is of the web
        made = replace(
            embedded, models=models, retriever=retriever, interpreter=box, web=web, endpoints=wanted.endpoints,
            judges=wanted.judges, cassette=self.cassette,
            deadline_seconds=max(embedded.deadline_seconds, patience + SLACK_SECONDS),
        )  # fmt: skip
        return self._around(made) if self._around else made

    @property
    def names_models(self) -> bool:
        """Whether real models answer, or what is replayed are their answers; else those that answer are simulated,
        whatever else is real."""
        wanted, tape = self.wanted, self.cassette
        replayed = wanted.mode == "replay" and wanted.endpoints is None and tape is not None and not tape.simulated
        return self._own is not None or wanted.names_models or replayed

    @property
    def models(self) -> ChatModel:
        """The models that the file names, over the cassette where there is one, with nothing of yours around them."""
        if self.cassette is not None:
            return RecordedModels(self._models, self.cassette, self.wanted.endpoints)
        if self._own is not None:
            return self._own
        if self._models is None:
            raise ConfigError(f"{self.wanted.where}: no endpoint of a model; add [endpoints.NAME] and [models.NAME]")
        return self._models

    async def check(self) -> None:
        """Ask every endpoint whether it is there. Raises ConfigError where a model has none that answers."""
        if self._models is not None:
            await self._models.check()

    async def aclose(self) -> None:
        """Close the connections to models that belong to the running loop, before it ends."""
        if self._models is not None:
            await self._models.aclose()

    def close(self) -> None:
        """End what runs: the sandbox's server."""
        close = getattr(self._interpreter, "close", None)
        if close is not None:
            close()


def _require_judges(wanted: NamedBackends) -> None:
    """Refuse a judge that nobody serves: simulated models judge nothing."""
    for judge in wanted.judges:
        if wanted.endpoints is None or not wanted.endpoints.names(judge):
            raise ConfigError(
                f'{wanted.where}: the judge {judge} is a model: say where it is served, by [models."{judge}"] in the '
                "file of backends",
                command_line=f"--backends FILE judge={judge}",
            )


def _index(wanted: NamedBackends) -> Retriever:
    if wanted.index.startswith(("http://", "https://")):
        from toolorchestra.envs.retrieval.remote import Remote

        return Remote(wanted.index)
    from toolorchestra.envs.retrieval.index_and_hybrid import load

    return load(wanted.index, lambda name: served_embedder(wanted, name))


def served_embedder(wanted: NamedBackends, name: str) -> ServedEmbedder:
    """The embedding model of a name, where the file says that it is served."""
    from toolorchestra.envs.retrieval.embeddings import EmbeddingServer, ServedEmbedder

    if wanted.endpoints is None or not wanted.endpoints.names(name):
        raise ConfigError(f'{wanted.where} does not say where the embedder is served; add [models."{name}"] to it')
    served, ends = wanted.endpoints.served(name), wanted.endpoints.endpoints
    servers = [EmbeddingServer(ends[one].base_url, ends[one].key_env, ends[one].in_flight) for one in served.endpoints]
    return ServedEmbedder(name, servers, served.model, served.deadline_seconds, served.retries, served.extra)


def _sandbox(wanted: NamedBackends) -> Interpreter:
    if wanted.sandbox == UNSAFE and not wanted.unsafe_exec:
        raise ConfigError(
            f"{wanted.where}: sandbox {UNSAFE!r} runs programs of models with your own rights; if that is meant, say "
            "unsafe_exec=True",
            command_line="--backends unsafe_exec=true",
        )
    return interpreter(wanted.sandbox, wanted.bounds, wanted.sessions, wanted.bubblewrap)


_made: dict[tuple[str, int], Backing] = {}


def names_models(named: object) -> bool:
    """Whether what an environment is given as `backends` names real models. Nothing is opened for it."""
    if isinstance(named, Backing):
        return named.names_models
    wanted = read(named) if isinstance(named, str | Path) else named
    return wanted is not None and (not isinstance(wanted, NamedBackends) or wanted.names_models)


def backing(named: str | Path | NamedBackends | Backing | ChatModel) -> Backing:
    """Give the backends that a file names, or those in which a model of your own stands behind every expert. Naming a
    file again gives the same ones, as long as it is unchanged."""
    if isinstance(named, Backing):
        return named
    if hasattr(named, "complete"):
        return Backing(NamedBackends(f"backends={type(named).__name__}"), model=cast(ChatModel, named))
    if isinstance(named, NamedBackends):
        return Backing(named)
    if not isinstance(named, str | Path):
        raise ConfigError(f"backends is a TOML or JSON file, got {named!r:.80}; write one, such as:\n{EXAMPLE}")
    wanted = read(named)
    key = (str(Path(named).resolve()), Path(named).stat().st_mtime_ns)
    if key not in _made:
        _made[key] = Backing(wanted)
    return _made[key]
