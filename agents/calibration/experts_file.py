"""A file of experts, made from a fit: what the recording knows is the fit's, and what it does not know is said.

Experts answer, write queries or write programs; the recording has models. Who stands for whom is the user's word. What
no recorded model stands behind, and what no recording tells, is refused, or taken from packaged experts: on the new
file's scale, so that it succeeds as often, and is as long on average, as it is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args, get_type_hints

from toolorchestra.agents.calibration.experts_fit import FitFile
from toolorchestra.agents.policies.expected import PURPOSES
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.questions.datasets import family_of
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.models.simulated import DEFAULT, PACKAGED, Law, LengthSpread, packaged, read_experts
from toolorchestra.envs.outcomes.table import MOST_SECONDS
from toolorchestra.envs.tools.tool_config import ToolConfig

SUBJECTS: tuple[str, ...] = get_args(get_type_hints(Question)["family"])
DOES: Mapping[Purpose, str] = {"query": "writes queries", "code": "writes programs", "answer": "answers"}
MOST_NAMED = 8
"""Models that a sentence names."""
NEVER = -8.0
"""The skill of an expert at what no tool asks of it."""
LEVELS_DEVIATION, MIDDLE = 1.24, 3.57
"""Deviation of the levels of HLE-v0's questions, and their mean."""
_LENGTHS = ("tokens", "seconds")
REST_FROM = f"--rest-from {DEFAULT}"
"""What the command line is told where packaged experts would help."""


Role = tuple[str, Purpose]
"""An expert's model, and what it does."""


