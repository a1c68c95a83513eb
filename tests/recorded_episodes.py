"""Episodes as they were before the house was made lighter: what three policies said, and what each episode came to.

`python -m tests.recorded_episodes` plays the recorded words again, all of them, and says what is not as it was.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from tests.paths import REPOSITORY

FILE = REPOSITORY / "tests" / "data" / "recorded_episodes.jsonl.gz"


class Recorded(NamedTuple):
    """One episode: how it was started, what was said, and what it came to."""

    env: str
    policy: str
    seed: int
    task: str
    said: tuple[str, ...]
    reward: float
    nano_usd: dict[str, int]
    digest: str


def recorded() -> Iterator[Recorded]:
    """Every recorded episode."""
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Recorded(**{**row, "said": tuple(row["said"])})


def outcome_of(env: Any) -> dict[str, Any]:
    """What an episode has come to: its reward, its bill by role, and a digest of words, charges and outcome."""
    episode = env.unwrapped.episode
    charges = [(c.usage.item, c.usage.role, c.tool, tuple(c.usage.tokens), c.nano_usd) for c in episode.ledger]
    by_role: dict[str, int] = {}
    for _, role, _, _, nano in charges:
        by_role[role] = by_role.get(role, 0) + nano
    outcome = episode.outcome
    kept = [
        [[m["role"], m["content"]] for m in episode.messages],
        charges,
        episode.ledger.elapsed_ns,
        dict(sorted(episode.preference.weights().items())),
        episode.preference.sentence,
        repr(outcome and outcome.value),
        episode.sheet.sheet_id,
    ]
    digest = hashlib.sha256(json.dumps(kept, default=float).encode("utf-8", "replace")).hexdigest()[:16]
    return {"reward": outcome.value if outcome else -1.0, "nano_usd": by_role, "digest": digest}


def differs(env: Any, episode: Recorded) -> str:
    """What of an episode is not as it was, in a sentence; "" where all is."""
    env.reset(seed=0, options={"episode_seed": episode.seed, "task_id": episode.task})
    for text in episode.said:
        env.step(text)
    now = outcome_of(env)
    was = {"reward": episode.reward, "nano_usd": episode.nano_usd, "digest": episode.digest}
    return "" if now == was else f"{episode.env} {episode.policy} seed {episode.seed}: {was} is {now} now"


def check(every: int = 1) -> list[str]:
    """What differs among each `every`-th episode."""
    envs: dict[str, Any] = {}
    found = []
    for number, episode in enumerate(recorded()):
        if number % every == 0:
            if episode.env not in envs:
                envs[episode.env] = gym.make(episode.env)
            if said := differs(envs[episode.env], episode):
                found.append(said)
    return found


if __name__ == "__main__":
    wrong = check()
    print("\n".join(wrong[:20]) or "all as recorded", f"{len(wrong)} differ", sep="\n")
    sys.exit(bool(wrong))
