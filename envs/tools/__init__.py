"""What a tool is: a plain function (CPU) or an `async def` (I/O), with a description; and the toolbox of them."""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from toolorchestra.envs.base.errors import ConfigError, ToolError, no_such
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.base.types import Message, Outcome, Rows, ToolCall, freeze
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import PriceSheet, Usage, tool_price
from toolorchestra.envs.tools.annotations import builder_of, hints_of, said_of, schema_of

if TYPE_CHECKING:
    from toolorchestra.envs.models import ChatModel

_sessions = itertools.count(1)


class ToolContext:
    """What a tool may know of the episode that calls it."""

    __slots__ = ("__weakref__", "_ending", "_of", "_session", "aside", "bill", "models", "seed", "turn", "world")

    def __init__(
        self, world: Any, seed: int, bill: Bill | None = None, models: Callable[[], ChatModel] | None = None
    ) -> None:
        self.world = world
        self.models = models
        """Gives the models of the environment's backends; None where there are none."""
        self.seed = seed
        """Seed of the episode. A simulated result may depend on it and on what is shown, on nothing else."""
        self.bill = Bill() if bill is None else bill
        """Bill of this call: `context.bill.add(usage)` books what it used as soon as that is known."""
        self.turn = 0
        self.aside = ""
        """Text that this turn put beside its calls. It is told to nobody; a world may count it."""
        self._session = ""
        self._ending: dict[Callable[[str], object], weakref.finalize[..., Any]] = {}
        self._of: ToolContext | None = None

    def beside(self) -> ToolContext:
        """The same context with a bill of its own: for a call that runs beside others of its episode."""
        made = ToolContext(self.world, self.seed, self.bill.another(), self.models)
        made.turn, made.aside, made._session, made._of = self.turn, self.aside, self.session, self
        return made

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """State of a copy: it has a session of its own, so that neither episode meets or ends what backends keep for
        the other."""
        kept = {name: getattr(self, name) for name in ("_of", "aside", "bill", "models", "seed", "turn", "world")}
        return None, {**kept, "_session": "", "_ending": {}}

    async def ask(self, model: str, text: str) -> str:
        """What a model of the environment's backends says to a text. It is an expert's call: within the spend cap and
        the budget, tried again, recorded and billed, by a price that `bills` of the tool names."""
        if self.models is None:
            raise ConfigError(f"a tool asks model {model!r}, and nothing says where it is served: give backends=FILE")
        from toolorchestra.envs.models import ChatRequest, ask

        said = (Message(role="user", content=text),)
        done = await ask(self.models(), ChatRequest(model, "answer", said, self.seed, self.turn, bill=self.bill))
        return done.text

    @property
    def session(self) -> str:
        """A name for what backends keep for this episode, never given to another one of the process."""
        if not self._session:
            self._session = f"{self.seed}.{next(_sessions)}"
        return self._session

    def at_end(self, end: Callable[[str], object]) -> None:
        """End what a backend keeps for this episode with it: `end(session)` is called once, by `end`, or when
        nothing holds the episode any more. `end` may run in any thread, and must not wait."""
        if self._of is not None:
            self._of.at_end(end)
        elif end not in self._ending or not self._ending[end].alive:
            ending = self._ending[end] = weakref.finalize(self, end, self.session)
            ending.atexit = False

    def end(self) -> None:
        """Ends the episode: tells every backend that asked for it by at_end()."""
        for ending in self._ending.values():
            ending()


class ToolResult(NamedTuple):
    """What a call gave. Tools leave the world alone; it absorbs their results, in the order of the calls."""

    content: str
    usages: tuple[Usage, ...] = ()
    """What it used: booked on `context.bill` with the result. A tool that could raise after it has used something books
    that on the bill itself, and does not say it here again."""
    seconds: float | None = None
    """How long it took; None: the seconds of all that it used."""
    final: bool = False
    """The episode ends with this result."""
    note: Any = None
    """Note for the world only: what it should remember."""
    outcome: Outcome | None = None
    """Outcome, from graders only."""
    role: str = "tool"
    """Role of the message that shows the content."""


