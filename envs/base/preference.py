"""What the user wants: weights over tools, outcome, dollars and seconds, and the sentence that says so."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import ConfigError, no_such

Wording = Literal["train", "wide", "validation", "heldout"]
WORDINGS: tuple[Wording, ...] = get_args(Wording)
"""Sets of sentences: to play with, further ones to learn from, to pick a checkpoint by, and to report on. No sentence
stands in two of them; "wide" is drawn together with "train", and every other time put together from clauses."""
GENERAL = ("outcome", "usd", "seconds")
_JOINTS = (". ", ". ", ". ", ", and ", "; ", ", ", " and ")
_ENDS = (".", ".", ".", "!", "")
"""What stands between two clauses, and behind the last. What comes more often stands here more often."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Weights in [0, 1]. `tools` weighs the countable keys of the toolbox; a key that is absent weighs 0."""

    outcome: float = 1.0
    usd: float = 0.0
    seconds: float = 0.0
    tools: Mapping[str, float] = field(default_factory=dict)
    sentence: str = ""
    kind: str = "custom"

    def __post_init__(self) -> None:
        for name, weight in self.weights().items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise ConfigError(f"preference weight {name!r} must be a number from 0 to 1, got {weight!r}")
            if not (math.isfinite(weight) and 0 <= weight <= 1):
                raise ConfigError(f"preference weight {name!r} must be from 0 to 1, got {weight!r}")
        if clash := sorted(set(self.tools) & set(GENERAL)):
            raise ConfigError(f"a tool's weight may not be named {clash}")

    def weights(self) -> dict[str, float]:
        """All weights by name, the general ones first."""
        return {"outcome": self.outcome, "usd": self.usd, "seconds": self.seconds, **self.tools}

    @classmethod
    def told(cls, info: Mapping[str, Any]) -> Preference:
        """Makes a preference again from `info["preference"]`, or from a recorded trajectory."""
        tools = {name: weight for name, weight in info["weights"].items() if name not in GENERAL}
        general = {name: info["weights"].get(name, 0.0) for name in GENERAL}
        return cls(**general, tools=tools, sentence=info["sentence"], kind=info["kind"])

    def check(self, keys: Sequence[str]) -> None:
        """Refuse weights for what the toolbox does not have."""
        for name in self.tools:
            if name not in keys:
                raise ConfigError(no_such("preference key", name, (*GENERAL, *keys)))


ACCURATE = Preference(kind="none")
"""No preference said: only the outcome counts."""


@dataclass(frozen=True, slots=True)
class Template:
    """One wording of one kind of preference. `{tool}` and `{other}` stand for countable keys."""

    kind: str
    wording: Wording
    text: str
    weights: Mapping[str, float]

    @property
    def slots(self) -> int:
        """How many tools it weighs."""
        return sum(key not in GENERAL for key in self.weights)


@cache
def templates() -> tuple[Template, ...]:
    """The bank: every kind in wordings to train on, to pick a checkpoint by, and to hold out."""
    text = (resources.files("toolorchestra.envs") / "data" / "preferences.json").read_text(encoding="utf-8")
    return tuple(
        Template(kind, wording, sentence, row["weights"])
        for kind, row in json.loads(text).items()
        for wording in WORDINGS
        for sentence in row[wording]
    )


@cache
def kinds() -> tuple[str, ...]:
    """The kinds of preference in the bank."""
    return tuple(dict.fromkeys(t.kind for t in templates()))


@cache
def _of(wording: Wording, kind: str | None, most_slots: int) -> tuple[Template, ...]:
    """The templates of this kind and wording that weigh at most so many tools."""
    wordings = ("train", "wide") if wording == "wide" else (wording,)
    kept = (t for t in templates() if t.wording in wordings and kind in (None, t.kind))
    return tuple(t for t in kept if t.slots <= most_slots)


