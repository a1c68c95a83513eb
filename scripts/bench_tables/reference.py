"""The reference table of the benchmarks: `python scripts/bench.py --table reference [--reference FOLDER]`.

Without a folder: the tests' made-up depot, grown to databases of 0.3, 1 and 10 MB. With one: what an episode of each of
its domains costs. The other way is the reference's: each episode validates and hashes a database of its own.
"""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.tau2.reference.domain import ReferenceDomain, Toolkit, load_toolkit
from toolorchestra.envs.domains.tau2.reference.folders import DATABASE, places
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import read_plan
from toolorchestra.envs.env import OrchestraEnv

DEPOT = Path(__file__).parents[2] / "tests" / "envs" / "domains" / "tau2" / "reference" / "folders" / "depot"
RECORDS = (1000, 4000, 38000)
"""Items of the made-up depot, and as many members."""
Row = tuple[str, str, str]


def cpu_ms(deed: Callable[[], object], before: Callable[[], object] = lambda: None, rounds: int = 5) -> float:
    """CPU milliseconds of one deed, the least of some rounds. What comes before each is not counted."""
    best = float("inf")
    for _ in range(rounds):
        before()
        started = time.process_time()
        deed()
        best = min(best, (time.process_time() - started) * 1e3)
    return best


def held_mb(make: Callable[[], object]) -> float:
    """Megabytes of what is made and kept, by Python's own count."""
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    del kept
    return held


def own_database(toolkit: Toolkit) -> Callable[[], object]:
    """An episode's database as the reference makes and grades it: validated whole, and hashed."""
    kind, data = type(toolkit.database), toolkit.database.model_dump(mode="json", by_alias=True)
    return lambda: toolkit.kind(kind.model_validate(data)).get_db_hash()


def of_folder(folder: str) -> Iterator[Row]:
    """A row for each domain that can be opened."""
    plan = read_plan({"id": "0", "user_scenario": {"instructions": ""}})
    for name, place in places(folder).items():
        data = place.find(DATABASE)
        if place.code is None or (place.code / "user_tools.py").exists() or not data:
            yield name, "left out", "no toolkit, no db.json, or tools of the user's"
            continue
        started = time.process_time()
        toolkit = load_toolkit(folder, name, None)
        opened = time.process_time() - started
        domain = ReferenceDomain(toolkit, Release(Path(folder), ""))
        copied = cpu_ms(lambda domain=domain: domain.start(plan).kit())
        state, other = domain.start(plan), cpu_ms(own_database(toolkit))
        hashed = cpu_ms(state.touched, before=state.kit)
        held = held_mb(lambda domain=domain: domain.start(plan).kit())
        note = f"{data.stat().st_size / 1e6:.2f} MB of JSON, {len(toolkit.tools)} tools, opened in {opened:.2f} s"
        yield f"{name}: database copied, hashed", f"{copied:.1f} + {hashed:.1f} ms CPU", f"{held:.1f} MB; {note}"
        yield f"{name}: validated and hashed", f"{other:.1f} ms CPU", "as the reference does"


def made_up(seconds: float) -> Iterator[Row]:
    """The made-up depot, through the environment."""
    del seconds
    for records in RECORDS:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(DEPOT, Path(folder) / "depot", ignore=shutil.ignore_patterns("__pycache__"))
            size = _grow(Path(folder) / "depot" / DATABASE, records)
            for what, value, note in _depot(folder):
                yield f"{size:.1f} MB: {what}", value, note


def _depot(folder: str) -> Iterator[Row]:
    settings: dict[str, Any] = {"reference": folder, "domain": "depot", "trust_code": True, "split": "base"}

    def made() -> OrchestraEnv:
        source = "toolorchestra.envs.domains.tau2.source:Tau2Source"
        env = OrchestraEnv(
            source, preference="none", max_turns=10**6, max_steps=None, max_errors=None, user="scripted", **settings
        )
        env.reset(seed=0)
        return env

    env = made()

    def does(name: str, **arguments: Any) -> Callable[[], object]:
        action = render_call(name, arguments)
        return lambda: env.step(action)

    get, find = does("get_member", member_id="M-1"), does("find_member", email="x999@example.org")
    rent, refused = does("rent_item", member_id="M-1", item_id="I-2", days=0), does("get_member", member_id="nobody")
    yield "reset", f"{cpu_ms(lambda: env.reset(seed=0), rounds=50):.2f} ms CPU", ""
    yield "the first call", f"{cpu_ms(get, before=lambda: env.reset(seed=0)):.2f} ms CPU", "the database is copied"
    yield "a record by its key", f"{cpu_ms(get, before=get):.2f} ms CPU", "as every call from here on"
    yield "found by a search", f"{cpu_ms(find, before=get):.2f} ms CPU", "the 999th of the table"
    yield "a write", f"{cpu_ms(rent, before=lambda: (env.reset(seed=0), get())):.2f} ms CPU", "searches too"
    yield "a call after a refusal", f"{cpu_ms(get, before=refused):.2f} ms CPU", "the database is copied again"
    farewell = "Is there anything else I can do for you?"
    env.reset(seed=0, options={"task_id": "depot/0"})
    end = cpu_ms(lambda: env.step(farewell), before=lambda: (env.reset(seed=0, options={"task_id": "depot/0"}), get()))
    yield "the last step", f"{end:.2f} ms CPU", "the database is hashed"
    yield "an episode after reset", f"{held_mb(made):.2f} MB", ""

    def written() -> OrchestraEnv:
        one = made()
        one.step(render_call("rent_item", {"member_id": "M-1", "item_id": "I-1"}))
        return one

    yield "an episode that has written", f"{held_mb(written):.2f} MB", ""


def _grow(path: Path, records: int) -> float:
    """The depot's database with so many items and members; says its size in MB."""
    data = json.loads(path.read_text(encoding="utf-8"))
    for number in range(len(data["items"]) + 1, records + 1):
        data["items"][f"I-{number}"] = {**data["items"]["I-1"], "item_id": f"I-{number}"}
    for number in range(len(data["members"]) + 1, records + 1):
        card = {"member_id": f"M-{number}", "email": f"x{number}@example.org"}
        data["members"][f"M-{number}"] = {**data["members"]["M-1"], **card}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path.stat().st_size / 1e6