class Offer(NamedTuple):
    """A model behind an alias, as a tool offers it. What the agent learns of it stands in the tool's description."""

    alias: str
    """What the agent calls it."""
    model: str
    """The model behind it, by the name that price sheet and backends file use."""
    seconds: float
    """Typical time of a call."""
    note: str = ""
    """What the agent is told of it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the agent sees it and the drivers run it. `run(context, **arguments)` gives a ToolResult or a value."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., Any] = field(repr=False)
    bills: tuple[str, ...] = ()
    """Price sheet items that it may bill: checked against the sheet before the first episode."""
    keyed_by: str = ""
    """The argument whose value preferences and statistics count (a model alias); "" counts the tool's name."""
    offers: tuple[Offer, ...] = ()
    """The models behind the aliases, for planners and features; the agent sees the description alone."""
    suspends: bool | None = None
    """Whether it waits for I/O. None: whether `run` is an `async def`. False on an `async def` promises that it never
    really waits (it is given simulated backends), and the drivers run it in place."""
    deadline_seconds: float = 120.0
    checker: Checker = field(init=False, repr=False, compare=False)
    backend: str = ""
    """Calls to one backend share its limit of calls in flight."""
    max_in_flight: int = 64
    in_order: bool = False
    """Whether what it does may matter to the turn's other calls: then they run one after the other, in their order."""
    kind: str = ""
    """Kind of a tool configuration's entry, whatever its name is: "search", "answer"; policies find it by this."""

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __post_init__(self) -> None:
        if isinstance(self.bills, str):
            raise ConfigError(
                f"tool {self.name!r}: bills is a list of items, got {self.bills!r}; write ({self.bills!r},)"
            )
        object.__setattr__(self, "checker", Checker(self.parameters, f"tool {self.name!r}"))
        if self.keyed_by and not self._keys_every_call():
            raise ConfigError(
                f"tool {self.name!r} is keyed_by {self.keyed_by!r}, which is no required argument with choices of "
                "text; annotate it with Literal[...] of texts, and give it no default"
            )
        if self.suspends is None:
            object.__setattr__(self, "suspends", inspect.iscoroutinefunction(self.run))

    def _keys_every_call(self) -> bool:
        """Whether each call that fits has `keyed_by`, with one of `keys` as its value."""
        choices = self.checker.arguments.get(self.keyed_by, {}).get("enum", ())
        required = self.keyed_by in self.parameters.get("required", ())
        return required and bool(choices) and all(isinstance(choice, str) for choice in choices)

    @property
    def schema(self) -> dict[str, Any]:
        """OpenAI's shape, which chat templates take."""
        body = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": body}

    @property
    def keys(self) -> tuple[str, ...]:
        """What its calls are counted under."""
        if not self.keyed_by:
            return (self.name,)
        return tuple(self.checker.arguments[self.keyed_by]["enum"])

    def key(self, arguments: Mapping[str, Any]) -> str:
        """What this call is counted under."""
        return str(arguments[self.keyed_by]) if self.keyed_by else self.name


