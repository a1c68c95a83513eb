"""Rebuild the tiny model's tokenizer from scripted episodes: `python scripts/build_tiny_tokenizer.py`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import jinja2

from toolorchestra.agents.engines.tiny import TEMPLATE
from toolorchestra.agents.policies.plans import Follows, random_plan
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.env import play_turn
from toolorchestra.envs.tools import tool_config

TARGET = Path(__file__).parents[1] / "agents" / "data" / "tiny" / "tokenizer.json"
VOCABULARY = 1536
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
GRAMMAR = ("<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "', '", "arguments": {"model": "', '"}}')
CALL = '<tool_call>{{"name": "{}", "arguments": {{"model": "'
"""What a call begins with, as one token for each tool: a turn is then four tokens, and its choices two of them."""
FRAMES = ('"}}</tool_call>', *(f"<|im_start|>{role}\n" for role in ("system", "user", "assistant", "tool")))
RESULTS = (" new documents:", "Nothing further ", "No output.\nexit ", "Output: ")
"""What results of the embedded worlds begin with."""
NUMBERS = tuple(f" {float(f'{number}e{power}'):g}" for power in (-3, -2, -1, 0) for number in range(10, 100))
"""Prices of two digits."""


def build_tokenizer(texts: Iterable[str], tools: Iterable[str], names: Iterable[str], words: Iterable[str]) -> str:
    """Train a byte-level BPE on rendered episodes; `words` (numbers) become tokens of their own, and so does all that
    is always written alike. A name in a sentence, which a space stands before, is another token than one in a list:
    what the user asks for is then told from what there is."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\d| ?\p{L}+|\s+(?!\S)| ?[^\s\p{L}\d]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    spoken = [spelt for name in sorted({*tools, *names}) for spelt in (name, f" {name}")]
    own = list(dict.fromkeys([*GRAMMAR, *map(CALL.format, tools), *FRAMES, *RESULTS, *NUMBERS, *spoken, *words]))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(own) - len(SPECIAL),
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in own])
    return str(tokenizer.to_str())


def texts(episodes: int) -> list[str]:
    """Rendered episodes of random plans in both worlds."""
    template = jinja2.Environment().from_string(TEMPLATE)
    rendered = []
    for env_id in ("HLE-v0", "FRAMES-v0"):
        made = factory_of(env_id, style="brief", shown_characters=0, diversify="train")
        rng = random.Random(0)
        for seed in range(episodes):
            episode, policy = made.start(seed).episode, Follows(partial(random_plan, rng=rng))
            while not episode.over:
                play_turn(episode, policy(episode))
            rendered.append(template.render(messages=episode.messages, tools=episode.world.toolbox.schemas))
    return rendered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1500, help="per environment")
    parser.add_argument("--out", type=Path, default=TARGET)
    args = parser.parse_args()
    paper = tool_config.load("paper")
    tools = sorted(e.name for e in paper.tools)
    offers = [o for e in paper.tools for o in e.offers]
    names, seconds = {o.alias for o in offers}, {f" {o.seconds:g}" for o in offers}
    args.out.write_text(build_tokenizer(texts(args.episodes), tools, names, sorted(seconds)), encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
