"""Prove that domains are self-consistent, every task of them: `toolorchestra synth prove` (all that are shipped) or
`toolorchestra synth prove finance /tmp/library --sample 100`.

For each task: the gold path gives 1, doing nothing 0, saying nothing 0, leaving out a write 0, another value for an
argument 0, reads in another order 1, and the oracle through the environment 1. For each domain: sizes, hostile
arguments through every string parameter, the duplicate report, the same transcripts in two processes, and the same
bytes again from the spec.

All of this shows that tasks and grading agree with each other. It does not show that the gold path is what the user's
words mean: for that there are the lint of the spec, whose findings are counted here (`toolorchestra synth lint` shows
them), and a second reader (`toolorchestra synth make --reader`).
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, command, say
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlTool
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.solvers import ORACLE, Arena
from toolorchestra.synth.proof.task_checks import fault
from toolorchestra.synth.stages import spec_lint
from toolorchestra.synth.stages.domain_folder import rebuilt

LEAST = {"tools": 20, "rows": 750, "tasks": 450}
POLICY_CHARACTERS = (6_000, 10_000)
MOST_IDLE_SHARE = 0.08
CONSISTENT = "self-consistent"
"""Said of tasks that passed every check. Whether gold is what the words mean, no run can show."""
CHECKED = (
    "the gold path gives 1; doing nothing, saying nothing, a write left out and another argument give 0; reads in "
    "another order give 1. Not checked: whether the gold path is what the words mean"
)
REPLAYED = 40
"""Tasks of a domain that are played once more in another process."""


class Proof(NamedTuple):
    """What one job of a proof found."""

    domain: str
    """Name or folder, as it was given: two folders may hold domains of one name."""
    what: str
    tasks: int
    faults: tuple[str, ...]
    digest: str
    """Hash of the oracle's transcripts, where it played."""


def check_tasks(name: str, ids: Sequence[str]) -> Proof:
    """Every check on these tasks, then the oracle through the environment."""
    arena = Arena(name)
    checked = ((task_id, fault(arena.bench, arena.domain.tasks[task_id])) for task_id in ids)
    faults = [f"{task_id}: {check}: {seen}" for task_id, (check, seen) in checked if check]
    played, digest = play(arena, ids)
    return Proof(name, "tasks", len(ids), (*faults, *played), digest)


def play(arena: Arena, ids: Sequence[str]) -> tuple[list[str], str]:
    """The oracle through the environment: what went wrong, and a digest of all transcripts."""
    faults, made = [], hashlib.blake2b(digest_size=12)
    for number, task_id in enumerate(ids):
        seed = int(task_id) if task_id.isdecimal() else number
        found = asyncio.run(arena.play(ORACLE, task_id, seed))
        if not found.solved:
            faults.append(f"{task_id}: oracle: not solved; not told or looked at: {found.missing!r:.300}")
        made.update("\n".join(f"{m['role']}: {m['content']}" for m in found.messages).encode())
    return faults, made.hexdigest()


def check_again(name: str, ids: Sequence[str]) -> Proof:
    """Play the oracle's transcripts only, for comparison with another process."""
    arena = Arena(name)
    faults, digest = play(arena, ids)
    return Proof(name, "replay", len(ids), tuple(faults), digest)


def check_domain(name: str) -> Proof:
    """Sizes, the content hash, hostile arguments and the duplicate report."""
    found = loader.read(loader.resolve(name), verify=True)
    counts = {
        "tools": len(found.tools),
        "rows": sum(len(table.rows) for table in found.tables.values()),
        "tasks": len(found.tasks),
    }
    faults = []
    if found.folder.parent.resolve() == loader.SHIPPED.resolve():  # what one's own need not have
        faults += [f"{counts[key]} {key}, at least {n} expected" for key, n in LEAST.items() if counts[key] < n]
        low, high = POLICY_CHARACTERS
        if not low <= len(found.policy) <= high:
            faults.append(f"a policy of {len(found.policy)} characters, {low} to {high} expected")
    idle = sum(task.idle for task in found.tasks.values())
    if idle > MOST_IDLE_SHARE * len(found.tasks):
        faults.append(f"{idle} tasks where nothing is to be done, at most {MOST_IDLE_SHARE:.0%} expected")
    alike = similarity.compare(task.shape for task in found.tasks.values())
    if alike.exact:
        faults.append(f"{alike.exact} tasks say what another says: {alike.example}")
    faults += list(breaches(DomainPlayer(found)))[:10]
    strings = sum(p.get("type") == "string" for t in found.tools.values() for p in t.parameters["properties"].values())
    what = (
        f"{counts['tools']} tools, {counts['rows']} rows, policy of {len(found.policy)} characters,"
        f" {idle} tasks to refuse ({idle / max(1, len(found.tasks)):.1%}), duplicates: {alike.exact} exact,"
        f" {alike.near} near;"
        f" {strings * len(ARGUMENTS)} hostile calls contained"
    )
    return Proof(name, what, 0, tuple(faults), "")


