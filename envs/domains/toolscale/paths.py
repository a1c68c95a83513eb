"""Which calls of a task's paths settle which of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolorchestra.envs.domains.toolscale.domain import GoldCall, Request, SqlTask


def requests_along(task: SqlTask, path: Sequence[GoldCall]) -> tuple[Request, ...]:
    """The task's requests with another of its paths as gold: one request has other calls, and those behind it move."""
    shift = len(path) - len(task.actions)
    first = next((n for n, (a, b) in enumerate(zip(task.actions, path, strict=False)) if a != b), None)
    if first is None and not shift:
        return task.requests
    requests = []
    for request in task.requests:
        own = request.actions
        if not own or (first is not None and own[-1] < first):
            requests.append(request)
        elif first is None or own[0] <= first:
            requests.append(replace(request, actions=tuple(range(own[0], own[-1] + 1 + shift))))
        else:
            requests.append(replace(request, actions=tuple(n + shift for n in own)))
    return tuple(requests)
