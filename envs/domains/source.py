"""What a source of tasks is: splits, task ids drawn by a seed, and the world that a task opens into."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from toolorchestra.envs.domains.world import World
from toolorchestra.envs.money.prices import PriceSheet


class Scene(NamedTuple):
    """A task, opened: its world, the prices that hold, and what may be said of it (nothing that helps to solve it)."""

    world: World
    sheet: PriceSheet
    public: Mapping[str, Any]


class TaskSource(Protocol):
    """Where tasks come from. One instance serves many episodes, from several threads; it holds no episode's state."""

    @property
    def name(self) -> str: ...

    @property
    def splits(self) -> Sequence[str]: ...

    def draw(self, split: str, rng: random.Random) -> str:
        """The id of a task of this split."""

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """A task with fresh state. `tools` keeps only these tools. Raises ConfigError for an unknown id or tool."""


@runtime_checkable
class ListsTasks(Protocol):
    """A source that can say all its tasks, where they are not generated without end."""

    def task_ids(self, split: str) -> Sequence[str]:
        """Every task of a split, in an order that stays. Raises ConfigError where there is no end to them."""


@runtime_checkable
class PricesOrchestrators(Protocol):
    """A source over real models, some of which have prices of their own."""

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet with the orchestrator's own price, where its backends have one; else the same sheet. The same
        objects give the same object."""