class Toolbox:
    """The tools of an episode, in the order in which they are shown. Immutable, so episodes share one."""

    __slots__ = ("_by_name", "keys", "schema_characters", "schemas", "tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools) if isinstance(tools, Iterable) else (tools,)
        for one in self.tools:
            if not isinstance(one, Tool):
                raise ConfigError(
                    f"a toolbox is a list of tools, got {one!r:.60}; make a Tool of a function with @tool"
                )
        self._by_name = {t.name: t for t in self.tools}
        if len(self._by_name) != len(self.tools):
            names = [t.name for t in self.tools]
            raise ConfigError(f"two tools have one name: {sorted({n for n in names if names.count(n) > 1})}")
        self.schemas: Rows[Any] = freeze([t.schema for t in self.tools])
        self.keys = tuple(key for t in self.tools for key in t.keys)
        if len(set(self.keys)) != len(self.keys):
            raise ConfigError(f"countable keys must differ across tools, got {self.keys}")
        self.schema_characters = sum(len(str(s)) for s in self.schemas)

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Tool:
        return self._by_name[name]

    def check(self, call: ToolCall) -> Tool:
        """The tool that a call names, its arguments checked. Raises ToolError."""
        found = self._by_name.get(call.name)
        if found is None:
            raise ToolError(no_such("tool", call.name, self._by_name))
        found.checker.check(call.arguments, call.name)
        return found

    @property
    def bills(self) -> set[str]:
        """Every price sheet item that could be billed."""
        return {item for t in self.tools for item in t.bills}

    def of_kind(self, *kinds: str) -> Tool | None:
        """The tool of the first of these kinds that there is."""
        return next((t for kind in kinds for t in self.tools if t.kind == kind), None)

    def only(self, names: Sequence[str] | None) -> Self:
        """The named tools, in this one's order; None keeps all."""
        if names is None:
            return self
        if unknown := [name for name in names if name not in self]:
            raise ConfigError(no_such("tool", unknown[0], self._by_name))
        return type(self)(t for t in self.tools if t.name in names)

    def priced(self, sheet: PriceSheet) -> Toolbox:
        """The same tools, whose descriptions say what the sheet bills. An item that it lacks is refused."""
        sheet.require(self.bills, "the toolbox")
        return Toolbox(
            replace(t, description=f"{t.description} {tool_price(sheet, t.bills)}") if t.bills else t
            for t in self.tools
        )


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(*, bills: Sequence[str] = (), keyed_by: str = "") -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, *, bills: Sequence[str] = (), keyed_by: str = "") -> Any:
    """A Tool from a function's name, docstring and annotations (see annotations.schema_of for those it may have).

    A first parameter named `context` is given the ToolContext; everything else is an argument of the agent's, which
    `Annotated[str, "What it is."]` describes. `bills` and `keyed_by` are those of Tool:
    `@tool(bills=("tracking-service",))`.
    """
    if function is None:
        given: Any = bills if isinstance(bills, str) else tuple(bills)  # which Tool refuses
        return lambda found: replace(tool(found), bills=given, keyed_by=keyed_by)
    if not (callable(function) and hasattr(function, "__name__")):
        raise ConfigError(f"@tool makes a Tool of a function, got {function!r:.60}; write @tool above its def")
    hints, marked = hints_of(function), hints_of(function, extras=True)
    properties: dict[str, Any] = {}
    builders: dict[str, Callable[[Any], Any]] = {}
    required: list[str] = []
    taken = inspect.signature(function).parameters
    first = next(iter(taken), "")
    if first in ("self", "cls"):
        raise ConfigError(
            f"{function.__name__}: nobody gives {first}; make the Tool of an object's method, as in "
            f"tool(mine.{function.__name__}), or of a function"
        )
    wants_context = first == "context"
    for name, parameter in list(taken.items())[wants_context:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"{function.__name__}: arguments are given by name; `{parameter}` cannot be")
        hint = hints.get(name, str)
        properties[name] = schema_of(hint, f"{function.__name__}.{name}") | said_of(marked.get(name))
        if build := builder_of(hint):
            builders[name] = build
        if parameter.default is parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, "required": required}
    run = function if wants_context else lambda _context, /, **arguments: function(**arguments)
    if builders:
        run = _with_records(run, builders)
    description = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    suspends = inspect.iscoroutinefunction(function)
    return Tool(function.__name__, description, parameters, run, suspends=suspends)


def _with_records(inner: Callable[..., Any], builders: Mapping[str, Callable[[Any], Any]]) -> Callable[..., Any]:
    def run(context: ToolContext, /, **arguments: Any) -> Any:
        built = {name: builders[name](value) if name in builders else value for name, value in arguments.items()}
        return inner(context, **built)

    return run
