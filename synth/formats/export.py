"""Writes a domain for users of other software: tau2's Task JSON, training rows in the reference's field names, and a
folder that can be pushed to a hub of data sets.

Rows of the reference have `tool_pricing` in keys named "..._per_million" that hold dollars per single token; they are
written as its code reads them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.folder_files import inside
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.experts import NAME, OFFERS
from toolorchestra.envs.domains.toolscale.known_costs import FILE as COSTS
from toolorchestra.envs.domains.toolscale.reading import FILES, content, lines
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.synth.formats import task_variants, tau2_domain

FORMATS = ("tau2", "rows", "hf")
PICO = 10**12
ORCHESTRATOR = {"Qwen/Qwen3-8B": "qwen3-8b"}
"""Names that the reference looks up, and the items of our sheet that price them."""
FACTS = "SIMULATED: prices and latencies in tool descriptions are those of the price sheet; experts are simulated."


MARK = ".toolorchestra-export.json"
"""In each export: the hashes of all that was written, so that a later export knows what it may replace."""


def check_place(form: str, out: Path, *, overwrite: bool = False) -> None:
    """Raises ConfigError where something stands that no export wrote, or that was changed since: it would be lost."""
    if form not in FORMATS:
        raise ConfigError(no_such("export", form, FORMATS))
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out}: export {form} makes this folder, and it is a file or a link; move it away")
    if overwrite or not out.is_dir():
        return
    written = _written(out)
    folders = {f"{name.rpartition('/')[0]}/" for name in written}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if name == MARK or (path.is_dir() and not path.is_symlink() and f"{name}/" in folders):
            continue
        if name not in written:
            why = f"{name} in it was not written by an export"
        elif path.is_symlink() or written[name] != _hash(path):
            why = f"{name} in it was changed since the last export"
        else:
            continue
        raise ConfigError(
            f"{out}: export {form} writes this folder anew, and {why}; move the folder away, choose another, or say "
            "overwrite=True to delete all that is in it",
            command_line="another --out, or --overwrite",
        )


def _written(out: Path) -> Mapping[str, str]:
    """Name and hash of all that the last export wrote here; {} where there was none."""
    try:
        files = json.loads((out / MARK).read_text(encoding="utf-8"))["files"]
        return {str(name): str(seen) for name, seen in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _hash(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def write(form: str, domain: SqlDomain, out: Path, *, overwrite: bool = False) -> Path:
    """A domain in a format, in a folder of its own. An earlier export there is replaced; anything else is an error,
    unless it may be overwritten."""
    writer = {"tau2": _tau2, "rows": _rows, "hf": _hub}[form]
    return placed(form, out, lambda made: writer(domain, made), overwrite=overwrite)


def placed(form: str, out: Path, writer: Callable[[Path], None], *, overwrite: bool = False) -> Path:
    """What a writer puts into an empty folder, in the place of an earlier export."""
    check_place(form, out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        writer(made)
        files = {path.relative_to(made).as_posix(): _hash(path) for path in sorted(made.rglob("*")) if path.is_file()}
        _json(made / MARK, {"form": form, "files": files})
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    return out


# -- tau2 ----------------------------------------------------------------------------------------------------------


def _tau2(domain: SqlDomain, out: Path) -> None:
    """tasks.json, split_tasks.json, policy.md and tools.json, and the package that runs them: see tau2_domain.py."""
    rows = [tau2_domain.task_row(tau2_task(task)) for task in domain.tasks.values()]
    _json(out / "tasks.json", rows)
    tau2_domain.write(domain, out)
    splits: dict[str, list[str]] = {"base": list(domain.tasks)}
    for task in domain.tasks.values():
        splits.setdefault(task.split, []).append(task.task_id)
    _json(out / "split_tasks.json", splits)
    _json(out / "tools.json", schemas(domain, list(domain.tools)))
    (out / "policy.md").write_text(domain.policy, encoding="utf-8")


def tau2_task(task: SqlTask) -> dict[str, Any]:
    """tau2's Task: what is ours alone is left out, and of the reward's parts those that tau2 has are named."""
    row = {key: value for key, value in task.shape.items() if key != "toolscale"}
    criteria = dict(row["evaluation_criteria"])
    criteria["reward_basis"] = [part for part in criteria["reward_basis"] if part in ("DB", "COMMUNICATE", "ACTION")]
    return {**row, "evaluation_criteria": criteria}


def schemas(domain: SqlDomain, names: list[str]) -> list[dict[str, Any]]:
    """Tools as OpenAI's function schemas."""
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in (domain.tools[name] for name in names if name in domain.tools)
    ]


# -- the reference's training rows ---------------------------------------------------------------------------------


