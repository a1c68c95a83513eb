"""The final report of a run: what each stage kept and dropped and why, what it cost, how hard the tasks are.

Texts in it may be a model's: control characters are taken out, marks that Markdown or HTML would act on are escaped,
and every text has a limit.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.whole_files import write_whole
from toolorchestra.envs.domains.toolscale.known_costs import KnownCost
from toolorchestra.synth.stages.pipeline import Made
from toolorchestra.synth.storage import PaidModel

MOST_TEXT = 300
DISAGREEMENTS = "disagreements.txt"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MARKS = re.compile(r"([\\`*_\[\]|~#!])")


def escaped(text: str) -> str:
    """A text that stays text wherever the report is shown."""
    plain = _CONTROL.sub(" ", text[:MOST_TEXT])
    return _MARKS.sub(r"\\\1", html.escape(plain, quote=False))


def rows(made: Made, paid_model: PaidModel | None) -> dict[str, Any]:
    """The report of a run as a dict of plain values, to be written as JSON."""
    tasks, known = made.domain.tasks.values(), made.known
    spent = paid_model.ledger.usd if paid_model else 0.0
    return {
        "domain": made.domain.name,
        "tasks": len(tasks),
        "stages": [tally.row() for tally in made.tallies],
        "difficulty": {str(level): n for level, n in sorted(Counter(task.difficulty for task in tasks).items())},
        "nothing_to_be_done": sum(task.idle for task in tasks),
        "cheapest_known": _cheapest(known, sum(len(task.actions) for task in tasks)) if known else {},
        "usd": spent,
        "usd_by_stage": paid_model.usd_by_stage() if paid_model else {},
        "usd_a_kept_task": spent / max(1, len(tasks)),
        "calls": {"made_now": paid_model.paid, "answered": len(paid_model.ledger)} if paid_model else {},
    }


def _cheapest(known: Sequence[KnownCost], gold_calls: int) -> dict[str, Any]:
    """The cheapest known solutions together, and which share of their tries graded solvers passed."""
    passed: Counter[str] = Counter()
    for one in known:
        passed.update(one.passes)
    return {
        "sheet": known[0].setting.sheet,
        "usd_a_task": sum(one.usd for one in known) / len(known),
        "turns_a_task": sum(one.turns for one in known) / len(known),
        "calls": sum(sum(one.calls.values()) for one in known),
        "gold_calls": gold_calls,
        "found_by": dict(Counter(one.found_by for one in known).most_common()),
        "passes": {name: number / len(known) / known[0].setting.tries for name, number in passed.items()},
    }


def text(report: Mapping[str, Any]) -> str:
    """The report in Markdown, made from what rows() gave."""
    lines = [f"# {report['domain']}: {report['tasks']} tasks kept", ""]
    lines += ["| stage | kept | rounds of repair | dropped or sent back |", "|---|---|---|---|"]
    for row in report["stages"]:
        why = ", ".join(f"{escaped(reason)}: {n}" for reason, n in row["dropped"].items())
        lines.append(f"| {row['stage']} | {row['kept']} | {row['rounds']} | {why or '-'} |")
    lines.append("")
    for row in report["stages"]:
        seen = ((why, row["examples"][why]) for why in row["dropped"] if why in row["examples"])
        lines += [f"- {row['stage']}, {escaped(why)}: {escaped(first)}" for why, first in seen]
        lines += [f"- {row['stage']}: {escaped(note)}" for note in row["notes"]]
    levels = ", ".join(f"{level}: {n}" for level, n in report["difficulty"].items())
    lines += ["", f"Tasks by difficulty (measured by gold calls): {levels}"]
    lines.append(f"Tasks whose right answer is to do nothing: {report['nothing_to_be_done']}")
    if known := report["cheapest_known"]:
        found = ", ".join(f"{how} {n}" for how, n in known["found_by"].items())
        shares = ", ".join(f"{name} {share:.0%}" for name, share in known["passes"].items())
        lines.append(
            f"Cheapest known solutions (SIMULATED, {known['sheet']}): {known['usd_a_task']:.6f} $ and"
            f" {known['turns_a_task']:.1f} turns a task, {known['calls']} calls of {known['gold_calls']} gold calls;"
            f" found by: {found}; tries passed by solver: {shares}"
        )
    by_stage = ", ".join(f"{stage} {usd:.6f}" for stage, usd in report["usd_by_stage"].items())
    calls = report["calls"] or {"answered": 0, "made_now": 0}
    lines.append(f"Model calls: {calls['answered']}, of them made now: {calls['made_now']}")
    paid = by_stage or "no model was asked"
    lines.append(f"Dollars: {report['usd']:.6f} ({paid}); per kept task {report['usd_a_kept_task']:.6f}")
    return "\n".join(lines) + "\n"


def disagreements(report: Mapping[str, Any]) -> str:
    """What the second reader made of tasks, with its conversations; "" where it agrees or there is none."""
    notes = [note for row in report["stages"] if row["stage"] == "reader" for note in row["notes"][1:]]
    return "\n\n".join(_CONTROL_BUT_LINES.sub(" ", note) for note in notes) + "\n" if notes else ""


def store(folder: Path, report: Mapping[str, Any]) -> None:
    """report.json and report.md, and disagreements.txt where a second reader differs from gold."""
    told = disagreements(report)
    (folder / DISAGREEMENTS).unlink(missing_ok=True)
    if told:
        write_whole(folder / DISAGREEMENTS, told.encode())
    write_whole(folder / "report.json", (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(folder / "report.md", text(report).encode())
