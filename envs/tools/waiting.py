"""How long a tool may wait for models that bound their own time."""

from __future__ import annotations

from toolorchestra.envs.tools.backends import SLACK_SECONDS, UNBOUNDED_SECONDS, Patient


def deadline(models: object, calls: int = 1) -> float:
    """Longer than so many calls of a backend can take, one after the other: it gives up by itself, and says what was
    paid. A backend that says nothing of its patience has as long as any tool."""
    patience = calls * models.patience_seconds if isinstance(models, Patient) else 0.0
    return max(UNBOUNDED_SECONDS, patience + SLACK_SECONDS)
