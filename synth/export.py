"""Export domain folders: `toolorchestra synth export finance /tmp/library --form tau2 hf --out DIR`.

tau2: a runnable tau2 domain for each (database, toolkit, policy, tasks). rows: training rows in the reference's field
names. hf: a data-set folder with a card. With --together, rows and hf are one data set over all the domains.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple

import tyro

from toolorchestra.agents.commands.console import DONE, check_counts, check_folder, command, say
from toolorchestra.envs.base import preference
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.files import inside
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain_files import FILES
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.world import NAME, OFFERS
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.envs.tools.tool_config import sample_prices
from toolorchestra.synth.formats import tau2_domain
from toolorchestra.synth.formats.tau2_domain import schemas, tau2_task

FORMS = ("tau2", "rows", "hf")
SETS = ("rows", "hf")
"""Forms in which several domains may share a folder; a tau2 domain has a database of its own."""
SPLITS = ("train", "validation", "test", "heldout")
ALL = "all"
"""The folder of a data set over several domains."""
MARK = ".toolorchestra-export.json"
"""File of each export: the hashes of all that was written, so that a later export knows what it may replace."""
PICO = 10**12
SHEET = "paper-2025-11"
SPARE_SHARE = 0.5
"""Share of the tools that a task does not need which stay in a variant on average."""
ORCHESTRATOR = {"Qwen/Qwen3-8B": "qwen3-8b"}
"""Names that the reference looks up, and the items of our sheet that price them."""
FACTS = "SIMULATED: prices and latencies in tool descriptions are those of the price sheet; experts are simulated."


@dataclass(frozen=True)
class ExportOptions:
    """What `toolorchestra synth export` takes."""

    domain: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names or folders; all that are shipped when left out."""
    form: tuple[str, ...] = ("tau2",)
    """The formats to write: tau2, rows, hf."""
    out: Path = Path("exports")
    """Folder of the exports: OUT/FORM/DOMAIN."""
    together: bool = False
    """Write rows and hf as one data set, OUT/FORM/all."""
    variants: int = 0
    """Rows of each task, each with tools, experts, prices and a preference of its own; 0: one, with all tools."""
    overwrite: bool = False
    """Delete a folder that stands in an export's place and was not written by an export, or was changed since."""

    def __post_init__(self) -> None:
        check_counts(self, {"variants": 0})
        check_folder("--out", self.out)
        for form in self.form:
            if form not in FORMS:
                raise ConfigError(no_such("form of an export", form, FORMS))
        if self.together and (other := [form for form in self.form if form not in SETS]):
            raise ConfigError(f"--together is for {', '.join(SETS)}; {other[0]} writes a folder for each domain")


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ExportOptions, run, given, about=__doc__)


def run(given: ExportOptions) -> int:
    """Check every place, then write."""
    domains = [loader.read(loader.resolve(name), verify=True) for name in given.domain or tuple(loader.names())]
    sets = {ALL: domains} if given.together else {tau2_domain.package(domain): [domain] for domain in domains}
    places = {(form, name): given.out / form / name for form in given.form for name in sets}
    for (form, _), place in places.items():
        check_place(form, place, overwrite=given.overwrite)
    for (form, name), place in places.items():
        say(f"{form}: {write(form, sets[name], place, variants=given.variants, overwrite=given.overwrite)}")
    return DONE


