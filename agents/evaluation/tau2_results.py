"""A run over τ²-Bench as the benchmark's own results files, one for each environment, split, policy and domain; and as
a submission to its leaderboard, in the shape of `tau2.scripts.leaderboard.submission.Submission` in the package."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.environment_options import PAPER, ChosenEnv, arguments, chosen_envs
from toolorchestra.agents.evaluation.rows import Cell, grouped
from toolorchestra.agents.evaluation.run_files import PlayedRow, RunFiles, model_of
from toolorchestra.agents.evaluation.statistics import TaskTally, pass_hat, pass_rates
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.domain import folder_of
from toolorchestra.envs.domains.tau2.package import Release, load_release
from toolorchestra.envs.domains.tau2.results import PlayedConversation, ResultsHead, results
from toolorchestra.envs.domains.tau2.source import ALL, USERS
from toolorchestra.envs.domains.tau2.task import public_id
from toolorchestra.envs.domains.tau2.world import MAX_ERRORS, MAX_STEPS
from toolorchestra.envs.money.prices import NANO, USER

TAU2, TAU2_ID = "Tau2-v0", "ToolOrchestra/Tau2-v0"
BASE = "base"
"""The split that the leaderboard's checker wants whole."""
_DOMAIN = "telecom"
"""What Tau2-v0 has where nothing is said."""


@dataclass(frozen=True)
class Tau2ResultsFile:
    """One file, before it is written."""

    cell: Cell
    domain: str
    head: ResultsHead
    data: Mapping[str, Any]
    left_out: tuple[str, ...]
    """The trials that are not in it, in a sentence; empty where all are."""
    lacking: tuple[str, ...]
    """Why the leaderboard would refuse it, in sentences."""

    @property
    def name(self) -> str:
        """The name of the file: environment, split, policy and domain, with ".json"."""
        words = (*self.cell, self.domain, *(("alone",) if self.head.alone else ()))
        return "_".join(re.sub(r"[^\w.-]+", "-", word).strip("-") or "-" for word in words) + ".json"


def tau2_results(run: RunFiles) -> list[Tau2ResultsFile]:
    """The files of a run."""
    made = []
    for cell, played in run.cells.items():
        if cell[0].partition(",")[0] != TAU2:  # behind a comma stands the setting of a preset
            continue
        apart = grouped(played, lambda one: (one.row.task.partition("/")[0], _user(run, one)["kind"]))
        made += [_file(run, cell, domain, some) for (domain, _), some in apart.items()]
    if not made:
        raise ConfigError(f"{run.folder} has no trials of {TAU2}, and this format has no others; name another run")
    if twice := [name for name, count in Counter(one.name for one in made).items() if count > 1]:
        raise ConfigError(
            f"two parts of the run would share the file {twice[0]}; read those of one policy: "
            "RunFiles.read(folder, policy=NAME)",
            command_line="--policy NAME",
        )
    return made


def _file(run: RunFiles, cell: Cell, domain: str, some: Sequence[PlayedRow]) -> Tau2ResultsFile:
    release = _release(_arguments(run, domain), some)
    rows, known = release.tasks(folder_of(domain)), [one for one in some if one.row.right is not None]
    own = {**{public_id(task_id): task_id for task_id in rows}, **{task_id: task_id for task_id in rows}}
    wanted = {own[one.row.task.partition("/")[2].partition("@")[0]] for one in some}
    head = ResultsHead(
        domain=domain,
        release=release,
        begun=run.begun,
        revision=str(run.manifest.get("revision", "")),
        trials=1 + max(one.row.trial for one in some),
        seed=run.manifest.get("asked", {}).get("seed"),
        model=model_of(some),
        user=_user(run, (known or some)[0]),
        max_steps=MAX_STEPS,
        max_errors=MAX_ERRORS,
    )
    tasks = [row for task_id, row in rows.items() if task_id in wanted]
    order = {str(task["id"]): place for place, task in enumerate(tasks)}
    played = sorted((_played(one) for one in known), key=lambda one: (one.trial, order[one.task_id]))
    unknown = len(some) - len(known)
    left_out = (f"{unknown} of {len(some)} trials of {domain} failed or were cut, and are left out",) if unknown else ()
    lacking = (*left_out, *_lacking(head, some, set(order)))
    return Tau2ResultsFile(cell, domain, head, results(head, tasks, played), left_out, lacking)


