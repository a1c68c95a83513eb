"""A domain folder of self-consistent tasks, made from a spec, and the yield report."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import write_whole
from toolorchestra.envs.domains.toolscale import domain_files, loader
from toolorchestra.envs.domains.toolscale.domain_files import FILES, content_hash, fits
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTable
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.intent_templates import Rejected
from toolorchestra.synth.formats.seed_rows import Maker
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.task_checks import fault
from toolorchestra.synth.stages.task_drafts import HELD_OUT, TEST, TRAIN, Drafter, Shape
from toolorchestra.synth.stages.voices import voiced

MOST_DRAFTS = 60
"""Drafts for each task that is asked for, before the generator gives up."""
MOST_IDLE_SHARE = 0.06
Seen = Callable[[int, int], None]
"""Function that is told how many of how many tasks are there."""
ONE_TEST_IN = 10
"""One draft in so many is for the test, and one of intents that are held out."""
ONE_HELD_OUT = 4
VALIDATION_SHARE = 0.1


@dataclass
class YieldReport:
    """What came of the drafts."""

    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    intents: Counter[str] = field(default_factory=Counter)
    idle: int = 0
    unused: list[str] = field(default_factory=list)
    """Intents that no kept task has; the examples may say why."""

    def drop(self, reason: str, seen: str) -> None:
        """Count a dropped draft; the first of each reason is kept as an example."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, seen)

    def text(self) -> str:
        """The report as text: how many drafts were dropped and why, and what the tasks are like."""
        lines = [f"{sum(self.dropped.values())} drafts dropped"]
        lines += [f"  {r}: {n} (first: {self.examples[r]:.300})" for r, n in self.dropped.most_common()]
        lines.append(f"  right answer is to do nothing: {self.idle}")
        rare = ", ".join(f"{name} {n}" for name, n in self.intents.most_common()[:-6:-1])
        lines.append(f"  intents used: {len(self.intents)}; rarest: {rare}")
        for name in self.unused:
            why = next((seen for key, seen in self.examples.items() if key == f"intent {name}"), "never fitted")
            lines.append(f"  intent {name} is never used: {why:.300}")
        return "\n".join(lines)


def skeleton(spec: Spec, seed: int) -> SqlDomain:
    """The domain without tasks: schema, rows, tools and policy, all checked."""
    tables = Maker(spec, seed).tables()
    at = str(spec.folder / "tools.yaml")
    tools = loader.tools_of(((f"{at}:{getattr(entry, 'line', '?')}", entry) for entry in spec.tools), at)
    loader.check_sql(spec.schema, tables, tools, at, lambda name: places.at(f"tools.yaml: tool {name!r}"))
    return SqlDomain(
        name=spec.name, subject=spec.head["subject"], clock=spec.head["clock"],
        held_out=spec.head.get("held_out", False), policy=spec.policy, schema=spec.schema, tables=tables,
        tools=tools, tasks={}, manifest={"process": process} if (process := _process(spec)) else {}, folder=spec.folder,
    )  # fmt: skip


def _process(spec: Spec) -> dict[str, Any] | None:
    """The rules of process that a spec states, as the manifest has them."""
    stated = spec.head.get("process")
    if stated is None:
        return None
    user = spec.head["user"]
    return {
        "ways": [[name for row in way["actions"] for name in row] for way in user["ways"]],
        "confirm": stated.get("confirm", True),
        "caller": stated.get("caller", user["key"]),
        "own": dict(stated["own"]),
    }


def tasks(
    spec: Spec, domain: SqlDomain, count: int, seed: int, *, least: int | None = None, seen: Seen | None = None
) -> tuple[list[Shape], YieldReport]:
    """Self-consistent tasks: each passed every check and says what no other does. `count` of them, or,
    where `least` is given, as many as there are from that number up."""
    bench = DomainPlayer(domain)
    drafter = Drafter(spec, bench, random.Random(f"{seed}/{spec.name}/tasks"))
    report = YieldReport()
    forms: set[str] = set()
    kept: list[Shape] = []
    for _ in range(count * MOST_DRAFTS):
        if len(kept) == count:
            break
        try:
            shape = drafter.draft(_split(spec, len(kept)))
            admit(bench, shape, forms, report, count)
        except Rejected as err:
            report.drop(err.reason, str(err))
            report.examples.setdefault(f"intent {err.intent}", str(err))
            continue
        drafter.kept(shape)
        forms.add(similarity.form(shape))
        kept.append(shape)
        if seen is not None:
            seen(len(kept), count)
    if len(kept) < (count if least is None else least):
        raise ConfigError(
            f"{spec.folder}: {len(kept)} of {count} tasks after {count * MOST_DRAFTS} drafts; add intents, wordings"
            f" or rows\n{report.text()}"
        )
    for place in [at for at, shape in enumerate(kept) if similarity.asks_twice(shape, domain.writes)]:
        drafter.rng = random.Random(f"{seed}/{spec.name}/tasks/{place}")  # so all others stay as they are
        kept[place] = _instead(kept[place], drafter, _split(spec, place), forms, report, count)
    report.unused = [i["intent"] for i in spec.intents if i["intent"] not in report.intents]
    for place, shape in enumerate(kept, 1):
        shape["id"] = f"{place:04d}"
    return divided(kept, spec, seed), report


