"""What multi-turn rollouts cost over raw vLLM, side by side in one run on one engine: `make bench-vllm`.

The episode is the toy's: eight turns, seven calls of a tool that takes 10 ms, and an answer. So that both sides make
the same tokens, a turn is sampled as long as the scripted one is, and the script's text is what the episode reads. The
raw side has the same prompts at hand, turn by turn: no episode, no template, no tool.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.rollouts.rollout import Job, RolloutParams, Rollouts
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.envs.domains.toy import TURNS, script
from toolorchestra.envs.factory import factory

SOURCE = "toolorchestra.envs.domains.toy:AdderSource"
TOOL_SECONDS = 0.01
CONTEXT = 1536
Request = tuple[list[int], int]
"""A prompt, and how many tokens were sampled after it."""


class Scripted:
    """An engine that samples as many tokens as the script's next turn has, and says the script's."""

    def __init__(self, sampler: Any, turns: Sequence[list[int]]) -> None:
        self.sampler, self._turns = sampler, turns
        self._at: dict[str, int] = {}
        self.asked: list[list[Request]] = [[] for _ in turns]
        """By turn."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        at = self._at[session] = self._at.get(session, -1) + 1
        said = self._turns[at]
        self.asked[at].append((list(prompt), len(said)))
        made = await self.sampler.sample(prompt, SamplingParams(len(said), params.temperature), session)
        return Sample(said, made.logprobs, True)

    def release(self, session: str) -> None:
        self._at.pop(session, None)


def rollouts(sampler: Any, chat: Chat, episodes: int) -> tuple[float, list[list[Request]], float]:
    """Sampled tokens a second, what was asked, and the share of prompt tokens that were cached."""
    turns = [[*chat.encode(text), chat.stop] for text in script("slow_add")]
    engine: Any = Scripted(sampler, turns)
    made = factory(SOURCE, tool_seconds=TOOL_SECONDS)
    params = RolloutParams(max_tokens=max(map(len, turns)), max_context=CONTEXT, concurrency=episodes)
    sampler.stats()
    started = time.perf_counter()
    got = Rollouts(engine, chat, params).collect([Job(SOURCE, made, seed) for seed in range(episodes)])
    spent = time.perf_counter() - started
    assert all(t.measure.outcome == 1.0 and t.turns == TURNS for t in got), "the scripted episodes were not solved"
    return episodes * sum(map(len, turns)) / spent, engine.asked, float(sampler.stats()["prefix_hits"])


def raw(sampler: Any, asked: Sequence[Sequence[Request]], salt: str) -> float:
    """Sampled tokens a second of the bare engine, all prompts of a turn at once."""
    llm, wire = sampler._engine.llm, sampler._wire

    async def one(name: str, prompt: list[int], count: int) -> None:
        async for _ in llm.generate(
            {"prompt_token_ids": prompt, "cache_salt": salt}, wire(SamplingParams(count)), name
        ):
            pass

    async def all_turns() -> None:
        for at, turn in enumerate(asked):
            await asyncio.gather(*(one(f"{salt}-{at}-{i}", *request) for i, request in enumerate(turn)))

    started = time.perf_counter()
    sampler._loop.wait(all_turns())
    return sum(count for turn in asked for _, count in turn) / (time.perf_counter() - started)


def measure(episodes: int, repeats: int, hidden: int, layers: int) -> Mapping[str, float]:
    """Both sides in turn, the best of each."""
    from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
    from toolorchestra.agents.engines.vllm_process import VllmConfig
    from toolorchestra.agents.engines.vllm_sampler import VllmSampler
    from toolorchestra.agents.engines.weights import named_weights

    chat = Chat(load_tokenizer())
    model = build_model(len(chat.tokenizer), hidden, layers)  # type: ignore[arg-type]
    shape = {**model.config.to_dict(), "architectures": ["Qwen3ForCausalLM"]}
    sampler = VllmSampler(shape, [], VllmConfig(length=CONTEXT, rows=episodes))
    mine, bare, hits = [], [], 0.0
    try:
        for version in range(repeats):
            sampler.sync(named_weights(model), version)
            speed, asked, hits = rollouts(sampler, chat, episodes)
            mine.append(speed)
            bare.append(raw(sampler, asked, f"raw{version}"))
    finally:
        sampler.close()
    return {"rollouts": max(mine), "raw": max(bare), "hits": hits}


def compared(found: Mapping[str, float], episodes: int) -> Iterator[tuple[str, str, str]]:
    yield "rollouts, 10 ms tools", f"{found['rollouts']:,.0f} tokens/s", f"{episodes} episodes of {TURNS} turns at once"
    yield "raw vLLM generate", f"{found['raw']:,.0f} tokens/s", "the same prompts and counts, turn by turn, no tools"
    yield "rollouts over raw", f"{found['rollouts'] / found['raw']:.2f}", "goal >= 0.9"
    yield "prompt tokens read from the prefix cache", f"{found['hits']:.0%}", "in rollouts"


def rows(seconds: float) -> Iterator[tuple[str, str, str]]:
    """For bench.py: the table with its defaults, which takes as long as it takes."""
    del seconds
    yield from compared(measure(64, 4, 128, 2), 64)


def processor() -> str:
    """What the machine calls its CPU."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=4, help="the first one is a warm-up too")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python {sys.version.split()[0]}")
    found = measure(args.episodes, args.repeats, args.hidden, args.layers)
    print(f"| Qwen3 of {args.layers} layers, hidden {args.hidden} | | |\n|---|---|---|")
    for row in compared(found, args.episodes):
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
