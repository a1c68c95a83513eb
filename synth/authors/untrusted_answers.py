"""A model's answer becomes a part of a spec, or is refused with a reason that its author can act on.

The answer must be one JSON value within a size, without a key twice, without texts that speak to a reader's parser or
model, and with templates that only name values. What is kept is written anew as YAML, so no anchor and no tag of the
model's reaches a parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, install
from toolorchestra.synth.authors import KEYS, Unusable
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.storage import MOST_CHARACTERS, PaidAnswer

MOST_DEPTH = 12
MOST_ENTRIES = 400
"""Length of a list."""
MOST_TEXT = 30_000
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am) (?:sorry|unable|not able)|i (?:can(?:no|')t|won't|must decline)|as an ai)\b", re.IGNORECASE
)
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_SPEAKS = re.compile(
    r"<\s*/?\s*(?:tool_call|think|script|system|iframe|img)\b|<\||\|>|\[/?INST\]|###(?:STOP|TRANSFER|OUT)|javascript:|"
    r"ignore (?:all |any )?(?:the )?(?:previous|prior|above)|disregard (?:all|the|your)|system prompt|"
    r"you are now (?:a|an|the)\b",
    re.IGNORECASE,
)
_HOLE = re.compile(r"\{[^{}]*\}?")
_PLAIN_HOLE = re.compile(r"\{[a-z]\w{0,59}(?:\.\w{1,60}){0,6}\}|\{n:0?[1-9]d\}", re.IGNORECASE)
_PROSE = frozenset({"schema", "policy"})
"""Stages whose part is one text."""


def part(stage: str, answer: PaidAnswer) -> str:
    """The file that an answer holds. Raises Unusable."""
    value = parsed(answer)
    if fault := next(_faults(value, stage, stage), None):
        raise Unusable(fault, answer.text)
    if stage in KEYS:
        key, wanted = KEYS[stage], str if stage in _PROSE else list
        if set(value) != {key} or not isinstance(value[key], wanted):
            kind = "text" if wanted is str else "list"
            shape = f'an object {{"{key}": {kind}}} expected, got keys {sorted(value)[:10]}'
            raise Unusable(Fault("shape", shape), answer.text)
        value = value[key]
    return str(value).strip() + "\n" if stage in _PROSE else dumped(value)


def parsed(answer: PaidAnswer) -> dict[str, Any]:
    """The one JSON object of an answer."""
    if answer.characters > MOST_CHARACTERS:
        seen = f"an answer of {answer.characters} characters; at most {MOST_CHARACTERS} are read"
        raise Unusable(Fault("too long", seen))
    if answer.cut:
        seen = (
            f"the answer broke off at the limit of its length, after {answer.characters} characters; write a smaller "
            "part, with fewer entries (a person: raise output_tokens of the model's entry in the backends file)"
        )
        raise Unusable(Fault("cut off", seen), answer.text)
    text = found[1] if (found := _FENCED.fullmatch(answer.text)) else answer.text
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as err:
        refused = _REFUSAL.search(answer.text[:400]) is not None
        seen = f"one JSON object expected and nothing else, got {answer.text[:80]!r}: {err}"
        raise Unusable(Fault("refusal" if refused else "not JSON", seen), answer.text) from None
    if not isinstance(value, dict):
        raise Unusable(Fault("shape", f"a JSON object expected, got {type(value).__name__}"), answer.text)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _faults(value: Any, at: str, stage: str, depth: int = 0) -> Iterator[Fault]:
    if depth > MOST_DEPTH:
        yield Fault("too deep", f"{at:.200}: more than {MOST_DEPTH} levels")
    elif isinstance(value, str):
        yield from _text_faults(value, at, stage)
    elif isinstance(value, list | dict):
        if len(value) > MOST_ENTRIES:
            yield Fault("too long", f"{at:.200}: {len(value)} entries, at most {MOST_ENTRIES}")
            return
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, str):
                yield from _text_faults(key, at, stage)
            yield from _faults(entry, f"{at}.{key}", stage, depth + 1)
    elif isinstance(value, int | float) and abs(value) > 1e12:
        yield Fault("number", f"{at:.200}: {value!r:.40} is beyond what a domain can hold")


def _text_faults(text: str, at: str, stage: str) -> Iterator[Fault]:
    if len(text) > MOST_TEXT:
        yield Fault("too long", f"{at:.200}: a text of {len(text)} characters, at most {MOST_TEXT}")
    elif found := _HIDDEN.search(text):
        yield Fault("injection", f"{at:.200}: an invisible character U+{ord(found[0]):04X}")
    elif found := _SPEAKS.search(text):
        yield Fault("injection", f"{at:.200}: {found[0]!r} speaks to whoever reads the text, not to its user")
    elif stage not in _PROSE:
        for hole in _HOLE.findall(text):
            if not _PLAIN_HOLE.fullmatch(hole) or "__" in hole:
                yield Fault("template", f"{at:.200}: {hole!r:.60}: a template names a value, as in {{title}}")


def dumped(value: Any) -> str:
    """JSON data as YAML, in its own order."""
    try:
        import yaml
    except ImportError:
        raise ConfigError(f"writing a spec needs PyYAML: {install('synth')}") from None
    value = json.loads(json.dumps(value, ensure_ascii=False))  # its own kinds of mapping have no place in YAML
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110))
