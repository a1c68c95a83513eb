"""From a fit to a world file: what the recording knows is the fit's, and what it does not know is said.

A world has experts, which answer, write queries or write programs; the recording has models. Who stands for whom is the
user's word. What no recorded model stands behind, and what no recording tells, is refused, or taken from a packaged
world: on the new world's scale, so that it succeeds as often, and is as long on average, as it is there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.calibration.fit_file import FitFile
from toolorchestra.agents.calibration.stand_ins import (
    DOES,
    SUBJECTS,
    Role,
    Wishes,
    families_of,
    roles,
    some,
    stand_ins,
    told_of,
    without,
)
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.source import FITTED_WORLDS
from toolorchestra.envs.models.fitted import Law, Spread, packaged, read_world
from toolorchestra.envs.outcomes.rows import MOST_SECONDS
from toolorchestra.envs.tools.tool_config import ToolConfig

NEVER = -8.0
"""The skill of an expert at what no tool asks of it."""
LEVELS_DEVIATION, MIDDLE = 1.24, 3.57
"""Of the levels of HLE-v0's questions, and their mean."""
_LENGTHS = ("tokens", "seconds")
REST_FROM = f"--rest-from {FITTED_WORLDS[-1]}"
"""What the command line is told where a packaged world would help."""


@dataclass(frozen=True)
class MadeWorld:
    """A world as its file has it, and what is to be said of it."""

    data: Mapping[str, Any]
    told: Sequence[str]


def make_world(fit: FitFile, tools: ToolConfig, wishes: Wishes | None = None) -> MadeWorld:
    """The world of a fit, for the experts of a tool configuration. Raises ConfigError where something is missing."""
    return _Making(fit, tools, wishes or Wishes()).made()


