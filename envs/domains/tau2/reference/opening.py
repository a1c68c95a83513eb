"""From what a user asked for to domains that can be played. Nothing of a folder is run before it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.reference.domain import ReferenceDomain, load_toolkit
from toolorchestra.envs.domains.tau2.reference.folders import Place, place_of, places
from toolorchestra.envs.domains.tau2.reference.toolscale_rows import (
    ReferenceTasks,
    fitting,
    has_tasks,
    missing_databases,
    read_shelf,
)

ALL = "all"


@dataclass(frozen=True)
class ReferenceRequest:
    """What a source was given of reference domains."""

    folder: str
    domain: str | None
    tasks_path: str | None = None
    tasks_version: str | None = None
    now: str | None = None
    trust_code: bool = False
    skip_unmatched: bool = False


def open_domains(asked: ReferenceRequest) -> tuple[ReferenceTasks, Mapping[str, Tau2Domain]]:
    """The tasks and the domains, by name."""
    found = places(asked.folder)
    wanted = _wanted(asked, found)
    for place in wanted.values():
        place.toolkit()
    if not asked.trust_code:
        files = ", ".join(file for place in wanted.values() for file in place.code_files())
        raise ConfigError(
            f"reference={asked.folder!r} holds Python that would be run in this process, with your rights: {files},"
            " and what they import. Read it first, then say trust_code=True"
        )
    shelf = read_shelf(asked.folder, wanted, asked.tasks_path, asked.tasks_version)
    domains = {n: ReferenceDomain(load_toolkit(asked.folder, n, asked.now), shelf) for n in wanted}
    kept = {n: fitting(d, shelf.tasks(n), skip=asked.skip_unmatched) for n, d in domains.items()}
    return replace(shelf, by_domain=kept), domains


def _wanted(asked: ReferenceRequest, found: Mapping[str, Place]) -> Mapping[str, Place]:
    if asked.domain is None and len(found) == 1:
        return found
    if asked.domain is None:
        raise ConfigError(f"reference={asked.folder!r} holds {', '.join(found)}; say domain=NAME, or domain={ALL!r}")
    if asked.domain != ALL:
        return {asked.domain: place_of(found, asked.domain, asked.folder)}
    if asked.tasks_path is None:
        with_tasks = {name: place for name, place in found.items() if has_tasks(place)}
        if not with_tasks:
            raise ConfigError(f"reference={asked.folder!r}: no domain there has tasks; name some by tasks_path=")
        return with_tasks
    if lacking := missing_databases(asked.tasks_path, found):
        has = f"{asked.folder} has {', '.join(found)}"
        raise ConfigError(
            f"tasks_path={asked.tasks_path!r} has tasks of {', '.join(lacking)}, whose databases are missing: {has};"
            " get those domains too, or play one by domain=NAME"
        )
    return found
