"""Export domain folders as one data set with a card: `toolorchestra synth export finance /tmp/library --out DIR`."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.agents.evaluation.run_files import made_anew
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import inside
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain_files import FILES
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask

SPLITS = ("train", "validation", "test", "heldout")
FACTS = "SIMULATED: prices and latencies in tool descriptions are those of the price sheet; experts are simulated."


@dataclass(frozen=True)
class ExportOptions:
    """What `toolorchestra synth export` takes."""

    domain: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names or folders; all that are shipped when left out."""
    out: Path = Path("exports")
    """A new folder for the data set."""

    def __post_init__(self) -> None:
        check_folder("--out", self.out)


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ExportOptions, run, given, about=__doc__)


def run(given: ExportOptions) -> int:
    """Write them."""
    domains = [loader.read(loader.resolve(name), verify=True) for name in given.domain or tuple(loader.names())]
    say(f"written: {write(domains, given.out)}")
    return DONE


def write(domains: Sequence[SqlDomain], out: Path) -> Path:
    """Write domains as one data set, in a new folder."""
    names = Counter(domain.name for domain in domains)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"two domains are named {twice[0]!r}; a data set tells them apart by their names")
    with made_anew(out) as made:
        _hub(domains, made)
    return out


def _hub(domains: Sequence[SqlDomain], out: Path) -> None:
    """data/SPLIT.jsonl, the domain folders themselves, and README.md as the data card."""
    (out / "data").mkdir()
    lines: dict[str, list[str]] = defaultdict(list)
    for domain in domains:
        for task in domain.tasks.values():
            lines[task.split].append(json.dumps(hub_row(domain, task), ensure_ascii=False) + "\n")
    for split, found in lines.items():
        (out / "data" / f"{split}.jsonl").write_text("".join(found), encoding="utf-8")
    counts = Counter({split: len(found) for split, found in lines.items()})
    for domain in domains:
        folder = out / "domains" / domain.name
        folder.mkdir(parents=True)
        for name in (*FILES, "domain.json"):
            if (domain.folder / name).is_file():
                shutil.copyfile(inside(domain.folder, domain.folder / name), folder / name)
    (out / "README.md").write_text(card(domains, counts), encoding="utf-8")


def hub_row(domain: SqlDomain, task: SqlTask) -> dict[str, Any]:
    """Flat columns. Arguments are JSON text: a table would make one struct of all tools' arguments, full of nulls."""
    told = task.shape["user_scenario"]["instructions"]
    actions = [{"name": a.name, "arguments": json.dumps(dict(a.arguments), ensure_ascii=False)} for a in task.actions]
    return {
        "id": f"{domain.name}/{task.task_id}",
        "domain": domain.name,
        "difficulty": task.difficulty,
        "persona": task.shape["user_scenario"].get("persona") or "",
        "reason_for_call": told["reason_for_call"],
        "known_info": told.get("known_info") or "",
        "unknown_info": told.get("unknown_info") or "",
        "task_instructions": told["task_instructions"],
        "actions": actions,
        "communicate_info": list(task.communicate),
        "task": json.dumps(tau2_task(task), ensure_ascii=False),
    }


def tau2_task(task: SqlTask) -> dict[str, Any]:
    """tau2's Task: what is ours alone is left out, and of the reward's parts those that tau2 has are named."""
    row = {key: value for key, value in task.shape.items() if key != "toolscale"}
    criteria = dict(row["evaluation_criteria"])
    criteria["reward_basis"] = [part for part in criteria["reward_basis"] if part in ("DB", "COMMUNICATE", "ACTION")]
    return {**row, "evaluation_criteria": criteria}


def card(domains: Sequence[SqlDomain], counts: Counter[str]) -> str:
    """The data card, made from the manifests."""
    splits = [split for split in SPLITS if counts[split]]
    files = "\n".join(f"      - split: {split}\n        path: data/{split}.jsonl" for split in splits)
    table = "\n".join(
        f"| {d.name} | {json.dumps(d.subject, ensure_ascii=False)[1:-1]} | {len(d.tasks)} | {len(d.tools)} |"
        f" `{d.manifest['content_hash']}` | {d.manifest['generator']['seed']} |"
        for d in domains
    )
    several = len(domains) > 1
    title = f"{len(domains)} synthetic tool domains" if several else f"{domains[0].name}, a synthetic tool domain"
    size = next(name for most, name in _SIZES if counts.total() < most)
    return f"""---
pretty_name: {json.dumps(title)}
license: apache-2.0
language: [en]
task_categories: [text-generation]
tags: [tool-use, agents, synthetic]
size_categories: [{size}]
configs:
  - config_name: default
    data_files:
{files}
---

# {title}

{counts.total()} service tasks ({", ".join(f"{split} {counts[split]}" for split in splits)}) over SQLite databases, with
tools of guarded SQL and a policy. The column `domain` says whose a row is; `domains/NAME` is the folder that the
environment loads: `gym.make("toolorchestra:ToolOrchestra/ToolScale-v0", domain="domains/NAME")`.
Tasks are self-consistent, by running them: the gold calls give 1, doing nothing gives 0, leaving out a write or
changing an argument gives 0. People and companies are invented. {FACTS}

| domain | subject | tasks | tools | content hash | seed |
|---|---|---|---|---|---|
{table}
"""


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (10**9, "10K<n<100K"))
"""A hub's names for so many rows."""


if __name__ == "__main__":
    sys.exit(main())
