"""Looks for what running a spec cannot show: `toolorchestra lint-domain --spec finance /tmp/my_spec`.

Requests that are answered with another row than they name, values that must be told though nobody asked, requests that
contradict each other in one order, rules of the policy that no task tests, tools that no task uses, columns that no
tool shows. Findings name the file and the entry, and what was expected. Those marked "perhaps" follow from words or
from what may be chance.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, command, say
from toolorchestra.synth import lint
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages import spec_lint


@dataclass(frozen=True)
class LintDomainOptions:
    """What `toolorchestra lint-domain` takes."""

    spec: tuple[str, ...] = ()
    """Folders, YAML files, or names of shipped specs; all that are shipped when left out."""
    seed: int = 1
    """Of the rows and of what is sampled."""
    counts: bool = False
    """Print how many findings there are of each kind, as a table, and not the findings."""
    strict: bool = False
    """Fail where there is a finding that was seen by running."""

    def __post_init__(self) -> None:
        check_counts(self, {"seed": 0})


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(LintDomainOptions, run, given, about=__doc__)


def run(given: LintDomainOptions) -> int:
    """Lint, and print what was found."""
    started = time.perf_counter()
    names = given.spec or tuple(specs.shipped())
    if given.counts:
        say(f"| spec | {' | '.join(lint.CHECKS)} |\n|---|{'---|' * len(lint.CHECKS)}")
    certain = total = 0
    for name in names:
        findings = spec_lint.of_spec(name, given.seed)
        certain += sum(one.certain for one in findings)
        total += len(findings)
        if given.counts:
            counts = [sum(one.check == check for one in findings) for check in lint.CHECKS]
            say(f"| {specs.load(name).name} | {' | '.join(map(str, counts))} |")
            continue
        say(f"{name}: {lint.counted(findings)}")
        say("".join(f"  {line}\n" for line in lint.lines(findings)).rstrip("\n"))
    took = time.perf_counter() - started
    say(f"{len(names)} specs, {total} findings, {certain} of them seen by running, {took:.0f} s")
    return FAILED if given.strict and certain else DONE


if __name__ == "__main__":
    sys.exit(main())
