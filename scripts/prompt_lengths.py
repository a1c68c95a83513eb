"""How many tokens an episode of each environment begins with: system message, tools and task, as a chat template writes
them. By these a preset's context is chosen.

python scripts/prompt_lengths.py --tokenizer Qwen/Qwen3-8B --json tests/agents/configuration/openings.json

Where an environment lists its tasks, every task of every split is begun with all of its tools; where questions are
generated without end, `--tasks` of them are. No model is needed, only its tokenizer: a folder or a hub id.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.pretrained import load_tokenizer
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.training.task_choice import every_task
from toolorchestra.envs.runtime.driver import begin
from toolorchestra.envs.runtime.invoke import Gates

Arguments = Mapping[str, Any]
TAU2: Arguments = {"user": "scripted"}
SOURCES: Mapping[str, tuple[str, Arguments, tuple[str, ...]]] = {
    "HLE-v0": ("ToolOrchestra/HLE-v0", {}, ("train",)),
    "FRAMES-v0": ("ToolOrchestra/FRAMES-v0", {}, ("train",)),
    "ToolScale-v0": ("ToolOrchestra/ToolScale-v0", {}, ("train", "validation", "test", "heldout")),
    "Tau2-v0 airline": ("ToolOrchestra/Tau2-v0", {**TAU2, "domain": "airline"}, ("train", "test")),
    "Tau2-v0 retail": ("ToolOrchestra/Tau2-v0", {**TAU2, "domain": "retail"}, ("train", "test")),
    "Tau2-v0 telecom": ("ToolOrchestra/Tau2-v0", {**TAU2, "domain": "telecom"}, ("train", "test")),
    "Tau2-v0 telecom, alone": ("ToolOrchestra/Tau2-v0", {"domain": "telecom"}, ("train", "test")),
    "Tau2-v0 telecom-workflow": ("ToolOrchestra/Tau2-v0", {**TAU2, "domain": "telecom-workflow"}, ("train", "test")),
    "Tau2-v0 telecom-workflow, alone": ("ToolOrchestra/Tau2-v0", {"domain": "telecom-workflow"}, ("train", "test")),
}
"""Label -> id, arguments of gym.make, splits."""


def openings(label: str, chat: Chat, tasks: int) -> Iterator[int]:
    """Tokens of each episode's first prompt, with the header of the first turn."""
    env_id, arguments, splits = SOURCES[label]
    for split in splits:
        made = factory_of(env_id, **arguments, split=split)
        listed = every_task(made)
        jobs: list[tuple[int, Mapping[str, Any] | None]] = (
            [(seed, None) for seed in range(tasks)]
            if listed is None
            else [(seed, {"task_id": task}) for seed, task in enumerate(listed)]
        )
        for seed, options in jobs:
            episode = made.start(seed, options).episode
            asyncio.run(begin(episode, Gates()))
            sequence, _ = chat.follow(None, episode.observation)
            yield len(sequence.tokens)


def main() -> None:
    """The table, and a file of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="a folder or hub id of transformers, with its chat template")
    parser.add_argument("--only", nargs="+", choices=list(SOURCES), default=list(SOURCES), help="environments")
    parser.add_argument("--tasks", type=int, default=300, help="of environments whose tasks have no end")
    parser.add_argument("--json", type=Path, help="write the longest openings here, for the tests of the presets")
    args = parser.parse_args()
    chat = Chat(load_tokenizer(args.tokenizer))
    print("| environment | episodes begun | median opening | longest opening |\n|---|---|---|---|")
    longest: dict[str, int] = {}
    for label in args.only:
        lengths = list(openings(label, chat, args.tasks))
        longest[label] = max(lengths)
        print(f"| {label} | {len(lengths):,} | {statistics.median(lengths):,.0f} | {max(lengths):,} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(longest, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
