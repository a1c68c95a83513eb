"""Who stands for whom in a world that is made of a recording: recorded models for experts, families for subjects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args, get_type_hints

from toolorchestra.agents.calibration.fit_file import FitFile
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.questions.datasets import family_of
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.tools.tool_config import ToolConfig

SUBJECTS: tuple[str, ...] = get_args(get_type_hints(Question)["family"])
PURPOSES: Mapping[str, Purpose] = {"search": "query", "enhance_reasoning": "code", "answer": "answer", "ask": "answer"}
DOES: Mapping[Purpose, str] = {"query": "writes queries", "code": "writes programs", "answer": "answers"}
MOST_NAMED = 8
"""Models that a sentence names."""
Role = tuple[str, Purpose]
"""An expert's model, and what it does."""


@dataclass(frozen=True)
class Wishes:
    """What the user says of how a recording is to be used."""

    stands: Mapping[str, str] = field(default_factory=dict)
    """Expert -> recorded model. An alias means what that alias does; a model's name means its answering."""
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Subject -> recorded families."""
    rest_from: str = ""
    """A packaged world, for what the recording does not know; "" refuses."""
    level: float = 0.0
    """What a level of a question takes from the skill; the rest of the fitted difficulty stays unseen."""
    limit_seconds: float = 0.0
    """A run that would take longer ends then, without an answer; 0: none is cut."""


def roles(tools: ToolConfig) -> dict[Role, list[str]]:
    """What each model is offered for, with the aliases."""
    made: dict[Role, list[str]] = {}
    for entry in tools.tools:
        for offer in entry.offers:
            made.setdefault((offer.model, PURPOSES[entry.kind]), []).append(offer.alias)
    if not made:
        raise ConfigError(
            f"tool configuration {tools.name!r} offers no experts, so there is no world to make; take one that does, "
            'such as tool_config.load("paper")',
            command_line="--tools paper",
        )
    return made


def stand_ins(fit: FitFile, tools: ToolConfig, wishes: Wishes) -> dict[Role, str]:
    """The recorded model behind each role that has one: by the user's word, else by the same name for answering."""
    offered = roles(tools)
    made: dict[Role, str] = {}
    for expert, recorded in wishes.stands.items():
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


def without(offered: Mapping[Role, Sequence[str]], behind: Mapping[Role, str]) -> list[str]:
    """The experts behind whom nobody stands."""
    return [_named(role, offered) for role in offered if role not in behind]


def families_of(fit: FitFile, wishes: Wishes) -> dict[str, tuple[str, ...]]:
    """The recorded families behind each subject: those that are named, else that of its name, else those whose
    questions the environments play as that subject (datasets.family_of), else all."""
    by_name = {family.strip().lower(): family for family in fit.families}
    made: dict[str, tuple[str, ...]] = {}
    for subject in SUBJECTS:
        played = tuple(family for family in fit.families if family_of(family) == subject)
        made[subject] = (by_name[subject],) if subject in by_name else played or tuple(fit.families)
    for subject, families in wishes.subjects.items():
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


def told_of(fit: FitFile, tools: ToolConfig, behind: Mapping[Role, str], wishes: Wishes) -> Iterator[str]:
    """Who stands for whom, in sentences."""
    offered = roles(tools)
    for role, recorded in behind.items():
        yield f"{_named(role, offered)} {DOES[role[1]]} as {recorded!r} did"
    if unused := [name for name in fit.models if name not in behind.values()]:
        yield f"recorded, and behind no expert: {some(unused)}"
    families = families_of(fit, wishes)
    for subject, chosen in families.items():
        named = " and ".join(map(repr, chosen))
        found = subject in wishes.subjects or all(_plays(family, subject) for family in chosen)
        yield f"{subject}: {named}" if found else f"{subject}: no family of that name, so the mean over all families"
    if unused := [family for family in fit.families if not any(family in chosen for chosen in families.values())]:
        yield f"recorded families that no subject takes: {', '.join(map(repr, unused))}"


def some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _plays(family: str, subject: str) -> bool:
    return family.strip().lower() == subject or family_of(family) == subject
