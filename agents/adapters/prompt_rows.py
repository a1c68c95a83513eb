"""Tasks as rows of a data set, which trainers that read their prompts from files are given, and rows as rollouts again.

A row names an environment, its arguments, a task and a seed: all that an episode follows from. What stands beside them
(the first messages, the preference) is for those who read or filter the file, and is compared when the row is played.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import arguments_of, every_task, labels, seed_of
from toolorchestra.agents.rollouts.rollout import Job, factory_of
from toolorchestra.envs.base.errors import ConfigError, install
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.factory import EpisodeFactory

ENV_CLASS = "toolorchestra"
"""What a row calls its kind of environment."""
Split = Literal["train", "validation", "test"]
Row = Mapping[str, Any]


def prompt_rows(mix: EnvMix, split: Split, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Make rows of some tasks of a split. Listed tasks come in a shuffled order, each once before any comes twice."""
    arguments = json.dumps(arguments_of(mix, split), sort_keys=True)
    made = _factory(mix.env_id, arguments)
    listed = every_task(made)
    rng = random.Random(seed_of(seed, mix.env_id, split))
    order: list[str] = []
    for _ in range(count):
        if listed and not order:
            order = rng.sample(listed, len(listed))
        task = {"task_id": order.pop()} if listed else None
        started = made.start(task_seed := rng.randrange(10**9), task)
        yield {
            "prompt": [{"role": m["role"], "content": m["content"]} for m in started.observation["messages"]],
            "env_class": ENV_CLASS,
            "task_id": started.episode.task_id,
            "seed": task_seed,
            "preference": preference_text(started.episode.preference),
            "data_source": labels([mix])[0],
            "gym_id": mix.env_id,
            "arguments": arguments,
        }


def preference_text(preference: Preference) -> str:
    """A preference as a row has it."""
    return json.dumps({**preference.weights(), "sentence": preference.sentence})


def write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows as Parquet, or as JSON lines where the name ends so."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return
    if path.suffix != ".parquet":
        raise ConfigError(f"a file that ends in .parquet or .jsonl expected, got {path}")
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise ConfigError(f"Parquet needs pyarrow, which is not installed: {install('data')}") from None
    parquet.write_table(pa.Table.from_pylist(rows), path)


def job_of_row(row: Row) -> Job:
    """The rollout that a row asks for. Raises ConfigError that names what the row lacks."""
    lacks = [name for name in ("gym_id", "seed") if row.get(name) is None]
    if lacks:
        raise ConfigError(
            f"a row of tasks has gym_id and seed, this one lacks {', '.join(lacks)}; it has {', '.join(row)}; "
            "write the file with: toolorchestra export prompts"
        )
    env_id, task_id = str(row["gym_id"]), row.get("task_id")
    made = _factory(env_id, str(row.get("arguments") or "{}"))
    return Job(env_id, made, int(row["seed"]), None if task_id is None else {"task_id": task_id})


def named(row: Row) -> str:
    """Names a row for a message: its task, environment and seed."""
    return f"task {row.get('task_id')} of {row.get('gym_id')} (seed {row.get('seed')})"


def check_same_preference(row: Row, preference: Preference) -> None:
    """Refuse a row whose episode is no longer the one that was exported."""
    if (told := row.get("preference")) is not None and told != preference_text(preference):
        raise ConfigError(
            f"{named(row)} had the preference {told} when it was exported, and has {preference_text(preference)} now: "
            "this version draws other episodes; export the tasks again"
        )


@lru_cache(maxsize=64)
def _factory(env_id: str, arguments: str) -> EpisodeFactory:
    return factory_of(env_id, **json.loads(arguments))