@dataclass(frozen=True)
class FileOptions:
    """What the user says of how a recording is to be used."""

    stands: Mapping[str, str] = field(default_factory=dict)
    """Expert -> recorded model. An alias means what that alias does; a model's name means its answering."""
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Subject -> recorded families."""
    rest_from: str = ""
    """Packaged experts, for what the recording does not know; "" refuses."""


@dataclass(frozen=True)
class MadeExperts:
    """Experts as their file has them, and what is to be said of them."""

    data: Mapping[str, Any]
    told: Sequence[str]


def make_experts(fit: FitFile, tools: ToolConfig, choices: FileOptions | None = None) -> MadeExperts:
    """The experts of a fit, as a tool configuration offers them. Raises ConfigError where something is missing."""
    return _FileMaker(fit, tools, choices or FileOptions()).made()


class _FileMaker:
    """One making."""

    def __init__(self, fit: FitFile, tools: ToolConfig, choices: FileOptions) -> None:
        self.fit, self.tools, self.choices = fit, tools, choices
        if choices.rest_from and choices.rest_from not in PACKAGED:
            raise ConfigError(
                f"rest_from: {no_such('packaged experts', choices.rest_from, PACKAGED)}", command_line=REST_FROM
            )
        self.rest = packaged(choices.rest_from) if choices.rest_from else {}
        self.offered = roles(tools)
        self.behind = _stand_ins(fit, self.offered, choices)
        self.families = _families_of(fit, choices)
        self.told = list(self._who_is_who())

    def made(self) -> MadeExperts:
        self._refuse()
        law = self._law()
        models = {model: self._expert(model, law) for model in dict.fromkeys(model for model, _ in self.offered)}
        data = {"law": asdict(law) | {name: getattr(law, name)._asdict() for name in _LENGTHS}, "models": models}
        data["made_of"] = self._made_of()
        read_experts(data, "the experts that were made")
        return MadeExperts(data, self.told)

    def _who_is_who(self) -> Iterator[str]:
        """Tell who stands for whom, in sentences."""
        for role, recorded in self.behind.items():
            yield f"{_named(role, self.offered)} {DOES[role[1]]} as {recorded!r} did"
        if unused := [name for name in self.fit.models if name not in self.behind.values()]:
            yield f"recorded, and behind no expert: {_some(unused)}"
        for subject, chosen in self.families.items():
            plays = all(family.strip().lower() == subject or family_of(family) == subject for family in chosen)
            found = " and ".join(map(repr, chosen)) if subject in self.choices.subjects or plays else ""
            yield f"{subject}: {found or 'no family of that name, so the mean over all families'}"
        taken = {family for chosen in self.families.values() for family in chosen}
        if left := [family for family in self.fit.families if family not in taken]:
            yield f"recorded families that no subject takes: {', '.join(map(repr, left))}"

    # -- what is missing -------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        lacking = [_named(role, self.offered) for role in self.offered if role not in self.behind]
        if lacking and not self.rest:
            raise ConfigError(
                f"no recorded model stands behind {', '.join(lacking)}. Recorded are {_some([*self.fit.models])}: "
                "say who stands for whom with stands={EXPERT: MODEL}, take tools without those experts, or take what "
                f"is missing from packaged experts with rest_from={DEFAULT!r}",
                command_line=f"--as EXPERT=MODEL, --tools FILE, or {REST_FROM}",
            )
        for model, does in self.offered:
            if (model, does) not in self.behind and model not in self.rest:
                raise ConfigError(
                    f"no recorded model stands behind {model!r}, and experts {self.choices.rest_from} have none of "
                    f"that name (they have {', '.join(self.rest)}); say who stands for it with "
                    f"stands={{{model!r}: MODEL}}",
                    command_line=f"--as {model}=MODEL",
                )
        if lacking:
            self._take(f"{', '.join(lacking)}: skills and lengths")

    def _take(self, what: str) -> None:
        self.told.append(f"taken from experts {self.choices.rest_from}: {what}")

    def _law_of_rest(self, what: str) -> Law:
        """The packaged law, for something that the recording does not know."""
        if not self.rest:
            raise ConfigError(
                f"{self.fit.where} does not know {what}; take it from packaged experts with "
                f"rest_from={DEFAULT!r}, or record it",
                command_line=REST_FROM,
            )
        self._take(what)
        return next(iter(self.rest.values())).law

    # -- the law ---------------------------------------------------------------------------------------------------

    def _law(self) -> Law:
        writes = any(does != "answer" for _, does in self.offered)
        rest = self._law_of_rest("how hard queries are, and what a computed result helps") if writes else None
        pair = self.fit.shared.get("pair_sd") or 0.0
        if not pair:
            self.told.append("no lasting luck of a model with a task was found: asking again helps as chance does")
        return Law(
            level=0.0,  # the recording knows no levels
            middle=MIDDLE,
            task=round(self.fit.shared.get("task_sd") or 0.0, 4),
            pair=round(pair, 4),
            search=rest.search if rest else 0.0,
            computed=rest.computed if rest else 0.0,
            tokens=self._spread("tokens"),
            seconds=self._spread("seconds"),
            together=(
                self.fit.together
                if self.fit.together is not None
                else self._law_of_rest("how tokens go with seconds, run by run of a model on a task").together
            ),
            limit_seconds=MOST_SECONDS,
            refusals=0.0,
            source=f"fit of {self.fit.source or self.fit.where}: {self.fit.rows} runs of {self.fit.tasks} tasks",
        )

    def _spread(self, measure: str) -> LengthSpread:
        numbers = [self.fit.shared.get(f"{measure} {name}") for name in ("task_sd", "pair_sd", "run_sd")]
        if numbers[0] is None or numbers[2] is None:
            law = self._law_of_rest(f"how {measure} vary")
            return law.tokens if measure == "tokens" else law.seconds
        tied = self.fit.shared.get(f"{measure} with_difficulty") or 0.0
        return LengthSpread(*(round(value or 0.0, 4) for value in (*numbers, tied)))

    # -- the experts -----------------------------------------------------------------------------------------------

    def _expert(self, model: str, law: Law) -> dict[str, Any]:
        answers = self.behind.get((model, "answer"))
        recorded = answers or next((self.behind[role] for role in self.offered if role in self.behind
                                    and role[0] == model), None)  # fmt: skip
        stretch = round(self.fit.spread(recorded), 4) if recorded else self.rest[model].stretch
        lengths = {does: self._lengths((model, does), stretch, law) for does in DOES if (model, does) in self.offered}
        usual = lengths.get("answer") or next(iter(lengths.values()))
        luck = self.fit.models[recorded].get("luck_by_strength", 0.0) if recorded else self.rest[model].luck_by_strength
        return {
            "answering": {s: self._skill((model, "answer"), f, s, law) for s, f in self.families.items()},
            "coding": {s: self._skill((model, "code"), f, s, law) for s, f in self.families.items()},
            "querying": self._skill((model, "query"), tuple(self.fit.families), "", law),
            "median_tokens": {does: lengths.get(does, usual)[0] for does in DOES},
            "median_seconds": {does: lengths.get(does, usual)[1] for does in DOES},
            "reasons": self._reasons(model, recorded),
            "stretch": stretch,
            "luck_by_strength": float(luck),
        }

    def _skill(self, role: Role, families: Sequence[str], subject: str, law: Law) -> float:
        """The skill in one subject; of queries over all. What is taken from packaged experts succeeds as often as
        there."""
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

    def _lengths(self, role: Role, stretch: float, law: Law) -> tuple[float, float]:
        """Median tokens and seconds."""
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
                    f", and experts {self.choices.rest_from} have no {model!r}; record them"
                    if self.rest
                    else f"; take them from packaged experts with rest_from={DEFAULT!r}, or record them"
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
    """The deviation of what decides, chance and all: a skill over it is as good under any law."""
    return math.sqrt(1 + share**2 * (law.task**2 + (law.level * LEVELS_DEVIATION) ** 2 + law.pair**2))


# -- who stands for whom ----------------------------------------------------------------------------------------------


def roles(tools: ToolConfig) -> dict[Role, list[str]]:
    """What each model is offered for, with the aliases."""
    made: dict[Role, list[str]] = {}
    for entry in tools.tools:
        for offer in entry.offers:
            made.setdefault((offer.model, PURPOSES[entry.kind]), []).append(offer.alias)
    if not made:
        raise ConfigError(
            f"tool configuration {tools.name!r} offers no experts, so there are none to make; take one that does, "
            'such as tool_config.load("paper")',
            command_line="--tools paper",
        )
    return made


def _stand_ins(fit: FitFile, offered: Mapping[Role, Sequence[str]], choices: FileOptions) -> dict[Role, str]:
    """The recorded model behind each role that has one: by the user's word, else by the same name for answering."""
    made: dict[Role, str] = {}
    for expert, recorded in choices.stands.items():
        if recorded not in fit.models:
            raise ConfigError(
                f"stands of {expert!r}: {no_such('recorded model', recorded, fit.models)}",
                command_line=f"--as {expert}=MODEL",
            )
        role = _role(expert, offered)
        if made.setdefault(role, recorded) != recorded:
            raise ConfigError(
                f"stands: {_named(role, offered)} would be {made[role]!r} and {recorded!r}, and one recorded model "
                "stands behind an expert; leave one out",
                command_line=f"one --as {expert}=MODEL alone",
            )
    for role, aliases in offered.items():
        same = next((name for name in (role[0], *aliases) if name in fit.models), None)
        if role[1] == "answer" and role not in made and same is not None:
            made[role] = same
    return made


