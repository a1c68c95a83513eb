"""A reference domain that is ready to be played: its toolkit run, and a database for each episode."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import threading
import typing
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.calculator import calculate
from toolorchestra.envs.domains.tau2.copies import clone, written
from toolorchestra.envs.domains.tau2.domain import State, Tau2Domain, ToolReply, described, rendered, steady, updated
from toolorchestra.envs.domains.tau2.reference.folders import DATABASE, POLICY, TOOLKIT, places
from toolorchestra.envs.domains.tau2.reference.frozen_modules import FrozenModules, moment
from toolorchestra.envs.domains.tau2.reference.importing import Importer
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import Function, Side, Tau2Task

DEFAULT_NOW = "2024-05-15 15:00:00"
"""What most of the reference's policies say, for those that say nothing."""
_STATED = re.compile(
    r"\b(?:current (?:date|time|date and time)|today|now|today's date) is "
    r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)",
    re.IGNORECASE,
)


class Toolkit:
    """A domain's classes, clock and pristine database. One for all episodes, whatever tasks they play."""

    def __init__(self, folder: str, name: str, now: str | None) -> None:
        found = places(folder)
        place = found[name]
        path = place.toolkit() / TOOLKIT
        database, policy = place.file(DATABASE, "the database"), place.file(POLICY, "what the agent has to follow")
        if path.with_name("user_tools.py").is_file():
            raise ConfigError(f"{name} has tools of the user's, which are not played; telecom is a domain of Tau2-v0")
        self.name, self.policy = name, policy.read_text(encoding="utf-8")
        stated = _STATED.search(self.policy)
        self.clock = now or (stated.group(1) if stated else DEFAULT_NOW)
        self.frozen = FrozenModules(moment(self.clock, "now" if now else str(policy)))
        tools = Importer({n: p.code for n, p in found.items() if p.code}, self.frozen).load(name, "tools")
        self.kind = _leaf(tools, package.member("environment.toolkit:ToolKitBase"), path, "toolkit")
        _resolve(self.kind, path)
        self.database = _database(self.kind, tools, database, path)
        self.lock = threading.RLock()
        try:
            self.tools = described(self.fresh({}))
        except ConfigError:
            raise
        except Exception as err:
            raise ConfigError(f"{path}: {self.kind.__name__}(db) fails: {type(err).__name__}: {err}") from err
        if not self.tools:
            raise ConfigError(f"{path}: {self.kind.__name__} has no tool; mark its methods with @is_tool(...)")

    def fresh(self, changes: Mapping[str, Any]) -> Any:
        """The toolkit's class over a database of its own, some of whose fields may be changed."""
        with self.lock:
            self.frozen.reseed(self.name)
            return self.kind(updated(self.database, changes) if changes else clone(self.database))


@lru_cache(maxsize=32)
def load_toolkit(folder: str, name: str, now: str | None) -> Toolkit:
    """The process's one Toolkit of these. Runs the folder's code."""
    return Toolkit(folder, name, now)


def _leaf(module: Any, base: type, path: Path, what: str) -> Any:
    """The one class of a module that derives from `base` and from which none derives."""
    own = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, base) and c is not base]
    here = [c for c in own if c.__module__ == module.__name__] or own
    leaves = [c for c in here if not any(other is not c and issubclass(other, c) for other in here)]
    leaves = [c for c in leaves if not c.__module__.startswith(f"{package.CODE}.")]
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
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"{file}: not JSON: {err}") from None
    try:
        return hint.model_validate(data)
    except ValueError as err:
        raise ConfigError(f"{file} does not fit {hint.__name__}: {steady(str(err)):.600}") from None


