"""The rows of an evaluation: one for each trial of a task by a policy, with its bill. Everything else is made of them.

A run is a folder:

    manifest.json         what was asked for: arguments, seeds, prices, versions, revision, machine
    rows.jsonl            one line for each trial, appended and flushed when it ends
    trajectories.jsonl    the same trials turn by turn, as RecordTrajectories writes them, with the row's `key`
    retried.jsonl         rows of trials that failed and were played again by --resume: they have cost something
    learnt.jsonl          what players that learn first paid for it, a line for each play of a train task
    paid.jsonl            what trials in flight have sent and paid, of real backends: what a kill leaves counts
    summary.json          the figures, made of the rows
    page.html             the same to look at

Money is whole nano-dollars and time whole nanoseconds, so sums do not depend on the order in which trials ended.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.ledger import by_price_nano_usd, unconfirmed_nano_usd
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES, TOOL, Charge

Status = Literal["ended", "failed", "cut"]
"""Ended: the outcome is known. Failed: a bug, or an outage that the agent did not cause. Cut: by the run's spend cap.
What failed or was cut has no outcome; it is counted, and never left out of a denominator in silence."""
ROWS, TRAJECTORIES, RETRIED, LEARNT, PAID, MANIFEST, SUMMARY, PAGE = (
    "rows.jsonl", "trajectories.jsonl", "retried.jsonl", "learnt.jsonl", "paid.jsonl", "manifest.json", "summary.json",
    "page.html",
)  # fmt: skip
SEAL, AFTER = "seal", "after"
Cell = tuple[str, str, str]
"""Environment, split, policy."""
RowKey = tuple[str, str, str, str, int]
"""A cell, the task and the trial's number."""
Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True)
class EvaluationRow:
    """One trial of one task by one policy."""

    env: str
    """The environment as the run calls it, such as "HLE-v0"."""
    split: str
    policy: str
    task: str
    trial: int
    seed: int
    """Seed of the episode: the same seed, task and settings make the same episode."""
    status: Status
    right: float | None
    """The outcome's value, from 0 to 1; None where it is not known."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What the grader says of how it came to its outcome."""
    failure: str = ""
    """What failed, in one line."""
    truncated_by: str = ""
    turns: int = 0
    elapsed_ns: int = 0
    nano_usd_by_role: Mapping[str, int] = field(default_factory=dict)
    nano_usd_by_tool: Mapping[str, int] = field(default_factory=dict)
    """The bill by the countable key of the tool, such as "answer-1"; the orchestrator's own under ""."""
    nano_usd_by_model: Mapping[str, int] = field(default_factory=dict)
    """The bill by the price sheet's item."""
    tokens: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Tokens by role: input, cached, output, reasoning."""
    estimated: int = 0
    """How many charges have estimated tokens."""
    unconfirmed_nano_usd: int = 0
    """The part of the bill that nobody has confirmed: of requests whose replies nobody read to the end, or counted, the
    most that they can have cost."""
    unconfirmed_tool_nano_usd: int = 0
    """What of it is no model's: searches, and calls of other servers."""
    over_price_nano_usd: int = 0
    """How much more, or less, servers told that replies cost than the price sheet says. What they told is booked."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """How often each tool was called, by its countable key."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The model behind each key that has one."""
    replies: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Requests by model: asked, and of these refused, failed, empty and cut at the limit of a reply's length."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """What figures can be split by: subject, level, hops, domain, difficulty."""
    preference: Mapping[str, Any] = field(default_factory=dict)
    """Kind, weights and sentence of the user's preference; empty for none."""
    over_budget_usd: float = 0.0
    sheet: str = ""
    """Id of the price sheet that billed it."""
    digest: str = ""
    """A hash of the transcript, every charge and the outcome."""
    rescored: Mapping[str, Any] = field(default_factory=dict)
    """Entry of a run that was graded again: `status` and `right` as they were, and `nano_usd`, what grading again cost,
    which is no part of the row's bill; or `kept`, why the outcome stays as it was."""

    @property
    def key(self) -> RowKey:
        """What tells it from every other row of a run."""
        return (self.env, self.split, self.policy, self.task, self.trial)

    @property
    def cell(self) -> Cell:
        return (self.env, self.split, self.policy)

    @property
    def value(self) -> float:
        """The outcome's value; 0 where it is not known."""
        return self.right or 0.0

    @property
    def nano_usd(self) -> int:
        """The whole bill of the trial, in billionths of a dollar."""
        return sum(self.nano_usd_by_role.values())

    @property
    def agent_nano_usd(self) -> int:
        """What the agent itself spent: not judges and simulated users."""
        return sum(self.nano_usd_by_role.get(role, 0) for role in REWARDED_ROLES)

    @property
    def usd(self) -> float:
        return self.nano_usd / NANO

    @property
    def agent_usd(self) -> float:
        return self.agent_nano_usd / NANO

    @property
    def cents(self) -> float:
        """Cents that the agent itself spent."""
        return 100 * self.agent_usd

    @property
    def seconds(self) -> float:
        return self.elapsed_ns / NANO

    @property
    def minutes(self) -> float:
        return self.seconds / 60


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by a key, in the order in which the keys come."""
    made: dict[Key, list[Item]] = {}
    for item in items:
        made.setdefault(key(item), []).append(item)
    return made


def latest(rows: Iterable[EvaluationRow]) -> list[EvaluationRow]:
    """One row a trial: the last, where a trial was played again."""
    return list({row.key: row for row in rows}.values())


def sheets_of(rows: Iterable[EvaluationRow]) -> list[str]:
    """The price sheets that billed them. A trial that could not be opened has none, and is no other's."""
    return sorted({row.sheet for row in rows} - {""}) or [""]


