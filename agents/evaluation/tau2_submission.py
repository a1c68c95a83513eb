"""A run over τ²-Bench as a submission to its leaderboard: submission.json, and the trajectories that it is made of. The
shape is that of `tau2.scripts.leaderboard.submission.Submission` in the package."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.statistics import TaskTally, pass_hat, pass_rates
from toolorchestra.agents.evaluation.tau2_results import Tau2ResultsFile
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.models.endpoints import read_row

DOMAINS = ("airline", "retail", "telecom")
SUBMISSION, FOLDER = "submission.json", "trajectories"
MOST_TRIALS = 4
"""pass^1 to pass^4 are asked for."""


@dataclass(frozen=True)
class SubmissionDetails:
    """What a submission says that no run knows; a file holds them: see read_details."""

    model_name: str = ""
    """Of the agent's model; "" takes the price sheet's item."""
    organization: str = ""
    """Who made the model."""
    email: str = ""
    """For questions."""
    name: str = ""
    github: str = ""
    is_new: bool = False
    """Whether the leaderboard should mark the model as new."""
    notes: str = ""
    """On how it was evaluated."""

    @property
    def unsaid(self) -> list[str]:
        """What has to be filled in by hand."""
        return [name for name in ("organization", "email") if not getattr(self, name)]


def read_details(path: Path | None) -> SubmissionDetails:
    """From a TOML or JSON file; without one nothing is said."""
    if path is None:
        return SubmissionDetails()
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as err:
        raise ConfigError(
            f"{path}: a TOML or JSON file with a submission's details expected, got {err}; mend the file",
            command_line="--about FILE",
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: an object with a submission's details expected, got {type(data).__name__}; mend the file",
            command_line="--about FILE",
        )
    return read_row(SubmissionDetails, data, str(path))


def submission(files: Sequence[Tau2ResultsFile], details: SubmissionDetails) -> dict[str, Any]:
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
        "organization": details.organization,
        "submission_date": _today().isoformat(),
        "contact_info": {"email": details.email, "name": details.name or None, "github": details.github or None},
        "results": {domain: _figures(one) for domain, one in by_domain.items()},
        "is_new": details.is_new,
        "methodology": {
            "evaluation_date": head.begun.date().isoformat(),
            "tau2_bench_version": head.release.version,
            "user_simulator": head.user.get("model"),
            "notes": details.notes or None,
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


def write_submission(files: Sequence[Tau2ResultsFile], details: SubmissionDetails, out: Path) -> list[str]:
    """Write it into a folder, and say what is still to be done."""
    made = submission(files, details)
    (out / FOLDER).mkdir(parents=True)
    for one in files:
        (out / FOLDER / one.name).write_text(json.dumps(one.data, allow_nan=False) + "\n", encoding="utf-8")
    text = json.dumps(made, allow_nan=False, indent=2, ensure_ascii=False)
    (out / SUBMISSION).write_text(text + "\n", encoding="utf-8")
    said = [f"fill in {' and '.join(details.unsaid)} in {out / SUBMISSION}, or in the file of details"]
    refused = [f"the leaderboard will refuse {one.domain}: {why}" for one in files for why in one.lacking]
    return [*(said if details.unsaid else []), *refused]