def write(form: str, domains: Sequence[SqlDomain], out: Path, *, variants: int = 0, overwrite: bool = False) -> Path:
    """Domains in a form, in a folder of their own. An earlier export there is replaced; anything else is an error,
    unless it may be overwritten."""
    names = Counter(domain.name for domain in domains)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"two domains are named {twice[0]!r}; a data set tells them apart by their names")
    check_place(form, out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        if form == "tau2":
            tau2_domain.write(domains[0], made)
        elif form == "rows":
            tasks = ((domain, task) for domain in domains for task in domain.tasks.values())
            _splits(made, ((t.split, training_row(d, t, one)) for d, t in tasks for one in _variants(d, t, variants)))
        else:
            _hub(domains, made)
        files = {path.relative_to(made).as_posix(): _hash(path) for path in sorted(made.rglob("*")) if path.is_file()}
        tau2_domain.write_json(made / MARK, {"form": form, "files": files})
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    return out


def check_place(form: str, out: Path, *, overwrite: bool = False) -> None:
    """Raises ConfigError where something stands that no export wrote, or that was changed since: it would be lost."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out}: export {form} makes this folder, and it is a file or a link; move it away")
    if overwrite or not out.is_dir():
        return
    try:  # the names and hashes of all that the last export wrote here
        files = json.loads((out / MARK).read_text(encoding="utf-8"))["files"]
        written = {str(name): str(seen) for name, seen in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        written = {}
    folders = {parent.as_posix() for name in written for parent in PurePosixPath(name).parents}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if name == MARK or (path.is_dir() and not path.is_symlink() and name in folders):
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


def _hash(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _splits(out: Path, rows: Iterator[tuple[str, Mapping[str, Any]]]) -> Counter[str]:
    """A JSONL file for each split that has rows, and how many each has."""
    lines: dict[str, list[str]] = defaultdict(list)
    for split, row in rows:
        lines[split].append(json.dumps(row, ensure_ascii=False) + "\n")
    for split, found in lines.items():
        (out / f"{split}.jsonl").write_text("".join(found), encoding="utf-8")
    return Counter({split: len(found) for split, found in lines.items()})


# -- the reference's training rows ---------------------------------------------------------------------------------


class Variant(NamedTuple):
    """One way to set a task."""

    number: int
    tools: Sequence[str]
    """Names of the tools that are there: always those of the gold paths."""
    aliases: Mapping[str, str]
    """Expert alias -> the model behind it."""
    prices: Mapping[str, Sequence[int]]
    """Model -> pico-dollars per token of input, cached input, output and reasoning."""
    instruction: str
    """What the user prefers, added to the task."""
    weights: Mapping[str, float]
    """What the instruction stands for."""


def _variants(domain: SqlDomain, task: SqlTask, count: int) -> Iterator[Variant]:
    """Variants of a task, drawn from the task's name; 0: the task with all tools."""
    if not count:
        yield Variant(0, list(domain.tools), {}, {}, "", {"outcome": 1.0})
    rng = random.Random(f"{domain.name}/{task.task_id}/variants")
    needed = {action.name for path in (task.actions, *task.alternatives) for action in path}
    for number in range(count):
        tools = [n for n, t in domain.tools.items() if n in needed or t.transfers or rng.random() < SPARE_SHARE]
        backing = [offer.model for offer in OFFERS]
        rng.shuffle(backing)
        shown = rng.randint(1, len(backing))
        aliases = {offer.alias: model for offer, model in zip(OFFERS[:shown], backing, strict=False)}
        sheet = sample_prices(load_sheet(SHEET), sorted(aliases.values()), rng, "train")
        prices = {model: list(sheet.price(model).pico_usd_per_token or ()) for model in sorted(aliases.values())}
        wanted = preference.sample(rng, [*tools, NAME], "train")
        weights = {name: weight for name, weight in wanted.weights().items() if weight}
        yield Variant(number, tools, aliases, prices, wanted.sentence, weights)


def training_row(domain: SqlDomain, task: SqlTask, one: Variant) -> dict[str, Any]:
    """One row of training data: a variant of a task, in the reference's field names."""
    told = task.shape["user_scenario"]["instructions"]
    own = {name: list(load_sheet(SHEET).price(item).pico_usd_per_token or ()) for name, item in ORCHESTRATOR.items()}
    general = {"outcome": "accuracy", "usd": "cost", "seconds": "latency"}
    return {
        "index": f"{domain.name}____{task.task_id}-{one.number}",
        "category": "func_call",
        "problem": " ".join(part for part in (told["reason_for_call"], one.instruction) if part),
        "answer": "; ".join(task.communicate),
        "tools": [*schemas(domain, one.tools), *([_expert(one)] if one.aliases else [])],
        "model_mapping": dict(one.aliases),
        "tool_pricing": {  # dollars a token under keys that are named "..._per_million": the reference's code reads so
            model: {"input_tokens_per_million": rate[0] / PICO, "output_tokens_per_million": rate[2] / PICO}
            for model, rate in {**own, **one.prices}.items()
        },
        "pref_vec": {general.get(name, name): weight for name, weight in one.weights.items()},
        "example": tau2_task(task),
    }


def _expert(one: Variant) -> dict[str, Any]:
    lines = ["Let an expert write this turn."]
    for offer in OFFERS[: len(one.aliases)]:
        into, _, out, *_ = (price / 10**6 for price in one.prices[one.aliases[offer.alias]])
        lines.append(f"- {offer.alias}: ${into:g} in, ${out:g} out per million tokens, {offer.seconds:g} s")
    schema = {
        "type": "object",
        "properties": {"expert": {"type": "string", "enum": list(one.aliases), "description": "Which expert."}},
        "required": ["expert"],
    }
    return {"type": "function", "function": {"name": NAME, "description": "\n".join(lines), "parameters": schema}}


# -- a data set that can be pushed ---------------------------------------------------------------------------------


def _hub(domains: Sequence[SqlDomain], out: Path) -> None:
    """data/SPLIT.jsonl, the domain folders themselves, and README.md as the data card."""
    (out / "data").mkdir()
    tasks = ((domain, task) for domain in domains for task in domain.tasks.values())
    counts = _splits(out / "data", ((task.split, hub_row(domain, task)) for domain, task in tasks))
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
