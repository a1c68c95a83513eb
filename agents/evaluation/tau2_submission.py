"""A run over τ²-Bench as a submission to its leaderboard: submission.json, and the trajectories that it is made of. The
shape is that of `tau2.scripts.leaderboard.submission.Submission` in the package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.statistics import TaskTally, pass_hat, pass_rates
from toolorchestra.agents.evaluation.tau2_results import Tau2ResultsFile
from toolorchestra.envs.base.errors import ConfigError

DOMAINS = ("airline", "retail", "telecom")
SUBMISSION, FOLDER = "submission.json", "trajectories"
MOST_TRIALS = 4
"""pass^1 to pass^4 are asked for."""
FILLED_IN = ("organization", "email")
"""What no run knows: it is filled in by hand."""


def submission(files: Sequence[Tau2ResultsFile]) -> dict[str, Any]:
    """What submission.json says. One model's files, each of another domain."""
    if len({one.cell[2] for one in files}) > 1:
        policies = ", ".join(dict.fromkeys(one.cell[2] for one in files))
        raise ConfigError(
            f"a submission is of one policy, and the run has {policies}: name one, RunFiles.read(folder, policy=NAME)",
            command_line="--policy NAME",
        )
    by_domain: dict[str, Tau2ResultsFile] = {}
    for one in files:
        if one.domain not in DOMAINS:
            raise ConfigError(f"the leaderboard has {', '.join(DOMAINS)}, and the run has {one.domain} too")
        if one.domain in by_domain:
            cells = " and ".join(f"{env} {split}" for env, split, _ in (by_domain[one.domain].cell, one.cell))
            raise ConfigError(f"{one.domain} stands twice in the run, as {cells}; a submission has a domain once")
        by_domain[one.domain] = one
    head = files[0].head
    return {
        "model_name": head.model,
        "organization": "",
        "submission_date": _today().isoformat(),
        "contact_info": {"email": "", "name": None, "github": None},
        "results": {domain: _figures(one) for domain, one in by_domain.items()},
        "is_new": False,
        "methodology": {
            "evaluation_date": head.begun.date().isoformat(),
            "tau2_bench_version": head.release.version,
            "user_simulator": head.user.get("model"),
            "notes": None,
        },
    }


def _today() -> date:
    return datetime.now(UTC).date()


def _figures(one: Tau2ResultsFile) -> Mapping[str, float | None]:
    """pass^k in percent and dollars a trial, of the trials that ended, as the package computes them."""
    by_task: dict[str, list[float]] = {}
    for played in one.data["simulations"]:
        by_task.setdefault(played["task_id"], []).append(played["reward_info"]["reward"])
    tallies = [
        TaskTally(sum(rewards), sum(reward >= 1.0 for reward in rewards), len(rewards), len(rewards))
        for rewards in by_task.values()
    ]
    rates = pass_rates(tallies, pass_hat)
    made: dict[str, float | None] = {
        f"pass_{k}": 100 * rates[k].low if k in rates else None for k in range(1, MOST_TRIALS + 1)
    }
    costs = [played["agent_cost"] for played in one.data["simulations"]]
    made["cost"] = sum(costs) / len(costs) if costs else None
    return made


def write_submission(files: Sequence[Tau2ResultsFile], out: Path) -> list[str]:
    """Write it into a folder, and say what is still to be done."""
    made = submission(files)
    (out / FOLDER).mkdir(parents=True)
    for one in files:
        (out / FOLDER / one.name).write_text(json.dumps(one.data, allow_nan=False) + "\n", encoding="utf-8")
    text = json.dumps(made, allow_nan=False, indent=2, ensure_ascii=False)
    (out / SUBMISSION).write_text(text + "\n", encoding="utf-8")
    said = f"fill in {' and '.join(FILLED_IN)} in {out / SUBMISSION}"
    refused = [f"the leaderboard will refuse {one.domain}: {why}" for one in files for why in one.lacking]
    return [said, *refused]
