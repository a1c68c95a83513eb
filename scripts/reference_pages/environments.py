"""gym.make, preferences, info and wrappers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from reference_pages.documented import (
    cell,
    code,
    fields_of,
    fields_table,
    first_sentence,
    page,
    shown,
    table,
)
from toolorchestra.envs.base.preference import WORDINGS, kinds, templates
from toolorchestra.envs.factory import OPTIONS, EnvSettings
from toolorchestra.envs.registration import DEFAULTS, NAMESPACE, OF_YOUR_OWN, SOURCES

RESET_OPTIONS = {
    "task_id": 'Plays this task. `info["task_id"]` and recorded trajectories name it.',
    "preference": "What the user wants in this episode, in place of `gym.make`'s.",
    "prices": "A price sheet for this episode, in place of `gym.make`'s.",
    "tools": "The names of the tools or aliases to keep. Here it is a list of names; in `gym.make` it is a configuration.",
    "budget": "Dollars for this episode, in place of `gym.make`'s.",
    "episode_seed": 'Plays the episode of this seed, as `info["episode_seed"]` named it.',
}
INFO_AT_RESET = {
    "task_id": "Which task it is, such as `hle-sim/test/254744`.",
    "episode_seed": 'The episode\'s own seed. `reset(options={"episode_seed": n})` plays it again.',
    "task": "What may be known of the task without giving its answer away: subject, level, pattern, domain, ...",
    "preference": "`weights` by name, the `sentence` that the agent reads, and the `kind`.",
    "budget": "Dollars that the agent may spend; None without a budget.",
    "price_sheet": "The name of the price sheet that holds.",
    "budget_rule": "Only with a budget: `strict` or `stop`.",
    "least_usd": "Only with a budget: what a call of each tool costs at least.",
}
INFO_AT_STEP = {
    "task_id": "The task of this episode, as reset() gave it.",
    "turn": "How many turns the agent has had.",
    "new_messages": "The messages of this step: the agent's own, results, what a user said.",
    "charges": "The step's bill, line by line; see below.",
    "cost": "The step's sums: `usd`, `seconds`, and `tokens` by class (`input`, `cached`, `output`, `reasoning`).",
    "ledger": "The sums of the episode so far: `usd`, `seconds`, `usd_by_role`.",
    "budget_left_usd": "Only with a budget: what is left of it. Below 0 it is overspent.",
}
INFO_AT_THE_END = {
    "outcome": "`value` (1 is solved), and `evidence`: what was answered, what was expected, how it was graded. Empty where "
    "the episode failed before it was graded.",
    "calls": "How often each tool or alias was called.",
    "reward_terms": "Only with `reward_terms`: what each of your own terms came to. They are part of the reward.",
    "failed": "Empty, or why the episode failed: kind, text and traceback. The reward of a failed episode is NaN: leave it "
    "out.",
    "truncated_by": "Empty, or the limit that cut the episode off: `turns`, `context`, `usd`, `seconds`, `spend_cap`, a "
    "benchmark's own limit, or `failed`.",
    "over_budget_usd": "Only with a budget: how far the episode went beyond it.",
}
CHARGE = {
    "item": "The priced item: a model, a search service, a sandbox.",
    "role": "`orchestrator`, `expert`, `tool`, `judge` or `user`. Rewards count the first three.",
    "tool": "The tool or alias that incurred it; empty for the agent's own tokens.",
    "tokens": "By class. The classes are disjoint: `cached` is not in `input`, `reasoning` is not in `output`.",
    "units": "Things sold by the piece: searches, pages.",
    "seconds": "What it took. Calls of one turn overlap, so the episode's time may be less than the sum.",
    "estimated": "True where tokens were estimated from characters, since nobody counted them.",
    "nano_usd": "Dollars times 1,000,000,000, a whole number.",
    "sheet": "The price sheet that it was billed by.",
}


def source_class(path: str) -> type:
    module, _, name = path.partition(":")
    found: type = getattr(import_module(module), name)
    return found


def _own(name: str, source: type) -> str:
    """The arguments of one id beyond the common ones."""
    skipped = {"name", "splits", "release", "_"}
    if name == "Recorded-v0":  # it is a question source that takes a few of their arguments alone
        kept = {f for base in source.__mro__[:1] for f in base.__annotations__} | {"style"}
        skipped |= {f.name for f in fields_of(source)} - kept
    rows = [(code(f.name), shown(f.default), cell(f.text)) for f in fields_of(source) if f.name not in skipped]
    return table(("argument", "default", "meaning"), rows)


def gym_make() -> str:
    parts = ["## For every id", fields_table(EnvSettings, "argument"), _render_mode()]
    for name, path in {**SOURCES, **OF_YOUR_OWN}.items():
        source = source_class(path)
        parts.append(f"## {NAMESPACE}/{name}")
        parts.append(first_sentence(source.__doc__))
        if name in DEFAULTS:
            told = ", ".join(f"`{key}={value!r}`" for key, value in DEFAULTS[name].items())
            parts.append(f"Defaults that differ from the table above: {told}.")
        parts.append(_own(name, source))
    rows = [(code(name), cell(RESET_OPTIONS[name])) for name in (*OPTIONS, "episode_seed")]
    parts += [
        "## Options of reset",
        "`env.reset(seed=None, options={...})`; `episode_seed` is for single environments.",
    ]
    parts.append(table(("option", "meaning"), rows))
    about = (
        "Every argument of `gym.make(id, ...)` and `gym.make_vec(id, num_envs=N, ...)`, with its default. An argument that "
        "does not exist, or has the wrong type, is refused with the names of those that do. On the command line the same "
        "arguments are `NAME=VALUE` behind `--env ID` or `--set`."
    )
    return page("gym.make: every argument", about, *parts)


def _render_mode() -> str:
    return (
        '`render_mode` is `None`, `"ansi"` (`render()` gives the transcript with its running bill) or `"human"` (each '
        "turn is printed as it happens)."
    )


def preferences() -> str:
    weights: dict[str, Mapping[str, float]] = {}
    counts: dict[str, dict[str, int]] = {}
    example: dict[str, str] = {}
    for template in templates():
        weights[template.kind] = template.weights
        counts.setdefault(template.kind, dict.fromkeys(WORDINGS, 0))[template.wording] += 1
        example.setdefault(template.kind, template.text)
    rows = [
        (
            code(kind),
            ", ".join(f"{name.strip('{}')} {weight:g}" for name, weight in weights[kind].items()),
            cell(example[kind]),
            " / ".join(str(counts[kind][wording]) for wording in WORDINGS),
        )
        for kind in kinds()
    ]
    head = ("kind", "weights", "one of its sentences", f"sentences ({' / '.join(WORDINGS)})")
    about = (
        '`preference=` of `gym.make` and of `reset` takes one of these kinds, `"sampled"`, `"none"`, a mapping of weights, '
        "or a `Preference`. [How to make your own](../own-preferences.md)."
    )
    notes = (
        "`tool` and `other` stand for tools or aliases that are drawn for each episode. A weight that is not named is 0. "
        "Every weight is from 0 to 1.\n\n"
        "A mapping has the keys `outcome`, `usd`, `seconds`, the countable keys of the toolbox, and `sentence`."
    )
    return page("Preferences: kinds and weights", about, table(head, rows), notes)


def info() -> str:
    def rows(keys: Mapping[str, str]) -> str:
        return table(("key", "meaning"), [(code(name), cell(text)) for name, text in keys.items()])

    about = (
        "`reset` and `step` give an `info`. It is made of dicts, lists, texts and numbers, so `json.dumps(info)` keeps all of "
        "it. A vector environment gives the same keys as arrays ([infos](../vector-environment.md#infos))."
    )
    return page(
        "The keys of info",
        about,
        "## At reset",
        rows(INFO_AT_RESET),
        "## At every step",
        rows(INFO_AT_STEP),
        "## At the last step, besides",
        rows(INFO_AT_THE_END),
        "## A charge",
        'Each element of `info["charges"]`:',
        rows(CHARGE),
    )


def wrappers() -> str:
    package = import_module("toolorchestra.envs.wrappers")
    classes, functions = [], []
    for name in package.__all__:
        thing: Any = getattr(package, name)
        (classes if inspect.isclass(thing) else functions).append((name, thing))
    parts = []
    for name, thing in [*classes, *functions]:
        signature = inspect.signature(thing)
        parts.append(f"## {name}")
        parts.append(f"```text\n{name}{_short(signature)}\n```")
        parts.append(_whole_doc(thing))
    about = "`from toolorchestra.envs.wrappers import ...`. They go around `gym.make(...)` of any id, where nothing else is said."
    return page("Wrappers", about, *parts)


def _short(signature: inspect.Signature) -> str:
    parts = []
    for one in signature.parameters.values():
        default = "" if one.default is inspect.Parameter.empty else f"={one.default!r}"
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
        parts.append(f"{stars}{one.name}{default}")
    return f"({', '.join(parts)})"


def _whole_doc(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    if text.startswith("See the module's text."):
        rest = text.removeprefix("See the module's text.").strip()
        text = f"{inspect.getdoc(inspect.getmodule(thing))}\n\n{rest}"
    return as_markdown(text)


def without_tags(line: str) -> str:
    """A line whose tags are read as text, but for what stands in code."""
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in re.split(r"(`[^`]*`)", line))


def as_markdown(text: str) -> str:
    """A docstring: its indented parts are code."""
    lines, out, inside = text.splitlines(), [], False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside and (not out or not out[-1].strip()):
            out.append("```text")
            inside = True
        elif inside and line.strip() and not indented:
            while out and not out[-1].strip():
                out.pop()
            out += ["```", ""]
            inside = False
        out.append(line[4:] if inside else without_tags(line))
    return "\n".join([*out, "```"] if inside else out)
