"""From what a user asked for to domains that can be played. Nothing of a folder is run before it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.reference.domain import ReferenceDomain, load_toolkit
from toolorchestra.envs.domains.tau2.reference.folders import Place, places
from toolorchestra.envs.domains.tau2.reference.tasks import ReferenceTasks, fitting, read_tasks

ALL = "all"


@dataclass(frozen=True)
class ReferenceRequest:
    """What a source was given of reference domains; its fields are the source's."""

    folder: str
    domain: str | None
    tasks_path: str | None
    tasks_version: str | None
    now: str | None
    trust_code: bool
    skip_unmatched: bool


def open_domains(asked: ReferenceRequest) -> tuple[ReferenceTasks, Mapping[str, Tau2Domain]]:
    """The tasks and the domains, by name."""
    folder, wanted = asked.folder, _wanted(asked.folder, asked.domain, asked.tasks_path)
    files = ", ".join(file for place in wanted.values() for file in place.code_files())
    if not asked.trust_code:
        raise ConfigError(
            f"reference={folder!r} holds Python that would be run in this process, with your rights: {files},"
            " and what they import. Read it first, then say trust_code=True"
        )
    tasks = read_tasks(folder, wanted, asked.tasks_path, asked.tasks_version, every=asked.domain == ALL)
    domains = {n: ReferenceDomain(load_toolkit(folder, n, asked.now), tasks) for n in wanted}
    kept = {n: fitting(d, tasks.tasks(n), skip=asked.skip_unmatched) for n, d in domains.items()}
    return replace(tasks, by_domain=kept), domains


def _wanted(folder: str, domain: str | None, tasks_path: str | None) -> Mapping[str, Place]:
    found = places(folder)
    if domain is None and len(found) > 1:
        raise ConfigError(f"reference={folder!r} holds {', '.join(found)}; say domain=NAME, or domain={ALL!r}")
    if domain not in (None, ALL, *found):
        raise ConfigError(f"reference={folder!r}: {no_such('domain', str(domain), found)}")
    if domain not in (None, ALL):
        return {str(domain): found[str(domain)]}
    if domain is None or tasks_path:
        return found
    with_tasks = {name: place for name, place in found.items() if place.tasks()}
    if not with_tasks:
        raise ConfigError(f"reference={folder!r}: no domain there has tasks; name some by tasks_path=")
    return with_tasks