def _role(expert: str, offered: Mapping[Role, Sequence[str]]) -> Role:
    for role, aliases in offered.items():
        if expert in aliases:
            return role
    if (expert, "answer") in offered:
        return (expert, "answer")
    valid = [alias for aliases in offered.values() for alias in aliases]
    valid += [model for model, does in offered if does == "answer"]
    raise ConfigError(f"stands: {no_such('expert', expert, valid)}", command_line="--as EXPERT=MODEL")


def _named(role: Role, offered: Mapping[Role, Sequence[str]]) -> str:
    model, _ = role
    aliases = " and ".join(offered[role])
    return aliases if aliases == model else f"{aliases} ({model})"


def _families_of(fit: FitFile, choices: FileOptions) -> dict[str, tuple[str, ...]]:
    """The recorded families behind each subject: those that are named, else that of its name, else those whose
    questions the environments play as that subject (datasets.family_of), else all."""
    by_name = {family.strip().lower(): family for family in fit.families}
    made: dict[str, tuple[str, ...]] = {}
    for subject in SUBJECTS:
        played = tuple(family for family in fit.families if family_of(family) == subject)
        made[subject] = (by_name[subject],) if subject in by_name else played or tuple(fit.families)
    for subject, families in choices.subjects.items():
        if subject not in SUBJECTS:
            raise ConfigError(
                f"subjects: {no_such('subject', subject, SUBJECTS)}", command_line="--family SUBJECT=FAMILY"
            )
        for family in families:
            if family not in fit.families:
                raise ConfigError(
                    f"subjects of {subject!r}: {no_such('recorded family', family, fit.families)}",
                    command_line=f"--family {subject}=FAMILY",
                )
        made[subject] = tuple(dict.fromkeys(families))
    return made


def _some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
