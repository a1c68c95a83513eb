"""A domain with its tools and policy, built once a process, and the state of one episode in it."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import hashlib
import json
import re
import uuid
from collections import ChainMap
from collections.abc import Callable, ItemsView, Mapping, ValuesView
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.package import Release
from toolorchestra.envs.domains.tau2.schemas import plain_schema
from toolorchestra.envs.domains.tau2.task import Function, Side, Tau2Task
from toolorchestra.envs.sandbox.arithmetic import NotCovered, evaluate

SHARED: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_UNCHANGING = (
    bytes, str, int, float, complex, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    uuid.UUID, enum.Enum, type(None),
)  # fmt: skip
_set = object.__setattr__


def clone(value: Any, shared: frozenset[type] = SHARED) -> Any:
    """A deep copy. What cannot be changed (texts, numbers, dates) is shared, and so are values of the kinds in
    `shared`."""
    kind = type(value)
    if kind in shared:
        return value
    if kind is dict:
        return {key: part if type(part) in shared else clone(part, shared) for key, part in value.items()}
    if kind is list:
        return [part if type(part) in shared else clone(part, shared) for part in value]
    if hasattr(kind, "__pydantic_fields__"):
        made, marks, extra = object.__new__(kind), value.__pydantic_fields_set__, value.__pydantic_extra__
        full = extra is None and len(marks) == len(kind.__pydantic_fields__)  # it cannot grow: one does for all copies
        _set(made, "__dict__", clone(value.__dict__, shared))
        _set(made, "__pydantic_fields_set__", marks if full else clone(marks, shared))
        _set(made, "__pydantic_extra__", clone(extra, shared))
        _set(made, "__pydantic_private__", clone(value.__pydantic_private__, shared))
        return made
    if isinstance(value, _UNCHANGING):
        return value
    return set(value) if kind is set else copy.deepcopy(value)


def leaves(value: Any) -> frozenset[type]:
    """The kinds of values inside that are no records, lists or dicts: those never change."""
    if isinstance(value, dict):
        return frozenset().union(*map(leaves, value.values()))
    if isinstance(value, list):
        return frozenset().union(*map(leaves, value))
    if hasattr(type(value), "__pydantic_fields__"):
        return leaves(value.__dict__)
    kind: type = type(value)
    return frozenset({kind})


class CopyOnReadTable(ChainMap[str, Any]):
    """A table over a pristine one that is never changed.

    `table[key]` gives a private copy, made at the first asking, since the domains' code changes what it got that way.
    What iterating gives is shared and only read: the domains look records up by iterating, and never change those.
    `own` are the records copied or set, by key: all that can differ from the pristine table.
    """

    def __init__(self, pristine: Mapping[str, Any]) -> None:
        self.own: dict[str, Any] = {}
        self.pristine = pristine
        super().__init__(self.own, pristine)  # type: ignore[arg-type]  # nothing is written into the second

    def __getitem__(self, key: str) -> Any:
        record = self.own.get(key)
        if record is None:
            record = self.own[key] = clone(self.pristine[key])
        return record

    def __delitem__(self, key: str) -> NoReturn:
        raise TypeError(f"records of these domains are never deleted, got del table[{key!r}]")

    def values(self) -> ValuesView[Any]:
        """Shared records, to be read only."""
        return {**self.pristine, **self.own}.values()

    def items(self) -> ItemsView[str, Any]:
        """Keys with shared records, to be read only."""
        return {**self.pristine, **self.own}.items()


def written(record: Any) -> str:
    """A record as text; two are the same record when the benchmark's hash of their databases says so."""
    try:
        return json.dumps(record.model_dump(warnings=False), sort_keys=True, default=_as_text)
    except ValueError as err:  # a number with more digits than Python prints: nothing that a task asks for
        return f"unprintable: {err}"


def _as_text(value: Any) -> Any:
    """A set is a sorted list: as text it would depend on the order in which it was filled."""
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


# -- the domains' `calculate`, bounded: the package evaluates any power, and `9**9**9` never returns -------------------


MOST_CHARACTERS = 200
_ALLOWED = frozenset("0123456789+-*/(). ")


def calculate(expression: str) -> str:
    """What the package's tool gives, to the digit, for every expression within the bounds."""
    if not all(character in _ALLOWED for character in expression):
        raise ValueError("Invalid characters in expression")
    if len(expression) > MOST_CHARACTERS:
        raise ValueError(f"an expression may have {MOST_CHARACTERS} characters, got {len(expression)}; split it")
    try:
        return str(round(float(evaluate(expression.lstrip())), 2))  # eval() skips leading spaces too
    except NotCovered as err:
        raise ValueError(str(err)) from None


