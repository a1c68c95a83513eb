"""One data set over several domains: rows of all of them in one file for each split, the domains beside them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.folder_files import inside
from toolorchestra.envs.domains.toolscale.domain import SqlDomain
from toolorchestra.envs.domains.toolscale.known_costs import FILE as COSTS
from toolorchestra.envs.domains.toolscale.reading import FILES
from toolorchestra.synth.formats import export, task_variants

SETS = ("rows", "hf")
"""Formats that several domains share a folder in; a tau2 domain has a database of its own."""
SPLITS = ("train", "validation", "test")


def write(form: str, domains: Sequence[SqlDomain], out: Path, *, overwrite: bool = False) -> Path:
    """All domains in one folder."""
    if form not in SETS:
        raise ConfigError(
            f"a data set over several domains has format {' or '.join(SETS)}, got {form}; write each domain by itself, "
            "with export.write()",
            command_line="the same without --together",
        )
    names = Counter(domain.name for domain in domains)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"two domains are named {twice[0]!r}; a data set tells them apart by their names")
    writer = _rows if form == "rows" else _hub
    return export.placed(form, out, lambda made: writer(domains, made), overwrite=overwrite)


def _rows(domains: Sequence[SqlDomain], out: Path) -> None:
    for split in SPLITS:
        with (out / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for domain in domains:
                for row in export.training_rows(domain, split):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _hub(domains: Sequence[SqlDomain], out: Path) -> None:
    (out / "data").mkdir()
    counts: Counter[str] = Counter()
    for split in SPLITS:
        with (out / "data" / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for domain in domains:
                for task in domain.tasks.values():
                    if task.split == split:
                        counts[split] += 1
                        file.write(json.dumps(export.hub_row(domain, task), ensure_ascii=False) + "\n")
    for domain in domains:
        folder = out / "domains" / domain.name
        folder.mkdir(parents=True)
        for name in (*FILES, COSTS, task_variants.FILE, "domain.json"):
            if (domain.folder / name).is_file():
                shutil.copyfile(inside(domain.folder, domain.folder / name), folder / name)
    (out / "README.md").write_text(card(domains, counts), encoding="utf-8")


def card(domains: Sequence[SqlDomain], counts: Counter[str]) -> str:
    """The data card, made from the manifests."""
    files = "\n".join(f"      - split: {split}\n        path: data/{split}.jsonl" for split in SPLITS if counts[split])
    lines = [
        f"| {d.name} | {json.dumps(d.manifest['subject'], ensure_ascii=False)[1:-1]} | {len(d.tasks)} | "
        f"{len(d.tools)} | `{d.manifest['content_hash']}` |"
        for d in domains
    ]
    table = "\n".join(lines)
    return f"""---
pretty_name: {json.dumps(f"{len(domains)} synthetic tool domains")}
license: apache-2.0
language: [en]
task_categories: [text-generation]
tags: [tool-use, agents, synthetic]
size_categories: [{export.size(counts.total())}]
configs:
  - config_name: default
    data_files:
{files}
---

# {len(domains)} synthetic tool domains

{counts.total()} service tasks ({", ".join(f"{split} {counts[split]}" for split in SPLITS)}). The column `domain` says
whose a row is; `domains/NAME` is the folder that the environment loads. Tasks are self-consistent, by running them: the
gold calls give 1, doing nothing gives 0, leaving out a write or changing an argument gives 0. People and companies are
invented. {export.FACTS}

| domain | subject | tasks | tools | content hash |
|---|---|---|---|---|
{table}
"""
