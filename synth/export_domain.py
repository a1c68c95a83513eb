"""Exports domain folders that exist: `toolorchestra export-domain --domain finance /tmp/library --form tau2 --out DIR`.

tau2: a runnable tau2 domain for each (database, toolkit, policy, tasks). rows: training rows in the reference's field
names. hf: a data-set folder with a card. With --together, rows and hf are one data set over all the domains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth.formats import export, export_sets, tau2_domain

ALL = "all"
"""The folder of a data set over several domains."""


@dataclass(frozen=True)
class ExportDomainOptions:
    """What `toolorchestra export-domain` takes."""

    domain: tuple[str, ...] = ()
    """Names or folders; all that are shipped when left out."""
    form: tuple[str, ...] = ("tau2",)
    """The formats to write: tau2, rows, hf."""
    out: Path = Path("exports")
    """Where they go: OUT/FORM/DOMAIN."""
    together: bool = False
    """Write rows and hf as one data set, OUT/FORM/all."""
    overwrite: bool = False
    """Delete a folder that stands in an export's place and was not written by an export, or was changed since."""

    def __post_init__(self) -> None:
        check_folder("--out", self.out)
        for form in self.form:
            if form not in export.FORMATS:
                raise ConfigError(no_such("export", form, export.FORMATS))
        if self.together and (other := [form for form in self.form if form not in export_sets.SETS]):
            raise ConfigError(
                f"--together is for {', '.join(export_sets.SETS)}; {other[0]} writes a folder for each domain"
            )


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ExportDomainOptions, run, given, about=__doc__)


def run(given: ExportDomainOptions) -> int:
    """Check every place, then write."""
    domains = [loader.read(loader.resolve(name), verify=True) for name in given.domain or tuple(loader.names())]
    places = {
        (form, domain.name): given.out / form / tau2_domain.package(domain) for form in given.form for domain in domains
    }
    for (form, _), place in places.items():
        export.check_place(form, given.out / form / ALL if given.together else place, overwrite=given.overwrite)
    for form in given.form:
        if given.together:
            say(f"{form}: {export_sets.write(form, domains, given.out / form / ALL, overwrite=given.overwrite)}")
            continue
        for domain in domains:
            say(f"{form}: {export.write(form, domain, places[form, domain.name], overwrite=given.overwrite)}")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