class _Making:
    """One world."""

    def __init__(self, fit: FitFile, tools: ToolConfig, wishes: Wishes) -> None:
        self.fit, self.tools, self.wishes = fit, tools, wishes
        if wishes.rest_from and wishes.rest_from not in FITTED_WORLDS:
            raise ConfigError(
                f"rest_from: {no_such('packaged world', wishes.rest_from, FITTED_WORLDS)}", command_line=REST_FROM
            )
        self.rest = packaged(wishes.rest_from) if wishes.rest_from else {}
        self.offered = roles(tools)
        self.behind = stand_ins(fit, tools, wishes)
        self.families = families_of(fit, wishes)
        self.told = list(told_of(fit, tools, self.behind, wishes))

    def made(self) -> MadeWorld:
        self._refuse()
        law = self._law()
        models = {model: self._expert(model, law) for model in dict.fromkeys(model for model, _ in self.offered)}
        data = {"law": asdict(law) | {name: getattr(law, name)._asdict() for name in _LENGTHS}, "models": models}
        data["made_of"] = self._made_of()
        read_world(data, "the world that was made")
        return MadeWorld(data, self.told)

    # -- what is missing -------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        lacking = without(self.offered, self.behind)
        if lacking and not self.rest:
            raise ConfigError(
                f"no recorded model stands behind {', '.join(lacking)}. Recorded are {some(list(self.fit.models))}: "
                "say who stands for whom with stands={EXPERT: MODEL}, take tools without those experts, or take what "
                f"is missing from a packaged world with rest_from={FITTED_WORLDS[-1]!r}",
                command_line=f"--as EXPERT=MODEL, --tools FILE, or {REST_FROM}",
            )
        for model, does in self.offered:
            if (model, does) not in self.behind and model not in self.rest:
                raise ConfigError(
                    f"no recorded model stands behind {model!r}, and world {self.wishes.rest_from} has no expert of "
                    f"that name (it has {', '.join(self.rest)}); say who stands for it with "
                    f"stands={{{model!r}: MODEL}}",
                    command_line=f"--as {model}=MODEL",
                )
        if lacking:
            self._take(f"{', '.join(lacking)}: skills and lengths")

    def _take(self, what: str) -> None:
        self.told.append(f"taken from world {self.wishes.rest_from}: {what}")

    def _law_of_rest(self, what: str) -> Law:
        """The packaged law, for something that the recording does not know."""
        if not self.rest:
            raise ConfigError(
                f"{self.fit.where} does not know {what}; take it from a packaged world with "
                f"rest_from={FITTED_WORLDS[-1]!r}, or record it",
                command_line=REST_FROM,
            )
        self._take(what)
        return next(iter(self.rest.values())).law

    # -- the law ---------------------------------------------------------------------------------------------------

    def _law(self) -> Law:
        level, whole = self.wishes.level, self.fit.shared.get("task_sd") or 0.0
        unseen = whole**2 - (level * LEVELS_DEVIATION) ** 2
        if level < 0 or unseen < 0:
            most = math.floor(100 * whole / LEVELS_DEVIATION) / 100
            raise ConfigError(
                f"level: a number from 0 to {most:g} expected, got {level:g}: levels cannot tell more of the "
                f"difficulty than the fit found, a deviation of {whole:.2f}",
                command_line=f"--level NUMBER, from 0 to {most:g}",
            )
        writes = any(does != "answer" for _, does in self.offered)
        rest = self._law_of_rest("how hard queries are, and what a computed result helps") if writes else None
        pair = self.fit.shared.get("pair_sd") or 0.0
        if not pair:
            self.told.append("no lasting luck of a model with a task was found: asking again helps as chance does")
        cut = self.wishes.limit_seconds
        if cut < 0:
            raise ConfigError(
                f"limit_seconds: a number from 0 up expected, got {cut:g}; 0 cuts no run",
                command_line="--limit-seconds SECONDS",
            )
        return Law(
            level=level,
            middle=MIDDLE,
            task=round(math.sqrt(unseen), 4),
            pair=round(pair, 4),
            search=rest.search if rest else 0.0,
            computed=rest.computed if rest else 0.0,
            tokens=self._spread("tokens"),
            seconds=self._spread("seconds"),
            together=self._together(),
            limit_seconds=cut or MOST_SECONDS,
            refusals=0.0,
            source=f"fit of {self.fit.source or self.fit.where}: {self.fit.rows} runs of {self.fit.tasks} tasks",
        )

    def _spread(self, measure: str) -> Spread:
        numbers = [self.fit.shared.get(f"{measure} {name}") for name in ("task_sd", "pair_sd", "run_sd")]
        if numbers[0] is None or numbers[2] is None:
            law = self._law_of_rest(f"how {measure} vary")
            return law.tokens if measure == "tokens" else law.seconds
        tied = self.fit.shared.get(f"{measure} with_difficulty") or 0.0
        return Spread(*(round(value or 0.0, 4) for value in (*numbers, tied)))

    def _together(self) -> float:
        if self.fit.together is not None:
            return self.fit.together
        return self._law_of_rest("how tokens go with seconds, run by run of a model on a task").together

    # -- the experts -----------------------------------------------------------------------------------------------

    def _expert(self, model: str, law: Law) -> dict[str, Any]:
        answers = self.behind.get((model, "answer"))
        recorded = answers or next((self.behind[role] for role in self.offered if role in self.behind
                                    and role[0] == model), None)  # fmt: skip
        stretch = round(self.fit.spread(recorded), 4) if recorded else self.rest[model].stretch
        everywhere = tuple(self.fit.families)
        query = self._skill((model, "query"), everywhere, "", law)
        lengths = {does: self._lengths((model, does), stretch, law) for does in DOES}
        known = {does: one for does, one in lengths.items() if one}
        some = known.get("answer") or next(iter(known.values()))
        return {
            "answering": {s: self._skill((model, "answer"), f, s, law) for s, f in self.families.items()},
            "coding": {s: self._skill((model, "code"), f, s, law) for s, f in self.families.items()},
            "querying": query,
            "median_tokens": {does: (lengths[does] or some)[0] for does in DOES},
            "median_seconds": {does: (lengths[does] or some)[1] for does in DOES},
            "reasons": self._reasons(model, recorded),
            "stretch": stretch,
        }

    def _skill(self, role: Role, families: Sequence[str], subject: str, law: Law) -> float:
        """In one subject; of queries over all. What is the packaged world's succeeds as often as there."""
        model, does = role
        if role not in self.offered:
            return NEVER
        share = law.search if does == "query" else 1.0
        if role in self.behind:
            skill = self.fit.skill(self.behind[role], families)
            return round(skill * _scale(law, share) / _scale(law, 1.0), 4)
        old = self.rest[model]
        skill = {"answer": old.answering, "code": old.coding}[does][subject] if does != "query" else old.querying
        return round(skill * _scale(law, share) / _scale(old.law, old.law.search if does == "query" else 1.0), 4)

    def _lengths(self, role: Role, stretch: float, law: Law) -> tuple[float, float] | None:
        """Median tokens and seconds; None where nobody asks that of it."""
        if role not in self.offered:
            return None
        recorded = self.behind.get(role)
        tokens, seconds = (self._median(role, recorded, measure, stretch, law) for measure in _LENGTHS)
        return max(1.0, tokens), max(0.001, seconds)

    def _median(self, role: Role, recorded: str | None, measure: str, stretch: float, law: Law) -> float:
        model, does = role
        found = self.fit.median(recorded, measure, tuple(self.fit.families)) if recorded else None
        if found is not None:
            return float(f"{found:.4g}")
        if model not in self.rest:
            raise ConfigError(
                f"{self.fit.where} does not know the {measure} of {recorded!r}, which {model!r} {DOES[does]} as"
                + (
                    f", and world {self.wishes.rest_from} has no expert {model!r}; record them"
                    if self.rest
                    else f"; take them from a packaged world with rest_from={FITTED_WORLDS[-1]!r}, or record them"
                ),
                command_line="" if self.rest else REST_FROM,
            )
        if recorded:
            self._take(f"the {measure} of {model}")
        old = self.rest[model]
        mean = (old.output_tokens if measure == "tokens" else old.seconds)[does]
        spread = law.tokens if measure == "tokens" else law.seconds
        return float(f"{mean / spread.mean(stretch):.4g}")

    def _reasons(self, model: str, recorded: str | None) -> bool:
        if recorded is None:
            return self.rest[model].reasons
        share = self.fit.models[recorded].get("reasoning")
        if share is None:
            self.told.append(
                f"{model}: the recording tells no reasoning tokens, so all of its output is billed as output"
            )
        return bool(share is not None and share > 0.5)

    def _made_of(self) -> dict[str, Any]:
        """Kept in the file for its reader; no simulation reads it."""
        experts = {
            f"{model} {DOES[does]}": {
                "recorded model": recorded,
                "rate": self.fit.models[recorded].get("rate"),
                "skill ends": self.fit.models[recorded].get("skill ends"),
            }
            for (model, does), recorded in self.behind.items()
        }
        return {
            "about": "intervals are of 95 %, by a bootstrap of tasks: value, low, high; ends are low, high",
            "source": self.fit.source,
            "families": {subject: list(self.families[subject]) for subject in SUBJECTS},
            "shared": self.fit.told["shared"],
            "experts": experts,
            "notes": self.told,
            "warnings": list(self.fit.warnings),
        }


def _scale(law: Law, share: float) -> float:
    """The deviation of what decides, chance and all: a skill over it is as good in any world."""
    return math.sqrt(1 + share**2 * (law.task**2 + (law.level * LEVELS_DEVIATION) ** 2 + law.pair**2))


def write_world(made: MadeWorld, path: Path) -> None:
    """Write the file that `world=` takes."""
    try:
        path.write_text(json.dumps(made.data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"the world cannot be written to {path}: {err.strerror}") from None
