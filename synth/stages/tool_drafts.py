"""Several drafts of the tools, merged: a tool is taken if its SQL holds and no tool that was taken has its name or does
the same. Tools of all drafts take turns, so that no draft fills the list alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader, shapes
from toolorchestra.envs.domains.toolscale.reading import fits
from toolorchestra.synth.authors import PartRequest, untrusted_answers
from toolorchestra.synth.formats.part_checks import partial
from toolorchestra.synth.formats.seed_rows import Maker
from toolorchestra.synth.formats.spec import parsed
from toolorchestra.synth.stages.stage_values import Making

MOST_TOOLS = 40


@runtime_checkable
class Drafting(Protocol):
    """An author that writes several drafts of the tools."""

    async def tool_drafts(self, asked: PartRequest, count: int) -> list[str]:
        """Texts of tools.yaml; those that could not be used are left out. Raises Unusable where none can."""
        ...


class MergedTools(NamedTuple):
    """One list out of several drafts."""

    text: str
    written: int
    dropped: Counter[str]
    examples: dict[str, str]

    @property
    def note(self) -> str:
        """How many tools the drafts had, how many were kept and why others were not, in one line."""
        why = ", ".join(f"{reason} {n}" for reason, n in self.dropped.most_common())
        return (
            f"{self.written} tools in all drafts, {self.written - self.dropped.total()} kept ({why or 'none left out'})"
        )


def merged(making: Making, seed: int, drafts: Sequence[str]) -> MergedTools:
    """The tools of all drafts; in the process that has limits."""
    spec = partial(making.parts)
    tables = Maker(spec, seed).tables()
    lists = [[entry for entry in parsed(text, Path("tools.yaml")) or [] if isinstance(entry, dict)] for text in drafts]
    first = {name for way in spec.head["user"]["ways"] for row in way["actions"] for name in row}
    turns = [entry for turn in zip_longest(*lists) for entry in turn if entry is not None]
    turns.sort(key=lambda entry: entry.get("name") not in first)  # who identifies users is there in any case
    kept: dict[str, Any] = {}
    forms: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for entry in turns:
        why = _why_not(spec.schema, tables, entry, kept, forms)
        if why:
            dropped[why.partition(":")[0]] += 1
            examples.setdefault(why.partition(":")[0], why[:300])
            continue
        kept[entry["name"]] = dict(entry)
        forms[form(entry)] = entry["name"]
    return MergedTools(untrusted_answers.dumped(list(kept.values())), len(turns), dropped, examples)


def _why_not(
    schema: str, tables: Any, entry: Mapping[str, Any], kept: Mapping[str, Any], forms: Mapping[str, str]
) -> str:  # fmt: skip
    name = entry.get("name")
    if name in kept:
        return f"same name: {name}"
    if (other := forms.get(form(entry))) is not None:
        return f"same as another: {name} does what {other} does"
    if len(kept) >= MOST_TOOLS:
        return f"too many: {name}"
    try:
        made = loader.tool(fits(shapes.TOOL, entry, "tools.yaml"), "tools.yaml")
        loader.check_sql(schema, tables, {made.name: made}, "tools.yaml")
    except ConfigError as err:
        return f"does not run: {name}: {err}"
    return ""


def form(entry: Mapping[str, Any]) -> str:
    """What a tool does, without its name, its words and the names of its parameters."""
    steps = entry.get("steps") or []
    returns = entry.get("returns") or {}
    sql = [str(step.get(verb, "")) for step in steps if isinstance(step, dict) for verb in ("let", "check", "do")]
    sql += [str(returns.get(name, "")) for name in ("row", "rows")] if isinstance(returns, dict) else []
    names: dict[str, str] = {}
    text = re.sub(r":(\w+)", lambda m: names.setdefault(m[1], f":{len(names)}"), " ; ".join(sql))
    return " ".join(text.lower().split())
