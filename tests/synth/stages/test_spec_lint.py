"""The lint finds what is wrong with a spec whose every task is self-consistent, and nothing of it once it is mended."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

import pytest

from tests.synth import runs
from toolorchestra.synth import generate, lint, prove
from toolorchestra.synth.authors.model_author import LlmAuthor, ScriptedParts
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages import domain_folder, spec_lint
from toolorchestra.synth.stages.spec_lint import Finding
from toolorchestra.synth.stages.stage_values import Making, SynthesisSettings
from toolorchestra.synth.stages.written_parts import write

CARELESS = Path(__file__).parent / "careless_vet.yaml"
# ruff: noqa: E501 - lines of the spec, as they stand there
MENDS = {
    "vaccine_price: another row": ("parameters: {}, returns: {rows: \"SELECT vaccine_id, disease, price FROM vaccines ORDER BY vaccine_id\"}",
        "parameters: {disease: {type: string, format: text, description: Disease}}, returns: {rows: \"SELECT vaccine_id, disease, price FROM vaccines WHERE disease = :disease\"}"),
    "change_phone: unused tool": ("{intent: open_invoices,", "{intent: new_phone, draw: SELECT owner_id AS who FROM owners, say: [\"My number is +41 79 555 00 99 now.\", \"Note +41 79 555 00 99 for me.\", \"Change my phone to +41 79 555 00 99.\"], actions: [{change_phone: {owner_id: \"{owner_id}\", phone: \"+41 79 555 00 99\"}}]}\n  - {intent: open_invoices,"),
    "owners.insured: hidden column": ("SELECT owner_id, full_name FROM owners WHERE owner_id = :who", "SELECT owner_id, full_name, insured FROM owners WHERE owner_id = :who"),
    "plan: order": ("{check: \":parts = 0\"", "{check: \":so_far = 0\", error: \"Something is paid already.\"}, {check: \":parts = 0\""),
}  # fmt: skip
"""What is found -> the words of the spec that are wrong, and right ones."""


def found(text: str, folder: Path) -> list[Finding]:
    """The findings of a spec in one file."""
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return spec_lint.of_parts(specs.texts(path), 1)


@cache
def of_careless() -> list[Finding]:
    """The findings of the careless spec, looked for once."""
    return spec_lint.of_parts(specs.texts(CARELESS), 1)


def test_the_careless_spec_is_self_consistent_all_the_same(tmp_path: Path) -> None:
    out = tmp_path / "vet"
    domain, _ = domain_folder.make(specs.load(CARELESS), 20, 1, out)
    proofs = [prove.check_tasks(str(out), list(domain.tasks)), prove.check_again(str(out), list(domain.tasks))]
    lines = prove.report(proofs, [str(out)])
    assert lines[0].startswith("careless_vet: 20 tasks self-consistent")
    assert not [line for line in lines if "FAULT" in line or "proven" in line]


@pytest.mark.parametrize("what", MENDS)
def test_each_fault_of_the_careless_spec_is_found_until_it_is_mended(tmp_path: Path, what: str) -> None:
    wrong, right = MENDS[what]
    text = CARELESS.read_text(encoding="utf-8")
    name, _, check = what.partition(": ")
    seen = [one for one in of_careless() if name in one.entry and (not check or one.check == check)]
    assert seen, what
    assert all(one.expected and one.part for one in seen)
    assert text.count(wrong) == 1
    mended = text.replace(wrong, right)
    if "disease = :disease" in right:
        mended = mended.replace("{list_vaccines: {}}", '{list_vaccines: {disease: "{disease}"}}')
    left = [one for one in found(mended, tmp_path) if name in one.entry and (not check or one.check == check)]
    assert not left, left


def test_the_command_prints_file_entry_and_what_was_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint.main([str(CARELESS), "--strict"]) == 1
    told = capsys.readouterr().out
    assert "intents.yaml: intent vaccine_price: another row" in told
    assert "expected: " in told
    assert "tools.yaml: tool change_phone: unused tool" in told
    assert lint.main([str(CARELESS), "--most", "3"]) == 0
    *_, first, second, third, last = capsys.readouterr().out.splitlines()
    assert not any("(perhaps)" in one for one in (first, second, third))
    assert "; 3 shown, --most 0 shows all" in last


def test_strict_makes_nothing_of_what_was_seen_by_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "vet"
    assert generate.main([str(CARELESS), "--tasks", "10", "--out", str(out), "--strict"]) == 2
    assert "are answered with another row than they name; the first: intents.yaml: intent" in capsys.readouterr().err
    assert not out.exists()


def test_a_model_gets_its_wrong_row_back_and_mends_it(tmp_path: Path) -> None:
    """The first answer tells the first row of all books for any title; the second is the spec as it is."""
    texts = runs.texts()

    def spoilt(answer: str) -> str:
        return answer.replace("return_loan.fee_now", "list_loans.0.due_on")

    author_of = runs.paid_model(tmp_path, ScriptedParts(texts, {"intents": spoilt}))
    making = Making({name: text for name, text in texts.items() if name != "intents.yaml"})
    author = LlmAuthor("a library", author_of)
    made, tally = asyncio.run(write("intents", making, author, SynthesisSettings(rounds=1)))
    assert tally.dropped == {"another row": 1}
    assert tally.rounds == 1
    assert "fee_now" in made.parts["intents.yaml"]
