"""The file that fit-experts writes, read again and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.calibration.fit import FORMAT
from toolorchestra.envs.base.errors import ConfigError

KIND = "fitted experts"
MAKE = "toolorchestra fit-experts OUTCOMES --out FILE makes one"
_NEEDED = ("families", "shared", "models")


@dataclass(frozen=True)
class FitFile:
    """What such a file says. None: the recording could not say it."""

    where: str
    source: str
    rows: int
    tasks: int
    families: Mapping[str, int]
    """Each family with its number of tasks."""
    shared: Mapping[str, float | None]
    """The numbers that all models share, by name."""
    together: float | None
    models: Mapping[str, Mapping[str, Any]]
    warnings: Sequence[str]
    told: Mapping[str, Any]
    """The file as it is."""

    def skill(self, model: str, families: Sequence[str]) -> float:
        """A model's skill, over families as often as their tasks came."""
        return self._mean(families, self.models[model]["skill"])

    def median(self, model: str, measure: str, families: Sequence[str]) -> float | None:
        """The same of its median tokens or seconds; None where they are not known."""
        of_family = (self.models[model].get(measure) or {}).get("median", {})
        known = {f: math.log(of_family[f]) for f in families if of_family.get(f)}
        return math.exp(self._mean(list(known), known)) if known else None

    def spread(self, model: str) -> float:
        """How widely its lengths spread, as a share of all models' deviation: the geometric mean of what is known."""
        found = [one["spread"] for name in ("tokens", "seconds") if (one := self.models[model].get(name))]
        return math.exp(sum(map(math.log, found)) / len(found)) if found and min(found) > 0 else 1.0

    def _mean(self, families: Sequence[str], values: Mapping[str, float]) -> float:
        weight = {family: max(1, self.families[family]) for family in families}
        return sum(weight[family] * values[family] for family in families) / sum(weight.values())


def read_fit(path: Path) -> FitFile:
    """Read a file of fit-experts. Raises ConfigError that says what was expected."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as err:
        raise ConfigError(f"no fit can be read at {path} ({err.strerror}); {MAKE}") from None
    except (ValueError, RecursionError) as err:
        raise ConfigError(
            f"{path}: a JSON file of fitted experts expected, and it is no JSON ({err}); {MAKE}"
        ) from None
    if not isinstance(data, Mapping) or data.get("kind") != KIND:
        got = f"kind {data.get('kind')!r:.40}" if isinstance(data, Mapping) else f"{data!r:.40}"
        raise ConfigError(f"{path}: a file of kind {KIND!r} expected, got {got}; {MAKE}")
    if data.get("format") != FORMAT:
        raise ConfigError(f"{path}: format {FORMAT} expected, got {data.get('format')!r:.20}; fit the recording again")
    try:
        return _checked(data, str(path))
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ConfigError(f"{path}: {', '.join(_NEEDED)} as fit-experts writes them expected ({err!r:.120}); "
                          "fit the recording again") from None  # fmt: skip


def _checked(data: Mapping[str, Any], where: str) -> FitFile:
    families = {name: int(size) for name, size in data["families"].items()}
    models = dict(data["models"])
    for name, one in models.items():
        if set(one["skill"]) != set(families) or not all(math.isfinite(v) for v in one["skill"].values()):
            raise ValueError(f"{name}: a skill for each of {sorted(families)}")
    shared = {name: None if value is None else float(value[0]) for name, value in data["shared"].items()}
    together = data.get("tokens with seconds")
    return FitFile(
        where,
        str(data.get("source", "")),
        int(data.get("rows", 0)),
        int(data.get("tasks", 0)),
        families,
        shared,
        None if together is None else float(together),
        models,
        tuple(data.get("warnings", ())),
        data,
    )
