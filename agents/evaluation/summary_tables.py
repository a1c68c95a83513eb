"""A summary as tables: text for a terminal of 120 columns, and Markdown."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from toolorchestra.agents.evaluation.controllability import NO_PREFERENCE, PreferenceEffect
from toolorchestra.agents.evaluation.rows import grouped
from toolorchestra.agents.evaluation.statistics import Interval, Share
from toolorchestra.agents.evaluation.summary import Figures, RunSummary
from toolorchestra.envs.money.ledger import Replies
from toolorchestra.envs.money.prices import CLASSES, ROLES

Table = Sequence[Sequence[str]]
"""Rows of cells; the first is the header."""
COLUMNS = 120
"""Width of a terminal."""
WIDEST = 24
"""Characters of a name in a text table."""


def as_text(summary: RunSummary) -> str:
    """Write for a terminal: each environment and split with its policies, then groups, calls, money and tokens."""
    return _written(summary, str, aligned, wrapped)


def as_markdown(summary: RunSummary) -> str:
    """The same tables in Markdown."""
    return _written(summary, lambda title: f"### {in_markdown(title)}", piped, in_markdown)


def _written(
    summary: RunSummary, heading: Callable[[str], str], table: Callable[[Table], str], note: Callable[[str], str]
) -> str:
    parts = []
    for env, split in dict.fromkeys((f.env, f.split) for f in summary.policies):
        mine = [f for f in summary.policies if (f.env, f.split) == (env, split)]
        theirs = [f for f in summary.groups if (f.env, f.split) == (env, split)]
        parts += [heading(f"{env} {split}"), *map(table, _tables(mine, theirs))]
    for place, effects in _controllability(summary.controllability):
        parts += [heading(place), table(effects)]
    return "\n\n".join([*parts, *map(note, summary.notes)])


def _tables(policies: Sequence[Figures], groups: Sequence[Figures]) -> list[Table]:
    by_group = [[f.group, *_main(f)] for f in sorted(groups, key=lambda f: f.group)]
    made = [[_MAIN, *map(_main, policies)], _spreads(policies)]
    if any(f.pass_hat and max(f.pass_hat) > 1 for f in policies):
        made.append(_pass_rates(policies))
    made.append([["group", *_MAIN], *by_group])
    if any(f.calls for f in policies):
        made += [_mean_calls("calls a trial, by tool", policies, lambda f: f.calls), _choices(policies)]
    made += [_replies(policies), _money(policies), _tokens(policies)]
    return [table for table in made if len(table) > 1]


_MAIN = ["policy", "n", "known", "accuracy %", "95 %", "¢", "¢/solved", "95 %", "min"]


def _main(f: Figures) -> list[str]:
    share, cost = f.accuracy, f.cents_per_solved
    known = [f.policy, str(f.trials.planned), str(f.trials.ended), in_percent(share), percents(share.interval)]
    if f.cents is None or f.minutes is None:
        return [*known, "-", "-", "-", "-"]
    solved = number(cost.high) if cost.low == cost.high else between(Interval(cost.low, cost.high))
    return [*known, number(f.cents.mean), solved, between(cost.interval), number(f.minutes.mean)]


def _spreads(figures: Sequence[Figures]) -> list[list[str]]:
    names = [f"{name} {of}" for name in ("¢", "min") for of in ("95 %", "median", "p95")]
    made = [["a trial", *names, "turns"]]
    for f in figures:
        both = [spread for spread in (f.cents, f.minutes) if spread is not None]
        cells = [[between(one.interval), number(one.median), number(one.p95)] for one in both]
        made += [[f.policy, *(cell for some in cells for cell in some), number(f.turns or 0.0)]] if both else []
    return made


def _pass_rates(figures: Sequence[Figures]) -> list[list[str]]:
    ks = sorted({k for f in figures for k in f.pass_hat})
    shown = [k for k in ks if k <= 4 or k == ks[-1] or k == 8]
    made = [["policy", *(f"pass^{k}" for k in shown), *(f"pass@{k}" for k in shown if k > 1)]]
    for f in figures:
        rates = [*(f.pass_hat.get(k) for k in shown), *(f.pass_at.get(k) for k in shown if k > 1)]
        made.append([f.policy, *map(_rate, rates)])
    return made


def _rate(bounds: Interval | None) -> str:
    if bounds is None:
        return "-"
    return f"{100 * bounds.low:.1f}" if bounds.low == bounds.high else percents(bounds)


def _mean_calls(
    title: str, figures: Sequence[Figures], of: Callable[[Figures], Mapping[str, float]]
) -> list[list[str]]:
    """A table as the paper's table 15, turned round: a row a tool or model, a column a policy."""
    keys = sorted({key for f in figures for key in of(f)})
    return [
        [title, *(f.policy for f in figures)],
        *([key, *(f"{of(f).get(key, 0):.2f}" for f in figures)] for key in keys),
    ]


def _choices(figures: Sequence[Figures]) -> list[list[str]]:
    calls = _mean_calls("calls a trial, by model", figures, lambda f: f.calls_by_model)
    if len(calls) > 1:
        calls.append(["entropy over models, nats", *(f"{f.entropy:.2f}" for f in figures)])
        calls.append(["share of the most used", *(f"{100 * f.most_used_share:.0f} %" for f in figures)])
    return calls