def bill_of(charges: Sequence[Charge]) -> dict[str, Any]:
    """The fields of a row that follow from its charges."""
    by_role, by_tool, by_model = (Counter[str]() for _ in range(3))
    for charge in charges:
        by_role[charge.usage.role] += charge.nano_usd
        by_tool[charge.tool] += charge.nano_usd
        by_model[charge.usage.item] += charge.nano_usd
    tokens = {
        role: [sum(counts) for counts in zip(*(charge.usage.tokens for charge in some), strict=True)]
        for role, some in grouped(charges, lambda charge: charge.usage.role).items()
    }
    return {
        "nano_usd_by_role": dict(by_role),
        "nano_usd_by_tool": dict(by_tool),
        "nano_usd_by_model": dict(by_model),
        "tokens": tokens,
        "estimated": sum(charge.usage.estimated for charge in charges),
        "unconfirmed_nano_usd": unconfirmed_nano_usd(charges),
        "unconfirmed_tool_nano_usd": unconfirmed_nano_usd(one for one in charges if one.usage.role == TOOL),
        "over_price_nano_usd": sum(by_role.values()) - by_price_nano_usd(charges),
    }


def line_of(row: EvaluationRow, after: str | None = None) -> bytes:
    """A row as a line of rows.jsonl, with a seal by which a line is known that was changed afterwards. `after` is the
    seal of the line above, "" for the first: by it one is known that was put in, taken out or moved."""
    told = asdict(row) if after is None else {**asdict(row), AFTER: after}
    said = json.dumps(told, allow_nan=False, ensure_ascii=True, default=str)
    return f'{said[:-1]}, "{SEAL}": "{_seal(said)}"}}\n'.encode()


def chained(rows: Iterable[EvaluationRow]) -> tuple[bytes, str]:
    """Lines of rows, each with the seal of the one above, and the last seal."""
    lines, after = [], ""
    for row in rows:
        lines.append(line_of(row, after))
        after = seal_in(lines[-1])
    return b"".join(lines), after


def seal_in(line: bytes) -> str:
    """The seal of a line."""
    return str(json.loads(line)[SEAL])


def _seal(said: str) -> str:
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def read_rows(path: str | Path, *, sealed: bool = False) -> Iterator[EvaluationRow]:
    """The rows of a folder of a run, or of a rows.jsonl. A torn last line, left by a kill, is passed over; another that
    cannot be read is an error that names it, and so is with `sealed` one that no run has written."""
    file = Path(path) / ROWS if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ConfigError(
            f"no rows of an evaluation at {str(file)!r}; `toolorchestra evaluate --out FOLDER` writes them"
        )
    lines, before, in_chain = file.read_bytes().split(b"\n"), "", sealed
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            data = json.loads(line)
            row = row_of(data)
            in_chain = in_chain or AFTER in data
            if in_chain and (SEAL not in data or data.get(AFTER) != before):
                raise ValueError("a line was put in, taken out or moved here: put back what it was")
            before = data.get(SEAL, "")
            yield row
        except (ValueError, TypeError, RecursionError) as err:
            if number == len(lines):  # no newline behind it
                return
            what = str(err).removeprefix("EvaluationRow.__init__() ")
            raise ConfigError(
                f"{file}, line {number}: expected a row of an evaluation ({what:.100}); put back what evaluate "
                "wrote, or evaluate again into another folder"
            ) from None


