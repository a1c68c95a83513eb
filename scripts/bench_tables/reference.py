"""The reference table of the benchmarks: `python scripts/bench.py --table reference [--reference FOLDER]`.

Without a folder: the tests' made-up depot, grown to 1,000 items and 1,000 members. With one: what each of its domains
costs to open and to reset. The other way is the reference's: each episode validates and hashes a database of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.tau2.reference.domain import ReferenceDomain, Toolkit, load_toolkit
from toolorchestra.envs.domains.tau2.reference.folders import places
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import read_plan
from toolorchestra.envs.env import OrchestraEnv

DEPOT = Path(__file__).parents[2] / "tests" / "envs" / "domains" / "tau2" / "reference" / "folders" / "depot"
RECORDS = 1000
LIVE = 512
Row = tuple[str, str, str]


def cpu_us(deed: Callable[[], object], times: int) -> float:
    """CPU microseconds of one deed, the least of three rounds."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(times):
            deed()
        best = min(best, (time.process_time() - started) / times * 1e6)
    return best


def resident_kb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def own_database(toolkit: Toolkit) -> Callable[[], object]:
    """An episode's database as the reference makes and grades it: validated whole, and hashed."""
    kind, data = type(toolkit.master.model), toolkit.master.model.model_dump(mode="json", by_alias=True)
    return lambda: toolkit.kind(kind.model_validate(data)).get_db_hash()


def of_folder(folder: str) -> Iterator[Row]:
    """A row for each domain that can be opened."""
    plan = read_plan({"id": "0", "user_scenario": {"instructions": ""}})
    for name, place in places(folder).items():
        if place.code is None or (place.code / "user_tools.py").exists() or not place.find("db.json"):
            yield name, "left out", "no toolkit, no db.json, or tools of the user's"
            continue
        started = time.process_time()
        toolkit = load_toolkit(folder, name, None)
        opened = time.process_time() - started
        domain = ReferenceDomain(toolkit, Release(Path(folder), ""))
        reset = cpu_us(lambda domain=domain: domain.start(plan), 200)
        other = cpu_us(own_database(toolkit), 3)
        records = sum(len(lent.records) for lent in toolkit.master.tables.values())
        size = f"{len(toolkit.tools)} tools, {records} records, opened in {opened:.2f} s"
        yield f"{name}: a fresh state", f"{reset:.0f} us CPU", f"{other / 1e3:.1f} ms with its own; {size}"


def made_up(seconds: float) -> Iterator[Row]:
    """The made-up depot, through the environment."""
    del seconds
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DEPOT, Path(folder) / "depot", ignore=shutil.ignore_patterns("__pycache__"))
        _grow(Path(folder) / "depot" / "db.json")
        source = "toolorchestra.envs.domains.tau2.source:Tau2Source"
        settings = {"reference": folder, "domain": "depot", "trust_code": True, "user": "scripted", "split": "base"}

        def made() -> OrchestraEnv:
            env = OrchestraEnv(source, preference="none", max_turns=10**6, max_steps=None, max_errors=None, **settings)
            env.reset(seed=0)
            return env

        env = made()
        toolkit = load_toolkit(folder, "depot", None)
        other = cpu_us(own_database(toolkit), 3)
        yield (
            "reset",
            f"{cpu_us(lambda: env.reset(seed=0), 300):.0f} us CPU",
            f"{other / 1e3:.1f} ms: database of its own",
        )
        calls = {
            "step: a record by its key": ("get_member", {"member_id": "M-1"}),
            "step: found among 1,000": ("find_member", {"email": "x999@example.org"}),
            "step: a write among 1,000": ("rent_item", {"member_id": "M-1", "item_id": "I-2", "days": 0}),
        }
        for what, (name, arguments) in calls.items():
            action = render_call(name, arguments)
            resets = cpu_us(lambda: env.reset(seed=0), 50)
            step = cpu_us(lambda action=action: (env.reset(seed=0), env.step(action)), 50) - resets
            yield what, f"{step:.0f} us CPU", "the first of an episode"
        before = resident_kb()
        live = [made() for _ in range(LIVE)]
        yield f"{LIVE} environments alive", f"{(resident_kb() - before) / LIVE:.0f} KB each", "after reset"
        for one in live:
            one.step(render_call("rent_item", {"member_id": "M-1", "item_id": "I-1"}))
        yield f"{LIVE} environments alive", f"{(resident_kb() - before) / LIVE:.0f} KB each", "each has written"


def _grow(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    for number in range(len(data["items"]) + 1, RECORDS + 1):
        data["items"][f"I-{number}"] = {**data["items"]["I-1"], "item_id": f"I-{number}"}
    for number in range(len(data["members"]) + 1, RECORDS + 1):
        card = {"member_id": f"M-{number}", "email": f"x{number}@example.org"}
        data["members"][f"M-{number}"] = {**data["members"]["M-1"], **card}
    path.write_text(json.dumps(data), encoding="utf-8")
