"""What a spec can declare to make a request hard, each with its proof: what misses the hard part gives 0."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.domains import LIBRARY
from tests.synth import runs
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale.source import ready
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTask
from toolorchestra.synth.authors.model_author import ScriptedParts
from toolorchestra.synth.formats import part_checks
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.intent_templates import Rejected
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.solvers import ORACLE, Arena, Scripted
from toolorchestra.synth.proof.task_checks import fault, instead, missed, unasked
from toolorchestra.synth.stages import domain_folder, play_checks
from toolorchestra.synth.stages.hard_requests import ELEMENTS, level
from toolorchestra.synth.stages.task_drafts import Drafter

PROCESS = """
process:
  own: {members: member_id, loans: member_id}
held_out_intents: [borrow]
"""
TWO_LOANS = """
    SELECT a.member_id AS who, a.loan_id, x.title, b.loan_id AS other_loan, y.title AS other_title, a.due_on,
    julianday(b.due_on) - julianday(a.due_on) AS days,
    CASE WHEN a.due_on < '2026-04-08' THEN 'soon' ELSE 'later' END AS branch
    FROM loans a JOIN loans b ON a.member_id = b.member_id AND a.loan_id <> b.loan_id
    JOIN books x ON x.book_id = a.book_id JOIN books y ON y.book_id = b.book_id
    WHERE a.status = 'open' AND b.status = 'open' AND a.renewals < 2 AND b.renewals < 2 AND a.due_on < b.due_on"""
INTENTS = f"""
- intent: renew_first_due
  draw: &two >-{TWO_LOANS}
  say: ["Renew what I have to bring back first.", "The loan that ends soonest, longer.", "Renew the book due earliest."]
  actions: &renewal
    - list_loans: {{member_id: "{{member_id}}"}}
    - renew_loan: {{loan_id: "{{loan_id}}"}}
  candidates: {{column: loan_id, of: "SELECT loan_id FROM loans WHERE member_id = :member_id AND status = 'open'"}}
- intent: renew_mixed_up
  draw: *two
  say: ["Extend {{title}}.", "I need {{title}} longer.", "More time for {{title}}, please."]
  first:
    kind: corrects
    say: ["Extend {{other_title}}.", "I need {{other_title}} longer.", "More time for {{other_title}}, please."]
    then: ["No, I mean {{title}}.", "Sorry, {{title}} it is.", "Wrong one, I want {{title}}."]
    values: {{loan_id: other_loan}}
  actions: *renewal
- intent: between
  draw: *two
  say: ["How many days after {{title}} do I have to bring {{other_title}}?", "Days from {{title}} to {{other_title}}?"]
  actions:
    - list_loans: {{member_id: "{{member_id}}"}}
  tell: ["{{days}}"]
- intent: renew_if_soon
  draw: *two
  say:
    - "If {{title}} is due before 2026-04-08, renew it, else {{other_title}}."
    - "Renew {{title}} if it ends before 2026-04-08, otherwise {{other_title}}."
    - "{{title}} longer, if due before 2026-04-08; if not, {{other_title}}."
  branches:
    soon: {{actions: *renewal}}
    later:
      actions:
        - list_loans: {{member_id: "{{member_id}}"}}
        - renew_loan: {{loan_id: "{{other_loan}}"}}
