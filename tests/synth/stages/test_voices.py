"""Voices: shipped tasks talk like many people, and every wording still says the values of the spec's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.domains import LIBRARY
from toolorchestra.envs.domains.toolscale import grading, heard, loader
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.similarity import language
from toolorchestra.synth.stages import domain_folder, voices

SHAPES = [task.shape for name in loader.names() for task in loader.load(name).tasks.values()]


def _said() -> Iterator[str]:
    """All that stands around requests."""
    for register in voices.words().registers.values():
        yield from (*register.orders, *register.opens, *register.closes)
    yield from voices.words().asides
    for name in loader.names():
        yield from yaml.safe_load(specs.texts(name)["domain.yaml"])["talk"]


def test_shipped_tasks_have_a_rich_language() -> None:
    found = language(SHAPES)
    assert found.tasks == 4_500
    assert found.distinct >= 0.25
    assert found.neighboured <= 0.1
    assert found.iso_dates < 0.001  # where all other ways to say it would say what must be told
    poor = language([{**shape, "user_scenario": SHAPES[0]["user_scenario"]} for shape in SHAPES[:50]])
    assert poor.distinct < 0.1
    assert poor.neighboured == 1


def test_what_stands_around_a_request_says_no_value_and_is_no_answer() -> None:
    assert [text for text in _said() if _misleads(text)] == []
    assert all(map(_misleads, ("I have two cats.", "That is impossible.", "It has been done.")))


def _misleads(text: str) -> bool:
    said = heard.read(text)
    answers = said.refuses or said.denies or said.holds or said.reports or said.closes or said.hands_over
    return answers or any(read(text) for read in (grading.figures, grading.counts, grading.days, grading.clocks))


def test_gold_and_ids_are_as_drafted_and_only_words_change() -> None:
    spec = specs.load(LIBRARY)
    drafted, _ = domain_folder.tasks(spec, domain_folder.skeleton(spec, 1), 12, 1)
    told = voices.voiced(spec, drafted)
    assert told == voices.voiced(spec, drafted)
    for before, after in zip(drafted, told, strict=True):
        assert before["evaluation_criteria"] == after["evaluation_criteria"]
        for one, other in zip(before["toolscale"]["requests"], after["toolscale"]["requests"], strict=True):
            assert {**one, "say": 0, "first": 0} == {**other, "say": 0, "first": 0}


def test_what_only_looks_like_a_date_or_a_joint_is_told_as_it_is() -> None:
    spec = specs.load(LIBRARY)
    drafted, _ = domain_folder.tasks(spec, domain_folder.skeleton(spec, 1), 6, 1)
    for title in ("Volume 2030-13-40", "Volume 0000-05", "Volume 9999-12-31"):
        for shape in drafted:
            first = shape["toolscale"]["requests"][0]
            said, says = shape["user_scenario"]["instructions"]["reason_for_call"], first.get("first", first)["say"]
            reason = f"Then: {title}. {said}"
            words = {**shape["user_scenario"]["instructions"], "reason_for_call": reason}
            own = {**first, "say": [f"Then: {title}. {one}" for one in says]}
            own.pop("first", None)
            requests = [own, *shape["toolscale"]["requests"][1:]]
            anew = {**shape, "user_scenario": {**shape["user_scenario"], "instructions": words}}
            told = voices.voiced(spec, [{**anew, "toolscale": {**shape["toolscale"], "requests": requests}}])[0]
            says = told["toolscale"]["requests"][0]["say"]
            assert title != "Volume 2030-13-40" or all("2030-13-40" in say for say in says)


@pytest.mark.parametrize(
    ("plain", "made", "wrong", "same"),
    [
        ("Book 2 for 2026-03-14 at 18:30.", "pls book 2, the 14th of March, 6:30 pm", None, True),
        ("Book 2 for 2026-03-14.", "um book 2 for March 15 so", None, False),
        ("Book 2 for 2026-03-14.", "Book 3 for 14 March.", None, False),
        ("Book 2 for 2026-03-14.", "Book a table for 14 March.", None, False),
        ("Move it to 2026-03-14.", "Move it to 12 March, no wait, 14 March.", "2026-03-12", True),
        ("Move it to 2026-03-14.", "Move it to 12 March, no wait, 14 March.", None, False),
        ("Close at 18:30.", "Close at 18:30, one of these days, twenty people.", None, False),
    ],
)
def test_a_wording_with_another_value_is_seen(plain: str, made: str, wrong: str | None, same: bool) -> None:
    assert voices.same_values(plain, made, wrong) is same


MADE_WRONG = re.compile(
    r"would you like (?!to|a)|(?:'ve got|so happens that I have) (?:changed|set )|I own a |own own|[?!.],|,[.!?,]|  |"
    r"you stop, that|would I find|that that at|\0|[\ue000-\uf8ff]|\bkindly (?:kindly|finally)|please please|"
    r"\ba minimum of tell|dear, dear",
    re.IGNORECASE,
)
"""Slips of putting words together that were found by reading."""


def test_words_are_put_together_as_people_do() -> None:
    reasons = [shape["user_scenario"]["instructions"]["reason_for_call"] for shape in SHAPES]
    wordings = [say for shape in SHAPES for request in shape["toolscale"]["requests"] for say in request["say"]]
    assert [text for text in (*reasons, *wordings) if MADE_WRONG.search(text)] == []
    twice = re.compile(r"(?:please|kindly)\b[^.!?]*, please[.!?]", re.IGNORECASE)
    assert [text for text in wordings if twice.search(text)] == []
    assert MADE_WRONG.search("Kindly kindly set the limit.")


def test_two_intents_are_joined_in_one_sentence_or_change_places() -> None:
    held = voices.words()
    joined = [link.strip() for link in held.compounds if link.startswith(",") and len(link.split()) > 3]
    taken_back = [form.partition("} ")[2].partition(":")[0].partition("{")[0] for form in held.reorders]
    compound = reordered = 0
    for shape in SHAPES:
        reason = shape["user_scenario"]["instructions"]["reason_for_call"]
        requests = [request.get("first", request)["say"] for request in shape["toolscale"]["requests"]]
        compound += any(link in reason for link in joined)
        if any(form in reason for form in taken_back):
            reordered += 1
            first, second = (max(map(reason.lower().find, map(str.lower, says))) for says in requests[:2])
            assert -1 < second < first, reason
    assert compound > 60
    assert reordered > 90


def test_all_registers_and_corrections_are_there() -> None:
    said = json.dumps([shape["user_scenario"]["instructions"]["reason_for_call"] for shape in SHAPES])
    for name, register in voices.words().registers.items():
        assert name == "plain" or sum(one in said for one in register.closes) > len(register.closes) / 2, name
    assert len(re.findall(r"no wait, |scratch that, |I misread, ", said)) > 50
