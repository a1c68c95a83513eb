"""What tasks do not say: that a middle request is the final one, and in tests the sentences of the other splits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.task_checks import fault
from toolorchestra.synth.stages import domain_folder

SPEC = "public_library"
COUNT = 60


@cache
def made() -> tuple[DomainPlayer, tuple[Any, ...]]:
    """The domain, and its tasks' shapes."""
    spec = specs.load(SPEC)
    domain, _ = domain_folder.skeleton(spec, 1)
    shapes, _ = domain_folder.tasks(spec, domain, COUNT, 1)
    return DomainPlayer(domain), tuple(shapes)


def final_too_early(shapes: tuple[Any, ...]) -> Iterator[str]:
    """Reasons that have another request behind the final one."""
    for shape in shapes:
        reason = shape["user_scenario"]["instructions"]["reason_for_call"]
        last = {said for said in shape["toolscale"]["requests"][-1]["say"]}
        if any(not part.startswith(tuple(last)) for part in reason.split("Finally: ")[1:]):
            yield reason


def test_only_the_last_request_is_said_to_be_the_final_one() -> None:
    assert any("Finally: " in shape["user_scenario"]["instructions"]["reason_for_call"] for shape in made()[1])
    assert not list(final_too_early(made()[1]))


def test_every_task_still_passes_every_proof() -> None:
    bench, shapes = made()
    assert [fault(bench, loader.task(shape)) for shape in shapes] == [("", "")] * COUNT


def test_no_sentence_of_a_test_is_said_elsewhere() -> None:
    said: dict[bool, set[str]] = {True: set(), False: set()}
    splits = []
    for shape in made()[1]:
        own = shape["toolscale"]
        splits.append(own["split"])
        said[own["split"] == "test"].update(text for request in own["requests"] for text in request["say"])
    assert not said[True] & said[False]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [48, 6, 6]
