"""Grade the answers of a run of `toolorchestra evaluate` again: `toolorchestra rescore runs/mine`.

Nothing is played, and the run stays as it is: a new folder is written. Use it when a judge, a data set's answers or a
domain's rules have changed, or when a judge was away. What the judge costs is kept apart, as the cost of grading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tyro

from toolorchestra.agents.commands.console import DONE, check_counts, check_spend_cap, command, say
from toolorchestra.agents.commands.evaluation_setup import EvaluateOptions, played_envs, real, wanted_of
from toolorchestra.agents.evaluation.manifests import whole_manifest
from toolorchestra.agents.evaluation.rescoring import Envs, Rescoring, rescore
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.reports.page import write_page
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools.backends import EMBEDDED, Backing

SHOWN_CHANGES = 40


@dataclass(frozen=True)
class RescoreOptions:
    """What `toolorchestra rescore` takes."""

    run: tyro.conf.Positional[Path]
    """A run's folder: one that ended, or one that was broken off."""
    out: Path | None = None
    """The new folder. Beside the run's, with "-rescored" behind its name, when left out."""
    judge: tuple[str, ...] = ()
    """Models that grade; those of the run when left out."""
    backends: str = ""
    """A file of real backends; that of the run when left out."""
    dataset: str = ""
    """Where the questions are now; where they were when left out."""
    spend_cap: float | None = None
    """Dollars that grading may cost. What it does not pay for keeps its outcome."""
    at_once: int = 64
    """How many trials are graded at the same time."""

    def __post_init__(self) -> None:
        check_counts(self, {"at_once": 1})
        check_spend_cap(self.spend_cap)


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(RescoreOptions, run, given, about=__doc__)


def run(given: RescoreOptions) -> int:
    """Grade, write, and say what changed."""
    place = given.run.resolve()
    out = given.out or place.with_name(f"{place.name}-rescored")
    manifest = whole_manifest(given.run)
    asked = _asked(manifest["asked"], given)
    backing = _backing(asked) if real(asked) else None
    cap = SpendCap(given.spend_cap) if given.spend_cap is not None else None
    told = {"of_run": manifest["run_id"], "judges": list(backing.wanted.judges) if backing else []}
    try:
        envs = {(env.label, env.split): env.made for env in played_envs(asked, backing, None)}
        made = asyncio.run(_graded(given, out, envs, backing, cap, told))
    finally:
        if backing is not None:
            backing.close()
    for sentence in _other_tasks(manifest, envs):
        say(sentence)
    for line in table(made):
        say(line)
    for sentence in made.sentences():
        say(sentence)
    write_page(out, None)
    say(f"written: {out}")
    return DONE


async def _graded(
    given: RescoreOptions, out: Path, envs: Envs, backing: Backing | None, cap: SpendCap | None, told: dict[str, Any]
) -> Rescoring:
    try:
        if backing is not None and backing.wanted.judges:
            await backing.check()
        return await rescore(given.run, out, envs, given.at_once, cap, told)
    finally:
        if backing is not None:
            await backing.aclose()


def _asked(before: Any, given: RescoreOptions) -> EvaluateOptions:
    """What was asked of the run, with what is named otherwise now."""
    names = {one.name for one in fields(EvaluateOptions)}
    try:
        options = {name: _tupled(value) for name, value in before.items() if name in names}
        made = EvaluateOptions(**options)
    except TypeError as err:
        raise ConfigError(f"{given.run} does not say what was asked of it ({err!s:.80})") from None
    changes = {name: value for name in ("judge", "backends", "dataset") if (value := getattr(given, name))}
    return replace(made, **changes)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _backing(asked: EvaluateOptions) -> Backing:
    """The run's models and judges, without what grading does not ask: index, web and sandbox. A recording is not
    written again; a replay and a cache answer as they did."""
    wanted = replace(wanted_of(asked), index=EMBEDDED, web=False, sandbox="")
    return Backing(replace(wanted, cassette="", mode="") if wanted.mode == "record" else wanted)


def _other_tasks(manifest: dict[str, Any], envs: Envs) -> list[str]:
    """Where the tasks are of another version now."""
    before = manifest.get("task_versions") or {}
    now = {label: getattr(made.source, "version", "") for (label, _), made in envs.items()}
    return [
        f"{label} was played on tasks of version {before[label]}, and is graded by those of {version}."
        for label, version in now.items()
        if version and before.get(label, version) != version
    ]


def table(made: Rescoring) -> list[str]:
    """The trials whose outcome is another one: task, trial, what it was and what it is."""
    if not made.changed:
        return []
    cells = [("task", "trial", "policy", "was", "is")]
    for before, now in made.changed[:SHOWN_CHANGES]:
        cells.append((now.task, str(now.trial), now.policy, _outcome(before), _outcome(now)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    if (more := len(made.changed) - SHOWN_CHANGES) > 0:
        lines.append(f"and {more} more: `rescored` in rows.jsonl says what each was")
    return [*lines, ""]


def _outcome(row: EvaluationRow) -> str:
    return row.status if row.right is None else f"{row.right:g}"