"""


@cache
def texts() -> Mapping[str, str]:
    parts = specs.texts(LIBRARY)
    head, intents = parts["domain.yaml"] + PROCESS, parts["intents.yaml"] + INTENTS
    return {**parts, "domain.yaml": head, "intents.yaml": intents}


def read(**changed: str) -> specs.Spec:
    return specs.read({**texts(), **{name.replace("_", "."): text for name, text in changed.items()}}, Path("library"))


_SCRATCH = tempfile.TemporaryDirectory()


@cache
def folder() -> Path:
    """A folder of 30 tasks of the library with hard intents."""
    out = Path(_SCRATCH.name) / "library"
    domain_folder.make(read(), 30, 1, out)
    return out


def arena() -> Arena:
    return Arena(str(folder()))


def tasks() -> list[SqlTask]:
    return list(ready(str(folder())).domain.tasks.values())


def report(spec: specs.Spec, count: int = 8) -> domain_folder.YieldReport:
    domain = domain_folder.skeleton(spec, 1)
    return domain_folder.tasks(spec, domain, count, 1, least=0)[1]


def test_every_kind_of_wrong_way_is_there_and_gives_nothing() -> None:
    bench, kinds = arena().bench, set()
    for task in tasks():
        assert fault(bench, task) == ("", ""), task.task_id
        for way in task.wrong:
            kinds.add(way.kind)
            assert not bench.judged(task, instead(task, way)).value
    assert kinds == {"candidate", "first_said", "branch"}


def test_a_way_that_is_not_wrong_is_found_out() -> None:
    task = next(task for task in tasks() if task.wrong)
    way = task.wrong[0]
    right = tuple(task.actions[number] for number in task.requests[way.request].actions)
    seen = missed(arena().bench, replace(task, wrong=(way._replace(calls=right),)))
    assert seen.startswith(f"{task.requests[way.request].intent}: it gives 1 with another {way.kind}: ")


def test_what_is_declared_must_be_so() -> None:
    alone = INTENTS.replace("SELECT loan_id FROM loans WHERE member_id = :member_id AND", "SELECT :loan_id FROM loans")
    alone = alone.replace("FROM loans status", "FROM loans WHERE status")
    assert report(read(intents_yaml=specs.texts(LIBRARY)["intents.yaml"] + alone)).dropped["one candidate alone"]
    said = INTENTS + (
        "- {intent: told_date, draw: *two, say: ['Say it.'], computed: [due_on], actions: *renewal, weight: 900}\n"
    )
    assert report(read(intents_yaml=specs.texts(LIBRARY)["intents.yaml"] + said)).dropped["nothing to compute"]
    with pytest.raises(ConfigError, match="actions or branches expected"):
        read(intents_yaml='- {intent: x, draw: SELECT 1, say: ["x"]}\n')


MISNAMED = (
    "computed: [nope]",
    "tell: ['{nope}']",
    "pushback: '{nope}'",
    "facts: [{label: x, asked: [x], value: '{nope}'}]",
    "candidates: {column: nope, of: SELECT loan_id FROM loans}",
    "first: {kind: corrects, say: ['Renew it'], then: ['Sorry, {title}'], values: {loan_id: nope}}",
    "followed_by: [{say: [Go on., Do., '{nope}'], actions: []}]",
)


def test_a_name_that_a_draw_lacks_is_a_fault_of_its_intent_wherever_it_stands() -> None:
    spec = read()
    bench, usual = DomainPlayer(domain_folder.skeleton(spec, 1)), spec.intents[-1]
    alone = {key: usual[key] for key in ("intent", "draw", "say", "actions")}
    for wrong in MISNAMED:
        entry = alone | specs.parsed(wrong, Path("intents.yaml"))
        (found,) = play_checks.intent(spec, bench, entry, random.Random(1))
        assert found.entry == alone["intent"], wrong
        assert "no value 'nope'; there are: member_id," in found.seen, wrong


def test_what_is_null_is_never_said() -> None:
    spec = read()
    titles = TWO_LOANS.replace("x.title", "CASE WHEN a.loan_id < 'LO-020' THEN x.title END AS title")
    usual = {key: spec.intents[-1][key] for key in ("intent", "draw", "actions")} | {"draw": titles}
    named = [{"label": name, "asked": [name], "value": f"{{{name}}}"} for name in ("title", "loan_id")]
    bench = DomainPlayer(domain_folder.skeleton(spec, 1))

    def drafts(**more: Any) -> Iterator[Any]:
        drafter = Drafter(replace(spec, intents=[{**usual, **more}]), bench, random.Random(1))
        for person in filter(drafter.templates.fitting, drafter.templates.people):
            try:
                yield drafter.compose(person, drafter.spec.intents)["toolscale"]["requests"][0]
            except Rejected as err:
                yield err.reason

    made = list(drafts(say=["Renew {title}."]))
    assert 0 < made.count("a value is NULL") < len(made)
    assert "None" not in json.dumps(made)
    assert {len(one["facts"]) for one in drafts(say=["Renew it."], facts=named)} == {1, 2}
    never = {**usual, "draw": titles.replace("LO-020", ""), "say": ["Renew {title}."]}
    (found,) = play_checks.intent(spec, bench, never, random.Random(1))
    assert "a value is NULL: renew_if_soon: 'Renew {title}.': 'title'" in found.seen


def solves(solver: Any, task: SqlTask) -> bool:
    return asyncio.run(arena().play(solver, task.task_id, 3)).solved


RULE_BREAKERS = (
    Scripted("unidentified", identifies=False),
    Scripted("unasked", asks=False),
    Scripted("curious", curious=True),
)
"""Oracles that break one rule of process. They solve what the rule does not touch, and all where a domain has none."""


def test_an_oracle_that_breaks_one_rule_of_process_gets_nothing() -> None:
    played = arena()
    for task in tasks():
        writes = any(played.domain.tools[call.name].kind == "write" for call in task.actions)
        assert solves(ORACLE, task)
        for solver in RULE_BREAKERS:
            touches = task.identify > 0 if solver.name != "unasked" else writes
            assert solves(solver, task) is not touches or (solver.name == "curious" and not task.identify), solver.name


def test_the_verdict_names_the_broken_rule() -> None:
    bench = arena().bench
    task = next(task for task in tasks() if task.identify and any(c.name == "renew_loan" for c in task.actions))
    assert bench.judged(task, task.actions).broken == ()
    assert "came before the user was identified" in bench.judged(task, task.actions[task.identify :]).broken[0]
    verdict = bench.judged(task, task.actions, unasked=["renew_loan"])
    assert verdict.broken == ("renew_loan came without the user's yes",)
    assert (verdict.execution, verdict.process, verdict.value) == (True, False, 0.0)
    assert unasked(bench, task) == ""


def test_what_a_model_writes_becomes_hard_too(tmp_path: Path) -> None:
    made, _ = runs.made(tmp_path, ScriptedParts(texts()))
    found = {name for task in made.domain.tasks.values() for name, count in task.hardness.items() if count}
    assert {"distractors", "branches", "user"} <= found
    assert made.domain.manifest["process"]["own"] == {"members": "member_id", "loans": "member_id"}


def test_rules_of_process_name_what_the_schema_has() -> None:
    head = texts()["domain.yaml"].replace("loans: member_id", "loans: membr_id")
    (fault,) = part_checks.schema({**texts(), "domain.yaml": head}, 1)
    assert "names column 'membr_id' of table 'loans', which has loan_id," in fault.seen


def test_levels_follow_the_stated_rule() -> None:
    for elements, requests, expected in (
        ((), 2, "easy"), ((), 3, "medium"), (("user",), 1, "medium"), (("user",), 4, "hard"),
        (("paging", "branches"), 1, "hard"),
    ):  # fmt: skip
        assert level({**{name: int(name in elements) for name in ELEMENTS}, "requests": requests}) == expected


def test_held_out_intents_and_their_words_are_nowhere_else() -> None:
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for task in tasks():
        held = task.split == "heldout"
        assert all((request.intent == "borrow") is held for request in task.requests)
        said[held].update(say for request in task.requests for say in request.say)
    assert said[True]
    assert not said[True] & said[False]
    head = texts()["domain.yaml"]
    with pytest.raises(ConfigError, match="renew says what renew_too_often says"):
        read(domain_yaml=head.replace("[borrow]", "[renew]"))
    with pytest.raises(ConfigError, match="no intent 'burrow'"):
        read(domain_yaml=head.replace("[borrow]", "[burrow]"))
    assert part_checks.subjects({"domain.yaml": head}, 1) == []  # its intents are still to come


def test_the_folder_is_made_again_byte_by_byte(tmp_path: Path) -> None:
    assert domain_folder.rebuilt(read(), folder(), tmp_path / "again")
