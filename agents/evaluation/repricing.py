"""A run billed anew under another price sheet, from the charges in its trajectories.

Every usage is there: item, tokens, units, seconds. So the new bill is exact for what was done. What would have been
done is another matter: an agent that was shown other prices chose by those, and then the new bill is an estimate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.rows import (
    TRAJECTORIES,
    EvaluationRow,
    RowKey,
    bill_of,
    latest,
    read_learnt,
    read_rows,
)
from toolorchestra.agents.evaluation.run_files import chosen_trajectories, lines_of_rows, made_anew, write_anew
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import NANO, Charge, PriceSheet, Tokens, Usage

_DOLLARS = re.compile(r"\$\d")


@dataclass
class Repricing:
    """What a run costs under another price sheet, beside what it cost."""

    sheet: str
    trials: int = 0
    usd_before: float = 0.0
    usd_after: float = 0.0
    sheets_before: set[str] = field(default_factory=set)
    other_prices: int = 0
    """Trials whose prompt showed prices of another sheet."""
    no_prices: int = 0
    """Trials whose prompt showed no price in dollars."""
    outcomes_changed: int = 0
    """Trials that a budget judges otherwise under the new prices."""
    usd_to_learn: float = 0.0
    """What policies that learn first have paid for it, which is not billed anew: its charges are not kept."""

    @property
    def estimate(self) -> bool:
        """Whether the agent might have acted otherwise under the new prices."""
        return bool(self.other_prices or self.outcomes_changed)

    def sentences(self) -> list[str]:
        """What the run costs under both sheets, as sentences for a person to read."""
        before = ", ".join(sorted(self.sheets_before)) or "none"
        said = [
            f"{self.trials} trials: {self.usd_before:.6f} $ under {before}, {self.usd_after:.6f} $ under {self.sheet}."
        ]
        if self.other_prices:
            said.append(
                f"{self.other_prices} of {self.trials} prompts showed other prices than these: the agent chose by "
                "those, so the new bill is an estimate of what it would spend."
            )
        if self.no_prices:
            said.append(f"{self.no_prices} of {self.trials} prompts showed no price in dollars.")
        if self.outcomes_changed:
            said.append(
                f"{self.outcomes_changed} outcomes changed, as a budget is kept or broken under the new prices."
            )
        if self.usd_to_learn:
            said.append(f"To learn had cost {self.usd_to_learn:.6f} $, which stays: that is not billed anew.")
        return said


def reprice(run: Path, sheet: PriceSheet, out: Path) -> Repricing:
    """Bill the run's folder anew into another, which may not be there yet."""
    rows, path = {row.key: row for row in latest(read_rows(run))}, run / TRAJECTORIES
    lines, learnt = lines_of_rows(path, rows), sum(read_learnt(run).values())
    made = Repricing(sheet.sheet_id, usd_to_learn=learnt / NANO)
    items = {str(charge.get("item")) for _, line in chosen_trajectories(path, lines) for charge in line["charges"]}
    sheet.require(items, f"{run}")
    with made_anew(out) as fresh:
        with (fresh / TRAJECTORIES).open("wb") as file:
            for key, line in chosen_trajectories(path, lines):
                rows[key] = _billed(rows[key], line, sheet, made)
                file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        told = {
            "sheet": sheet.sheet_id,
            "date": sheet.date,
            "source": sheet.source,
            "sheets_before": sorted(made.sheets_before),
            "usd_before": made.usd_before,
            "usd_after": made.usd_after,
            "estimate": made.estimate,
            "notes": made.sentences(),
        }
        write_anew(fresh, run, rows.values(), repriced=told)
    return made


def _billed(row: EvaluationRow, line: dict[str, Any], sheet: PriceSheet, made: Repricing) -> EvaluationRow:
    """The row under the sheet. The trajectory is changed in place."""
    old = line["charges"]
    charges = [_charged(charge, sheet, row.key) for charge in old]
    same = [was.get("nano_usd") for was in old] == [now.nano_usd for now in charges]
    same = same and line.get("price_sheet", row.sheet) == sheet.sheet_id
    line["charges"] = [
        {**was, "nano_usd": now.nano_usd, "sheet": now.sheet} for was, now in zip(old, charges, strict=True)
    ]
    for charge in line["charges"]:
        charge.pop("by_price_nano_usd", None)  # now it is billed by the price
    bill = bill_of(charges)
    billed = _held_to_budget(replace(row, **bill, sheet=sheet.sheet_id), line, made)
    line["totals"] = {
        **line.get("totals", {}),
        "nano_usd": billed.nano_usd,
        "nano_usd_by_role": bill["nano_usd_by_role"],
        "nano_usd_by_tool": bill["nano_usd_by_tool"],
    }
    made.trials += 1
    made.usd_before += row.nano_usd / NANO
    made.usd_after += billed.nano_usd / NANO
    made.sheets_before.add(row.sheet)
    opening = [message.get("content") for message in (line.get("messages") or [])[:1]]
    shown = _DOLLARS.search(json.dumps([line.get("tools"), opening], default=str)) is not None
    made.other_prices += shown and not same
    made.no_prices += not shown
    return billed


def _charged(charge: Mapping[str, Any], sheet: PriceSheet, key: RowKey) -> Charge:
    try:
        usage = Usage(
            charge["item"],
            charge["role"],
            Tokens(**charge["tokens"]),
            charge["units"],
            charge["seconds"],
            bool(charge["estimated"]),
            bool(charge.get("unconfirmed")),
        )
        return sheet.charge(usage, charge["tool"])
    except (KeyError, TypeError) as err:
        raise ConfigError(f"trajectory {list(key)}: a charge cannot be read ({err!s:.80}): {charge!r:.120}") from None


def _held_to_budget(row: EvaluationRow, line: dict[str, Any], made: Repricing) -> EvaluationRow:
    budget = line.get("budget")
    if budget is None:
        return row
    over = max(0, row.agent_nano_usd - round(budget * NANO)) / NANO
    line["over_budget_usd"] = over
    if row.right is None:
        return replace(row, over_budget_usd=over)
    value = row.evidence.get("value_without_budget", row.right)
    right = 0.0 if over or value is None else float(value)
    made.outcomes_changed += right != row.right
    evidence = {**row.evidence, "over_budget_usd": over, "value_without_budget": value}
    line["outcome"] = {"value": right, "evidence": evidence}
    return replace(row, over_budget_usd=over, right=right, evidence=evidence)