def _money(figures: Sequence[Figures]) -> list[list[str]]:
    roles = [role for role in ROLES if any(role in f.cents_by_role for f in figures)]
    learnt = any(f.usd_to_learn for f in figures)
    head = ["¢ a trial", *roles, "$ spent", *(["$ to learn"] if learnt else [])]
    rows = [[*head, "over budget", "estimated", "preference", "prices"]]
    for f in figures:
        preference = "-" if f.preference is None else f"{number(f.preference.mean)} of {f.preference.pairs}"
        over = "-" if f.over_budget is None else f"{100 * f.over_budget:.0f} %"
        sheets = f.sheets[0] if len(f.sheets) == 1 else f"{len(f.sheets)} sheets"
        paid = [f"{f.usd_spent:.4f}", *([f"{f.usd_to_learn:.4f}"] if learnt else [])]
        spent = [*paid, over, str(f.estimated_charges), preference, sheets]
        rows.append([f.policy, *(number(f.cents_by_role.get(role, 0.0)) for role in roles), *spent])
    return rows


def _replies(figures: Sequence[Figures]) -> list[list[str]]:
    """The models whose requests did not all have a good reply."""
    rows = [
        [f.policy, model, str(count.asked), *(f"{100 * n / count.asked:.1f}" for n in count[1:])]
        for f in figures
        for model, count in f.replies.items()
        if any(count[1:])
    ]
    return [["without a good reply", "model", "requests", *(f"{name} %" for name in Replies._fields[1:])], *rows]


def _tokens(figures: Sequence[Figures]) -> list[list[str]]:
    rows = [
        [f"{f.policy} {role}", *(f"{counts[name]:.0f}" for name in CLASSES)]
        for f in figures
        for role, counts in f.tokens.items()
    ]
    return [["tokens a trial", *CLASSES], *rows]


def _controllability(effects: Sequence[PreferenceEffect]) -> Iterable[tuple[str, Table]]:
    """A table by environment, split and reference: how far each preference was followed in each thing that it names."""
    head = ["preference", "policy", "in", "tasks", "before", "after", "followed %", "95 %", "accuracy"]
    units = {"usd": "¢", "seconds": "s", "calls": "calls %"}
    places = grouped(effects, lambda one: (one.env, one.split, one.reference))
    for (env, split, reference), some in places.items():
        rows = []
        for one in some:
            sides = [number((100 if one.measure == "calls" else 1) * n) for n in (one.before, one.after)]
            far = [_signed(one.followed), f"{_signed(one.interval.low)} to {_signed(one.interval.high)}"]
            cells = [one.policy, units[one.measure], str(one.tasks), *sides, *far, _signed(one.points)]
            rows.append([one.preference, *cells])
        against = "no preference" if reference == NO_PREFERENCE else f"the preference {reference!r}"
        yield f"{env} {split}, preferences against {against}", [head, *sorted(rows)]


def _signed(share: float) -> str:
    """Write in percent, with its sign; "-" where there is no end, as where the reference cost nothing."""
    return f"{round(100 * share, 1) + 0.0:+.1f}" if math.isfinite(share) else "-"


def in_percent(share: Share) -> str:
    """A share, or its bounds where it is not known."""
    return f"{100 * share.value:.1f}" if share.value is not None else percents(Interval(share.low, share.high))


def percents(interval: Interval) -> str:
    """An interval of shares: "52.1-76.5"."""
    return f"{100 * interval.low:.1f}-{100 * interval.high:.1f}"


def between(interval: Interval) -> str:
    """An interval of numbers; "inf" where it has no end, "-" where nothing bounds it."""
    return "-" if interval.low == -math.inf else f"{number(interval.low)}-{number(interval.high)}"


def number(value: float) -> str:
    """Three digits, and no exponent."""
    if not math.isfinite(value):
        return "inf" if value > 0 else "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(6, places)}f}"


def aligned(table: Table) -> str:
    """Write as text: the first column to the left, the others to the right. Long names are cut in the middle, unless
    two would look alike; and columns that do not fit beside the others stand below them."""
    plain = [[" ".join(cell.split()) for cell in row] for row in table]
    cut = {
        cell: cell if len(cell) <= WIDEST else f"{cell[: WIDEST // 2 - 1]}…{cell[-WIDEST // 2 :]}"
        for cell in chain(*plain)
    }
    short = [[cut[cell] for cell in row] for row in plain] if len({*cut.values()}) == len(cut) else plain
    widths = [max(map(len, column)) for column in zip(*short, strict=True)]
    blocks: list[list[int]] = [[]]
    for place in range(1, len(widths)):
        if widths[0] + sum(2 + widths[other] for other in (*blocks[-1], place)) > COLUMNS:
            blocks.append([])
        blocks[-1].append(place)

    def line(row: Sequence[str], places: Sequence[int]) -> str:
        return "  ".join([row[0].ljust(widths[0]), *(row[place].rjust(widths[place]) for place in places)]).rstrip()

    return "\n\n".join("\n".join(line(row, block) for row in short) for block in blocks)


def wrapped(sentence: str) -> str:
    """Breaks a sentence into lines of at most COLUMNS characters; a longer word stays whole."""
    return textwrap.fill(sentence, COLUMNS, break_long_words=False, break_on_hyphens=False)


def piped(table: Table) -> str:
    """A table in Markdown."""
    head, *rows = ([in_markdown(cell) for cell in row] for row in table)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def in_markdown(text: str) -> str:
    """Write on one line, with no mark-up."""
    plain = " ".join(text.split())
    for mark in ("\\", "|", "<", "*", "_", "`", "["):
        plain = plain.replace(mark, f"\\{mark}")
    return plain