# What the package's telecom leaves to chance or shares: ids of new bills, and the VPN that every phone would have


_HEX = 8


class SteadyIds:
    """Put before the package's TelecomTools: a bill opened in an episode is named by its customer, not by uuid4."""

    if TYPE_CHECKING:
        db: Any

    def _apply_one_time_charge(self, customer_id: str, amount: float, description: str) -> None:
        before = len(self.db.bills)
        super()._apply_one_time_charge(customer_id, amount, description)  # type: ignore[misc]
        if len(self.db.bills) == before:
            return
        bill = self.db.bills[-1]
        customer = next(c for c in self.db.customers if c.customer_id == customer_id)
        number = customer.bill_ids.index(bill.bill_id)
        bill.bill_id = f"B{hashlib.sha256(f'{customer_id}/{number}'.encode()).hexdigest()[:_HEX]}"
        customer.bill_ids[number] = bill.bill_id


class OwnVpn:
    """Put before the package's TelecomUserTools: each phone has a VPN of its own. The package gives all phones of a
    process one object, and whoever breaks it breaks it for the next episode too."""

    default_vpn_details: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default_vpn_details = self.default_vpn_details.model_copy()


def item_details(release: Release) -> Any:
    """The read of an item that later releases have and the package lacks, in the words of the user's copy."""

    def get_item_details(kit: Any, item_id: Any) -> Any:
        for product in kit.db.products.values():
            if item_id in product.variants:
                return product.variants[item_id]
        raise ValueError("Item not found")

    toolkit = package.module("environment.toolkit")
    kind: Any = package.member("domains.retail.data_model:Variant")
    get_item_details.__annotations__ = {"item_id": str, "return": kind}
    get_item_details.__doc__ = release.words_of("retail", _ITEM) or _ITEM_WORDS
    return toolkit.is_tool(toolkit.ToolType.READ)(get_item_details)


# -- the domain, and the state of one episode --------------------------------------------------------------------------


_PYDANTIC_VERSION = re.compile(r"(errors\.pydantic\.dev/)[\d.]+/")
_MOST_SNAPSHOTS = 4096
_ITEM = "get_item_details"
_ITEM_SINCE = (1, 0)
_ITEM_WORDS = """Get the details of one item in stock.

Args:
    item_id: The item id, such as '6086499569'. It is another number than the product id.

Returns:
    The item details.
"""


class _Parts(NamedTuple):
    """Where the package keeps a domain."""

    tools: str
    database: str
    file: str
    policies: tuple[str, ...]
    solo_policies: tuple[str, ...] = ()
    """Empty where nobody can work alone."""
    user_tools: str = ""
    user_database: str = ""
    unchanging: tuple[str, ...] = ()
    """Kinds of records that its code never changes once they are made, so that episodes share them."""
    tables: bool = False
    """Whether its database is tables of records that its code finds by key, so that they can be copied on writing."""


_TELECOM = _Parts(
    "domains.telecom.tools:TelecomTools",
    "domains.telecom.data_model:TelecomDB",
    "db.toml",
    ("main_policy.md", "tech_support_manual.md"),
    ("main_policy_solo.md", "tech_support_manual.md"),
    "domains.telecom.user_tools:TelecomUserTools",
    "domains.telecom.user_data_model:TelecomUserDB",
    ("Plan", "Device", "LineItem", "Address", "PaymentMethod"),
)
_WORKFLOW = ("tech_support_workflow.md", "tech_support_workflow_solo.md")
PARTS: Mapping[str, _Parts] = {
    "airline": _Parts(
        "domains.airline.tools:AirlineTools",
        "domains.airline.data_model:FlightDB",
        "db.json",
        ("policy.md",),
        tables=True,
    ),
    "retail": _Parts(
        "domains.retail.tools:RetailTools", "domains.retail.data_model:RetailDB", "db.json", ("policy.md",), tables=True
    ),
    "telecom": _TELECOM,
    "telecom-workflow": _TELECOM._replace(
        policies=("main_policy.md", _WORKFLOW[0]), solo_policies=("main_policy_solo.md", _WORKFLOW[1])
    ),
    "mock": _Parts(
        "domains.mock.tools:MockTools", "domains.mock.data_model:MockDB", "db.json", ("policy.md",), ("policy_solo.md",)
    ),
}


def folder_of(name: str) -> str:
    """Where a domain's data lie."""
    return name.partition("-")[0]


