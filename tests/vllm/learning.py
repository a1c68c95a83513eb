"""A whole small run over an adapter, sampled by vLLM and by the local sampler: do both learn alike?

.venv-vllm/bin/python -m tests.vllm.learning --seeds 0 1 2
.venv-vllm/bin/python -m tests.vllm.learning --seeds 0 1 2 --thinking

A tiny model imitates either of two doors, with all weights. Then GRPO trains an adapter over it, which is handed over
after each step, in episodes of several turns. With --thinking it thinks in each turn, and its chat template leaves out
earlier thoughts: then each turn is a sequence of its own, and what was cached of the one before ends at its thought.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.vllm.test_vllm_training import CONFIG, MODEL, curve, imitate
from toolorchestra.agents.engines.tiny import TEMPLATE, load_tokenizer
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import build

STEPS, LAST, RATE = 12, 3, 2e-3
"""The last steps are what is compared: their share of gold."""


THOUGHT = "<think>\nleft, right\n</think>\n\n"
FORGETS = TEMPLATE.replace("{{ m['content'] }}<|im_end|>", "{{ m['content'].split('</think>')[-1] }}<|im_end|>")
"""The tiny model's template, without the thoughts of earlier turns."""


def base(folder: Path, *, thinks: bool) -> Path:
    """A model that opens either door, as transformers keep it."""
    engine, _ = build(replace(CONFIG, model=replace(MODEL, sampler="local")))
    tokenizer = load_tokenizer()
    if thinks:
        tokenizer.chat_template = FORGETS
    chat = Chat(tokenizer)
    imitate(engine, chat, folder, THOUGHT if thinks else "")
    engine.model.save_pretrained(folder / "base")
    chat.tokenizer.save_pretrained(folder / "base")
    return folder / "base"


def learnt(path: Path, sampler: str, seed: int, *, thinks: bool) -> list[float]:
    """The share of gold by step."""
    model = replace(MODEL, path=str(path), sampler=sampler, lora_rank=8)
    engine, chat = build(replace(CONFIG, model=model, seed=seed), say=lambda _: None)
    with closing(engine):
        least = 1.5 if thinks else 0
        return curve(engine, chat, steps=STEPS, first=100 * seed, rate=RATE, least_sequences=least)


def compared(ends: Sequence[Sequence[float]]) -> str:
    """The difference of two samplers' ends over the same seeds, in its standard errors."""
    gaps = [a - b for a, b in zip(*ends, strict=True)]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    return f"vLLM minus local, last {LAST} steps: {statistics.fmean(gaps):+.3f}, standard error {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--samplers", nargs="+", default=["vllm", "local"])
    parser.add_argument("--thinking", action="store_true")
    given = parser.parse_args()
    ends: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        path = base(Path(place), thinks=given.thinking)
        for seed in given.seeds:
            for sampler in given.samplers:
                seen = learnt(path, sampler, seed, thinks=given.thinking)
                ends.setdefault(sampler, []).append(statistics.fmean(seen[-LAST:]))
                print(f"| {sampler} | {seed} | {' | '.join(f'{share:.2f}' for share in seen)} |", flush=True)
    if len(ends) > 1:
        print(compared(list(ends.values())))


if __name__ == "__main__":
    main()
