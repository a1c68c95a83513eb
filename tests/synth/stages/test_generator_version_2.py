"""What tasks of the generator's version 2 no longer say: that a middle request is the final one, two wishes that undo
each other, and in tests the sentences of the other splits. Version 1 can still be made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.task_checks import DomainPlayer, fault, pointless
from toolorchestra.synth.stages import domain_folder
from toolorchestra.synth.stages.domain_folder import Origin

SPEC = "public_library"
COUNT = 60


@cache
def made(version: str) -> tuple[DomainPlayer, tuple[Any, ...]]:
    """The domain, and its tasks' shapes."""
    spec = specs.load(SPEC)
    domain, _ = domain_folder.skeleton(spec, 1)
    shapes, _ = domain_folder.tasks(spec, domain, COUNT, Origin(1, version))
    return DomainPlayer(domain), tuple(shapes)


def final_too_early(shapes: tuple[Any, ...]) -> Iterator[str]:
    """Reasons that have another request behind the final one."""
    for shape in shapes:
        reason = shape["user_scenario"]["instructions"]["reason_for_call"]
        last = {said for said in shape["toolscale"]["requests"][-1]["say"]}
        if any(not part.startswith(tuple(last)) for part in reason.split("Finally: ")[1:]):
            yield reason


def test_only_the_last_request_is_said_to_be_the_final_one() -> None:
    assert any("Finally: " in shape["user_scenario"]["instructions"]["reason_for_call"] for shape in made("2")[1])
    assert not list(final_too_early(made("2")[1]))
    assert list(final_too_early(made("1")[1]))


def test_no_request_ends_what_another_changed() -> None:
    for version, seen in (("1", True), ("2", False)):
        bench, shapes = made(version)
        found = [why for shape in shapes if (why := pointless(bench, loader.task(shape)))]
        assert bool(found) is seen, found


def test_every_task_still_passes_every_proof() -> None:
    bench, shapes = made("2")
    assert [fault(bench, loader.task(shape)) for shape in shapes] == [("", "")] * COUNT


def test_no_sentence_of_a_test_is_said_elsewhere() -> None:
    said: dict[bool, set[str]] = {True: set(), False: set()}
    splits = []
    for shape in made("2")[1]:
        own = shape["toolscale"]
        splits.append(own["split"])
        said[own["split"] == "test"].update(text for request in own["requests"] for text in request["say"])
    assert not said[True] & said[False]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [48, 6, 6]


def test_a_domain_of_version_1_is_made_again_as_it_was(tmp_path: Path) -> None:
    spec = specs.load(SPEC)
    domain_folder.make(spec, 12, 3, tmp_path / "old", measured=False, version="1")
    domain_folder.make(spec, 12, 3, tmp_path / "new", measured=False)
    assert loader.manifest(tmp_path / "old")["generator"]["version"] == "1"
    assert loader.manifest(tmp_path / "new")["generator"]["version"] == "2"
    for name in ("old", "new"):
        assert domain_folder.rebuilt(spec, tmp_path / name, tmp_path / f"{name} again")
    with pytest.raises(ConfigError, match="no version of the generator '0'"):
        domain_folder.make(spec, 12, 3, tmp_path / "none", measured=False, version="0")