def check_meaning(name: str) -> Proof:
    """How many findings the lint of the spec has. They are no faults: an author should look at them."""
    folder = loader.resolve(name)
    generator = loader.manifest(folder)["generator"]
    found = spec_lint.findings(specs.texts(folder.name), int(generator["seed"]))
    what = f"lint of its spec: {spec_lint.counted(found)}; `toolorchestra synth lint {folder.name}` shows them"
    return Proof(name, what, 0, (), "")


def _is_of_a_shipped_spec(folder: Path) -> bool:
    """Whether a domain lies among the shipped ones, or was made from the spec of one as it is."""
    if folder.name not in specs.shipped():
        return False
    known = folder.resolve().parent == loader.SHIPPED.resolve()
    return known or loader.manifest(folder)["generator"].get("spec_hash") == specs.load(folder.name).digest


def check_bytes(name: str) -> Proof:
    """Whether the spec gives the shipped folder's bytes again."""
    folder = loader.resolve(name)
    with tempfile.TemporaryDirectory() as scratch:
        same = rebuilt(specs.load(folder.name), folder, Path(scratch) / folder.name)
    faults = () if same else ("the spec and its seed give other bytes: run synth/generate.py and commit the result",)
    return Proof(name, "made again from its spec, byte by byte", 0, faults, "")


