"""Conformance: what every environment of this package promises, checked by playing. For your own task source:

    from toolorchestra.envs.registration import register
    from toolorchestra.envs.testing import check_environment

    register("Mine/Chess-v0", "my_package.chess:ChessSource")
    print(check_environment("Mine/Chess-v0"))

Needs no test framework, and no network unless your tools do. Results must follow from the seed: give the source its
simulated or replayed backends and keep the clock virtual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.envs.registration import full_id
from toolorchestra.envs.testing.conformance_rules import RULES, BrokenRule, NothingToCheck
from toolorchestra.envs.testing.rehearsal import Policy, RandomCaller, Rehearsal

__all__ = ["ConformanceError", "ConformanceReport", "RandomCaller", "check_environment"]


class ConformanceError(AssertionError):
    """Rules that are broken. The text says which, and what was seen."""


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The rules that held, and how much was played to see it. Of worlds that do not say which answer they expect, as
    `.question.answer` or `.task.answer`, it is not looked at whether something tells it."""

    env_id: str
    rules: tuple[str, ...]
    episodes: int
    steps: int


def check_environment(
    env_id: str,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    episodes: int = 2,
    policy: Policy | None = None,
    abandoned: int = 1000,
    **kwargs: Any,
) -> ConformanceReport:
    """Check every rule; raise ConformanceError at the first one that is broken.

    `episodes` are played for each seed, by `policy` (Episode -> text; None: a random caller of the tools). `abandoned`
    episodes are left in the middle to look for leaks. Everything else goes to `gymnasium.make`.
    """
    rehearsal = Rehearsal(env_id := full_id(env_id), tuple(seeds), episodes, policy, abandoned, kwargs)
    held = []
    for rule, check in RULES.items():
        try:
            check(rehearsal)
            held.append(rule)
        except NothingToCheck:
            continue
        except BrokenRule as err:
            raise ConformanceError(f"{env_id} breaks the rule {rule!r}: {err}") from None
        except Exception as err:
            seen = f"{type(err).__name__}: {err}"
            raise ConformanceError(f"{env_id} breaks the rule {rule!r}: it raised {seen}") from err
    return ConformanceReport(env_id, tuple(held), rehearsal.episodes_played, rehearsal.steps_played)
