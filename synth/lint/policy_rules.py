"""Rules of the policy that no task tests: compared by words with what intents say and draw and with the tools that they
call. Rules about how the agent goes about things are told apart: what a task's end state shows is not that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.synth.lint.ground import Finding, Ground, stems

_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.))")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`\"])")
_RULE = re.compile(
    r"\b(?:must|never|only|cannot|can't|may not|do not|don't|not allowed|refuse\w*|at most|at least|no more than|"
    r"unless|"
    r"before|without|except|always|not)\b",
    re.IGNORECASE,
)
_FORBIDS = re.compile(
    r"\b(?:never|cannot|can't|may not|must not|do not|don't|not allowed|refuse\w*|no longer|is not|are not)\b",
    re.IGNORECASE,
)
_PROCESS = re.compile(
    r"\b(?:identif|verif|confirm|wait for|yes\b|one (?:customer|caller|person|member|patient|student|guest|traveller)|"
    r"at a time|same time|conversation|tool call|message|before you|polite|invent|guess|say what|read before|advice|"
    r"opinion|make up|made up|subjective|other people|anybody else|somebody else|stranger|comput|request before|"
    r"way around|"
    r"one detail|of the details|both parts|all parts|order does not matter|recommend|comment on|promise|say why|"
    r"small talk|"
    r"exception|ask which|ask for|personal data|own words)",
    re.IGNORECASE,
)
_DULL = stems(
    "the a an and or of to in on for with by is are be it that this its their his her them they you your must never "
    "only "
    "may can not no do does if when then than at most least any all each one two from as so which who what there has "
    "have "
    "been was will would before after without unless except always also are out up down into about other others same "
    "more "
    "less such tool tools agent customer user policy rule rules ask asked say said tell told give given make made take"
)
COVERED = 0.5
"""Of a rule's telling words, weighed by how rare they are, so much must stand in one intent."""
LEAST_WORDS = 3


class _Said(NamedTuple):
    """What an intent shows of itself in words."""

    name: str
    words: set[str]
    declines: bool
    """Whether the right answer is to refuse or to hand over, or the tools alone keep the rule."""


def check(ground: Ground) -> Iterator[Finding]:
    """A finding for each rule without a task."""
    said = [_said(ground, entry) for entry in ground.spec.intents]
    counts = Counter(word for one in said for word in one.words)
    for rule in rules(ground.spec.policy):
        words = stems(rule) - _DULL
        if len(words) < LEAST_WORDS:
            continue
        shown = f"rule {rule!r:.140}"
        if _PROCESS.search(rule):
            continue  # about how it is done: graded as a process, not by what a task asks for
        weights = {word: 1 / (1 + counts[word]) ** 0.5 for word in words}
        asked = [one for one in said if one.declines] if _FORBIDS.search(rule) else said
        best, share = _nearest(asked, weights)
        if share < COVERED:
            kind = "to be refused or handed over " if _FORBIDS.search(rule) else ""
            seen = f"no intent {kind}has half of its words (nearest: {best or 'none'}, {share:.0%})"
            yield Finding("rule without a task", "policy.md", shown, seen, "an intent that only this rule decides")


def rules(policy: str) -> list[str]:
    """The sentences that bind the agent."""
    blocks = [" ".join(block.split()).strip("-*# ") for block in _BLOCK.split(policy)]
    found = [sentence.strip() for block in blocks for sentence in _SENTENCE.split(block)]
    return [sentence for sentence in dict.fromkeys(found) if _RULE.search(sentence)]


def process_rules(policy: str) -> list[str]:
    """Those of them that are about how the agent goes about things."""
    return [rule for rule in rules(policy) if _PROCESS.search(rule)]


def _nearest(said: Sequence[_Said], weights: Mapping[str, float]) -> tuple[str, float]:
    total = sum(weights.values())
    shares = [(sum(w for word, w in weights.items() if word in one.words) / total, one.name) for one in said]
    share, name = max(shares, default=(0.0, ""))
    return name, share


def _said(ground: Ground, entry: Mapping[str, Any]) -> _Said:
    tools = [ground.bench.domain.tools[name] for name in ground.calls(entry)]
    texts = [entry["intent"], entry["draw"], entry.get("pushback", ""), entry.get("instructions", ""), *entry["say"]]
    texts += [f"{tool.name} {tool.description}" for tool in tools]
    texts += [str(value) for row in entry["actions"] for value in row.values()]
    texts += [step.error for tool in tools for step in tool.steps]
    declines = entry.get("ending", "serve") != "serve" or any(tool.kind == "write" for tool in tools)
    return _Said(entry["intent"], stems(" ".join(texts).replace("_", " ")), declines)
