"""Make simulated experts of a fit, a file that `experts=` of HLE-v0 and FRAMES-v0 takes:

    toolorchestra fit-experts outcomes.csv --out fit.json
    toolorchestra make-world fit.json --tools mine.json --as answer-1=gpt-5 --out experts.json

What the recording does not know is refused, or with --rest-from taken from packaged experts. Both are said.
docs/calibrate.md has the whole way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.configuration.environment_options import pairs
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class MakeWorldOptions:
    """What `toolorchestra make-world` takes."""

    fit: tyro.conf.Positional[Path]
    """The JSON file that `toolorchestra fit-experts --out FILE` wrote."""
    out: Path = Path("experts.json")
    """Where the experts go; it must end in .json."""
    tools: str = "paper"
    """The tool configuration whose experts are made: paper, plain or a JSON file."""
    stands: Annotated[tuple[str, ...], tyro.conf.arg(name="as", metavar="EXPERT=MODEL [...]")] = ()
    """Which recorded model stands behind which expert. An alias, such as answer-1 or search-2, means what that alias
    does; the name of an expert's model means its answering. Recorded models of the same name need not be named."""
    family: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SUBJECT=FAMILY [...]")] = ()
    """Which recorded family stands for which subject: math, science, code, logic, knowledge. A subject may be named
    several times. Without it the family of the same name, else those that a data set's questions are played as (physics
    as science), else the mean over all."""
    rest_from: str = ""
    """Packaged experts, such as 2026-11, for what the recording does not know. Without it that is refused."""
    level: float = 0.0
    """What a level of a question's difficulty takes from skills. 0, as the recording knows no levels: they tell
    nothing. The fitted difficulty stays as large as it is."""
    limit_seconds: float = 0.0
    """Seconds after which a run ends without an answer. 0 cuts none: the recording's own are in its failures."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(MakeWorldOptions, run, given, about=__doc__)


def run(given: MakeWorldOptions) -> int:
    """Make it, and say what it is made of."""
    from toolorchestra.agents.calibration.experts_file import Choices, make_experts, write_experts
    from toolorchestra.agents.calibration.fit_file import read_fit
    from toolorchestra.envs.tools.tool_config import load

    if given.out.suffix != ".json":
        raise ConfigError(f"--out: a file that ends in .json expected, as experts=FILE takes; got {given.out}")
    fit = read_fit(given.fit)
    choices = Choices(
        pairs("--as", given.stands), _families(given.family), given.rest_from, given.level, given.limit_seconds
    )
    made = make_experts(fit, load(given.tools), choices)
    write_experts(made, given.out)
    for line in made.told:
        say(f"- {line}")
    for line in fit.warnings:
        say(f"- warning of the fit: {line}")
    say(f'{given.out} written: gym.make("ToolOrchestra/HLE-v0", experts="{given.out}", tools="{given.tools}")')
    return DONE


def _families(given: Sequence[str]) -> Mapping[str, Sequence[str]]:
    made: dict[str, list[str]] = {}
    for item in given:
        for subject, family in pairs("--family", [item]).items():
            made.setdefault(subject, []).append(family)
    return made