class KitState(State):
    """One episode's toolkit, over a database of its own that is made when it is first used.

    A call that raises leaves nothing behind: the toolkit is dropped, and made again by the calls that succeeded. Those
    do what they did before, since time stands still and chance follows from each call."""

    __slots__ = ("_changes", "_counts", "_done", "_told", "_toolkit")

    def __init__(self, domain: ReferenceDomain, changes: Mapping[str, Any]) -> None:
        super().__init__(None, None, None, domain)
        self._toolkit, self._changes = domain.toolkit, changes
        self._done: list[tuple[str, Mapping[str, Any]]] = []
        """The calls that succeeded."""
        self._told: dict[int, str] = {}
        """What the agent read of them, by their places."""
        self._counts: Counter[str] = Counter()
        """How often each call was made of late, by its text."""

    def kit(self) -> Any:
        """The toolkit, after every call that succeeded."""
        if self.kits[0] is None:
            with self._toolkit.lock:
                kit = self._toolkit.fresh(self._changes)
                self._counts.clear()
                for place, (name, arguments) in enumerate(self._done):
                    self._make_again(kit, name, arguments, self._told.get(place))
                self.kits = kit, None
        return self.kits[0]

    def _make_again(self, kit: Any, name: str, arguments: Mapping[str, Any], told: str | None) -> None:
        try:
            made = self._make(kit, name, arguments)
            if told is not None and rendered(made) != told:
                raise ValueError(f"it gave {told:.200} and gives {rendered(made):.200}")
        except (Exception, SystemExit) as err:
            where = f"{self._toolkit.name}: {name} cannot be made again as it was: {err}"
            raise RuntimeError(f"{where}; a toolkit may keep what changes in self and self.db only") from err

    def call(self, side: Side, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        self.kit()  # what raises here is no answer of a tool's
        place = len(self._done)
        try:
            told = rendered(self.value(side, name, arguments))
        except (Exception, SystemExit) as err:  # noqa: BLE001 - toolkits refuse by raising anything
            if self._done[place:]:  # it was made, but what it gave cannot be shown
                del self._done[place:]
                self.kits = None, None
            return ToolReply(f"Error: {steady(str(err))}", True)
        if self._done[place:]:  # not the calculator
            self._told[place] = told
        return ToolReply(told, False)

    def value(self, side: Side, name: str, arguments: Mapping[str, Any], *, sync: bool = True) -> Any:
        del sync
        if side != "assistant" or name not in self._agent_names:
            raise ValueError(f"Tool '{name}' not found.")
        if name == "calculate" and set(arguments) == {"expression"}:
            return calculate(**arguments)
        return self.run(Function(side, name, arguments))

    def run(self, function: Function) -> Any:
        with self._toolkit.lock:
            kit, kind = self.kit(), type(self._toolkit.database)
            try:
                made = self._make(kit, function.name, function.arguments)
                if type(kit.db) is not kind:
                    raise TypeError(f"the toolkit's db must stay a {kind.__name__}, got {type(kit.db).__name__}")
            except BaseException:
                self.kits = None, None
                raise
            self._done.append((function.name, clone(function.arguments)))
            return made

    def _make(self, kit: Any, name: str, arguments: Mapping[str, Any]) -> Any:
        """Chance follows from the call and from how often it was made, so that calls in another order draw the same."""
        method = getattr(kit, name)
        call = f"{self._toolkit.name} {name} {_canonical(method, arguments)}"
        self._toolkit.frozen.reseed(f"{call} {self._counts[call]}")
        self._counts[call] += 1
        return method(**clone(arguments))

    def touched(self) -> dict[tuple[str, str], str]:
        """The whole database, as a hash: those of reference paths are kept."""
        return {("database", ""): hashlib.sha256(written(self.kit().db).encode()).hexdigest()}


def _canonical(method: Any, arguments: Mapping[str, Any]) -> str:
    """The arguments with the defaults filled in, whole numbers written one way."""
    given = dict(arguments)
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

    def start(self, plan: Tau2Task) -> KitState:
        state = KitState(self, plan.agent_data or {})
        self._prepared(state, plan)
        return state
