"""What our own evaluations and recordings say of experts.

A trial with one expert is an attempt of that expert at its task. A trial with several, or with none, is nobody's; one
that failed, was cut off or was left has no outcome. All of these are counted and left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.rows import OutcomesBuilder

NANO = 1_000_000_000
OF_THE_AGENT = ("orchestrator", "expert", "tool")
"""The roles whose spending is the agent's: not judges and simulated users."""
_FAMILY = ("subject", "domain")


def only_expert(experts: set[str], made: OutcomesBuilder) -> str | None:
    """The one expert that was asked; else the row is counted as left out."""
    if len(experts) == 1:
        return next(iter(experts))
    made.leave_out("rows of several experts" if experts else "rows without an expert")
    return None


def family(told: Mapping[str, Any], other: str = "") -> str:
    """A task's subject or domain."""
    return next((str(told[name]) for name in _FAMILY if told.get(name)), other)


def tokens(counts: Sequence[Any], where: str) -> dict[str, Any]:
    """Input, cached, output and reasoning, as measures. Nothing where nothing was counted."""
    if len(counts) != 4 or any(isinstance(c, bool) or not isinstance(c, int | float) for c in counts):
        raise ConfigError(f"{where}: expected input, cached, output and reasoning tokens, got {counts!r:.60}")
    entered, cached, written, thought = counts
    if not any(counts):
        return {}
    return {"input": entered + cached, "output": written, "reasoning": thought}
