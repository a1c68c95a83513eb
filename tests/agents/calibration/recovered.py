"""Whether a fit finds known experts again: its intervals beside the numbers that the recording was drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from toolorchestra.agents.calibration.experts_file import SUBJECTS
from toolorchestra.agents.calibration.experts_fit import FitFile
from toolorchestra.agents.calibration.goodness import Foretold
from toolorchestra.envs.models.simulated import Law, Skill


def recovered(fit: FitFile, known: Mapping[str, Skill]) -> list[Foretold]:
    """Each number that fit and experts both have. Levels are no part of it: they are the same for all here."""
    return [*_shared(fit, next(iter(known.values())).law), *_skills(fit, known)]


def _shared(fit: FitFile, law: Law) -> Iterator[Foretold]:
    numbers = {"task_sd": law.task, "pair_sd": law.pair}
    for measure, spread in (("tokens", law.tokens), ("seconds", law.seconds)):
        for name, value in spread._asdict().items():
            numbers[f"{measure} {name if name == 'with_difficulty' else f'{name}_sd'}"] = value
    for name, value in numbers.items():
        interval = fit.told["shared"].get(name)
        if interval is not None:
            yield Foretold(name, value, *interval[1:])


def _skills(fit: FitFile, known: Mapping[str, Skill]) -> Iterator[Foretold]:
    for model, one in fit.models.items():
        for family, ends in (one.get("skill ends") or {}).items():
            if model in known and family in SUBJECTS and ends is not None and all(map(math.isfinite, ends)):
                yield Foretold(f"skill of {model} in {family}", known[model].answering[family], *ends)
