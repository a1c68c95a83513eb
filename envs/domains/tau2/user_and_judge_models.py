"""The models that play the user, judge and help, given as objects, or by their names in a backends file.

The benchmark asks its models at temperature 0.0 and has their calls travel natively, and so does this; where the
backends file says otherwise for a model, that holds, and results say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools.backends import Backing

Role = tuple[ChatModel, str]
"""A model, and the price sheet's item that it is billed under."""
NATIVE_TOOLS, TEMPERATURE = True, 0.0
"""What the benchmark asks its models for."""


class BilledModel(NamedTuple):
    """A model with the price sheet's item that it is billed under."""

    model: ChatModel
    item: str
    settings: Mapping[str, Any] = {}
    """How it is asked, where that is known and is not how the benchmark asks."""


class AskedAsInTheBenchmark:
    """A backend whose requests are the benchmark's wherever the endpoint file is silent."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.suspends = model.suspends

    @property
    def patience_seconds(self) -> float:
        return float(getattr(self._model, "patience_seconds", 0.0))

    async def complete(self, request: ChatRequest) -> Completion:
        """Ask the model at the benchmark's temperature and with native calls, where the backends file says neither."""
        return await self._model.complete(replace(request, temperature=TEMPERATURE, native_tools=NATIVE_TOOLS))


class Hiring:
    """Makes models out of what a source was given for its roles."""

    def __init__(self, backing: Backing | None) -> None:
        self._backing = backing
        self._named: set[str] = set()
        self._sheets: dict[tuple[int, str], tuple[PriceSheet, PriceSheet]] = {}

    @property
    def endpoints(self) -> Endpoints | None:
        return self._backing.wanted.endpoints if self._backing else None

    def hire(self, role: str, given: object) -> BilledModel:
        """The model of a role: a name that the backends file has, or (model, "price sheet item")."""
        if isinstance(given, str):
            return self._by_name(role, given)
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], str):
            raise ConfigError(
                f'{role} is a name in the backends file, or (model, "price sheet item"), got {given!r:.60}'
            )
        model, item = given
        settings = _unlike_the_benchmark(getattr(model, "endpoints", None), item)
        return BilledModel(AskedAsInTheBenchmark(model), item, settings)

    def _by_name(self, role: str, name: str) -> BilledModel:
        if self._backing is None:
            raise ConfigError(
                f"{role}={name!r} names a model: say where it is served by backends=FILE (docs/tau2.md shows one), or "
                f'give {role}=(model, "price sheet item")'
            )
        if self.endpoints is not None:
            self.endpoints.served(name)  # refuses a name that the file does not have
        self._named.add(name)
        model = AskedAsInTheBenchmark(self._backing.models)
        return BilledModel(model, name, _unlike_the_benchmark(self.endpoints, name))

    def judge(self, given: object) -> BilledModel | None:
        """The judge that is named, or else the one of the backends file."""
        if given is None and self._backing is not None:
            named = self._backing.wanted.judges
            if len(named) > 1:
                raise ConfigError(
                    f'τ²-Bench has one judge, the backends name {", ".join(named)}: say judge="{named[0]}"'
                )
            given = named[0] if named else None
        return None if given is None else self.hire("judge", given)

    def priced(self, sheet: PriceSheet, orchestrator: str = "") -> PriceSheet:
        """The sheet with the prices that the backends file gives the hired models, or the orchestrator. The same sheet
        gives the same object."""
        endpoints = self.endpoints
        names = sorted(self._named) if not orchestrator else [orchestrator]
        names = [name for name in names if endpoints is not None and endpoints.names(name)]
        if endpoints is None or not names:
            return sheet
        known = self._sheets.get(key := (id(sheet), orchestrator))
        if known is None:
            if len(self._sheets) >= _MOST_SHEETS:
                self._sheets.clear()
            known = self._sheets[key] = (sheet, endpoints.priced(sheet, names))  # held, so that its id stays taken
        return known[1]


_MOST_SHEETS = 32


def _unlike_the_benchmark(endpoints: Endpoints | None, name: str) -> Mapping[str, Any]:
    """What an endpoint file says of a model that the benchmark has otherwise."""
    if endpoints is None or not endpoints.names(name):
        return {}
    served = endpoints.served(name)
    said = {"native_tools": (served.native_tools, NATIVE_TOOLS), "temperature": (served.temperature, TEMPERATURE)}
    return {key: own for key, (own, benchmark) in said.items() if own is not None and own != benchmark}
