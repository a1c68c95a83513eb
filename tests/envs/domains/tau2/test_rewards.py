"""Tau2-v0's rewards: reference paths, floors and recorded runs, played by text."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from tests.support.tau2_players import EXPECTED, Case, Solved, count, replay_all, winners
from tests.tau2_playing import RECORDINGS, needs_package, needs_recordings
from toolorchestra.envs.domains.tau2.package import load_release

pytestmark = needs_package
NOTHING_SOLVES = {"airline": "0 1 4 5 6 10 13 26 28 31 34 36 41 43 45 46 47 48 49", "retail": "10 12 25 50 57 65 105"}


@pytest.mark.parametrize(("case", "expected"), EXPECTED.items(), ids=lambda value: "-".join(map(str, value)))
def test_every_reference_path_and_every_floor_is_as_known(case: Case, expected: Solved) -> None:
    assert count(case) == expected


@pytest.mark.parametrize("domain", NOTHING_SOLVES)
def test_doing_nothing_solves_exactly_the_known_tasks(domain: str) -> None:
    found = winners(Case(domain, "base", "scripted"), "nothing")
    assert sorted(found, key=int) == NOTHING_SOLVES[domain].split()


def test_corrections_agree_on_reference_paths_and_floors() -> None:
    for case in (
        Case("airline", "base", "scripted"),
        Case("telecom", "base", "none"),
        Case("mock", "base", "scripted"),
    ):
        assert count(case, corrected=True) == EXPECTED[case]


@needs_recordings
@pytest.mark.parametrize("corrected", [False, True])
def test_recorded_runs_return_their_recorded_rewards_and_parts(corrected: bool) -> None:
    agreement = replay_all(str(RECORDINGS), corrected=corrected)
    assert agreement.complete, str(agreement)
    assert str(agreement).startswith("100/100 rewards")
    assert str(agreement).endswith("999/999 tool outputs")


@needs_recordings
@pytest.mark.parametrize(("domain", "most"), [("airline", 0.4), ("retail", 0.1), ("telecom", 0.5)])
def test_recorded_runs_graded_as_other_tasks_mostly_fail(domain: str, most: float, tmp_path: Path) -> None:
    """Agreeing everywhere would also pass the test above: a grader must tell tasks apart."""
    rows = [json.loads(line) for line in gzip.decompress(RECORDINGS.read_bytes()).decode().splitlines()]
    passed = [row for row in rows if row["domain"] == domain and row["reward"] == 1.0]
    tasks = load_release(None).tasks(domain)
    rng = random.Random(0)
    for row in passed:
        other = rng.choice([o["task_id"] for o in passed if o["task_id"] != row["task_id"]])
        row["criteria"] = tasks[other]["evaluation_criteria"]
    file = tmp_path / "mixed.jsonl"
    file.write_text("\n".join(map(json.dumps, passed)), encoding="utf-8")
    survived = [run for run in replay_all(str(file)).runs if run.reward == 1.0]
    assert len(survived) / len(passed) <= most
