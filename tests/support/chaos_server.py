"""Chaos over a real socket: what a server of models may do wrong, and what it was paid for, by its own count.

    chaos = ChaosReplies(reply, seed=0, rate=0.3)
    with Loopback(chaos) as server:
        ...                     # play against server.base_url
    chaos.nano_usd(...)         # what the ledgers must hold as counted
    chaos.real_nano_usd(...)    # what they and the spend cap must hold at least, with what is unconfirmed

A server is paid for each reply that it makes. What goes out whole and says what it used is counted; a reply that is
late, cut, reset, too long or never sent has been made, and is paid, though nobody can read what it used. Only what the
server refuses in so many words is paid by nobody.
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
}
"""What the server says that it does not do: nobody pays."""
UNREAD: Mapping[str, ServerReply] = {
    "reset": ServerReply("x" * 999, fault="reset"),
    "cut": ServerReply("x" * 999, fault="cut"),
    "error": ServerReply("x" * 999, fault="error"),
    "stall": ServerReply("x" * 999, fault="stall"),
    "silence": ServerReply(fault="silence"),
    "too late": ServerReply("x", seconds=10.0),
    "too long": ServerReply(body="x" * (3 << 20)),
    "gateway timeout": ServerReply("a gateway gave up", 504),
    "not http": ServerReply(fault="not http"),
    "a list": ServerReply(body="[1, 2]"),
    "endless": ServerReply(fault="endless"),
    "drip": ServerReply(fault="drip"),
    "slow head": ServerReply(fault="slow head"),
}
"""Replies that were made, and are paid, and that nobody reads to their end."""
ESTIMATED: Mapping[str, object] = {
    "no usage": False,
    "absurd usage": {"prompt_tokens": 10**9, "completion_tokens": 10**9},
    "negative usage": {"prompt_tokens": -5, "completion_tokens": 1},
}
"""What a good reply says of its usage, where that cannot be true."""
SILENT = ("silence", "stall", "too late", "endless", "drip", "slow head")
"""Those that last until the client gives up."""
PAID = ("unusable", "pieces", "late", "refused with usage")
SERVER_FAULTS: Sequence[str] = (*REFUSED, *UNREAD, *ESTIMATED, *PAID)


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
        self.uncounted: list[Tokens] = []
        """One for each whole reply that does not say what it used, or says what cannot be true: hidden thoughts too."""
        self.unread: list[Tokens] = []
        """One for each reply that was made and cannot be read to its end."""

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        fault = self._fault(asked.number)
        with self._lock:
            self.made[fault] += 1
            if fault in REFUSED:
                return REFUSED[fault]
            good = self._reply(asked)
            used = Tokens(len(asked.text.split()), 0, len((good.content or "").split()), 0)
            if fault in UNREAD and not (fault == "error" and not asked.json.get("stream")):
                self.unread.append(used)
            if fault in UNREAD:  # the error that stands in place of a whole reply refuses it
                return UNREAD[fault]
            if fault in ESTIMATED:  # it has thought besides, as much as it was allowed to, and shows nothing of it
                hidden = int(asked.json["max_tokens"]) - used.output
                self.uncounted.append(used._replace(reasoning=hidden))
                return replace(good, usage=ESTIMATED[fault])
            self.paid.append(used)
        counted = {"prompt_tokens": used.input, "completion_tokens": used.output}
        if fault == "unusable":
            return ServerReply(body={"choices": [], "usage": counted})
        if fault == "refused with usage":
            return ServerReply(body={"error": {"message": "it broke"}, "usage": counted}, status=500)
        if fault == "late":
            return replace(good, usage=counted, seconds=0.05)
        return replace(good, usage=counted, fault="pieces" if fault == "pieces" else "")

    def nano_usd(self, price: Price) -> int:
        """What the counted replies cost, each rounded on its own, as a bill is."""
        return sum(price.nano_usd(Usage("", "", tokens)) for tokens in self.paid)

    def real_nano_usd(self, price: Price) -> int:
        """What the server is paid, whatever anybody could read."""
        made = (*self.paid, *self.uncounted, *self.unread)
        return sum(price.nano_usd(Usage("", "", tokens)) for tokens in made)

    def _fault(self, number: int) -> str:
        drawn = int.from_bytes(hashlib.blake2b(f"{self._seed}\x1f{number}".encode(), digest_size=8).digest(), "big")
        if drawn / 2**64 >= self._rate or not number:  # the first is good: a server that never answered is set up wrong
            return ""
        return self._faults[drawn % len(self._faults)]
