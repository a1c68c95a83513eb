"""Leave one out: a reward less the mean of its siblings', without division by their deviation.

A group counts as much as its rewards differ, so a few cents between right answers weigh less than right against wrong.
Rewards are divided by the sum of the preference's weights, as held-out evaluation does: 1 is the most there is. Who is
further than three quarters of that from the others' mean, as the only right one of a group is, meets MOST_ADVANTAGE,
which is below SCALE: the group's advantages then do not add up to 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolorchestra.agents.rollouts.grpo import Group, Grpo, whole

SCALE = 4.0
"""Factor that brings advantages to about the size that those have which are divided by the deviation."""


class LeaveOneOut(Grpo):
    """Grpo's scores; each compared with the mean of the others."""

    def compared(self, totals: Sequence[float], group: Group) -> list[float]:
        """The difference to the others' mean, on the scale of held-out rewards."""
        most, count, together = whole(group.trajectories[0].preference.weights()), len(totals), sum(totals)
        return [SCALE * (total - (together - total) / (count - 1)) / most for total in totals]
