"""Look for what running a spec cannot show: `toolorchestra synth lint finance /tmp/my_spec`.

Requests that are answered with another row than they name, requests that contradict each other in one order, tools that
no task uses, columns that no tool shows. Findings name the file and the entry, and what was expected. Those marked
"perhaps" follow from words or from what may be chance. The surest come first, then what a spec has few of.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, command, say
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages import spec_lint


@dataclass(frozen=True)
class LintOptions:
    """What `toolorchestra synth lint` takes."""

    spec: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Folders, YAML files, or names of shipped specs; all that are shipped when left out."""
    seed: int = 1
    """Seed of the rows and of what is sampled."""
    most: int = 10
    """How many findings are shown; 0: all."""
    strict: bool = False
    """Fail where there is a finding that was seen by running."""

    def __post_init__(self) -> None:
        check_counts(self, {"seed": 0, "most": 0})


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(LintOptions, run, given, about=__doc__)


def run(given: LintOptions) -> int:
    """Lint, and print what was found."""
    names = given.spec or tuple(specs.shipped())
    read = {name: specs.load(name) for name in names}
    found = {name: spec_lint.of_parts(spec.parts, given.seed, spec.folder) for name, spec in read.items()}
    for name, findings in found.items():
        say(f"{name}: {spec_lint.counted(findings)}")
    ranked = sorted(((name, one) for name in names for one in found[name]), key=lambda pair: spec_lint.rank(pair[1]))
    shown = ranked[: given.most or None]
    say("\n".join(f"  {name}: {one.text()}" for name, one in shown))
    certain = sum(one.certain for _, one in ranked)
    left = f"; {len(shown)} shown, --most 0 shows all" * (len(shown) < len(ranked))
    say(f"{len(names)} specs, {len(ranked)} findings, {certain} of them seen by running{left}")
    return FAILED if given.strict and certain else DONE


if __name__ == "__main__":
    sys.exit(main())
