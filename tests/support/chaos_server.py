"""Chaos over a real socket: what a server of models may do wrong, and what it was paid for, by its own count.

    chaos = ChaosReplies(reply, seed=0, rate=0.3)
    with Loopback(chaos) as server:
        ...                     # play against server.base_url
    chaos.paid.nano_usd(...)    # what the ledgers must hold

What counts as paid is a reply that went out whole and says what it used: also one whose content cannot be used. A reply
in one piece that breaks off says nothing, so neither side counts it. Of a stream that breaks off, Loopback.streamed has
what had gone out by then.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.support.loopback import ReceivedRequest, ServerReply
from toolorchestra.envs.money.prices import Price, Tokens, Usage

REFUSED: Mapping[str, ServerReply] = {
    "busy": ServerReply("busy", 429, headers={"retry-after": "0.02"}),
    "broken": ServerReply("oops", 500),
    "no credit": ServerReply("no credit", 402),
    "too large": ServerReply("too large", 413),
    "for legal reasons": ServerReply("not here", 451),
    "forbidden": ServerReply("no", 403),
    "gone": ServerReply("gone", 410),
    "reset": ServerReply("x" * 999, fault="reset"),
    "cut": ServerReply("x" * 999, fault="cut"),
    "error": ServerReply("x" * 999, fault="error"),
    "stall": ServerReply("x" * 999, fault="stall"),
    "silence": ServerReply(fault="silence"),
    "not http": ServerReply(fault="not http"),
    "a list": ServerReply(body="[1, 2]"),
    "endless": ServerReply(fault="endless"),
    "drip": ServerReply(fault="drip"),
    "slow head": ServerReply(fault="slow head"),
}
"""Replies that say nothing of what they used: nobody pays for them, but for what had been streamed."""
ESTIMATED: Mapping[str, object] = {
    "no usage": False,
    "absurd usage": {"prompt_tokens": 10**9, "completion_tokens": 10**9},
    "negative usage": {"prompt_tokens": -5, "completion_tokens": 1},
}
"""What a good reply says of its usage, where that cannot be true."""
SILENT = ("silence", "stall", "endless", "drip", "slow head")
"""Those that last until the client gives up."""
PAID = ("unusable", "pieces", "late")
SERVER_FAULTS: Sequence[str] = (*REFUSED, *ESTIMATED, *PAID)


class ChaosReplies:
    """Answers as `reply` does, with faults at a rate. Chooses by the seed and the number of the request."""

    def __init__(
        self, reply: Callable[[ReceivedRequest], ServerReply], seed: int = 0, rate: float = 0.3,
        faults: Sequence[str] = SERVER_FAULTS,
    ) -> None:  # fmt: skip
        self._reply, self._seed, self._rate, self._faults = reply, seed, rate, faults
        self._lock = threading.Lock()
        self.made: Counter[str] = Counter()
        """Faults, by name; "" counts good replies."""
        self.paid: list[Tokens] = []
        """One for each whole reply that says what it used."""
        self.estimated = 0
        """Whole replies whose usage cannot be true."""

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        fault = self._fault(asked.number)
        with self._lock:
            self.made[fault] += 1
            if fault in REFUSED:
                return REFUSED[fault]
            good = self._reply(asked)
            used = Tokens(len(asked.text.split()), 0, len((good.content or "").split()), 0)
            if fault in ESTIMATED:
                self.estimated += 1
                return replace(good, usage=ESTIMATED[fault])
            self.paid.append(used)
        counted = {"prompt_tokens": used.input, "completion_tokens": used.output}
        if fault == "unusable":
            return ServerReply(body={"choices": [], "usage": counted})
        if fault == "late":
            return replace(good, usage=counted, seconds=0.05)
        return replace(good, usage=counted, fault="pieces" if fault == "pieces" else "")

    def nano_usd(self, price: Price) -> int:
        """What the paid replies cost, each rounded on its own, as a bill is."""
        return sum(price.nano_usd(Usage("", "", tokens)) for tokens in self.paid)

    def _fault(self, number: int) -> str:
        drawn = int.from_bytes(hashlib.blake2b(f"{self._seed}\x1f{number}".encode(), digest_size=8).digest(), "big")
        if drawn / 2**64 >= self._rate or not number:  # the first is good: a server that never answered is set up wrong
            return ""
        return self._faults[drawn % len(self._faults)]