def _rows(domain: SqlDomain, out: Path) -> None:
    """A JSONL file for each split."""
    for split in ("train", "validation", "test"):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in training_rows(domain, split)]
        (out / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


def training_rows(domain: SqlDomain, split: str) -> Iterator[dict[str, Any]]:
    """A row for each variant of a task, or one with all tools where there are no variants."""
    found = variants(domain)
    for task in domain.tasks.values():
        if task.split == split:
            for one in found.get(task.task_id) or [_plain(domain, task)]:
                yield training_row(domain, task, one)


def training_row(domain: SqlDomain, task: SqlTask, one: task_variants.Variant) -> dict[str, Any]:
    """One row of training data: a variant of a task, in the reference's field names."""
    told = task.shape["user_scenario"]["instructions"]
    problem = " ".join(part for part in (told["reason_for_call"], one.instruction) if part)
    shown = schemas(domain, one.tools)
    if one.aliases:
        shown.append(_expert(one))
    general = {"outcome": "accuracy", "usd": "cost", "seconds": "latency"}
    return {
        "index": f"{domain.name}____{task.task_id}-{one.number}",
        "category": "func_call",
        "problem": problem,
        "answer": "; ".join(task.communicate),
        "tools": shown,
        "model_mapping": dict(one.aliases),
        "tool_pricing": _pricing(one),
        "pref_vec": {general.get(name, name): weight for name, weight in one.preference.items()},
        "example": tau2_task(task),
    }


def _expert(one: task_variants.Variant) -> dict[str, Any]:
    seconds = {offer.alias: offer.seconds for offer in OFFERS}
    lines = [
        f"- {alias}: ${prices[0] / 10**6:g} in, ${prices[2] / 10**6:g} out per million tokens, {seconds[alias]:g} s"
        for alias, model in one.aliases.items()
        if (prices := one.prices[model])
    ]
    schema = {
        "type": "object",
        "properties": {"expert": {"type": "string", "enum": list(one.aliases), "description": "Which expert."}},
        "required": ["expert"],
    }
    text = "Let an expert write this turn.\n" + "\n".join(lines)
    return {"type": "function", "function": {"name": NAME, "description": text, "parameters": schema}}


def _pricing(one: task_variants.Variant) -> dict[str, dict[str, float]]:
    sheet = load_sheet(task_variants.SHEET)
    own = {name: list(sheet.price(item).pico_usd_per_token or ()) for name, item in ORCHESTRATOR.items()}
    return {
        model: {"input_tokens_per_million": rate[0] / PICO, "output_tokens_per_million": rate[2] / PICO}
        for model, rate in {**own, **one.prices}.items()
    }


def _plain(domain: SqlDomain, task: SqlTask) -> task_variants.Variant:
    return task_variants.Variant(
        task.task_id, 0, "train", list(domain.tools), {}, task_variants.SHEET, {}, "", {"outcome": 1.0}
    )


def variants(domain: SqlDomain) -> dict[str, list[task_variants.Variant]]:
    """The stored variants by task."""
    path = domain.folder / task_variants.FILE
    found: dict[str, list[task_variants.Variant]] = {}
    if path.is_file():
        for at, row in lines(content(domain.folder, task_variants.FILE), str(path)):
            try:
                one = task_variants.Variant(**row)
            except TypeError as err:
                raise ConfigError(f"{at}: not a variant of a task: {err}; generate the domain again") from None
            found.setdefault(one.task_id, []).append(one)
    return found


# -- a data set that can be pushed ---------------------------------------------------------------------------------


def _hub(domain: SqlDomain, out: Path) -> None:
    """data/SPLIT.jsonl, the domain folder itself, and README.md as the data card."""
    (out / "data").mkdir()
    splits: dict[str, int] = {}
    for task in domain.tasks.values():
        splits[task.split] = splits.get(task.split, 0) + 1
    for split in splits:
        rows = (hub_row(domain, task) for task in domain.tasks.values() if task.split == split)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / "data" / f"{split}.jsonl").write_text(text, encoding="utf-8")
    (out / "domain").mkdir()
    for name in (*FILES, COSTS, task_variants.FILE, "domain.json"):
        if (domain.folder / name).is_file():
            shutil.copyfile(inside(domain.folder, domain.folder / name), out / "domain" / name)
    (out / "README.md").write_text(card(domain, splits), encoding="utf-8")


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


def card(domain: SqlDomain, splits: Mapping[str, int]) -> str:
    """The data card, made from the manifest."""
    head = domain.manifest
    made = head["generator"]
    files = "\n".join(f"      - split: {split}\n        path: data/{split}.jsonl" for split in splits)
    size_ = size(len(domain.tasks))
    numbers = "\n".join(f"| {name.replace('_', ' ')} | {n} |" for name, n in head["counts"].items())
    levels = {level: sum(t.difficulty == level for t in domain.tasks.values()) for level in range(1, 6)}
    subject = json.dumps(head["subject"], ensure_ascii=False)
    return f"""---
pretty_name: {json.dumps(f"{domain.name} (synthetic tool domain)")}
license: apache-2.0
language: [en]
task_categories: [text-generation]
tags: [tool-use, agents, synthetic]
size_categories: [{size_}]
configs:
  - config_name: default
    data_files:
{files}
---

# {domain.name}

A synthetic service domain: {subject[1:-1]}. A SQLite database, tools of guarded SQL, a policy, and tasks.
Each task is self-consistent, by running it: the gold calls give 1, doing nothing gives 0, leaving out a write or
changing an argument gives 0.
People and companies in it are invented. {FACTS}

| what | number |
|---|---|
{numbers}
| splits | {", ".join(f"{split} {n}" for split, n in splits.items())} |
| tasks by difficulty | {", ".join(f"{level}: {n}" for level, n in levels.items())} |

Content hash `{head["content_hash"]}`, seed {made["seed"]},
spec `{made["spec_hash"]}`. `domain/` is the domain folder as the environment loads it:
`gym.make("toolorchestra:ToolOrchestra/ToolScale-v0", domain="domain")`. The clock stands at {head["clock"]}.
"""


def size(tasks: int) -> str:
    """A hub's name for so many rows."""
    return next(name for most, name in _SIZES if tasks < most)


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (10**9, "10K<n<100K"))


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
