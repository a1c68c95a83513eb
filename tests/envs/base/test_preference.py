"""Owns the checks of preferences: the bank of preferences, sampling from it, and what a caller may give."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.base import preference
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import ACCURATE, GENERAL, WORDINGS, Preference, kinds, read, sample, templates

KEYS = ("search-1", "search-2", "answer-1", "answer-math-1")


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+|\{[a-z]+\}", text.lower()))


def drawn(wording: str) -> tuple[str, ...]:
    """The sets of sentences that a wording draws from."""
    return ("train", "wide") if wording == "wide" else (wording,)


def composed_kinds(sentence: str) -> set[str]:
    """The kinds of preference of whose clauses a sentence is put together."""
    known = preference._clauses()
    some = {
        name: "|".join(re.sub(r"\\\{\w+\\\}", ".+", re.escape(c)) for c in of) for name, of in known["clauses"].items()
    }
    forms = {kind: ["(?:[.;,]| and)+ ".join(f"(?:{some[n]})" for n in names) for names in orders]
             for kind, orders in known["orders"].items()}  # fmt: skip
    return {kind for kind, of in forms.items() for form in of if re.fullmatch(f"{form}[.!]?", sentence, re.IGNORECASE)}


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        make()
    return str(caught.value)


def test_the_bank_is_large_and_every_wording_is_its_own() -> None:
    texts = [t.text for t in templates()]
    assert len(texts) >= 40
    assert len({t.lower().strip(" .") for t in texts}) == len(texts)
    for one in templates():
        for other in templates():
            if one is not other:
                shared = words(one.text) & words(other.text)
                assert len(shared) < 0.75 * len(words(one.text) | words(other.text)), (one.text, other.text)


def test_every_kind_has_wordings_to_train_on_and_to_hold_out() -> None:
    count = Counter((t.kind, t.wording) for t in templates())
    assert set(count) == {(kind, wording) for kind in kinds() for wording in WORDINGS}
    assert min(count.values()) >= 2
    texts = [t.text for t in templates()]
    assert len(set(texts)) == len(texts)


def test_a_template_says_what_it_weighs() -> None:
    for template in templates():
        slots = set(re.findall(r"\{(\w+)\}", template.text))
        assert {f"{{{name}}}" for name in slots} == {key for key in template.weights if key not in GENERAL}
        assert slots in ({"tool", "other"}, {"tool"}, set())
        assert template.slots == len(slots)
        assert all(0 < weight <= 1 for weight in template.weights.values())
        assert template.weights["outcome"] == 1


def test_a_kind_has_one_vector() -> None:
    vectors = {kind: {tuple(t.weights.items()) for t in templates() if t.kind == kind} for kind in kinds()}
    assert all(len(vector) == 1 for vector in vectors.values())
    assert len(set.union(*vectors.values())) == len(kinds())


@given(st.integers(), st.sampled_from(WORDINGS), st.sampled_from([None, *kinds()]))
def test_samples(seed: int, wording: Any, kind: str | None) -> None:
    made = sample(random.Random(seed), KEYS, wording, kind)
    assert made == sample(random.Random(seed), KEYS, wording, kind)
    assert all(0 <= weight <= 1 for weight in made.weights().values())
    assert set(made.tools) <= set(KEYS)
    assert all(key in made.sentence for key in made.tools)
    assert not set(made.sentence) & set("{}")
    assert made.kind == (kind or made.kind)
    made.check(KEYS)
    fitting = [
        t
        for t in templates()
        if t.wording in drawn(wording) and re.fullmatch(re.sub(r"\\\{\w+\\\}", ".+", re.escape(t.text)), made.sentence)
    ]
    assert made.kind in {t.kind for t in fitting} or (wording == "wide" and made.kind in composed_kinds(made.sentence))


def test_samples_reach_the_whole_bank_and_every_tool() -> None:
    rng = random.Random(0)
    for wording in WORDINGS:
        made = [sample(rng, KEYS, wording) for _ in range(8000)]
        assert {p.kind for p in made} == set(kinds())
        assert {key for p in made for key in p.tools} == set(KEYS)
        heard = {p.sentence for p in made}
        plain = {t.text for t in templates() if t.wording in drawn(wording) and not t.slots}
        assert plain <= heard
        assert heard.isdisjoint(t.text for t in templates() if t.wording not in drawn(wording))


def test_who_reads_clauses_has_not_read_what_is_held_out() -> None:
    known = preference._clauses()
    held_out = [t.text.lower() for t in templates() if t.wording in ("validation", "heldout")]
    assert set(known["orders"]) == set(kinds())
    for of in known["clauses"].values():
        assert len(set(of)) == len(of)
        long = [clause.lower() for clause in of if len(clause.split()) > 3]
        assert not [(clause, text) for clause in long for text in held_out if clause in text or text in clause]


@pytest.mark.parametrize("keys", [(), ("submit",)])
def test_few_tools_are_never_weighed_twice(keys: tuple[str, ...]) -> None:
    made = [sample(random.Random(seed), keys) for seed in range(300)]
    assert all(set(p.tools) <= set(keys) for p in made)
    assert all(len(p.tools) == p.sentence.count("submit") for p in made)
    assert {"favour_pair"}.isdisjoint(p.kind for p in made)
    message = refusal(lambda: sample(random.Random(0), keys, kind="favour_pair"))
    assert message == f"preference 'favour_pair' weighs more tools than there are: {', '.join(keys) or 'none'}"


def test_read_forms() -> None:
    rng = random.Random(0)
    assert read("none", rng, KEYS) is ACCURATE
    assert read(None, rng, KEYS) is ACCURATE
    assert read("sampled", random.Random(3), KEYS) == sample(random.Random(3), KEYS)
    assert read("sampled", random.Random(3), KEYS, "heldout") == sample(random.Random(3), KEYS, "heldout")
    assert read("frugal", random.Random(3), KEYS).weights() == {"outcome": 1, "usd": 1, "seconds": 0}
    own = Preference(usd=0.3, tools={"search-1": 0.25}, sentence="Mine.")
    assert read(own, rng, KEYS) is own
    given_weights = read({"outcome": 1, "usd": 0.5, "search-2": 0.25}, rng, KEYS)
    assert given_weights.weights() == {"outcome": 1, "usd": 0.5, "seconds": 0.0, "search-2": 0.25}
    assert given_weights.kind == "custom"
    assert given_weights.sentence == (
        "What I want, with weights from 0 to 1: a right answer (1), a low bill (0.5), use of search-2 (0.25)."
    )
    assert read({"seconds": 1, "sentence": "Quick!"}, rng, KEYS).sentence == "Quick!"
    assert read({}, rng, KEYS).weights() == {"outcome": 0.0, "usd": 0.0, "seconds": 0.0}
    assert read({}, rng, KEYS).sentence == read({"outcome": 0, "sentence": None}, rng, KEYS).sentence == ""


VALID_KEYS = "answer-1, answer-math-1, outcome, search-1, search-2, seconds"
BAD: list[tuple[Any, list[str]]] = [
    ("frugall", ["no preference 'frugall'", "Did you mean 'frugal'?"]),
    ({"search-9": 1}, ["no preference key 'search-9'", VALID_KEYS, "sentence, usd"]),
    ({"usd": 1.5}, ["'usd' must be from 0 to 1, got 1.5"]),
    ({"usd": "much"}, ["'usd' must be a number from 0 to 1, got 'much'"]),
    (5, ["a kind's name, a mapping of weights or a Preference, got 5"]),
]


@pytest.mark.parametrize(("value", "said"), BAD, ids=lambda value: ascii(value)[:40])
def test_bad_preferences_name_what_is_valid(value: Any, said: list[str]) -> None:
    message = refusal(lambda: read(value, random.Random(0), KEYS))
    for part in said:
        assert part in message


_WEIGHTS = st.floats(0, 1) | st.integers(0, 1)


@given(st.dictionaries(st.sampled_from([*GENERAL, *KEYS]), _WEIGHTS))
def test_any_weights_are_kept_and_said(weights: dict[str, float]) -> None:
    made = read(weights, random.Random(0), KEYS)
    assert made.weights() == {**dict.fromkeys(GENERAL, 0.0), **weights}
    for key in KEYS:
        assert (f"use of {key} (" in made.sentence) == bool(weights.get(key))
