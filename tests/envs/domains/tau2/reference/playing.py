"""Playing the made-up domains in tests/envs/domains/tau2/reference/folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.tau2.reference.domain import KitState, ReferenceDomain
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.tau2.task import Tau2Task
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode, Step

FOLDERS = Path(__file__).parent / "folders"
DEPOT, CHECKOUT, ROWS = FOLDERS / "depot", FOLDERS / "checkout", FOLDERS / "rows.jsonl"
CLINIC: dict[str, Any] = {"reference": str(CHECKOUT), "tasks_path": str(ROWS), "skip_unmatched": True}
SETTINGS: dict[str, dict[str, Any]] = {"depot": {"reference": str(DEPOT)}, "clinic": CLINIC}
LONG = "a note that is a good deal longer than forty characters"
"""The depot writes it, and refuses it then."""


def made(**settings: Any) -> OrchestraEnv:
    """An environment of a reference domain, with a scripted user and no wish."""
    given = {"user": "scripted", "split": "base", "preference": "none", "trust_code": True, **settings}
    return OrchestraEnv("toolorchestra.envs.domains.tau2.source:Tau2Source", **given)


def source_of(env: OrchestraEnv) -> Tau2Source:
    source = env.factory.source
    assert isinstance(source, Tau2Source)
    return source


def world_of(env: OrchestraEnv) -> Tau2World:
    assert isinstance(env.episode, Episode)
    assert isinstance(env.episode.world, Tau2World)
    return env.episode.world


def domain_of(env: OrchestraEnv) -> ReferenceDomain:
    domain = world_of(env).domain
    assert isinstance(domain, ReferenceDomain)
    return domain


def state_of(env: OrchestraEnv) -> KitState:
    state = world_of(env).state
    assert isinstance(state, KitState)
    return state


def database_of(owner: Any) -> str:
    """The whole database of an environment's episode, or of a toolkit, as text."""
    kit = state_of(owner).kit() if isinstance(owner, OrchestraEnv) else owner
    return json.dumps(kit.db.model_dump(), sort_keys=True, default=lambda v: sorted(v) if type(v) is set else str(v))


def call(env: OrchestraEnv, name: str, **arguments: Any) -> str:
    """What a tool answers the agent."""
    step = Step(*env.step(render_call(name, arguments)))
    assert not step.info.get("failed")
    return str(step.info["new_messages"][1]["content"])


def plans(env: OrchestraEnv) -> dict[str, Tau2Task]:
    source = source_of(env)
    return {task_id: source.plan(task_id) for task_id in source.ids("base")}


def copied(folder: Path, to: Path) -> Path:
    """A domain's folder to spoil."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def edited(folder: Path, old: str, new: str, name: str = "tools.py") -> Path:
    """The folder, in one of whose files something is written otherwise."""
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    return folder