def _user(run: RunFiles, one: PlayedRow) -> Mapping[str, Any]:
    """The user whom the agent had: recorded runs may be of either kind. Where a trial failed, what was asked for."""
    asked = _arguments(run, one.row.task.partition("/")[0]).get("user", "none")
    return one.row.evidence.get("user") or {"kind": asked if asked in USERS else "llm"}


def _arguments(run: RunFiles, domain: str) -> Mapping[str, Any]:
    """What gym.make was given for this domain, as far as the manifest says."""
    asked = run.manifest.get("asked", {})
    preset = [words for words in asked.get("env", ()) if words[:1] == [PAPER]]
    own = [words for words in asked.get("env", ()) if words not in preset]
    of_all = {"domain": "all", **arguments(f"--env {PAPER}", preset[-1][1:])} if preset else {}
    chosen = [one for one in chosen_envs(own, asked.get("set", ())) if one.env_id == TAU2_ID]
    made = [{**of_all, **one.arguments} for one in chosen or [ChosenEnv(TAU2_ID, {})]]
    return next((one for one in made if one.get("domain", _DOMAIN) in (domain, "all")), made[0])


def _release(arguments: Mapping[str, Any], some: Sequence[PlayedRow]) -> Release:
    if arguments.get("reference"):
        raise ConfigError(
            "these are domains of a reference folder, and the benchmark's format has its own domains alone"
        )
    release = load_release(arguments.get("tasks_path"))
    for one in some:
        played = str(one.row.evidence.get("tasks_version", release.version))
        if not played.startswith(release.version):
            raise ConfigError(f"the run was played on tasks of {played}, but what is found here is {release.version}")
    return release


def _played(one: PlayedRow) -> PlayedConversation:
    row = one.row
    messages = one.trajectory.get("conversation")
    if messages is None:
        raise ConfigError(
            f"the trajectory of task {row.task} keeps no conversation, as runs of earlier versions: play it again"
        )
    return PlayedConversation(
        sim_id="/".join(map(str, row.key)),
        task_id=str(row.evidence["task"]),
        trial=row.trial,
        seed=row.seed,
        reward=float(row.evidence.get("value_without_budget", row.right)),  # the benchmark has no budgets
        evidence=row.evidence,
        messages=messages,
        seconds=row.seconds,
        agent_usd=row.agent_usd,
        user_usd=row.nano_usd_by_role.get(USER, 0) / NANO,
    )


def _lacking(head: ResultsHead, some: Sequence[PlayedRow], tasks: set[str]) -> Iterator[str]:
    """Why the leaderboard would not take a file."""
    if any(count != head.trials for count in Counter(one.row.task for one in some).values()):
        yield f"not every task was played {head.trials} times"
    base = set(head.release.splits(folder_of(head.domain)).get(BASE, ()))
    if missing := len(base - tasks):
        yield f"{missing} of the {len(base)} tasks of {head.domain}'s split base were not played"
    if others := len(tasks - base):
        yield f"{others} tasks are not of {head.domain}'s split base"
    if head.user["kind"] != "llm":
        yield f"the user was {head.user['kind']!r}, where the leaderboard wants a model: user=NAME"


# -- a submission ------------------------------------------------------------------------------------------------------


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
        if one.domain not in ALL:
            raise ConfigError(f"the leaderboard has {', '.join(ALL)}, and the run has {one.domain} too")
        if one.domain in by_domain:
            cells = " and ".join(f"{env} {split}" for env, split, _ in (by_domain[one.domain].cell, one.cell))
            raise ConfigError(f"{one.domain} stands twice in the run, as {cells}; a submission has a domain once")
        by_domain[one.domain] = one
    head = files[0].head
    return {
        "model_name": head.model,
        "organization": "",
        "submission_date": datetime.now(UTC).date().isoformat(),
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


def _figures(one: Tau2ResultsFile) -> Mapping[str, float | None]:
    """pass^k in percent and dollars a trial, of the trials that ended, as the package computes them."""
    by_task = grouped(one.data["simulations"], lambda played: played["task_id"]).values()
    rates = pass_rates([TaskTally.of(played["reward_info"]["reward"] for played in some) for some in by_task], pass_hat)
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
