"""A reference domain that is ready to be played: its toolkit run, its database lent, every call a transaction."""

from __future__ import annotations

import inspect
import json
import re
import threading
import typing
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.calculator import calculate
from toolorchestra.envs.domains.tau2.copies import clone
from toolorchestra.envs.domains.tau2.domain import State, Tau2Domain, ToolReply, described, rendered, steady, updated
from toolorchestra.envs.domains.tau2.reference.change_tracking import duplicate
from toolorchestra.envs.domains.tau2.reference.database import EpisodeRecords, Master
from toolorchestra.envs.domains.tau2.reference.folders import DATABASE, POLICY, TOOLKIT, place_of, places
from toolorchestra.envs.domains.tau2.reference.frozen_modules import FrozenModules, moment
from toolorchestra.envs.domains.tau2.reference.importing import Importer
from toolorchestra.envs.domains.tau2.reference.tables import TrackedTable
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import Function, Side, Tau2Task

DEFAULT_NOW = "2024-05-15 15:00:00"
"""What most of the reference's policies say, for those that say nothing."""
_STATED = re.compile(
    r"\b(?:current (?:date|time|date and time)|today|now|today's date) is "
    r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)",
    re.IGNORECASE,
)
_MOST_VARIANTS = 64
_T = TypeVar("_T")


class Toolkit:
    """A domain's classes, database and clock. One for all episodes, whatever tasks they play."""

    def __init__(self, folder: str, name: str, now: str | None) -> None:
        found = places(folder)
        place = place_of(found, name, folder)
        code = place.toolkit()
        database, policy = place.file(DATABASE, "the database"), place.file(POLICY, "what the agent has to follow")
        if (code / "user_tools.py").is_file():
            raise ConfigError(f"{name} has tools of the user's, which are not played; telecom is a domain of Tau2-v0")
        self.name, self.policy = name, policy.read_text(encoding="utf-8")
        stated = _STATED.search(self.policy)
        self.clock = now or (stated.group(1) if stated else DEFAULT_NOW)
        self.frozen = FrozenModules(moment(self.clock, "now" if now else str(policy)))
        importer = Importer({n: p.code for n, p in found.items() if p.code}, self.frozen)
        tools = importer.load(name, "tools")
        path = code / TOOLKIT
        self.kind = _leaf(tools, package.member("environment.toolkit:ToolKitBase"), path, "toolkit")
        _resolve(self.kind, path)
        self.master = Master(_database(self.kind, tools, database, path))
        self.lock = threading.RLock()
        try:
            self.tools = described(self.kind(EpisodeRecords(self.master).model))
        except ConfigError:
            raise
        except Exception as err:
            raise ConfigError(f"{path}: {self.kind.__name__}(db) fails: {type(err).__name__}: {err}") from err
        if not self.tools:
            raise ConfigError(f"{path}: {self.kind.__name__} has no tool; mark its methods with @is_tool(...)")


@lru_cache(maxsize=32)
def load_toolkit(folder: str, name: str, now: str | None) -> Toolkit:
    """The process's one Toolkit of these. Runs the folder's code."""
    return Toolkit(folder, name, now)


def _leaf(module: Any, base: type, path: Path, what: str) -> Any:
    """The one class of a module that derives from `base` and from which none derives."""
    own = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, base) and c is not base]
    here = [c for c in own if c.__module__ == module.__name__] or own
    leaves = [c for c in here if not any(other is not c and issubclass(other, c) for other in here)]
    leaves = [c for c in leaves if c.__module__.split(".")[0] != "tau2"]
    if len(leaves) != 1:
        got = ", ".join(sorted(c.__name__ for c in leaves)) or "none"
        raise ConfigError(f"{path}: one class derived from {base.__name__} expected as the {what}, got {got}")
    return leaves[0]


def _resolve(kind: Any, path: Path) -> None:
    """Annotations written as text become types: the package reads them where their names mean nothing."""
    for name in dir(kind):
        function = inspect.getattr_static(kind, name)
        if inspect.isfunction(function) and any(isinstance(a, str) for a in function.__annotations__.values()):
            try:
                function.__annotations__.update(typing.get_type_hints(function, include_extras=True))
            except NameError as err:
                raise ConfigError(f"{path}: {name}'s annotations cannot be read: {err}; import what they name") from err


def _database(kind: Any, tools: Any, file: Path, path: Path) -> Any:
    base = package.member("environment.db:DB")
    hint: Any = typing.get_type_hints(kind).get("db")
    if not (isinstance(hint, type) and issubclass(hint, base) and hint is not base):
        hint = _leaf(tools, base, path, "database's kind")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ConfigError(f"{file}: not JSON: {err}") from None
    try:
        return hint.model_validate(data)
    except ValueError as err:
        raise ConfigError(f"{file} does not fit {hint.__name__}: {steady(str(err)):.600}") from None


