"""Training by several processes: the same losses and weights as by one, and resumed to the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agents.engines.in_processes import KINDS, LOSS, STEPS, Course, data
from tests.paths import REPOSITORY
from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.engines.update import padded, rounds

CLOSE = 1e-5


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes found, with their checkpoints."""
    folder = tmp_path_factory.mktemp("two")
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    course = [sys.executable, "-m", *torchrun, "-m", "tests.agents.engines.in_processes", str(folder)]
    done = subprocess.run(
        course, cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def near(row: Mapping[str, float], kind: str) -> dict[str, Any]:
    """What a step's metrics are to be. In 16 bits a gradient's last digits depend on which batch a sequence is in."""
    rounded = {"gradient_norm"} if kind == "bfloat16" else set()
    return {name: pytest.approx(value, abs=2e-4 if name in rounded else CLOSE) for name, value in row.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_as_one_does(two: Path, tmp_path: Path, kind: str) -> None:
    theirs: dict[str, Any] = json.loads((two / "found.json").read_text())[kind]
    mine = Course(tmp_path, None).take(kind)
    for row, other in zip(mine["rows"], theirs["rows"], strict=True):
        assert row["gradient_norm"] > 0
        assert other == near(row, kind)
    assert theirs["resumed"] == theirs["rows"][1:]  # to the bit
    assert theirs["handed"].keys() == mine["handed"].keys()
    for name, (total, *shape) in theirs["handed"].items():
        assert [total, *shape] == [pytest.approx(mine["handed"][name][0], abs=1e-3), *mine["handed"][name][1:]]
    apart = 0.05 if kind == "bfloat16" else 1e-4  # an adapter's last digits move a logit of 16 bits by one of its own
    assert theirs["scored"] == [pytest.approx(scores, abs=apart) for scores in mine["scored"]]


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_goes_on_from_what_two_have_saved(two: Path, kind: str) -> None:
    theirs = json.loads((two / "found.json").read_text())[kind]["rows"]
    engine = Course(two, None).engine(KINDS[kind])
    engine.load(two / kind)
    for step in range(1, STEPS):
        assert dict(engine.train(data(step), LOSS, 1e-2)) == near(theirs[step], kind)


def test_every_process_has_a_batch_in_every_round_and_those_of_one_are_alike() -> None:
    whole = [[datum(size) for size in sizes] for sizes in ([30, 30, 40], [9, 10], [10, 11, 12], [50], [20, 21])]
    made = list(rounds(whole, 4))
    assert [len(one) for one in made] == [4, 4]
    assert sorted(len(d.tokens) for one in made for batch in one for d in batch) == sorted(
        len(d.tokens) for batch in whole for d in batch
    )
    assert min(map(padded, made[0])) >= max(map(padded, made[1]))
    few = list(rounds([[datum(5)], [datum(6)], [datum(7)]], 2))
    assert [[len(batch) for batch in one] for one in few] == [[1, 1], [1, 0]]


def datum(size: int) -> Datum:
    return Datum(range(size), [0.0] * size, [0.0] * size, [True] * size)
