"""Tasks worded anew by a model: kept where every value still stands in the words, no value was added, every check of
the task still passes, and the oracle still solves it through the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.domains.toolscale import loader, shapes
from toolorchestra.envs.domains.toolscale.grading import mentions
from toolorchestra.envs.domains.toolscale.reading import fits
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.hard_checks import fault
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton
from toolorchestra.synth.stages.hard_requests import Rejected
from toolorchestra.synth.stages.stage_values import Making
from toolorchestra.synth.stages.task_drafts import Shape

MOST_SAID = 600
"""Characters of a new wording."""
_HOLE = re.compile(r"\{(\w+)\}")
_FIGURE = re.compile(r"\d+(?:[.,:/-]\d+)*")
_NAMED = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*|\d[\w.,:/-]*\w|\d")


def asked(spec: Spec, shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The requests as a model is shown them: their wordings, and what must stand in each new one."""
    return [
        {"say": request["say"], "keep": kept_values(spec, request)} for request in shape["toolscale"]["requests"]
    ]  # fmt: skip


def kept_values(spec: Spec, request: Mapping[str, Any]) -> list[str]:
    """The values that stand in all wordings of a request: what its templates were filled with, or where it has no
    template its names and numbers."""
    templates = [say for entry in spec.intents if entry["intent"] == request["intent"] for say in entry["say"]]
    found = [_filled_with(templates, said) for said in request["say"]]
    return [value for value in found[0] if all(value in others for others in found)]


def _filled_with(templates: Sequence[str], said: str) -> list[str]:
    for template in templates:
        names = _HOLE.findall(template)
        parts = [re.escape(part) for part in _HOLE.split(template)[::2]]
        if match := re.fullmatch("(.+?)".join(parts), said):
            return list(dict.fromkeys(match.groups())) if names else []
    return list(dict.fromkeys(_NAMED.findall(said)))


def reworded(spec: Spec, shape: Shape, wordings: Sequence[Sequence[str]]) -> Shape:
    """The task in new words. Raises Rejected."""
    made: Shape = {**shape, "toolscale": {**shape["toolscale"]}}
    scenario = shape["user_scenario"]
    reason = scenario["instructions"]["reason_for_call"]
    requests = []
    for request, new in zip(shape["toolscale"]["requests"], wordings, strict=True):
        for text in new:
            _check(spec, shape, request, text)
        old = next((said for said in request["say"] if said in reason), None)
        if old is None:
            raise Rejected("not found in the text", request["say"][0])
        reason = reason.replace(old, new[0], 1)
        requests.append({**request, "say": list(new)})
    made["toolscale"]["requests"] = requests
    made["user_scenario"] = {
        **scenario, "instructions": {**scenario["instructions"], "reason_for_call": reason}
    }  # fmt: skip
    if similarity.words(made) == similarity.words(shape):
        raise Rejected("says the same words", reason)
    return made


def _check(spec: Spec, shape: Shape, request: Mapping[str, Any], text: str) -> None:
    if len(text) > MOST_SAID:
        raise Rejected("too long", f"{len(text)} characters, at most {MOST_SAID}")
    lost = [value for value in kept_values(spec, request) if not mentions(text, value)]
    if lost:
        raise Rejected("a value is lost", f"{lost[0]!r} does not stand in {text!r}")
    told = shape["user_scenario"]["instructions"]
    known = " ".join([*request["say"], told.get("known_info") or ""])
    added = [figure for figure in _FIGURE.findall(text) if figure not in known]
    if added:
        raise Rejected("a value is added", f"{added[0]!r} in {text!r} stands in no wording of before")


def checked(making: Making, seed: int, wanted: Sequence[tuple[Shape, Sequence[Sequence[str]]]]) -> list[Any]:
    """For each task and its new wordings the new task, or why not; in the process that has limits."""
    spec = making.spec
    domain, _ = skeleton(spec, seed)
    bench = DomainPlayer(domain)
    forms = {similarity.form(shape) for shape in making.shapes}
    made: list[Any] = []
    for shape, wordings in wanted:
        try:
            new = reworded(spec, shape, wordings)
            if similarity.form(new) in forms:
                raise Rejected("says what another does")
            name, seen = fault(bench, loader.task(fits(shapes.TASK, new, "reworded task")))
            if name:
                raise Rejected(f"check {name}", seen)
        except Rejected as err:
            made.append((err.reason, str(err)))
            continue
        forms.add(similarity.form(new))
        made.append(new)
    return made
