"""Makes tasks harder in rounds: longer, more constrained, or with more work in a request; measured, never claimed.

A harder version takes its task's place only if it passes every check that the task passed and measures harder.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.synth.formats.intent_templates import Caller
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages.domain_folder import YieldReport, admit
from toolorchestra.synth.stages.hard_requests import Rejected
from toolorchestra.synth.stages.task_drafts import HELD_OUT, Drafter, Shape

WAYS = ("longer", "constrained", "harder")
MOST_REQUESTS = 8
_TRIES = 3


class Hardness(NamedTuple):
    """What a task asks for. Compared by the first number that differs."""

    calls: int
    """Gold calls."""
    bounds: int
    """Requests that the rules turn down or hand over."""
    facts: int
    """What the user does not know and has to be found."""


class Evolved(NamedTuple):
    """The tasks after some rounds."""

    shapes: list[Shape]
    harder: Counter[str]
    """How many took their task's place, by way."""
    dropped: Counter[str]
    """Why the others did not."""
    before: Counter[int]
    after: Counter[int]
    """Tasks by difficulty."""


def hardness(shape: Shape) -> Hardness:
    """Measured on the task as it is."""
    own = shape["toolscale"]
    return Hardness(
        len(shape["evaluation_criteria"]["actions"]),
        sum(request["ending"] != "serve" for request in own["requests"]),
        sum("value" not in fact for fact in own["facts"]),
    )


class Evolver:
    """Harder versions of one domain's tasks."""

    def __init__(self, spec: Spec, bench: DomainPlayer, rng: random.Random) -> None:
        self.spec = spec
        self.bench = bench
        self.rng = rng
        self.drafter = Drafter(spec, bench, rng)
        self.intents = {intent["intent"]: intent for intent in spec.intents}
        self._people = {self._told(person): person for person in self.drafter.templates.people}

    def _told(self, person: Caller) -> tuple[str, ...]:
        """What tells a person from another in a task: the facts of each way to be identified."""
        ways = self.spec.head["user"]["ways"]
        return tuple(sorted(_filled(fact["value"], person) for way in ways for fact in way["facts"] if "value" in fact))

    def person(self, shape: Shape) -> Caller | None:
        """The person whose task it is; None where it cannot be told from the task's facts."""
        known = {fact["value"] for fact in shape["toolscale"]["facts"] if "value" in fact}
        found = [person for told, person in self._people.items() if known and known <= set(told)]
        return found[0] if len(found) == 1 else None

    def version(self, shape: Shape, way: str) -> Shape:
        """One harder version. Raises Rejected."""
        person = self.person(shape)
        if person is None:
            raise Rejected("nobody to ask for more")
        names = dict.fromkeys(request["intent"].partition(".")[0] for request in shape["toolscale"]["requests"])
        chosen = [self.intents[name] for name in names]
        kept = set(self.spec.head.get("held_out_intents", ()))
        held_out = shape["toolscale"]["split"] == HELD_OUT
        fitting = self.drafter.templates.fitting(person)
        more = [i for i in fitting if i not in chosen and (i["intent"] in kept) == held_out]
        made = self.drafter.compose(person, self._intents(chosen, more, way), shape["toolscale"]["split"])
        if hardness(made) <= hardness(shape):
            raise Rejected("measures no harder")
        return made

    def _intents(self, chosen: list[Any], more: list[Any], way: str) -> Sequence[Mapping[str, Any]]:
        last = [intent for intent in chosen if intent.get("ending") == "transfer"]
        others = [intent for intent in chosen if intent not in last]
        if way == "longer":
            fitting = [intent for intent in more if intent.get("ending") != "transfer"]
        elif way == "constrained":
            fitting = [i for i in more if i.get("ending", "serve") != "serve" and not (last and _transfers(i))]
        else:
            others.sort(key=lambda intent: len(intent["actions"]))
            least = len(others[0]["actions"]) if others else 0
            fitting = [i for i in more if len(i["actions"]) > least and i.get("ending", "serve") == "serve"]
            others = others[1:]
        if not fitting or len(others) + len(last) >= MOST_REQUESTS:
            raise Rejected("no intent fits")
        new = self.rng.choice(fitting)
        if _transfers(new):
            return [*others, new]
        at = self.rng.randint(0, len(others))
        return [*others[:at], new, *others[at:], *last]


def _transfers(intent: Mapping[str, Any]) -> bool:
    return bool(intent.get("ending") == "transfer")


def _filled(template: str, person: Caller) -> str:
    return template.format_map({key: str(value) for key, value in person.values.items()})


def evolve(spec: Spec, bench: DomainPlayer, shapes: Sequence[Shape], rounds: int, rng: random.Random) -> Evolved:
    """The tasks after so many rounds; each round tries each task once in a way drawn by chance."""
    made = Evolved(list(shapes), Counter(), Counter(), _levels(shapes), Counter())
    evolver = Evolver(spec, bench, rng)
    forms = {similarity.form(shape) for shape in shapes}
    for _ in range(rounds):
        for place, shape in enumerate(made.shapes):
            way = rng.choice(WAYS)
            why = ""
            for _ in range(_TRIES):
                try:
                    version = evolver.version(shape, way)
                    admit(bench, version, forms, YieldReport(spec.name), len(shapes))
                except Rejected as err:
                    why = err.reason
                    continue
                forms.add(similarity.form(version))
                made.shapes[place] = version
                made.harder[way] += 1
                break
            else:
                made.dropped[why] += 1
    made.after.update(_levels(made.shapes))
    return made


def _levels(shapes: Sequence[Shape]) -> Counter[int]:
    return Counter(shape["toolscale"]["difficulty"] for shape in shapes)
