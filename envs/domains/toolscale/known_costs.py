"""What is known of a task's cost, kept beside the tasks in costs.jsonl.gz: the cheapest known solution's sizes, the
calls it makes, and how often graded solvers passed. SIMULATED: users and solvers are scripted, tokens are estimated.

Sizes are in characters, since descriptions of tools say prices and so differ from sheet to sheet: the usages, and from
them the bill under any sheet and any choice of tools, follow exactly. The file is no part of the content hash: it says
what was measured on a domain, and a change of the scripted user's wording changes it without changing the domain.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import domain_files
from toolorchestra.envs.domains.toolscale.domain_files import content, fits, lines
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.models.simulated import CHARACTERS_PER_TOKEN
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, PriceSheet, Tokens, Usage

FILE = "costs.jsonl.gz"
COLUMNS = (
    "task",
    "found_by",
    "path",
    "kept",
    "opening",
    "said",
    "answered",
    "seconds",
    "nano_usd",
    "passes",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Under what all of a file's costs were measured."""

    sheet: str
    """Price sheet of the stored dollars."""
    orchestrator: str
    """The sheet's item that the agent's own tokens were billed as."""
    seed: int
    """Of the environment's reset."""
    tools_characters: int
    """Of the schemas of all tools under that sheet, which the agent reads each turn."""
    solvers: tuple[str, ...]
    tries: int
    """Of each solver and task; their seeds count from 0."""