def _begin() -> None:
    """Begin a worker: the parent alone hears an interrupt, and its end of a worker is an end, whatever the parent does
    at that signal itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that an interrupt of the parent ends at once, and that say nothing of their own. Submit jobs, do not
    map them: what map() has cancelled by then breaks the pool's thread when its workers are gone."""
    with ProcessPoolExecutor(count, initializer=_begin) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def prove(names: Sequence[str], *, sample: int | None, jobs: int, rebuild: bool = True) -> list[Proof]:
    """Proves the named domains in parallel processes, and returns every proof. `sample` limits the tasks of each."""
    if empty := [name for name in names if not loader.load(name).tasks]:
        raise ConfigError(f"{empty[0]}: it has no task that could be proven; generate it with some")
    with workers(jobs) as pool:
        futures = []
        for name in names:
            ids = list(loader.load(name).tasks)
            kept = ids if sample is None else ids[:: max(1, len(ids) // sample)][:sample]
            again = kept[:REPLAYED]
            futures.append(pool.submit(check_domain, name))
            if rebuild and _is_of_a_shipped_spec(loader.resolve(name)):
                futures.append(pool.submit(check_bytes, name))
                futures.append(pool.submit(check_meaning, name))
            futures += [pool.submit(check_tasks, name, part) for part in (again, kept[REPLAYED:]) if part]
            futures.append(pool.submit(check_again, name, again))
        return [future.result() for future in futures]


def report(proofs: Sequence[Proof], names: Sequence[str]) -> list[str]:
    """The lines of the report; faults start with FAULT."""
    lines, heads = [], [loader.load(name).name for name in names]
    for name, head in zip(names, heads, strict=True):
        head = head if heads.count(head) == 1 else f"{head} ({name})"
        own = [proof for proof in proofs if proof.domain == name]
        played = [proof for proof in own if proof.what == "tasks"]
        again = next(proof for proof in own if proof.what == "replay")
        faults = [fault_ for proof in own for fault_ in proof.faults]
        if again.digest != played[0].digest:
            faults.append(f"two processes, two transcripts: {played[0].digest} and {again.digest}")
        seen = f", {len(faults)} faults" if faults else f" {CONSISTENT}"
        lines.append(f"{head}: {sum(proof.tasks for proof in played)} tasks{seen}, transcripts {again.digest}")
        lines += [f"  {proof.what}" for proof in own if proof.what not in ("tasks", "replay")]
        lines += [f"FAULT {head}: {fault_}" for fault_ in faults]
    return lines


@dataclass(frozen=True)
class ProveOptions:
    """What `toolorchestra synth prove` takes."""

    domain: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names or folders; all that are shipped when left out."""
    sample: int | None = None
    """How many tasks of each domain are proven; all when left out."""
    at_once: int = os.cpu_count() or 1
    """How many processes work at the same time."""

    def __post_init__(self) -> None:
        check_counts(self, {"sample": 1, "at_once": 1})


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ProveOptions, run, given, about=__doc__)


def run(given: ProveOptions) -> int:
    """Prove, and print what was found; a fault fails the command."""
    started = time.perf_counter()
    shipped = loader.names()
    names = tuple(dict.fromkeys(str(loader.resolve(name)) for name in given.domain or shipped))
    lines = report(prove(names, sample=given.sample, jobs=given.at_once), names)
    faults = sum(line.startswith("FAULT") for line in lines)
    say("\n".join(lines))
    shapes = [task.shape for name in names for task in loader.load(name).tasks.values()]
    say(similarity.language(shapes).text())
    say(f"self-consistent: {CHECKED}")
    say(f"{len(names)} domains, {faults} faults, {time.perf_counter() - started:.0f} s")
    return FAILED if faults else DONE


# -- hostile arguments -------------------------------------------------------------------------------------------------

ARGUMENTS = (
    "' OR '1'='1", "' OR 1=1 --", "'; DROP TABLE customers; --", '"; DELETE FROM accounts; --',
    "x'); DROP TABLE t; --", "' UNION SELECT * FROM sqlite_master --", "') UNION SELECT sql FROM sqlite_schema --",
    "1; ATTACH DATABASE 'x' AS y", "ATTACH DATABASE '/tmp/x.db' AS evil;", "'; PRAGMA writable_schema = 1; --",
    "PRAGMA foreign_keys = OFF;", "'; VACUUM INTO '/tmp/stolen.db'; --", "load_extension('x')",
    "'||load_extension('/tmp/x')||'", "' || randomblob(1e9) || '", "zeroblob(1000000000)",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT * FROM c",
    "'; WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c; --",
    "(SELECT group_concat(email) FROM customers)", "x' AND (SELECT count(*) FROM a, b, c, d) > 0 --", "%' ESCAPE '",
    "%%%%%%%%%%", "_' OR LIKE('%','a", "'; COMMIT; --", "'; ROLLBACK; --", "'; SAVEPOINT a; --",
    "'; BEGIN EXCLUSIVE; --", "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END",
    "'; CREATE TABLE pwned(x); --", "/**/OR/**/1=1", "--", "\\'; DROP TABLE users; --", ":now || ''", "?1",
    "@who = 1", "$x = 1", "{account_id.__class__}", "{0.__init__.__globals__}", "%(name)s'", "\x00",
    "AC-1\x00' OR 1=1", "AC-00001\n", "\r\n.schema", "\u202eAC-00001", "AC\u200b-00001", "\ufeffAC-00001",
    "ＡＣ－００００１", "AC‐00001'", "ﬁnance'", "\u02bc OR 1=1", "＇ OR 1=1", "' OR '１'='１", "\ud7ff'\ufffe",
    "💥; DROP TABLE x", "<script>alert(1)</script>", "../../etc/passwd'", "a" * 100_000, "'" * 10_000, "\u0301" * 300,
    "", " ", "now()", "'now'", '{"$gt": ""}', "[1, 2]", "null;", "${jndi:ldap://x}", "`id`", "$(id)",
    "| cat /etc/passwd",
)  # fmt: skip
"""Text for string parameters. JSON of other types is refused by the schema before it gets this far."""


def breaches(bench: DomainPlayer) -> Iterator[str]:
    """What got through, in words: calls that were not refused, or that changed something."""
    for tool in bench.domain.tools.values():
        base = valid(bench, tool)
        for name, part in tool.parameters["properties"].items():
            for text in ARGUMENTS if part.get("type") == "string" else ():
                at = f"{tool.name}.{name} = {text!r:.60}"
                with bench.session() as session:
                    try:
                        called = bench.call(session, GoldCall(tool.name, {**base, name: text}))
                    except ToolError:
                        if session.changes():
                            yield f"{at}: it changed rows"
                    else:
                        yield f"{at}: not refused, gave {called.text:.60}"


def valid(bench: DomainPlayer, tool: SqlTool) -> Mapping[str, Any]:
    """Arguments that the tool takes: those of a gold call, or values of its columns."""
    for task in bench.domain.tasks.values():
        for action in task.actions:
            if action.name == tool.name:
                return action.arguments
    made = {}
    for name, part in tool.parameters["properties"].items():
        plain = "x1" if part["type"] == "string" else part.get("minimum", 1)
        made[name] = next(iter(part.get("enum") or bench.values(name)), plain)
    return made


if __name__ == "__main__":
    sys.exit(main())
