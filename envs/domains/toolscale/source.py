"""ToolScale: service tasks over synthetic domains on SQLite, every one of them checked by running it. See
docs/domains.md."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.database import DatabaseSession, SqlDatabase
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.tool_runs import Called, Runner
from toolorchestra.envs.domains.toolscale.user import SqlModelUser, SqlScriptedUser
from toolorchestra.envs.domains.toolscale.world import NAME as CALL_EXPERT
from toolorchestra.envs.domains.toolscale.world import OFFERS, SimulatedExperts, SqlWorld, call_expert, llm_listener
from toolorchestra.envs.models import ChatModel
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.backends import Backing, backing, deadline
from toolorchestra.envs.tools.tool_config import Half, check_half, half_of, sample_prices, variation

SCRIPTED = "scripted"
"""The user that no model plays."""
SPLITS = ("train", "validation", "test", "heldout")
"""`heldout`: all tasks of the domains that are kept for generalisation; the others never hold them when domains mix."""
LEVELS = ("easy", "medium", "hard")
"""How hard a task is; see docs/domains.md."""
_MOST_BOXES = 64
_TRIES = 60
_SPARE_SHARE = 0.5
"""Share of the tools that a task does not need which is kept on average when tools vary."""


class ReadyDomain:
    """A domain ready to be played: its database, and its tools as the engine runs them."""

    def __init__(self, domain: SqlDomain) -> None:
        self.domain = domain
        self.database = SqlDatabase(domain)
        self.tools = {}
        for name, tool in domain.tools.items():
            run = partial(_run, Runner(tool, domain.clock))
            self.tools[name] = Tool(name, tool.description, tool.parameters, run, suspends=False)
        self.ids: dict[str, list[str]] = {}
        for task in domain.tasks.values():
            self.ids.setdefault(task.split, []).append(task.task_id)


def ready(name: str) -> ReadyDomain:
    """A shipped domain, or one in a folder; one for all environments of the process, as loader.load()."""
    return _made_ready(loader.load(name))


@lru_cache(maxsize=64)
def _made_ready(domain: SqlDomain) -> ReadyDomain:
    return ReadyDomain(domain)


def _run(runner: Runner, context: ToolContext, /, **arguments: Any) -> ToolResult:
    called: Called = runner.call(context.world.session, arguments)
    return ToolResult(called.text, note=called)


class ToolScaleSource:
    """Service tasks over a database, each with a user, a policy and tools.

    domain: The name of a shipped domain, or a folder of your own. None mixes all shipped ones but those held out.
    level: Only tasks of this level: "easy", "medium" or "hard". None: all.
    user: "scripted", or the model that plays it: a name in the backends file, or SqlModelUser(models, model).
    diversify: Draw tools and prices anew for each task: from "train", "validation" or "heldout". None: as they are.
    call_expert: Whether the tool `call_expert` is there, with which a model writes the next turn.
    backends: A file of real models, what `backing.read` and `Backing` made of one, or a ChatModel of yours: where the
        orchestrator of policy `chat` and the experts are served. Simulated experts know the gold path, so with it there
        are none.
    """

    def __init__(
        self,
        domain: str | None = None,
        user: str | SqlModelUser = "scripted",
        diversify: Half | None = None,
        call_expert: bool = True,
        level: str | None = None,
        backends: str | Path | Backing | ChatModel | None = None,
    ) -> None:
        check_half(diversify)
        if level not in (None, *LEVELS):
            raise ConfigError(no_such("level", str(level), LEVELS))
        self.level = level
        self.name = "toolscale"
        self._lock = threading.Lock()
        self._boxes: dict[Any, tuple[PriceSheet, Toolbox]] = {}
        self._folder = domain
        self._played_from: dict[str, ReadyDomain] = {}
        self._heads = _heads(domain)
        self.diversify = diversify
        self.backing = backing(backends) if backends is not None else None
        self.user = self._played(user) if user != SCRIPTED else None
        self._listener = llm_listener(self.user) if self.user else None
        self._sheets: dict[tuple[int, str], tuple[PriceSheet, PriceSheet]] = {}
        self._experts: ChatModel | None = None
        if call_expert:
            self._experts = self._served_experts() if self.backing else SimulatedExperts()
        self.splits: Sequence[str] = tuple(split for split in SPLITS if self._domains(split))

    def _played(self, user: object) -> SqlModelUser:
        """The user that a model plays."""
        if isinstance(user, SqlModelUser):
            return user
        if self.backing is None or not isinstance(user, str):
            raise ConfigError(
                f"{no_such('user', user, (SCRIPTED,))} Or name the model that plays it, with backends=FILE, which says "
                "where it is served (docs/domains.md); or give SqlModelUser(models, model)"
            )
        if self.backing.wanted.endpoints is not None:
            self.backing.wanted.endpoints.served(user)  # refuses a name that the file does not have
        return SqlModelUser(self.backing.models, user)

    def _served_experts(self) -> ChatModel:
        """The models of the backends file, which has to name every expert's."""
        assert self.backing is not None
        endpoints, where = self.backing.wanted.endpoints, self.backing.wanted.where
        if endpoints is not None:
            asked = [offer.model for offer in OFFERS]
            if missing := [model for model in asked if not endpoints.names(model)]:
                raise ConfigError(
                    f"call_expert asks {', '.join(asked)}, and {where} does not say where {missing[0]} is served; name "
                    "it there, or leave the tool out: call_expert=False"
                )
        return self.backing.models

    def _domains(self, split: str) -> list[str]:
        alone = self._folder is not None
        if split == "heldout":
            whole = [] if alone else [name for name, head in self._heads.items() if head.get("held_out", False)]
            return [name for name, head in self._heads.items() if name in whole or head["counts"].get("held_out_tasks")]
        return [name for name, head in self._heads.items() if alone or not head.get("held_out", False)]

    def ids(self, domain: str, split: str) -> list[str]:
        """The tasks of a domain in a split, of the asked level; there may be none."""
        found = self._ready(domain)
        whole = split == "heldout" and self._folder is None and found.domain.held_out
        tasks = [task_id for part in (found.ids if whole else (split,)) for task_id in found.ids.get(part, [])]
        return tasks if self.level is None else [one for one in tasks if found.domain.tasks[one].level == self.level]

    def _ready(self, domain: str) -> ReadyDomain:
        if domain not in self._played_from:
            self._played_from[domain] = ready(domain if self._folder is None else self._folder)
        return self._played_from[domain]

    def task_ids(self, split: str) -> Sequence[str]:
        """List a split's tasks."""
        return [
            f"{self.name}/{domain}/{number}" for domain in self._domains(split) for number in self.ids(domain, split)
        ]

    def draw(self, split: str, rng: random.Random) -> str:
        domains = self._domains(split)
        while domains:
            domain = rng.choice(domains)
            if tasks := self.ids(domain, split):
                return f"{self.name}/{domain}/{rng.choice(tasks)}"
            domains.remove(domain)  # the others have some
        wanted = "" if self.level is None else f" of level {self.level}"
        raise ConfigError(
            f"no task{wanted} in split {split!r} of {', '.join(self._domains(split))}; ask for another split"
            + " or level" * (self.level is not None)
        )

    def find(self, task_id: str) -> tuple[ReadyDomain, SqlTask]:
        """The domain and task of an id such as `toolscale/finance/0042`."""
        name, _, rest = task_id.partition("/")
        domain, _, number = rest.partition("/")
        if name != self.name or domain not in self._heads:
            form = f"{self.name}/DOMAIN/NUMBER with DOMAIN of {', '.join(self._heads)}"
            raise ConfigError(f"no task {task_id!r}; ids are {form}")
        found = self._ready(domain)
        if number not in found.domain.tasks:
            known = list(found.domain.tasks) or ["none"]
            raise ConfigError(f"no task {task_id!r}; {domain} has {known[0]} to {known[-1]}")
        return found, found.domain.tasks[number]

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet with the price that the backends file gives the orchestrator, if it names it, or all models."""
        return self._priced(sheet, (orchestrator,))

    def _priced(self, sheet: PriceSheet, models: Sequence[str]) -> PriceSheet:
        """The sheet with the backends file's prices of these models; the same object each time."""
        endpoints = self.backing.wanted.endpoints if self.backing else None
        if endpoints is None or not (named := [model for model in models if endpoints.names(model)]):
            return sheet
        key = (id(sheet), " ".join(named))
        if key not in self._sheets:
            if len(self._sheets) >= _MOST_BOXES:
                self._sheets.clear()
            self._sheets[key] = (sheet, endpoints.priced(sheet, named))  # held, so that its id stays taken
        return self._sheets[key][1]

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        found, task = self.find(task_id)
        asked = [offer.model for offer in OFFERS] if self._experts is not None else []
        if self.user:
            asked.append(self.user.model)
        sheet = self._priced(sheet, asked)
        if self.user:
            sheet.require_tokens([self.user.model], "the simulated user")
        names = tuple(tools) if tools else None
        if self.diversify:
            rng = variation(seed)
            names = names or _varied(found.domain, task, rng, self.diversify, experts=self._experts is not None)
            models = [offer.model for offer in OFFERS] if self._experts else []
            sheet = sample_prices(sheet, models, rng, self.diversify)
            toolbox = self._assemble(found, sheet, names)
        else:
            toolbox = self._toolbox(found, sheet, names)
        world = SqlWorld(found.domain, task, DatabaseSession(found.database), toolbox, seed, self._listener)
        world.user = SqlScriptedUser(task, seed, self.diversify)
        public = {
            "task_id": task_id,
            "domain": found.domain.name,
            "split": task.split,
            "difficulty": task.difficulty,
        }
        if task.hardness:
            public |= {"level": task.level, "hardness": dict(task.hardness)}
        return Scene(world, sheet, public)

    def _toolbox(self, found: ReadyDomain, sheet: PriceSheet, names: tuple[str, ...] | None) -> Toolbox:
        # By identity, and holding the sheet: two sheets may have one name and different prices.
        key = (found.domain.name, id(sheet), names)
        with self._lock:
            if key not in self._boxes:
                if len(self._boxes) >= _MOST_BOXES:
                    self._boxes.clear()
                self._boxes[key] = (sheet, self._assemble(found, sheet, names))
            return self._boxes[key][1]

    def _assemble(self, found: ReadyDomain, sheet: PriceSheet, names: Sequence[str] | None) -> Toolbox:
        tools = list(found.tools.values())
        if self._experts:
            heard = self._listener
            seconds = deadline(self._experts) + (heard.deadline_seconds if heard else 0.0)
            suspends = bool(heard and heard.suspends)
            tools.append(call_expert(self._experts, sheet, user_suspends=suspends, deadline_seconds=seconds))
        toolbox = Toolbox(tools)
        sheet.require(toolbox.bills, f"domain {found.domain.name!r}")
        return toolbox.only(names)


def _heads(domain: str | None) -> Mapping[str, Mapping[str, Any]]:
    if domain is None:
        heads = {name: loader.manifest(loader.SHIPPED / name) for name in loader.names()}
        if not heads:
            raise ConfigError(f"no domains in {loader.SHIPPED}; name a domain's folder: domain=PATH")
        return heads
    head = loader.manifest(loader.resolve(domain))
    return {head["name"]: head}


def _varied(domain: SqlDomain, task: SqlTask, rng: random.Random, half: Half, *, experts: bool) -> tuple[str, ...]:
    """The tools that the task needs and some of the others; transfers and experts always stay. Where a domain leaves
    hardly a choice, a task may have no set of this half."""
    needed = {action.name for path in (task.actions, *task.alternatives) for action in path}
    for _ in range(_TRIES):
        kept = [
            name
            for name, tool in domain.tools.items()
            if name in needed or tool.transfers or rng.random() < _SPARE_SHARE
        ]
        if half_of(" ".join(sorted(kept))) == half:
            break
    return (*kept, CALL_EXPERT) if experts else tuple(kept)
