"""Integrations with other people's trainers, one file each, and what several of them say of an episode."""

from __future__ import annotations

from typing import Any

from toolorchestra.envs.episode.episode import Episode, Step


def account_of(episode: Episode, earned: float, step: Step | None = None) -> dict[str, Any]:
    """What a trainer is told of the episode so far. The money of a failed one stands here too."""
    info = step.info if step else {}
    ended = {name: info.get(name) for name in ("outcome", "failed", "truncated_by")}
    earned += step.reward if step and not ended["failed"] else 0.0
    counted = {"turns": episode.turn, "calls": dict(episode.calls), "tool_calls": sum(episode.calls.values())}
    return {"reward": earned, **ended, **counted, **episode.ledger.summary()}