def _instead(twice: Shape, drafter: Drafter, split: str, forms: set[str], report: YieldReport, count: int) -> Shape:
    """Another task in the place of one that asks for the same twice; that one, where no draft does better."""
    report.drop("asks for the same twice", twice["description"]["purpose"])
    for _ in range(MOST_DRAFTS):
        try:
            shape = drafter.draft(split)
            if similarity.asks_twice(shape, drafter.bench.domain.writes):
                continue
            admit(drafter.bench, shape, forms, report, count)
        except Rejected as err:
            report.drop(err.reason, str(err))
            continue
        drafter.kept(shape)
        forms.add(similarity.form(shape))
        return shape
    return twice


def _split(spec: Spec, place: int) -> str:
    """What the next draft is for."""
    if place % ONE_TEST_IN == ONE_TEST_IN - 1:
        return TEST
    if place % ONE_TEST_IN == ONE_HELD_OUT and spec.head.get("held_out_intents"):
        return HELD_OUT
    return TRAIN


def admit(bench: DomainPlayer, shape: Shape, forms: set[str], report: YieldReport, count: int) -> None:
    """Count a draft among the kept tasks, unless a check is against it. Raises Rejected."""
    if similarity.form(shape) in forms:
        raise Rejected("says what another does")
    task = loader.task(fits(domain_files.TASK_SCHEMA, shape, "draft"))
    if task.idle and report.idle + 1 > MOST_IDLE_SHARE * count:
        raise Rejected("enough tasks where nothing is to be done")
    name, seen = fault(bench, task)
    if name:
        purpose = shape["description"]["purpose"]
        raise Rejected(f"check {name}", f"{purpose}: {seen}", task.requests[0].intent)
    report.idle += task.idle
    report.intents.update(request.intent for request in task.requests)


def divided(shapes_: Sequence[Shape], spec: Spec, seed: int) -> list[Shape]:
    """The tasks with their splits. Those for tests were drafted as such; validation is drawn of the others."""
    rng = random.Random(f"{seed}/{spec.name}/splits")
    fixed = (TEST, HELD_OUT)
    others = [place for place, shape in enumerate(shapes_) if shape["toolscale"]["split"] not in fixed]
    validation = set(rng.sample(others, min(len(others), round(VALIDATION_SHARE * len(shapes_)))))
    for place, shape in enumerate(shapes_):
        if shape["toolscale"]["split"] not in fixed:
            shape["toolscale"]["split"] = "validation" if place in validation else "train"
    return list(shapes_)


def make(spec: Spec, count: int, seed: int, out: Path) -> tuple[SqlDomain, YieldReport]:
    """All stages. What is written is read back and compared by its hashes."""
    domain = skeleton(spec, seed)
    made, report = tasks(spec, domain, count, seed)
    write(spec, domain, voiced(spec, made), seed, out)
    return loader.read(out, verify=True), report


def write(spec: Spec, domain: SqlDomain, said: Sequence[Shape], seed: int, out: Path) -> None:
    """The domain folder, of tasks said in voices. domain.json goes first and comes last: a folder that was written half
    does not load."""
    parts = {
        "schema.sql": spec.schema.encode(),
        "rows.jsonl.gz": _rows(domain.tables),
        "tools.json": (
            "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in spec.tools) + "\n]\n"
        ).encode(),
        "policy.md": spec.policy.encode(),
        "tasks.jsonl.gz": "".join(json.dumps(shape, ensure_ascii=False) + "\n" for shape in said).encode(),
    }
    manifest: dict[str, Any] = {
        "name": spec.name,
        "subject": spec.head["subject"],
        "clock": spec.head["clock"],
        "held_out": spec.head.get("held_out", False),
        "content_hash": content_hash(parts, domain.manifest.get("process")),
        "generator": {"seed": seed, "spec_hash": spec.digest},
        "counts": {
            "tables": len(domain.tables),
            "rows": sum(len(t.rows) for t in domain.tables.values()),
            "tools": len(domain.tools),
            "tasks": len(said),
            "policy_characters": len(spec.policy),
        },
    }
    if process := domain.manifest.get("process"):
        manifest["process"] = process
    if held_out := sum(shape["toolscale"]["split"] == HELD_OUT for shape in said):
        manifest["counts"]["held_out_tasks"] = held_out
    out.mkdir(parents=True, exist_ok=True)
    (out / "domain.json").unlink(missing_ok=True)  # of other tasks
    for name in FILES:
        data = parts[name]
        # No name and no time in the gzip header: the same content gives the same bytes.
        (out / name).write_bytes(gzip.compress(data, 9, mtime=0) if name.endswith(".gz") else data)
    write_whole(out / "domain.json", (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())


def _rows(tables: Mapping[str, SqlTable]) -> bytes:
    out = []
    for name, table in tables.items():
        out.append(json.dumps({"table": name, "key": table.key, "columns": list(table.columns)}))
        out += [json.dumps(list(row), ensure_ascii=False) for row in table.rows]
    return ("\n".join(out) + "\n").encode()


def rebuilt(spec: Spec, folder: Path, scratch: Path) -> bool:
    """Whether the spec and the manifest's seed give the folder's bytes again."""
    head = loader.manifest(folder)
    make(spec, head["counts"]["tasks"], head["generator"]["seed"], scratch)
    return all((folder / name).read_bytes() == (scratch / name).read_bytes() for name in (*FILES, "domain.json"))
