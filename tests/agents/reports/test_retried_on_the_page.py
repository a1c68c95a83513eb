"""Plays that were set aside and played again: their bills and causes are on the page, and in no figure of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.agents.reports.chromium import CHROMIUM, Chromium
from tests.agents.reports.test_evaluation_page import parts
from tests.agents.reports.test_page_in_chromium import count, texts
from toolorchestra.agents.evaluation.rows import MANIFEST, RETRIED, EvaluationRow, line_of
from toolorchestra.agents.reports.evaluation_page import write_page

ENDED = [made_row(name, cents=3.0) for name in "ab"]
FAILED = replace(made_row("a", None, cents=1.0), failure="policy: TimeoutError: no reply in 60 s")
BROKEN_OFF = replace(made_row("a", None, cents=0.5), status="cut", failure="broken off")


def run(folder: Path, retried: Sequence[EvaluationRow], *, cache: str = "") -> Path:
    write_run(folder, ENDED)
    (folder / RETRIED).write_bytes(b"".join(map(line_of, retried)) + b'{"env": "HLE-v0", "spl')  # torn by a kill
    (folder / MANIFEST).write_text(json.dumps({"asked": {"cache": cache}}))
    return folder


def test_each_play_is_listed_with_its_cause_and_bill_and_the_totals_say_what_they_cost(tmp_path: Path) -> None:
    written = write_page(run(tmp_path, [BROKEN_OFF, FAILED]))
    assert written.trials == 2
    assert "2 of 2 trials have no transcript." in written.notes
    assert "1 trial was retried; the 2 plays that do not count cost 1.50 ¢, in no figure." in written.notes
    (index,) = parts(written.file, "index")
    assert index["notes"] == list(written.notes)
    assert [(t["task"], t.get("retried"), t.get("failure", "")) for t in index["trials"]] == [
        ("a", None, ""),
        ("b", None, ""),
        ("a", 1, "broken off"),
        ("a", 2, "policy: TimeoutError: no reply in 60 s"),
    ]
    assert index["trials"][3]["nano_usd_by_role"] == FAILED.nano_usd_by_role


def test_with_a_cache_the_last_play_is_billed_what_an_earlier_one_paid(tmp_path: Path) -> None:
    """Only what an earlier play paid above the bill of the last one was paid beside it."""
    dear = replace(made_row("b", None, cents=5.0), failure="x")
    written = write_page(run(tmp_path, [FAILED, dear], cache="replies.jsonl"))
    assert written.notes[-1] == (
        "2 trials were retried; the 2 plays that do not count cost 6.00 ¢. As a cache answers, the last plays are "
        "billed that again; 2.00 ¢ is in no figure."
    )


def test_a_trial_that_was_broken_off_and_not_played_again_is_no_retried_one(tmp_path: Path) -> None:
    written = write_page(run(tmp_path, [replace(BROKEN_OFF, task="of nobody")]))
    assert written.notes[-1] == "1 trial was broken off and not played again, for 0.500 ¢, in no figure."


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_browser_lists_them_when_they_are_asked_for(tmp_path: Path) -> None:
    page = write_page(run(tmp_path, [BROKEN_OFF, FAILED])).file
    with Chromium() as tab:
        tab.open(page)
        assert "2 trials" in " ".join(tab.value("document.querySelector('.facts').innerText").split())
        assert "1 trial was retried" in " ".join(texts(tab, ".note"))
        tab.open(page, "view=trials")
        assert count(tab) == 2
        tab.open(page, "view=trials&retried=with")
        assert count(tab) == 4
        tab.open(page, "view=trials&retried=only")
        assert count(tab) == 2
        assert texts(tab, ".row .asked") == ["broken off", FAILED.failure]
        tab.key("j")
        tab.key("j")
        tab.until("document.querySelector('.verdict h3')?.textContent.includes('TimeoutError')")
        assert texts(tab, ".row-bill b")[:2] == ["1 ¢", "orchestrator"]
        assert "set aside" in texts(tab, "#detail .note")[0]
        (tmp_path / RETRIED).unlink()
        tab.open(write_page(tmp_path).file, "view=trials")
        assert tab.value("document.querySelector('[name=retried]').closest('label').offsetWidth") == 0
        assert tab.complaints == []
