"""Tau2-v0's rewards: reference paths, floors and recorded runs, played by text."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from tests.support.tau2_players import PLAYERS, made, replay_all, winners
from tests.tau2_playing import RECORDINGS, needs_package, needs_recordings
from toolorchestra.envs.domains.tau2.package import load_release

pytestmark = needs_package
NOTHING_SOLVES = {"airline": "0 1 4 5 6 10 13 26 28 31 34 36 41 43 45 46 47 48 49", "retail": "10 12 25 50 57 65 105"}
EXPECTED = {
    ("airline", "base", "scripted"): (50, 50, 19, 19),
    ("retail", "base", "scripted"): (114, 114, 7, 7),
    ("telecom", "base", "scripted"): (114, 114, 0, 20),
    ("telecom", "full", "scripted"): (2285, 2285, 0, 32),
    ("telecom-workflow", "base", "scripted"): (114, 114, 0, 20),
    ("telecom", "base", "none"): (114, 114, 0, 20),
    ("telecom", "full", "none"): (2285, 2285, 0, 32),
    ("mock", "base", "scripted"): (9, 8, 1, 2),
    ("mock", "base", "none"): (6, 6, 1, 2),
}
"""Domain, split and user: how many tasks there are, and how many the reference path, nothing and a transfer solve."""
CORRECTED = [("airline", "base", "scripted"), ("telecom", "base", "none"), ("mock", "base", "scripted")]
CASES = [*((*case, False) for case in EXPECTED), *((*case, True) for case in CORRECTED)]


@pytest.mark.parametrize(("domain", "split", "user", "corrected"), CASES)
def test_every_reference_path_and_every_floor_is_as_known(domain: str, split: str, user: str, corrected: bool) -> None:
    env, source = made(user, corrected=corrected, domain=domain, split=split)
    solved = [winners(env, player, solo=user == "none") for player in PLAYERS]
    assert (len(source.ids(split)), *map(len, solved)) == EXPECTED[domain, split, user]
    if domain in NOTHING_SOLVES:
        assert sorted(solved[1], key=int) == NOTHING_SOLVES[domain].split()


@needs_recordings
@pytest.mark.parametrize("corrected", [False, True])
def test_recorded_runs_return_their_recorded_rewards_and_parts(corrected: bool) -> None:
    runs = replay_all(str(RECORDINGS), corrected=corrected)
    assert [run.run.sim_id for run in runs if not run.agrees] == []
    assert (len(runs), sum(run.outputs for run in runs), sum(run.outputs_equal for run in runs)) == (100, 999, 999)


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
    survived = [run for run in replay_all(str(file)) if run.reward == 1.0]
    assert len(survived) / len(passed) <= most