@cache
def _clauses() -> Mapping[str, Any]:
    """What sentences are put together from: clauses by what they ask for, and their orders by kind of preference."""
    text = (resources.files("toolorchestra.envs") / "data" / "preference_clauses.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def _composed(rng: random.Random, kind: str) -> str:
    """A sentence of some clauses. Who learns from these has to read the clauses, and cannot know the whole by heart."""
    known = _clauses()
    first, *rest = (rng.choice(known["clauses"][name]) for name in rng.choice(known["orders"][kind]))
    text = _capital(first)
    for clause in rest:
        joint = rng.choice(_JOINTS)
        text += joint + (_capital(clause) if joint == ". " else clause)
    return text + rng.choice(_ENDS)


def _capital(text: str) -> str:
    return text if text.startswith("{") else text[:1].upper() + text[1:]


def sample(rng: random.Random, keys: Sequence[str], wording: Wording = "train", kind: str | None = None) -> Preference:
    """A preference over these keys, drawn from the bank."""
    known(kind)
    if wording not in WORDINGS:
        raise ConfigError(no_such("wording", wording, WORDINGS))
    bank = _of(wording, kind, min(2, len(keys)))
    if not bank:
        raise ConfigError(f"preference {kind!r} weighs more tools than there are: {', '.join(keys) or 'none'}")
    template = rng.choice(bank)
    text = _composed(rng, template.kind) if wording == "wide" and rng.random() < 0.5 else template.text
    drawn = rng.sample(list(keys), min(2, len(keys))) if template.slots else []
    names = dict(zip(("tool", "other"), drawn, strict=False))
    weights = {key.format(**names): weight for key, weight in template.weights.items()}
    general = {key: weights.pop(key, 0.0) for key in GENERAL}
    return Preference(**general, tools=weights, sentence=text.format(**names), kind=template.kind)


def read(value: Any, rng: random.Random, keys: Sequence[str], wording: Wording = "train") -> Preference:
    """What a caller may give: "sampled", "none", a kind's name, a mapping of weights, or a Preference."""
    if isinstance(value, Preference):
        preference = value
    elif value is None or value == "none":
        preference = ACCURATE
    elif isinstance(value, str):
        preference = sample(rng, keys, wording, None if value == "sampled" else value)
    elif isinstance(value, Mapping) and isinstance(value.get("tools"), Mapping):
        preference = shapes.read(Preference, value, "preference")  # what JSON made of one, in an environment's spec
    elif isinstance(value, Mapping):
        rest = dict(value)
        sentence = str(rest.pop("sentence", None) or "")
        for name in rest:
            if name not in GENERAL and name not in keys:
                raise ConfigError(no_such("preference key", name, (*GENERAL, *keys, "sentence")))
        general = {key: rest.pop(key, 0.0) for key in GENERAL}
        preference = Preference(**general, tools=rest, sentence=sentence)
        if not sentence:
            preference = replace(preference, sentence=_say(preference.weights()))
    else:
        raise ConfigError(_NO_PREFERENCE.format(value))
    preference.check(keys)
    return preference


_NO_PREFERENCE = (
    "a preference is a kind's name, a mapping of weights or a Preference, got {!r:.80}; for example "
    "preference='frugal', or preference={{'outcome': 1.0, 'usd': 0.5}}"
)


def known(value: Any) -> None:
    """Refuse a name that is no kind of preference, before there are tools."""
    if isinstance(value, str) and value not in ("none", "sampled", *kinds()):
        said = " A sentence of your own comes with weights: {'usd': 1.0, 'sentence': ...}" if " " in value else ""
        raise ConfigError(no_such("preference", value, ("none", "sampled", *kinds())) + said)
    if not (value is None or isinstance(value, str | Mapping | Preference)):
        raise ConfigError(_NO_PREFERENCE.format(value))


def _say(weights: Mapping[str, float]) -> str:
    spoken = {"outcome": "a right answer", "usd": "a low bill", "seconds": "a short wait"}
    wanted = [f"{spoken.get(k, f'use of {k}')} ({w:g})" for k, w in weights.items() if w]
    return f"What I want, with weights from 0 to 1: {', '.join(wanted)}." if wanted else ""
