"""Trajectories of RecordTrajectories, or of an evaluation: one episode on each line, with every charge.

An episode whose charges are of one expert model is that model's outcome, with the expert's tokens, and the agent's
dollars and seconds; an orchestrator's own share is in those.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolorchestra.envs.outcomes.files import Row, json_lines, with_keys
from toolorchestra.envs.outcomes.own_runs import NANO, OF_THE_AGENT, family, only_expert, tokens
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "a trajectory"
_NEEDED = ("task_id", "messages", "charges", "outcome", "totals")
_CHARGE = ("item", "role", "tokens", "nano_usd")
_CLASSES = ("input", "cached", "output", "reasoning")


def read_recorded(path: Path) -> Outcomes:
    """The episodes of a file; of an evaluation's folder, of its trajectories.jsonl."""
    made = OutcomesBuilder(str(path))
    file = path / "trajectories.jsonl" if path.is_dir() else path
    lines = json_lines(file, EXPECTED, _NEEDED, torn=lambda: made.leave_out("lines broken off at the end"))
    for number, (where, row) in enumerate(lines, 1):
        if row.get("abandoned"):
            made.leave_out("episodes that were left")
        elif row.get("failed") or not row["outcome"] or row.get("truncated_by") == "spend_cap":
            made.leave_out("episodes that failed or were cut")
        else:
            charges = [with_keys(charge, f"{where}, charges", "a charge", _CHARGE) for charge in row["charges"]]
            if model := only_expert({str(c["item"]) for c in charges if c["role"] == "expert"}, made):
                _add(made, row, model, charges, number, where)
    return made.made()


def _add(made: OutcomesBuilder, row: Row, model: str, charges: Sequence[Row], number: int, where: str) -> None:
    spent = sum(charge["nano_usd"] for charge in charges if charge["role"] in OF_THE_AGENT)
    used = [
        with_keys(c["tokens"], f"{where}, tokens", "tokens by class", _CLASSES)
        for c in charges
        if c["role"] == "expert"
    ]
    made.add(
        row["task_id"],
        model,
        with_keys(row["outcome"], f"{where}, outcome", "an outcome", ("value",))["value"],
        family=family(row.get("task") or {}),
        run=f"line {number}",
        text=_question(row),
        seconds=with_keys(row["totals"], f"{where}, totals", "totals", ("seconds",))["seconds"],
        usd=spent / NANO,
        **tokens([sum(one[name] for one in used) for name in _CLASSES], where),
    )


def _question(row: Row) -> str:
    """What the user said first. A wish stands in the system's message."""
    said = next((m.get("content") for m in row["messages"] if m.get("role") == "user"), "")
    return said if isinstance(said, str) else ""
