"""CPU time of a step in TRL's GRPOTrainer: ours through the door, and a toy environment of TRL's own kind.

What the model would write is given, so that nothing is sampled. A step is a tool call. Through the trainer it holds all
that comes before the loss: the template, tokens, parsing, the call, the reward, the advantage and the padded tensors.

`python scripts/bench_doors/trl_steps.py`
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.envs.adapters.trl import TrlRollouts, environment_reward, task_rows
from toolorchestra.envs.adapters.trl_tools import environment_factory
from toolorchestra.envs.base.actions import render_call

EPISODES = 32
SIBLINGS = 4
ROUNDS = 3
SETTINGS: dict[str, Any] = {"split": "train", "preference": "none"}
CALLS = [*[render_call("search", {"model": "search-1"})] * 3, render_call("answer", {"model": "answer-1"})]
SUMS = [render_call("add", {"a": 1, "b": 2})] * 4
Timed = Callable[[], float]


class Adder:
    """A toy environment as TRL's documentation has them."""

    def __init__(self) -> None:
        self.sum = 0

    def reset(self, **_row: Any) -> str:
        """Start again."""
        self.sum = 0
        return "Add up."

    def add(self, a: int, b: int) -> int:
        """Adds two numbers.

        Args:
            a: the first number
            b: the second number
        """
        self.sum += a + b
        return self.sum

    def get_reward(self) -> float:
        """The sum."""
        return float(self.sum)


def spent(play: Callable[[], None]) -> float:
    """CPU microseconds of each step of a batch."""
    began = time.process_time()
    play()
    return (time.process_time() - began) * 1e6 / (EPISODES * len(CALLS))


def alone() -> Timed:
    """The environment in a plain loop."""
    env = gym.make("ToolOrchestra/HLE-v0", **SETTINGS)

    def play() -> None:
        for seed in range(EPISODES):
            env.reset(seed=seed)
            for call in CALLS:
                env.step(call)

    return lambda: spent(play)


class Written:
    """Gives the turns of an episode in their order, to all episodes of a batch at once."""

    def __init__(self, chat: Chat, texts: Sequence[str]) -> None:
        self.turns = [[*chat.encode(text), chat.stop] for text in texts]
        self.next = 0

    def turn(self, count: int) -> list[list[int]]:
        """The next one, for so many episodes."""
        self.next += 1
        return [list(self.turns[(self.next - 1) % len(self.turns)]) for _ in range(count)]


def trained(rows: list[dict[str, Any]], written: Written, chat: Chat, **given: Any) -> Timed:
    """TRL's trainer from a batch of tasks to what the loss is made of."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Given(GRPOTrainer):  # type: ignore[misc,no-any-unimported]
        """Writes what it is given."""

        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> tuple[Any, None]:
            return written.turn(len(prompt_ids)), None

    place = tempfile.mkdtemp()
    settings = GRPOConfig(
        place, use_cpu=True, bf16=False, report_to=[], per_device_train_batch_size=EPISODES,
        num_generations=SIBLINGS, max_completion_length=1500,
    )  # fmt: skip
    model = build_model(len(chat.tokenizer), 32, 1)  # type: ignore[arg-type]
    data = Dataset.from_list(rows)
    trainer = Given(model, args=settings, train_dataset=data, processing_class=chat.tokenizer, **given)
    trainer.model.train()
    batch = [row for row in rows[: EPISODES // SIBLINGS] for _ in range(SIBLINGS)]
    return lambda: spent(lambda: trainer._generate_and_score_completions([dict(row) for row in batch]))


def through_rollouts(chat: Chat) -> Timed:
    """TrlRollouts as its rollout_func."""
    written, rollouts = Written(chat, CALLS), TrlRollouts(chat)

    def generate(prompts: Sequence[list[int]], _images: None, _count: int) -> tuple[Any, ...]:
        ids = written.turn(len(prompts))
        return None, ids, [[[0.0]] * len(row) for row in ids], None

    def played(prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        stands_in = SimpleNamespace(
            use_vllm=True, vllm_generation=SimpleNamespace(generate=generate), eos_token_ids=trainer.eos_token_ids,
            max_completion_length=1500, model=trainer.model, num_generations=SIBLINGS,
        )  # fmt: skip
        return rollouts(prompts, stands_in)

    rows = task_rows("HLE-v0", range(EPISODES), **SETTINGS)
    return trained(rows, written, chat, rollout_func=played, reward_funcs=environment_reward)


def through_methods(chat: Chat, made: Any, calls: Sequence[str]) -> Timed:
    """TRL's own loop over the methods of a class. It wants a last turn without a call."""
    rows = [{"prompt": [{"role": "user", "content": ""}], "seed": seed} for seed in range(EPISODES)]
    return trained(rows, Written(chat, [*calls, "Done."]), chat, environment_factory=made)


def chat_of(template: str) -> Chat:
    """The tiny model's tokenizer with one of the templates that TRL ships."""
    import trl

    tokenizer = load_tokenizer()
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / template).read_text(encoding="utf-8")
    return Chat(tokenizer)


def rows() -> list[tuple[str, float]]:
    """What was timed, and CPU microseconds a step: the least of some rounds that time all of them in turn."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    timed = {
        "HLE-v0, alone": alone(),
        "HLE-v0, TrlRollouts in GRPOTrainer": through_rollouts(chat_of("qwen3_training.jinja")),
        "HLE-v0, tools as methods in GRPOTrainer": through_methods(
            chat_of("qwen3.jinja"), environment_factory("HLE-v0", **SETTINGS), CALLS
        ),
        "a toy adder, tools as methods in GRPOTrainer": through_methods(chat_of("qwen3.jinja"), Adder, SUMS),
    }
    least = dict.fromkeys(timed, float("inf"))
    for _ in range(ROUNDS + 1):  # one more, since the first warms up
        for name, one in timed.items():
            least[name] = min(least[name], one())
    return list(least.items())


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for row_name, microseconds in rows():
        print(f"{row_name:<50} {microseconds:10,.0f} CPU microseconds a step")
