"""What running a spec cannot show: whether its words, its gold calls and its policy mean the same.

Each check is a function of `Ground` (the spec, its domain, and its intents filled in and played) that gives findings.
A finding is no proof of a fault. It is a place that its author should look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.lint import order_pairs, policy_rules, told_rows, told_words, unused_parts
from toolorchestra.synth.lint.ground import Finding, Ground
from toolorchestra.synth.proof.task_checks import DomainPlayer

CHECKS = {
    "another row": told_rows.check,
    "words": told_words.check,
    "order": order_pairs.check,
    "rule without a task": policy_rules.check,
    "unused tool": unused_parts.tools,
    "hidden column": unused_parts.columns,
}
"""Name -> check."""


def lint(spec: Spec, bench: DomainPlayer, seed: int = 1) -> list[Finding]:
    """All findings, the certain ones first."""
    ground = Ground(spec, bench, seed)
    found = [finding for check in CHECKS.values() for finding in check(ground)]
    return sorted(found, key=lambda one: not one.certain)


def counted(findings: Iterable[Finding]) -> str:
    """How many of each check, in a line."""
    counts = Counter(one.check for one in findings)
    return ", ".join(f"{name} {counts[name]}" for name in CHECKS if counts[name]) or "nothing"


def lines(findings: Sequence[Finding]) -> list[str]:
    """The findings as text, a line for each."""
    return [one.text() for one in findings]
