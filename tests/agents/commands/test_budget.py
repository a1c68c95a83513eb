"""`toolorchestra budget`: what the page about eight billion parameters says is what it prints."""

from __future__ import annotations

import pytest

from tests.command_line import ended
from tests.paths import REPOSITORY
from toolorchestra.agents.commands.budget import machines, main

PAGE = (REPOSITORY / "docs" / "eight-billion.md").read_text(encoding="utf-8")


def test_the_table_of_machines_is_the_page_s() -> None:
    assert machines() in PAGE


def test_it_tells_memory_seconds_and_hours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--preset 8b-node --groups 2 --rollouts 6".split()) == 0
    said = capsys.readouterr().out
    assert "| trainer: weights | 8.2 | 8.2 | 8.2 |" in said  # half of 16.4
    assert "a step of 12 episodes: " in said
    assert "$ an hour for each GPU" in said


def test_a_machine_that_was_never_measured_is_told_memory_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--preset 8b-h100 --gigabytes 96".split()) == 0
    assert "a step of" not in capsys.readouterr().out


def test_a_cache_of_other_bits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(main, "--preset 8b-h100 --cache-bits 4") == 2
    assert "--cache-bits is 16 or 8, got 4" in capsys.readouterr().err
