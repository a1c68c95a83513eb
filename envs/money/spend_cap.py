"""What a run may spend, over all its episodes."""

from __future__ import annotations

import math
import threading
from typing import NoReturn, Self

from toolorchestra.envs.base.errors import ConfigError, SpendCapReached
from toolorchestra.envs.money.prices import NANO, plain


class SpendCap:
    """A limit on what all episodes of a run may spend together. Checked before each paid call, so what is in flight at
    that moment is the most it can be overshot by."""

    def __init__(self, usd: float) -> None:
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < math.inf:
            raise ConfigError(f"a spend cap is a positive, finite number of dollars, got {usd!r}; None sets no cap")
        self.usd = usd
        self._nano_cap = round(usd * NANO)
        self._nano_spent = 0
        self._lock = threading.Lock()

    @property
    def spent_usd(self) -> float:
        return self._nano_spent / NANO

    @property
    def used_up(self) -> bool:
        """Whether nothing more may be spent."""
        return self._nano_spent >= self._nano_cap

    def check(self) -> None:
        """Raise when the cap is used up."""
        if self.used_up:
            spent, cap = plain(self._nano_spent, 9), plain(self._nano_cap, 9)
            raise SpendCapReached(f"the run has spent {spent} $ of its cap of {cap} $")

    def add(self, nano_usd: int) -> None:
        """Count what was billed."""
        with self._lock:
            self._nano_spent += nano_usd

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        # The copy of a run's settings, such as env.spec, still speaks of the one cap of the run.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a spend cap counts within one process and cannot be sent to another; make one there")
