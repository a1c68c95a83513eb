"""A comparison of runs as tables: text for a terminal, or Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolorchestra.agents.evaluation.comparison import (
    ComparisonSection,
    GroupWin,
    MeanDifference,
    PairedComparison,
    RunComparison,
)
from toolorchestra.agents.evaluation.frontier import ANY_RIGHT, ORACLE, PolicyFrontier, PolicyPoint
from toolorchestra.agents.evaluation.statistics import Interval
from toolorchestra.agents.evaluation.summary_tables import (
    Table,
    aligned,
    between,
    in_markdown,
    number,
    percents,
    piped,
    wrapped,
)


def comparison_text(compared: RunComparison) -> str:
    """The comparison as text for a terminal."""
    parts = [_part(section, aligned, wrapped) for section in compared.sections]
    return "\n\n".join([*map(wrapped, compared.notes), *parts])


def comparison_markdown(compared: RunComparison) -> str:
    """The comparison in Markdown."""
    parts = [_part(section, piped, in_markdown) for section in compared.sections]
    return "\n\n".join([*map(in_markdown, compared.notes), *(f"### {part}" for part in parts)])


def _part(section: ComparisonSection, table: Callable[[Table], str], words: Callable[[str], str]) -> str:
    ground = section.ground
    title = " ".join(filter(None, (ground.env, ground.split, ground.version))) + f" ({ground.sheets})"
    made = [words(title)]
    if section.comparisons:
        tables = [_accuracies(section.comparisons), _bills(section.comparisons), _rewards(section.comparisons)]
        if any(one.groups for one in section.comparisons):
            tables.append(_group_table(section.comparisons))
        made += [*map(table, tables), *(words(note) for one in section.comparisons for note in _said(one))]
    else:
        made.append(words("Nothing was played here to compare a policy with."))
    if section.front is not None:
        made += [table(_front_table(section.front)), *map(words, _front_said(section.front))]
    elif section.comparisons:
        made.append(words("No trial has a known outcome for every policy, so there is no front."))
    return "\n\n".join(made)


def _accuracies(comparisons: Sequence[PairedComparison]) -> Table:
    head = ["policy", "against", "pairs", "not known", "%", "against %", "points", "95 %", "bounds", "+", "-", "p"]
    several = len(comparisons) > 1
    rows = [[*head, "p of all"] if several else head]
    for c in comparisons:
        bounds = _points(c.bounds) if c.unknown or c.accuracy is None else "-"
        tests = [bounds, str(c.better), str(c.worse), _chance(c.p), *([_chance(c.p_of_all)] if several else [])]
        rows.append([c.right, c.left, str(c.pairs), str(c.unknown), *_shares(c.accuracy), *tests])
    return rows


def _chance(p: float | None) -> str:
    return "-" if p is None else f"{p:.3g}"


def _points(interval: Interval) -> str:
    return f"{100 * interval.low:+.1f}..{100 * interval.high:+.1f}"


def _shares(found: MeanDifference | GroupWin | None) -> list[str]:
    if found is None:
        return ["-"] * 4
    sides = [f"{100 * found.right:.1f}", f"{100 * found.left:.1f}", f"{100 * found.difference:+.1f}"]
    return [*sides, _points(found.interval)]


def _bills(comparisons: Sequence[PairedComparison]) -> Table:
    head = ["policy", "against", "¢", "against", "difference", "95 %", "min", "against", "difference", "95 %"]
    return [head, *([c.right, c.left, *_numbers(c.cents), *_numbers(c.minutes)] for c in comparisons)]


def _rewards(comparisons: Sequence[PairedComparison]) -> Table:
    """Three decimals each: rewards that lie near 1 differ in the third."""
    head = ["policy", "against", "reward", "against", "difference", "95 %"]
    return [head, *([c.right, c.left, *_numbers(c.reward, "{:.3f}".format, "{:+.3f}".format)] for c in comparisons)]


def _signed(value: float) -> str:
    """Three digits with a sign."""
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"


def _numbers(
    found: MeanDifference | None, plain: Callable[[float], str] = number, signed: Callable[[float], str] = _signed
) -> list[str]:
    if found is None:
        return ["-"] * 4
    span = f"{signed(found.interval.low)}..{signed(found.interval.high)}"
    return [plain(found.right), plain(found.left), signed(found.difference), span]


def _group_table(comparisons: Sequence[PairedComparison]) -> Table:
    rows = [["group", "policy", "against", "pairs", "%", "against %", "points", "95 %", "¢"]]
    for group, policy, against, one in sorted((g.group, c.right, c.left, g) for c in comparisons for g in c.groups):
        rows.append([group, policy, against, str(one.pairs), *_shares(one), _signed(one.cents)])
    return rows


def _said(c: PairedComparison) -> list[str]:
    """What was left out of the pairs."""
    said = []
    if c.unknown:
        said.append(f"{c.unknown} of {c.pairs + c.unknown} pairs have an outcome that is not known")
    if c.apart:
        said.append(f"{c.apart} trials had another seed or other prices, and are no pairs")
    if c.alone:
        said.append(f"{c.alone} trials were played by one of them alone")
    return [f"{c.right} against {c.left}: {'; '.join(said)}."] if said else []


def _front_table(front: PolicyFrontier) -> Table:
    head = ["policy", "front", "in", "%", "95 %", "¢", "95 %", "PerfGain", "CostSave"]
    rows = [_point(point) for point in sorted(front.points, key=lambda p: (p.cents, p.policy))]
    name, cells = ORACLE if front.cross_fitted else ANY_RIGHT, ["-"] * 3
    oracle = [name, "", "", f"{100 * front.oracle_accuracy:.1f}", "-", number(front.oracle_cents), *cells]
    return [head, *rows, oracle]


def _point(point: PolicyPoint) -> list[str]:
    accuracy = [f"{100 * point.accuracy:.1f}", percents(point.interval)]
    cents = [number(point.cents), between(point.cents_interval)]
    gains = ["-" if share is None else f"{100 * share:+.1f} %" for share in (point.perf_gain, point.cost_save)]
    front = ["yes" if point.on_front else "", f"{100 * point.front_share:.0f} %"]
    return [point.policy, *front, *accuracy, *cents, *gains]


def _front_said(front: PolicyFrontier) -> list[str]:
    others = f" It may also be {', '.join(front.may_be_best)}." if front.may_be_best else ""
    said = [f"Best single policy: {front.best_single}.{others} Front: {', '.join(front.front)}."]
    if front.left_out:
        bounds = "; ".join(f"{p.policy} {100 * p.low:.1f}-{100 * p.high:.1f} %" for p in front.points)
        said.append(
            f"The front is of {front.trials} trials; {front.left_out} are left out, as their outcome is not known for "
            f"every policy. With them at their worst and best: {bounds}."
        )
    return said