class KitState(State):
    """One episode's database with its toolkit. A call that raises leaves nothing behind."""

    __slots__ = ("_database", "_made", "_toolkit")

    def __init__(self, domain: ReferenceDomain, master: Master) -> None:
        self._toolkit = domain.toolkit
        self._database = EpisodeRecords(master)
        super().__init__(domain.toolkit.kind(self._database.model), None, None, domain)
        self._made: Counter[str] = Counter()

    def call(self, side: Side, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        try:
            return ToolReply(self._whole(name, arguments, lambda: rendered(self._run(side, name, arguments))), False)
        except (Exception, SystemExit) as err:  # noqa: BLE001 - toolkits refuse by raising anything
            return ToolReply(f"Error: {steady(str(err))}", True)

    def value(self, side: Side, name: str, arguments: Mapping[str, Any], *, sync: bool = True) -> Any:
        del sync
        return self._whole(name, arguments, lambda: self._run(side, name, arguments))

    def run(self, function: Function) -> Any:
        method = getattr(self.kits[0], function.name)
        return self._whole(function.name, function.arguments, lambda: method(**clone(function.arguments)))

    def _run(self, side: Side, name: str, arguments: Mapping[str, Any]) -> Any:
        if side != "assistant" or name not in self._agent_names:
            raise ValueError(f"Tool '{name}' not found.")
        if name == "calculate" and set(arguments) == {"expression"}:
            return calculate(**arguments)
        return getattr(self.kits[0], name)(**clone(arguments))

    def _whole(self, name: str, arguments: Mapping[str, Any], deed: Callable[[], _T]) -> _T:
        """All of it or nothing. Chance follows from the call and from how often it was made, so that calls in another
        order draw the same ids."""
        kit, database = self.kits[0], self._database
        with self._toolkit.lock:
            call = f"{self._toolkit.name} {name} {_canonical(getattr(kit, name, None), arguments)}"
            self._toolkit.frozen.reseed(f"{call} {self._made[call]}")
            database.begin()
            own = _attributes(kit)
            try:
                made = deed()
                database.keep(kit.db)
                vars(kit).update(_attributes(kit))
            except BaseException:
                database.undo()
                vars(kit).clear()
                vars(kit).update(own)
                raise
            finally:
                kit.db = database.model
            self._made[call] += 1
            return made

    def touched(self) -> dict[tuple[str, str], str]:
        return self._database.touched()

    def pristine(self, row: tuple[str, str]) -> str:
        return self._database.master.text(*row)


def _attributes(kit: Any) -> dict[str, Any]:
    """What a toolkit keeps beside its database, copied. Its database and tables are put back by themselves."""
    return {
        name: value if name == "db" or isinstance(value, TrackedTable) else duplicate(value)
        for name, value in vars(kit).items()
    }


def _canonical(method: Any, arguments: Mapping[str, Any]) -> str:
    """The arguments with the defaults filled in, whole numbers written one way."""
    given = dict(arguments)
    if method is not None:
        try:
            bound = inspect.signature(method).bind(**given)
            bound.apply_defaults()
            given = dict(bound.arguments)
        except (TypeError, ValueError):
            pass  # a call that does not fit will be refused by the method itself
    return json.dumps(_numbers(given), sort_keys=True, default=str)


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _numbers(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class ReferenceDomain(Tau2Domain):
    """A domain of the reference with the tasks of one shelf."""

    def __init__(self, toolkit: Toolkit, release: Release) -> None:
        self.toolkit, self.release = toolkit, release
        self.name = self.folder = toolkit.name
        self.solo, self.policy = False, toolkit.policy
        self.tools, self.user_tools = toolkit.tools, ()
        self.agent_names = frozenset(tool.name for tool in self.tools)
        self.user_names = frozenset()
        self._variants: dict[str, Master] = {}
        """Databases of tasks that start from another one than the folder's."""

    def start(self, plan: Tau2Task) -> State:
        return self._prepared(KitState(self, self._master(plan)), plan)

    def _master(self, plan: Tau2Task) -> Master:
        if not plan.agent_data:
            return self.toolkit.master
        if plan.task_id not in self._variants:
            if len(self._variants) >= _MOST_VARIANTS:
                self._variants.clear()
            model = updated(duplicate(self.toolkit.master.model), plan.agent_data)
            self._variants[plan.task_id] = Master(model)
        return self._variants[plan.task_id]
