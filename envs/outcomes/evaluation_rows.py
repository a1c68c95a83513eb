"""Rows of our own evaluations: the folder that `toolorchestra evaluate --out FOLDER` made, or its rows.jsonl.

A row whose trial asked one expert model is that model's outcome, with the expert's tokens, and the agent's dollars and
seconds; an orchestrator's own share is in those.
"""

from __future__ import annotations

from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.files import Row, found, json_lines, with_keys
from toolorchestra.envs.outcomes.own_runs import NANO, OF_THE_AGENT, family, only_expert, tokens
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "a row of an evaluation"
_NEEDED = ("env", "split", "policy", "task", "trial", "status", "right", "calls", "models", "tokens",
           "nano_usd_by_role", "elapsed_ns")  # fmt: skip


def read_evaluation(path: Path) -> Outcomes:
    """The rows of a run. A family is the task's subject or domain, else its environment."""
    made = OutcomesBuilder(str(path))
    env_of: dict[str, str] = {}
    file = path if path.is_file() else found(path, ("rows.jsonl",), "the folder of an evaluation")[0]
    for where, row in json_lines(file, EXPECTED, _NEEDED, torn=lambda: made.leave_out("lines broken off at the end")):
        if row["status"] != "ended":
            made.leave_out("rows that failed or were cut")
        elif model := only_expert(_experts(row, where), made):
            _add(made, row, model, where, env_of)
    return made.made()


def _experts(row: Row, where: str) -> set[str]:
    models = with_keys(row["models"], f"{where}, models", "models by key", ())
    calls = with_keys(row["calls"], f"{where}, calls", "calls by key", ())
    return {str(models[key]) for key, count in calls.items() if count and key in models}


def _add(made: OutcomesBuilder, row: Row, model: str, where: str, env_of: dict[str, str]) -> None:
    env = env_of.setdefault(row["task"], row["env"])
    if env != row["env"]:
        raise ConfigError(
            f"{where}: task {row['task']!r} is of {env} and of {row['env']}; give the rows of one environment at a time"
        )
    spent = sum(row["nano_usd_by_role"].get(role, 0) for role in OF_THE_AGENT)
    made.add(
        row["task"],
        model,
        row["right"],
        family=family(row.get("groups") or {}, env),
        run=f"{row['split']}/{row['policy']}/{row['trial']}",
        seconds=row["elapsed_ns"] / NANO,
        usd=spent / NANO,
        **tokens(row["tokens"].get("expert", (0, 0, 0, 0)), where),
    )
