"""The lint of a spec, in the process that has limits: of a spec by its name, and of one in the making."""

from __future__ import annotations

from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth import lint
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.part_checks import Fault, Parts
from toolorchestra.synth.lint.ground import Finding
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton
from toolorchestra.synth.stages.limited_work import SHARED

SECONDS = 300.0
"""How long the lint of one spec may take."""


def of_spec(name: str, seed: int) -> list[Finding]:
    """The findings of a shipped spec, or of one in a folder or file."""
    found: list[Finding] = SHARED.run(_of_name, name, seed, seconds=SECONDS)
    return found


def of_parts(parts: Parts, seed: int) -> list[Finding]:
    """The findings of six texts."""
    found: list[Finding] = SHARED.run(_of_parts, dict(parts), seed, seconds=SECONDS)
    return found


def faults(parts: Parts, seed: int) -> list[Fault]:
    """Requests that are answered with another row than they name, as faults for an author that can mend them. Other
    findings are told and not sent back: they may be what the author wants."""
    try:
        found = of_parts(parts, seed)
    except ConfigError:
        return []  # other checks say what is wrong with it
    return [
        Fault(one.check, f"{one.entry}: {one.seen}; expected: {one.expected}", one.entry.removeprefix("intent "))
        for one in found
        if one.certain and one.check == "another row"
    ]


def _of_name(name: str, seed: int) -> list[Finding]:
    return findings(specs.load(name), seed)


def _of_parts(parts: Parts, seed: int) -> list[Finding]:
    return findings(specs.read(parts, Path("spec")), seed)


def findings(spec: specs.Spec, seed: int) -> list[Finding]:
    """The findings of a spec that is at hand, in this process."""
    domain, _ = skeleton(spec, seed)
    return lint.lint(spec, DomainPlayer(domain), seed)