def rows_of(folder: Path) -> list[EvaluationRow]:
    """The last row of each trial. Raises ConfigError where there is none, of which no figure can be made."""
    if not (rows := latest(read_rows(folder))):
        raise ConfigError(f"{folder} has no trial that was played; go on with resume=True, or name another run")
    return rows


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """A run's manifest; empty where nothing says so."""
    path = Path(folder) / MANIFEST
    try:
        data = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as err:
        raise ConfigError(f"{path}: an object expected, and it is no JSON ({err!s:.80})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: an object expected, got {type(data).__name__}")
    return data


def simulated_in(manifest: Mapping[str, Any]) -> str:
    """Say in a sentence which models of a run are simulated; "" where none is, or its manifest does not say."""
    if manifest.get("simulated") is True:
        return "The models are SIMULATED."
    return "The experts are SIMULATED." if manifest.get("experts_simulated") is True else ""


def read_learnt(folder: Path) -> dict[Cell, int]:
    """What policies that learn first have paid for it, in nano-dollars."""
    paid: Counter[Cell] = Counter()
    for cell, nano_usd, _ in learnt_lines(folder):
        paid[cell] += nano_usd
    return dict(paid)


def learnt_lines(folder: Path) -> Iterator[tuple[Cell, int, str]]:
    """Each line of it: whose it is, nano-dollars, and the process that paid. One that a kill tore is passed over."""
    file = folder / LEARNT
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        if not line.endswith(b"}"):
            continue
        try:
            told = json.loads(line)
            env, split, policy = told["player"]
            if type(told["nano_usd"]) is not int or told["nano_usd"] < 0:
                raise ValueError("nano_usd is a whole number from 0 up")
            yield (str(env), str(split), str(policy)), told["nano_usd"], str(told.get("session", ""))
        except (ValueError, TypeError, LookupError) as err:
            raise ConfigError(f"{file}: expected what players paid to learn ({err!s:.80})") from None


def row_of(data: Any) -> EvaluationRow:
    """A row from its JSON object. Raises ValueError where it is none."""
    if not isinstance(data, Mapping):
        raise ValueError(f"an object expected, got {type(data).__name__}")
    if SEAL in data:  # of rows that a person made there is none
        said = json.dumps({name: value for name, value in data.items() if name != SEAL}, ensure_ascii=True)
        if data[SEAL] != _seal(said):
            raise ValueError("the line was changed after it was written: put back what it was, or take it out")
    known_names = {one.name for one in fields(EvaluationRow)}
    row = EvaluationRow(**{name: value for name, value in data.items() if name in known_names})
    known = row.right is None or (type(row.right) in (int, float) and 0 <= row.right <= 1)
    if row.status not in ("ended", "failed", "cut") or not known or (row.status == "ended") != (row.right is not None):
        raise ValueError(f"status {row.status!r} with right {row.right!r}")
    names = ("unconfirmed_nano_usd", "unconfirmed_tool_nano_usd", "elapsed_ns")
    for nano in (*row.nano_usd_by_role.values(), *(getattr(row, name) for name in names)):
        if type(nano) is not int or nano < 0:
            raise ValueError(f"money and time are whole numbers from 0 up, got {nano!r:.40}")
    if type(row.over_price_nano_usd) is not int:
        raise ValueError(f"over_price_nano_usd is a whole number, got {row.over_price_nano_usd!r:.40}")
    return row


def paid_for(plays: Sequence[EvaluationRow], last: int = 0, *, cached: bool) -> int:
    """What plays of a trial have cost, and its last one. With a cache the last bill holds what the others were
    answered. What of theirs was not read, no cache has, and it was asked again; of one that was read and that nobody
    counted, what is unconfirmed counts once more."""
    if not cached:
        return sum(row.nano_usd for row in plays) + last
    return sum(row.unconfirmed_nano_usd for row in plays) + max(most_answered(plays), last)


def most_answered(plays: Sequence[EvaluationRow]) -> int:
    """The most that one of some plays was answered for."""
    return max((row.nano_usd - row.unconfirmed_nano_usd for row in plays), default=0)
