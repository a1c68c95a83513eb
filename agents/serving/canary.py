"""A second policy that answers a share of the requests for the first, until it is told to be worse.

Both sides are compared when each has ended 50, 100, 200, ... requests; the moves of one tool loop, which are as hard as
each other, count as one. The canary is stopped when
- more of its requests fail or are cut off by a limit, or
- fewer of its answers are right, of those that somebody rated, or
- its mean cost is above `most_cost` times the other's.

All looks and rules together stop a canary that is no worse in at most 5 % of the cases: look k spends 1 / (k (k + 1))
of that, shared by the three rules.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from toolorchestra.agents.evaluation.statistics import student, wilson
from toolorchestra.envs.money.prices import NANO

FIRST_LOOK = 50
LEVEL = 0.05
LOOPS_KEPT = 10_000
"""Latest loops of a policy whose next move is known for theirs."""
_RULES = 3
GOOD = ("answered", "tool_calls")
_SAYS_NOTHING = ("cancelled", "decided", "expired")
"""Ends that say nothing of the policy: who asked went away, wanted no answer, or never sent its tools' results."""


@dataclass
class Arm:
    """What one policy's requests came to, in sums, which grow with no request."""

    requests: int = 0
    nano_usd: int = 0
    squares: int = 0
    """Sum of the squares of each one's nano-dollars."""
    bad: int = 0
    """Requests that failed, or that a limit cut off."""
    rated: int = 0
    right: int = 0
    _loops: dict[str, tuple[int, bool]] = field(default_factory=dict, repr=False)
    """Nano-dollars of the latest loops so far, and whether a move of theirs was bad."""

    def take(self, loop: str, nano_usd: int, bad: bool) -> None:
        """Count a request, or one move more of a loop."""
        before, was_bad = self._loops.get(loop, (0, False))
        self.requests += loop not in self._loops
        self.nano_usd += nano_usd
        self.squares += (before + nano_usd) ** 2 - before**2
        self.bad += bad and not was_bad
        self._loops.pop(loop, None)  # it comes last again
        self._loops[loop] = before + nano_usd, bad or was_bad
        if len(self._loops) > LOOPS_KEPT:
            del self._loops[next(iter(self._loops))]

    def mean_and_variance(self) -> tuple[float, float]:
        """Mean cost in dollars, and the variance of that mean, of two requests at least."""
        number = self.requests
        spread = number * self.squares - self.nano_usd**2  # of whole numbers: exact
        return self.nano_usd / number / NANO, spread / (number**2 * (number - 1)) / NANO**2

    def above(self, other: Arm, factor: float, z: float) -> bool:
        """Whether the mean cost is surely above so many times the other's."""
        (mine, mine_varies), (others, others_vary) = self.mean_and_variance(), other.mean_and_variance()
        return mine - factor * others > z * math.sqrt(mine_varies + factor * factor * others_vary)

    def told(self) -> dict[str, Any]:
        """Figures with their intervals."""
        number, interval = self.requests, None
        if number > 1:
            mean, varies = self.mean_and_variance()
            reach = student(number - 1) * math.sqrt(varies)
            interval = (max(0.0, mean - reach), mean + reach)
        return {
            "requests": number,
            "failed_or_cut": self.bad / number if number else None,
            "right": self.right / self.rated if self.rated else None,
            "rated": self.rated,
            "usd": self.nano_usd / number / NANO if number else None,
            "usd_interval": interval,
        }


class Canary:
    """Chooses who answers, and keeps count."""

    def __init__(self, first: str, canary: str, share: float, most_cost: float) -> None:
        self.first, self.canary, self.share, self.most_cost = first, canary, share, most_cost
        self.arms = {first: Arm(), canary: Arm()}
        self._looks = 0
        self.stopped = ""
        """The reason why it was stopped."""

    def choose(self, policy: str, request_id: str) -> str:
        """Choose who answers a request for a policy: drawn by the request's id."""
        if policy != self.first or self.stopped:
            return policy
        return self.canary if random.Random(request_id).random() < self.share else policy

    def ended(self, policy: str, ended: str, usd: float, right: float | None, loop: str) -> None:
        """Count a request of a loop that has ended; one that is of none has a loop of its own."""
        if policy in self.arms and ended not in _SAYS_NOTHING:
            self.arms[policy].take(loop, round(usd * NANO), ended not in GOOD)
            if right is not None:
                self.rate(policy, right >= 0.5)
            self._judge()

    def rate(self, policy: str, right: bool, before: float | None = None) -> None:
        """Count a rating of an answer, in place of the one before where there was one."""
        if policy in self.arms:
            self.arms[policy].rated += before is None
            self.arms[policy].right += right - (before is not None and before >= 0.5)

    def told(self) -> dict[str, Any]:
        """Tell how it stands, for the page."""
        arms = {name: arm.told() for name, arm in self.arms.items()}
        return {"first": self.first, "canary": self.canary, "share": self.share, "stopped": self.stopped, "arms": arms}

    def _judge(self) -> None:
        first, canary = self.arms[self.first], self.arms[self.canary]
        if self.stopped or min(first.requests, canary.requests) < FIRST_LOOK << self._looks:
            return
        self._looks += 1
        z = NormalDist().inv_cdf(1 - LEVEL / (self._looks * (self._looks + 1)) / _RULES)
        rated = min(first.rated, canary.rated) >= FIRST_LOOK
        if surely_more(canary.bad, canary.requests, first.bad, first.requests, z):
            self.stopped = "more of its requests fail or are cut off"
        elif rated and surely_more(first.right, first.rated, canary.right, canary.rated, z):
            self.stopped = "fewer of its answers are right"
        elif canary.above(first, self.most_cost, z):
            self.stopped = f"it costs more than {self.most_cost:g} times as much"


def surely_more(hits: int, trials: int, others: int, of: int, z: float) -> bool:
    """Whether one share is above another, by Newcombe's interval of the difference of two independent shares."""
    one, two = hits / trials, others / of
    return one - two - math.hypot(one - wilson(one, trials, z).low, wilson(two, of, z).high - two) > 0
