"""`toolorchestra serve environments` in a process of its own, and what its episodes are without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import toolorchestra as to
from tests.paths import REPOSITORY
from toolorchestra.envs.base.openai_messages import action_of
from toolorchestra.envs.money.prices import Usage

Call = tuple[str, dict[str, Any]]
SEARCH: Call = ("search", {"model": "search-1"})
ANSWER: Call = ("answer", {"model": "answer-1"})
FIGURES = ("reward", "outcome", "usd", "seconds", "usd_by_role", "turns", "tool_calls")


@dataclass(frozen=True)
class ServedEnvironments:
    """The address of a server, and the folder of its bills."""

    url: str
    folder: Path

    def bills(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "bills.jsonl").read_text().splitlines()]


@contextmanager
def served_environments(folder: Path, *options: str) -> Iterator[ServedEnvironments]:
    """The command, until the end of the block; then it ends by SIGTERM, without an error."""
    words = [sys.executable, "-m", "toolorchestra", "serve", "environments", "--port", "0", "--out", str(folder)]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))}
    with subprocess.Popen([*words, *options], stdout=subprocess.PIPE, text=True, env=known) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"http://\S+?(?=;)", said)
            assert found, said
            yield ServedEnvironments(found.group(), folder)
        finally:
            process.terminate()
            code = process.wait(30)
    assert code == 0


def alone(
    env: str,
    seed: int,
    turns: Sequence[Sequence[Call] | str],
    *,
    arguments: Mapping[str, Any] | None = None,
    used: Usage | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The same turns by Gymnasium alone. `used`: what the policy's model counted at each."""
    made: Any = to.make(env, **(arguments or {})).unwrapped
    made.reset(seed=seed, options=options)
    earned, info = 0.0, {}
    for turn in turns:
        if used is not None:
            made.charge_policy(used)
        _, reward, _, _, info = made.step(turn if isinstance(turn, str) else action_of(turn))
        earned += float(reward)
    counted = {"turns": len(turns), "tool_calls": sum(made.episode.calls.values())}
    return figures({"reward": earned, "outcome": info.get("outcome"), **counted, **info["ledger"]})


def figures(account: Mapping[str, Any]) -> dict[str, Any]:
    return {name: account[name] for name in FIGURES}