@dataclass(frozen=True, slots=True)
class KnownCost:
    """The cheapest known solution of one task: what it uses, not what it says."""

    task_id: str
    found_by: str
    """The gold path or an alternative, as it is or trimmed of reads that it can do without."""
    path: int
    """0: the gold path, n: the n-th alternative."""
    kept: tuple[int, ...]
    """Places of its calls in that path."""
    calls: Mapping[str, int]
    """By tool."""
    opening: int
    """Characters of the messages before the first turn."""
    said: tuple[int, ...]
    """Characters of each turn's text."""
    answered: tuple[int, ...]
    """Characters of the messages that came between that turn and the next."""
    seconds: float
    """On the virtual clock, where a tool that bills nothing takes no time; the agent's own time is not in it."""
    nano_usd: int
    """Under the setting's sheet, all tools shown, no preference."""
    passes: Mapping[str, int]
    """Solver -> how many of its tries it passed."""
    setting: Setting

    @property
    def turns(self) -> int:
        return len(self.said)

    @property
    def usd(self) -> float:
        return self.nano_usd / NANO

    @property
    def pass_rates(self) -> dict[str, float]:
        """Solver -> share of its tries that it passed."""
        return {solver: passed / self.setting.tries for solver, passed in self.passes.items()}

    def usages(self, shown_characters: int | None = None, orchestrator: str = "") -> tuple[Usage, ...]:
        """One usage a turn. `shown_characters`: what the agent reads beside the conversation, which is the toolbox's
        schema_characters and what a preference or budget adds to the system message; by default the setting's."""
        context = self.opening + (self.setting.tools_characters if shown_characters is None else shown_characters)
        used = []
        for said, answered in zip(self.said, self.answered, strict=True):
            tokens = Tokens(-(-context // CHARACTERS_PER_TOKEN), 0, -(-said // CHARACTERS_PER_TOKEN), 0)
            used.append(Usage(orchestrator or self.setting.orchestrator, ORCHESTRATOR, tokens, estimated=True))
            context += said + answered
        return tuple(used)

    def billed(self, sheet: PriceSheet, shown_characters: int | None = None, orchestrator: str = "") -> int:
        """Nano-dollars under a sheet, to the digit what playing it under that sheet is billed."""
        price = sheet.price(orchestrator or self.setting.orchestrator)
        return sum([price.nano_usd(usage) for usage in self.usages(shown_characters, orchestrator)])

    def evidence(self, sheet: PriceSheet | None, shown_characters: int) -> dict[str, Any]:
        """As an ended episode's outcome shows it: dollars under the episode's sheet, for the tools that it showed."""
        priced = sheet is not None and self.setting.orchestrator in sheet.prices
        return {
            "usd": self.billed(sheet, shown_characters) / NANO if sheet is not None and priced else None,
            "seconds": self.seconds,
            "turns": self.turns,
            "calls": dict(self.calls),
            "found_by": self.found_by,
            "pass_rates": self.pass_rates,
        }

    def row(self) -> list[Any]:
        """As the file has it, in the order of COLUMNS."""
        passes = [self.passes[solver] for solver in self.setting.solvers]
        sizes = [self.opening, list(self.said), list(self.answered)]
        return [self.task_id, self.found_by, self.path, list(self.kept), *sizes, self.seconds, self.nano_usd, passes]


def calls_by_tool(task: SqlTask, path: int, kept: Sequence[int]) -> dict[str, int]:
    """How often a solution of a task calls each tool."""
    actions = (task.actions, *task.alternatives)[path]
    return dict(Counter(actions[place].name for place in kept))


def packed(setting: Setting, made: Sequence[KnownCost]) -> bytes:
    """The file's text: a line of the setting, then a line of values for each task."""
    head = {
        "what": "SIMULATED", "sheet": setting.sheet, "orchestrator": setting.orchestrator,
        "seed": setting.seed, "tools_characters": setting.tools_characters, "solvers": list(setting.solvers),
        "tries": setting.tries, "columns": list(COLUMNS),
    }  # fmt: skip
    rows = [head, *(one.row() for one in made)]
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows).encode()


def zipped(data: bytes) -> bytes:
    """No name and no time in the header: the same content gives the same bytes."""
    return gzip.compress(data, 9, mtime=0)


def entry(data: bytes) -> dict[str, str]:
    """What the manifest says of the file."""
    return {"hash": hashlib.blake2b(data, digest_size=16).hexdigest()}


@lru_cache(maxsize=64)
def known(domain: SqlDomain) -> Mapping[str, KnownCost]:
    """Task -> its cheapest known solution, read at the first use; empty where the manifest lists no costs."""
    listed = domain.manifest.get("costs")
    return {} if listed is None else _read(domain, listed)


def _read(domain: SqlDomain, listed: Mapping[str, Any]) -> dict[str, KnownCost]:
    where = str(domain.folder / FILE)
    data = content(domain.folder, FILE)
    if (found := entry(data)) != listed:
        raise ConfigError(f"{where}: the manifest lists {dict(listed)}, the file is {found}; generate the domain again")
    rows = lines(data, where)
    at, value = next(rows)
    head = fits(domain_files.COSTS_SCHEMA, value, at)
    if tuple(head["columns"]) != COLUMNS:
        raise ConfigError(f"{at}: columns {', '.join(COLUMNS)} expected, got {', '.join(head['columns'])}")
    setting = Setting(
        head["sheet"], head["orchestrator"], head["seed"], head["tools_characters"], tuple(head["solvers"]),
        head["tries"],
    )  # fmt: skip
    made = {}
    for at, value in rows:
        one = _known(domain, setting, value, at)
        made[one.task_id] = one
    if missing := [name for name in domain.tasks if name not in made]:
        raise ConfigError(f"{where}: no costs of task {missing[0]}; generate the domain again")
    return made


def _known(domain: SqlDomain, setting: Setting, value: object, at: str) -> KnownCost:
    if not isinstance(value, list) or len(value) != len(COLUMNS):
        raise ConfigError(f"{at}: a list of {len(COLUMNS)} values expected, got {value!r:.60}")
    task_id, found_by, path, kept, opening, said, answered, seconds, nano_usd, passes = value
    if task_id not in domain.tasks:
        raise ConfigError(f"{at}: no task {task_id!r:.20} in {domain.name}; generate the domain again")
    task = domain.tasks[task_id]
    paths = (task.actions, *task.alternatives)
    if path >= len(paths) or any(place >= len(paths[path]) for place in kept):
        raise ConfigError(f"{at}: a solution with other calls than task {task_id} has; generate the domain again")
    calls = calls_by_tool(task, path, kept)
    passed = dict(zip(setting.solvers, passes, strict=True))
    return KnownCost(
        task_id, found_by, path, tuple(kept), calls, opening, tuple(said), tuple(answered), seconds,
        nano_usd, passed, setting,
    )  # fmt: skip
