"""An inform that does not follow from the words: the user must be told a value that no wording asks for, and that the
policy does not have told. Compared by words, so a finding may be mistaken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolorchestra.synth.lint.ground import Finding, Ground, PlayedIntent, stems

_KINDS: Mapping[str, str] = {
    "date": "when date day until time due soon late early open close running longer start end long expire begin "
    "arrive leave month week year today tomorrow next",
    "money": "much price cost pay owe charge fee amount expensive dear balance bill total sum refund money worth rate "
    "value discount cheap free left limit budget euro dollar spend purchase add come comes back get have",
    "number": "many much number count left long often old high far size total how often percent rate limit average "
    "place seat point full big short tall enough still warm cold strong wind rain temperature speed heavy running",
    "name": "who which what where name whom whose whether how kind type is status state address code reach",
    "truth": "is are does do can may has have whether am will status state what how",
}
_TELLING = re.compile(
    r"\b(?:tell|told|say|said|name|inform|give|quote|state|read|mention|repeat|explain)\w*", re.IGNORECASE
)
_ALL = re.compile(
    r"\b(?:details?|everything|information|summary|about|all of it|full story|confirm|show me|go through|look up|"
    r"check)\b",
    re.IGNORECASE,
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d")
_MONEY = re.compile(
    r"price|cost|fee|amount|balance|total|paid|due|charge|refund|rate|value|fare|premium|limit|worth|usd|eur"
)
_SENTENCE = re.compile(r"(?<=[.;:!?])\s+|\n+")


def check(ground: Ground) -> Iterator[Finding]:
    """A finding for each path that some wording does not ask for."""
    telling = stems(" ".join(s for s in _SENTENCE.split(ground.spec.policy) if _TELLING.search(s)))
    for name, played in ground.played.items():
        if not played:
            continue
        one = played[0]
        for path in one.entry.get("inform", []):
            field = path.rpartition(".")[2]
            wanted = _wanted(one, path, field)
            own = {word for word in stems(field.replace("_", " ")) if len(word) > 2}
            if own & telling:
                continue
            silent = [say for say in one.entry["say"] if not (wanted & stems(say) or _ALL.search(say))]
            if silent:
                seen = f"{path} must be told, and {silent[0]!r:.160} does not ask for it; nor has the policy it told"
                expected = f"words that ask for {field.replace('_', ' ')} in each wording, or a rule in policy.md"
                yield Finding("words", "intents.yaml", f"intent {name}", seen, expected)


def _wanted(one: PlayedIntent, path: str, field: str) -> set[str]:
    """Words that ask for a value of this name and kind."""
    value = _value(one, path)
    return stems(f"{field.replace('_', ' ')} {_KINDS[_kind(field, value)]}") - stems("the of")


def _kind(field: str, value: Any) -> str:
    if isinstance(value, str):
        return "date" if _DAY.match(value) else "name"
    if isinstance(value, bool) or value in (0, 1):
        return "truth"
    return "money" if isinstance(value, float) or _MONEY.search(field) else "number"


def _value(one: PlayedIntent, path: str) -> Any:
    tool, *steps = path.split(".")
    value: Any = next((c.value for c in reversed(one.called) if c.name == tool), None)
    for step in steps:
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        elif isinstance(value, Mapping):
            value = value.get(step)
    return value
