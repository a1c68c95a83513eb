"""The lint of a spec: places that its author should look at. It runs in the process that has limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.part_checks import Fault, Parts
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.stages import lint_checks
from toolorchestra.synth.stages.domain_folder import skeleton
from toolorchestra.synth.stages.limited_work import SHARED
from toolorchestra.synth.stages.lint_checks import CheckedSpec, Finding

FALSE_GOLD = "another row"
"""A check whose certain findings are gold that means something else than the words."""
CHECKS = {
    FALSE_GOLD: lint_checks.another_row,
    "order": lint_checks.order,
    "unused tool": lint_checks.unused_tools,
    "hidden column": lint_checks.hidden_columns,
}
"""Name -> check."""
SECONDS = 300.0
"""How long the lint of one spec may take."""


def findings(parts: Parts, seed: int, folder: Path = Path("spec")) -> list[Finding]:
    """The findings of six texts, in this process, in the order in which they are worth reading."""
    spec = specs.read(parts, folder)
    domain = skeleton(spec, seed)
    ground = CheckedSpec(spec, DomainPlayer(domain), seed)
    found = [finding for check in CHECKS.values() for finding in check(ground)]
    kinds = Counter((one.certain, one.check) for one in found)
    return sorted(found, key=lambda one: (*rank(one), kinds[one.certain, one.check]))


def rank(one: Finding) -> tuple[bool, bool]:
    """Low for what was seen by running, and lowest for false gold. Then comes what a spec has few of."""
    return not one.certain, one.check != FALSE_GOLD


def of_parts(parts: Parts, seed: int, folder: Path = Path("spec")) -> list[Finding]:
    """The findings of six texts; `folder` is where errors say they are from."""
    found: list[Finding] = SHARED.run(findings, dict(parts), seed, folder, seconds=SECONDS)
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
        if one.certain and one.check == FALSE_GOLD
    ]


def counted(found: Iterable[Finding]) -> str:
    """How many of each check, in a line."""
    counts = Counter(one.check for one in found)
    return ", ".join(f"{name} {counts[name]}" for name in CHECKS if counts[name]) or "nothing"
