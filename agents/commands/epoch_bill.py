"""What one pass over a file of tasks will cost in experts and tools, before anything is spent:

toolorchestra epoch-bill data/train.parquet --rollouts 8

Some of its tasks are played in the simulated worlds, by the cheapest and by the strongest routing, and billed by the
price sheet of each row: a run will hardly cost less than the one, or more than the other. The policy's own tokens are
left out, since it runs on the trainer's GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.adapters.prompt_rows import Row, job_of_row, read_rows
from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import baseline, players
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR

LOW, HIGH = "cheapest", "strongest"


@dataclass(frozen=True)
class EpochBillOptions:
    """What `toolorchestra epoch-bill` takes."""

    tasks: tyro.conf.Positional[Path]
    """A file of `toolorchestra export-prompts`."""
    rollouts: int = 8
    """How many times each task is played."""
    played: int = 40
    """Tasks that are played to estimate by."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(EpochBillOptions, run, given, about=__doc__)


def run(given: EpochBillOptions) -> int:
    """Print the bill."""
    check_counts(given, {"rollouts": 1, "played": 1})
    if not given.tasks.is_file():
        raise ConfigError(f"{given.tasks} is not there; write it with: toolorchestra export-prompts")
    rows = read_rows(given.tasks)
    some = rows[:: max(1, len(rows) // given.played)][: given.played]
    count = len(rows) * given.rollouts
    bills = {player: episode_bill(some, player) for player in (LOW, HIGH)}
    say(f"{len(rows):,} tasks x {given.rollouts} rollouts, by simulated plays of {len(some)} tasks, by role:")
    for player, (usd, calls, seconds) in bills.items():
        roles = ", ".join(f"{role} {value * count:,.2f}" for role, value in usd.items())
        total = sum(usd.values()) * count
        say(f"  {player}: $ {total:,.2f} ({roles}); {calls * count:,.0f} calls; {seconds:.0f} s of tools an episode")
    return DONE


def episode_bill(rows: Sequence[Row], player: str) -> tuple[Mapping[str, float], float, float]:
    """Dollars by role, calls and seconds of a mean episode, the policy's own tokens left out."""
    nano: Counter[str] = Counter()
    calls, seconds = 0, 0.0
    for row in rows:
        job = job_of_row(row)
        if player not in players(job.factory.source):
            raise ConfigError(
                f"nobody knows a {player} way through {row['gym_id']}, so no simulated play says what it costs; play "
                "some tasks first: toolorchestra evaluate --dry-run --like FOLDER"
            )
        episode = played(job.factory, baseline(player, job.seed), job.seed, job.options)
        for charge in episode.ledger:
            if charge.usage.role != ORCHESTRATOR:
                nano[charge.usage.role] += charge.nano_usd
        calls += sum(episode.calls.values())
        seconds += episode.ledger.seconds
    size = max(1, len(rows))
    return {role: value / NANO / size for role, value in nano.items()}, calls / size, seconds / size