class DomainTool(NamedTuple):
    """A tool of a domain as the package describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ToolReply(NamedTuple):
    """What a domain's tool gave."""

    content: str
    error: bool


class State:
    """One episode's databases, with the tools that work on them."""

    __slots__ = ("_domain", "_sync", "kits", "solo")

    def __init__(self, agent: Any, user: Any, sync: Callable[[], None] | None, domain: Tau2Domain) -> None:
        self.kits, self._sync, self._domain, self.solo = (agent, user), sync, domain, domain.solo

    def call(self, side: Side, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Run one tool call. Whatever a tool raises is its answer, as the benchmark has it."""
        try:
            made = self.value(side, name, arguments)
            to_text = package.member("environment.environment:Environment").to_json_str
            return ToolReply(made if isinstance(made, str) else str(to_text(made)), False)
        except Exception as err:  # noqa: BLE001 - domains refuse by raising anything: ValueError, KeyError, TypeError
            return ToolReply(f"Error: {steady(str(err))}", True)

    def value(self, side: Side, name: str, arguments: Mapping[str, Any], *, sync: bool = True) -> Any:
        """What a tool returns. Raises what it raises."""
        (agent, user), domain = self.kits, self._domain
        by_user = side == "user" or (self.solo and name in domain.user_names)
        if name not in (domain.user_names if by_user else domain.agent_names):
            raise ValueError(f"Tool '{name}' not found.")
        made = calculate(**arguments) if name == "calculate" else getattr(user if by_user else agent, name)(**arguments)
        if sync and self._sync is not None:
            self._sync()
        return made

    def run(self, function: Function) -> Any:
        """Run any method of a toolkit: initial actions and assertions are no tools."""
        made = getattr(self.kits[function.side == "user"], function.name)(**clone(function.arguments))
        if self._sync is not None:
            self._sync()
        return made

    def touched(self) -> dict[tuple[str, str], str]:
        """All that may differ from the pristine databases, as text, by table and key."""
        agent, user = self.kits
        rows: dict[tuple[str, str], str] = {}
        for name, table in agent.db.__dict__.items():
            if type(table) is not CopyOnReadTable:
                own = user is not None and user.db is not agent.db
                rows["agent", ""], rows["user", ""] = written(agent.db), written(user.db) if own else ""
                return rows
            for key, record in table.own.items():
                rows[name, key] = written(record)
        return rows

    def pristine(self, row: tuple[str, str]) -> str | None:
        """The text of a row that nobody has touched."""
        table = getattr(self.kits[0].db, row[0], None)
        record = table.pristine.get(row[1]) if type(table) is CopyOnReadTable else None
        return None if record is None else written(record)


class Tau2Domain:
    """A domain of a release, for agents that have a user or work alone. Its parts are shared by all episodes."""

    hidden: tuple[str, ...] = ()
    """Tools that an agent may call and is not shown."""

    def __init__(self, name: str, release: Release, *, solo: bool) -> None:
        one_of("domain", name, PARTS)
        self.name, self.release, self.solo = name, release, solo
        self._parts = parts = PARTS[name]
        if solo and not parts.solo_policies:
            alone = [other for other, part in PARTS.items() if part.solo_policies]
            raise ConfigError(
                f"{name} has no solo mode: name a user, such as user='scripted', or take one of {', '.join(alone)}",
                command_line="user=scripted behind the id, as in --env Tau2-v0 user=scripted",
            )
        self.folder = folder_of(name)
        files = parts.solo_policies if solo else parts.policies
        main, *support = (release.file(self.folder, file).read_text(encoding="utf-8") for file in files)
        parted = "<main_policy>\n{}\n</main_policy>\n<tech_support_policy>\n{}\n</tech_support_policy>"
        self.policy = parted.format(main, *support) if support else main
        self._kit = package.member(parts.tools)
        if self.folder == "telecom":
            self._kit = type("TelecomTools", (SteadyIds, self._kit), {})
        if self.folder == "retail" and release.number >= _ITEM_SINCE:
            self._kit = type("RetailTools", (self._kit,), {_ITEM: item_details(release)})
        self._agent_db = package.member(parts.database).load(release.file(self.folder, parts.file))
        self._user_kit = package.member(parts.user_tools) if parts.user_tools else None
        if self._user_kit is not None and self.folder == "telecom":
            self._user_kit = type("TelecomUserTools", (OwnVpn, self._user_kit), {})
        self._user_db = None
        if parts.user_database:
            self._user_db = package.member(parts.user_database).load(release.file(self.folder, f"user_{parts.file}"))
        self.tools = described(self._kit(self._agent_db))
        self.user_tools = described(self._user_kit(self._user_db)) if self._user_kit else ()
        self.agent_names = frozenset(tool.name for tool in self.tools)
        self.user_names = frozenset(tool.name for tool in self.user_tools)
        kinds = package.module(parts.database.partition(":")[0])
        self._shared = SHARED | {getattr(kinds, kind) for kind in parts.unchanging} | {set}  # its records hold no sets
        if not parts.tables:
            self._shared |= leaves(self._agent_db) | leaves(self._user_db)
        self._snapshots: dict[str, tuple[Any, Any]] = {}

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def lacks(self, plan: Tau2Task) -> str:
        """What a task of another release builds on and this domain does not have; "" where it has all."""
        criteria = plan.criteria
        for action in (criteria and criteria.actions) or ():
            names = self.user_names if action.side == "user" else self.agent_names
            if action.call.name not in names:
                return f"the {action.side}'s tool {action.call.name}"
        for function in (*plan.actions, *((criteria and criteria.assertions) or ())):
            if not hasattr(self._user_kit if function.side == "user" else self._kit, function.name):
                return f"the {function.side}'s function {function.name}"
        return "the user's database" if plan.user_data and self._user_kit is None else ""

    def policy_of(self, plan: Tau2Task) -> str:
        """The policy that an agent is given."""
        del plan
        return self.policy

    def tools_of_user(self, names: tuple[str, ...] | None) -> tuple[DomainTool, ...]:
        """The named tools of the user's; None: all."""
        return tuple(tool for tool in self.user_tools if names is None or tool.name in names)

    def start(self, plan: Tau2Task) -> State:
        """A task's initial state, with its message history's calls made."""
        if self._parts.tables:
            return self._prepared(self._fresh(plan), plan)
        stored = self._snapshots.get(plan.task_id)
        if stored is None:
            agent, user = self._prepared(self._fresh(plan), plan).kits
            if len(self._snapshots) >= _MOST_SNAPSHOTS:
                self._snapshots.clear()
            stored = self._snapshots[plan.task_id] = agent.db, user and user.db
        agent_db, user_db = stored
        return self._state(clone(agent_db, self._shared), clone(user_db, self._shared))

    def _fresh(self, plan: Tau2Task) -> State:
        if self._parts.tables:
            base = updated(self._agent_db, plan.agent_data)
            tables = {name: CopyOnReadTable(table) for name, table in base.__dict__.items()}
            return self._state(type(base).model_construct(**tables), None)
        agent_db, user_db = clone(self._agent_db, self._shared), clone(self._user_db, self._shared)
        return self._state(updated(agent_db, plan.agent_data), updated(user_db, plan.user_data))

    def _state(self, agent_db: Any, user_db: Any) -> State:
        agent = self._kit(agent_db)
        if self._user_kit is None:
            return State(agent, None, None, self)
        user = self._user_kit(user_db)
        kind = package.member("domains.telecom.environment:TelecomEnvironment")
        environment = kind.__new__(kind)  # its constructor would sync states that are in step already
        environment.tools, environment.user_tools = agent, user
        return State(agent, user, environment.sync_tools, self)

    def _prepared(self, state: State, plan: Tau2Task) -> State:
        if state._sync is not None:
            state._sync()
        for action in plan.actions:
            state.run(action)
        for past in plan.history:
            for call in past.calls:
                state.call(past.side, call.name, clone(call.arguments))
        return state


@lru_cache(maxsize=32)
def load_domain(name: str, release: Release, solo: bool) -> Tau2Domain:
    """The process's one Domain of these."""
    from toolorchestra.envs.domains.tau2.banking import NAMES, BankingDomain  # which builds on this module

    kind = BankingDomain if name in NAMES else Tau2Domain
    return kind(name, release, solo=solo)


def updated(database: Any, data: Mapping[str, Any] | None) -> Any:
    """A database with some of its fields replaced."""
    replaced = package.member("utils.pydantic_utils:update_pydantic_model_with_dict")
    return replaced(database, data) if data else database


def described(kit: Any) -> tuple[DomainTool, ...]:
    """The tools of a toolkit."""
    bodies = {name: tool.openai_schema["function"] for name, tool in kit.get_tools().items()}
    return tuple(DomainTool(n, body["description"], plain_schema(body["parameters"], n)) for n, body in bodies.items())


def steady(text: str) -> str:
    """A tool's error without pydantic's version, which changes what is observed and nothing else."""
    return _PYDANTIC_VERSION.sub(r"\1", text)
