"""The final report of a run: what each stage kept and dropped and why, what it cost, how hard and new the tasks are.

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
from toolorchestra.envs.domains.toolscale.domain import SqlDomain
from toolorchestra.envs.domains.toolscale.known_costs import KnownCost
from toolorchestra.synth.stages.pipeline import Made
from toolorchestra.synth.stages.stage_values import Tally
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
    domain = made.domain
    spent = paid_model.ledger.usd if paid_model else 0.0
    return {
        "domain": domain.name,
        "tasks": len(domain.tasks),
        "stages": [tally.row() for tally in made.tallies],
        "difficulty": {str(level): n for level, n in sorted(levels(domain).items())},
        "nothing_to_be_done": sum(task.idle for task in domain.tasks.values()),
        "passes": passes(made.known),
        "cheapest_known": cheapest(made.known, domain),
        "usd": spent,
        "usd_by_stage": paid_model.usd_by_stage() if paid_model else {},
        "usd_a_kept_task": spent / max(1, len(domain.tasks)),
        "calls": {"made_now": paid_model.paid, "answered": len(paid_model.ledger)} if paid_model else {},
    }


def levels(domain: SqlDomain) -> Counter[int]:
    """How many tasks have each level of difficulty."""
    return Counter(task.difficulty for task in domain.tasks.values())


def passes(known: Sequence[KnownCost]) -> dict[str, float]:
    """Share of tries passed, by solver."""
    passed: Counter[str] = Counter()
    tries: Counter[str] = Counter()
    for one in known:
        for name, number in one.passes.items():
            passed[name] += number
            tries[name] += one.setting.tries
    return {name: passed[name] / tries[name] for name in tries}


def cheapest(known: Sequence[KnownCost], domain: SqlDomain) -> dict[str, Any]:
    """The cheapest known solutions together; empty where none were measured."""
    if not known:
        return {}
    return {
        "sheet": known[0].setting.sheet,
        "usd_a_task": sum(one.usd for one in known) / len(known),
        "turns_a_task": sum(one.turns for one in known) / len(known),
        "calls": sum(sum(one.calls.values()) for one in known),
        "gold_calls": sum(len(task.actions) for task in domain.tasks.values()),
        "found_by": dict(Counter(one.found_by for one in known).most_common()),
    }


def text(report: Mapping[str, Any]) -> str:
    """The report in Markdown, made from what rows() gave."""
    lines = [f"# {report['domain']}: {report['tasks']} tasks kept", ""]
    lines += ["| stage | kept | rounds of repair | dropped or sent back |", "|---|---|---|---|"]
    for row in report["stages"]:
        why = ", ".join(f"{escaped(reason)}: {n}" for reason, n in row["dropped"].items())
        lines.append(f"| {row['stage']} | {row['kept']} | {row['rounds']} | {why or '-'} |")
    lines += ["", *_details([Tally.read(row) for row in report["stages"]])]
    lines.append("Difficulty (measured by gold calls): " + _bars(report["difficulty"]))
    lines.append(f"Tasks whose right answer is to do nothing: {report['nothing_to_be_done']}")
    if report["passes"]:
        shares = ", ".join(f"{escaped(name)} {share:.0%}" for name, share in report["passes"].items())
        lines.append(f"Tries passed by solver (SIMULATED where scripted): {shares}")
    if known := report["cheapest_known"]:
        found = ", ".join(f"{how} {n}" for how, n in known["found_by"].items())
        lines.append(
            f"Cheapest known solutions (SIMULATED, {known['sheet']}): {known['usd_a_task']:.6f} $ and"
            f" {known['turns_a_task']:.1f} turns a task, {known['calls']} calls of {known['gold_calls']} gold calls;"
            f" found by: {found}"
        )
    if report["calls"]:
        by_stage = ", ".join(f"{stage} {usd:.6f}" for stage, usd in report["usd_by_stage"].items())
        lines.append(f"Model calls: {report['calls']['answered']}, of them made now: {report['calls']['made_now']}")
        lines.append(f"Dollars: {report['usd']:.6f} ({by_stage}); per kept task {report['usd_a_kept_task']:.6f}")
    else:
        lines.append("Dollars: 0 (no model was asked); per kept task 0")
    return "\n".join(lines) + "\n"


def _details(tallies: Sequence[Tally]) -> list[str]:
    lines = []
    for tally in tallies:
        lines += [
            f"- {tally.stage}, {escaped(why)}: {escaped(seen)}"
            for why, seen in tally.examples.items()
            if why in tally.dropped
        ]
        lines += [f"- {tally.stage}: {escaped(note)}" for note in tally.notes]
    return [*lines, ""] if lines else []


def _bars(histogram: Mapping[str, int]) -> str:
    most = max(histogram.values(), default=1)
    return "  ".join(f"{level} {'#' * max(1, round(12 * n / most))} {n}" for level, n in histogram.items())


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
