"""Each second of the clock belongs to one kind of work."""

from __future__ import annotations

from toolorchestra.agents.rollouts.time_split import TimeSplit


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_a_second_counts_once_and_the_first_kind_goes_before() -> None:
    clock = Clock()
    split = TimeSplit(clock)
    clock.pass_by(1)  # nothing goes on
    with split.tools:
        clock.pass_by(2)
        with split.sampling:  # another episode is sampled meanwhile
            clock.pass_by(4)
            with split.sampling, split.tokenisation:
                clock.pass_by(8)
            clock.pass_by(16)
        clock.pass_by(32)
    clock.pass_by(64)
    seconds = split.taken()
    assert seconds == {"idle": 65, "tools": 34, "sampling": 20, "tokenisation": 8}
    assert sum(seconds.values()) == clock.now
