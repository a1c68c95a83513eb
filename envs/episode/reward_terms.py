"""Terms of a user's own in the reward: functions that look at an episode when it ends, and give a number each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError

if TYPE_CHECKING:
    from toolorchestra.envs.episode.episode import Episode

WHERE = "reward term"
"""Where an episode failed whose term raised."""


class RewardTerm(NamedTuple):
    """A function with the name that its number has in `info`."""

    name: str
    of: Callable[[Episode], float]


def reward_terms(given: str | Callable[[Episode], float] | Sequence[Any]) -> tuple[RewardTerm, ...]:
    """The terms that gym.make is given: "module:function", a function, or several of them."""
    several = given if isinstance(given, Collection) and not isinstance(given, str) else (given,) if given else ()
    made = tuple(_term(one) for one in several)
    names = [term.name for term in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"reward_terms has {twice[0]!r} twice: each term needs a name of its own in info")
    return made


def _term(given: Any) -> RewardTerm:
    what: Any = given
    if isinstance(given, str):
        module, colon, name = given.partition(":")
        try:
            what = resolve_name(given) if module and colon and name else None
        except (ImportError, AttributeError, ValueError) as err:
            raise ConfigError(
                f"reward term {given!r} cannot be loaded: {err}. Write module:function, and let Python find the "
                "module: PYTHONPATH=. before a command"
            ) from err
    if not callable(what):
        raise ConfigError(f'a reward term is "module:function" or a function of an episode, got {given!r:.60}')
    return RewardTerm(str(getattr(what, "__name__", type(what).__name__)), what)


def values_of(episode: Episode, terms: Sequence[RewardTerm]) -> dict[str, float]:
    """What each term gives for an ended episode. Raises what a term raises, and where it gives no finite number."""
    made = {}
    for name, of in terms:
        value = of(episode)
        if isinstance(value, str) or not math.isfinite(value):
            raise ValueError(f"reward term {name!r} gives a finite number, got {value!r:.60}")
        made[name] = float(value) + 0.0  # no -0.0
    return made
