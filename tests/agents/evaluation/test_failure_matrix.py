"""A model that dies in the middle of a run, as expert or as judge, in seven ways: the bounds hold the truth, and the
exit code says that something is amiss. The test prints the matrix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.evaluation.rows import SUMMARY

pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
RIGHT, HEALTHY = 0.6, 8
"""The share of the tasks that the expert is right on, and how many requests are answered before the model dies."""
FAULTS: dict[str, ServerReply] = {
    "500": ServerReply("no", 500),
    "402": ServerReply("no credit", 402),
    "403": ServerReply("no", 403),
    "404": ServerReply("no such model", 404),
    "429": ServerReply("slow down", 429),
    "garbage": ServerReply(body="<html>"),
    "hang": ServerReply("late", seconds=3.0),
}
PARTS = ("expert", "judge")


def judges(asked: ReceivedRequest) -> bool:
    return "You compare a student's answer" in asked.text


def server_of(part: str, fault: ServerReply) -> Callable[[ReceivedRequest], ServerReply]:
    """The expert says which number it is, in words that a judge has to read, on three questions of five."""
    served = dict.fromkeys(PARTS, 0)

    def reply(asked: ReceivedRequest) -> ServerReply:
        who = "judge" if judges(asked) else "expert"
        served[who] += 1
        if who == part and served[who] > HEALTHY:
            return fault
        if who == "judge":
            return ServerReply(f"<verdict>{'right' if 'surely number' in asked.text else 'wrong'}</verdict>")
        number = int(asked.text.partition("Which number is item ")[2].partition("?")[0])
        return ServerReply(f"<answer>{'surely number' if number % 5 < 3 else 'perhaps'} {number + 100}</answer>")

    return reply


def cell(folder: Path, part: str, fault: str) -> tuple[int, float, float, int]:
    """Exit code, lower and upper bound of the accuracy, and how many trials failed."""
    folder.mkdir()
    questions = folder / "questions.jsonl"
    asked = [{"id": str(n), "question": f"Which number is item {n}?", "answer": f"{n + 100} it is"} for n in range(20)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in asked))
    with Loopback(server_of(part, FAULTS[fault])) as server:
        (folder / "b.toml").write_text(
            f'[endpoints.here]\nbase_url = "{server.base_url}"\n'
            '[models."*"]\ndeadline_seconds = 0.5\npatience_seconds = 1.0\nretries = 0\n'
        )
        code = evaluate.main([
            "--env", "HLE-v0", "--dataset", str(questions), "--policy", "always:answer-1", "--at-once", "2",
            "--backends", str(folder / "b.toml"), "judge=gpt-5-mini", "index=embedded",
            "--out", str(folder / "run"),
        ])  # fmt: skip
    (figures,) = json.loads((folder / "run" / SUMMARY).read_text())["policies"]
    return code, figures["accuracy"]["low"], figures["accuracy"]["high"], figures["trials"]["failed"]


def test_whatever_dies_and_however_the_bounds_hold_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cell(tmp_path / "healthy", "", "500") == (0, RIGHT, RIGHT, 0)
    found = {(part, fault): cell(tmp_path / f"{part}-{fault}", part, fault) for part in PARTS for fault in FAULTS}
    lines = [
        f"{part:8} {fault:8} exit {code}  {100 * low:5.1f} to {100 * high:5.1f} %  {failed:3} failed"
        for (part, fault), (code, low, high, failed) in found.items()
    ]
    capsys.readouterr()
    with capsys.disabled():
        print("", f"true: {100 * RIGHT:.0f} %", *lines, sep="\n")
    for at, (code, low, high, failed) in found.items():
        assert low <= RIGHT <= high, at
        assert low < high, at  # nobody knows all
        assert (code in (1, 2), failed > 0) == (True, True), at
