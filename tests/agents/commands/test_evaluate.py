"""The command line names real backends, and says what to type where one is missing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command_line import TOOLORCHESTRA, toolorchestra, unboxed
from tests.tau2_playing import needs_package
from toolorchestra.agents.evaluation.rows import read_rows


def test_an_index_is_built_named_recorded_and_replayed_without_it(tmp_path: Path) -> None:
    index, tape = tmp_path / "index", tmp_path / "tape.jsonl"
    made = toolorchestra("index", "embedded:frames", index)
    assert made.returncode == 0, made.stderr
    assert "bm25, 3728 passages" in made.stdout
    common = ("--env", "FRAMES-v0", "--split", "test", "--tasks", "3", "--policy", "cheap", "expensive")
    recorded = toolorchestra("evaluate", *common, "--backends", f"index={index}", f"record={tape}")
    assert recorded.returncode == 0, recorded.stderr
    assert "models SIMULATED" in recorded.stdout
    for file in index.rglob("*"):
        if file.is_file():
            file.unlink()
    replayed = toolorchestra("evaluate", *common, "--backends", f"index={index}", f"replay={tape}")
    assert replayed.returncode == 0, replayed.stderr
    digests = [re.findall(r"(\S+ \$) for the trials; (digest \w+)", out) for out in (recorded.stdout, replayed.stdout)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 1
    missed = toolorchestra("evaluate", *common, "--seed", "5", "--backends", f"index={index}", f"replay={tape}")
    assert "no recording of this" in missed.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backends", "none.toml"], "no file of backends 'none.toml'"),
        (["--backends", "index=nowhere"], "toolorchestra index build CORPUS nowhere"),
        (["--backends", "replay=none.jsonl"], "record one first"),
        (["--backends", "record=a", "cache=b"], "one cassette at a time"),
        (["--dataset", "some/set", "--backends", "index=embedded"], "some/set@COMMIT"),
        (["--backends", "sandbox=e2b"], "export E2B_API_KEY="),
        (["--backends", "index=embedded", "--policy", "chat"], "--backends FILE"),
        (["--backends", "judge=gpt-5-mini"], "the judge gpt-5-mini is a model: name its endpoint: --backends FILE"),
    ],
)
def test_what_is_missing_is_said_with_what_to_type(arguments: list[str], says: str) -> None:
    done = toolorchestra("evaluate", "--env", "HLE-v0", "--split", "test", "--tasks", "1", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_plain_execution_is_not_among_the_sandboxes() -> None:
    done = toolorchestra("evaluate", "--backends", "sandbox=unsafe-exec")
    assert done.returncode == 2
    assert "no sandbox 'unsafe-exec'" in done.stderr


def test_one_spend_cap_for_the_whole_run_and_none_that_is_no_amount() -> None:
    common = ("--env", "HLE-v0", "--env", "FRAMES-v0", "--split", "test", "--tasks", "2", "--policy", "cheapest")
    done = toolorchestra("evaluate", *common, "--spend-cap", "0.0000001")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^cheapest +2 +0 +0\.0-100\.0 ", done.stdout, re.M) == ["cheapest  2      0   0.0-100.0 "] * 2
    for amount in ("0", "-1", "nan", "much"):
        refused = toolorchestra("evaluate", *common, "--spend-cap", amount)
        assert refused.returncode == 2
        assert "--spend-cap: a number of dollars above 0 expected" in unboxed(refused.stderr) or amount == "much"


@pytest.mark.parametrize("real", [[], ["--backends", "index=embedded"]])
def test_an_interrupt_shows_what_was_played(real: list[str], tmp_path: Path) -> None:
    policy = "cheap" if real else "oracle"
    command = [*TOOLORCHESTRA, "evaluate", "--tasks", "1500", "--policy", policy, "--out", str(tmp_path), *real]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as evaluation:
        while not (tmp_path / "rows.jsonl").is_file():
            time.sleep(0.01)
        evaluation.send_signal(signal.SIGINT)
        out, err = evaluation.communicate(timeout=60)
    assert (evaluation.returncode, err) == (130, "stopped\n")
    known = [int(count) for count in re.findall(rf"^{policy} +1500 +(\d+) ", out, re.M)]
    assert 0 < known[0] < 1500
    assert known[0] == len(list(read_rows(tmp_path)))


@needs_package
def test_every_environment_is_evaluated_and_several_in_one_run(tmp_path: Path) -> None:
    envs = ("HLE-v0", "FRAMES-v0", "ToolScale-v0", "Tau2-v0")
    words = [word for env in envs for word in ("--env", env)]
    done = toolorchestra("evaluate", *words, "--tasks", "2", "--policy", "random", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [f"{env} test" in done.stdout for env in envs] == [True] * 4
    assert [row.env for row in read_rows(tmp_path)] == [env for env in envs for _ in range(2)]
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert json.loads((tmp_path / "manifest.json").read_text())["simulated"] is True


def test_arguments_of_one_environment_and_values_for_each(tmp_path: Path) -> None:
    """`--each` is for all environments, what stands behind an id for that one; both go to gym.make."""
    common = ("--split", "test", "--tasks", "2", "--policy", "cheapest")
    for words, cut in (
        (("--env", "HLE-v0", "max_turns=1", "--env", "FRAMES-v0"), {"HLE-v0"}),
        (
            ("--env", "HLE-v0", "--env", "FRAMES-v0", "--each", "max_turns=1,2"),
            {f"{env}, max_turns=1" for env in ("HLE-v0", "FRAMES-v0")},
        ),
    ):
        folder = tmp_path / str(len(cut))
        assert toolorchestra("evaluate", *words, *common, "--out", folder).returncode == 0
        assert {row.env for row in read_rows(folder) if row.turns == 1} == cut


def test_an_id_of_nowhere_is_refused_in_a_line() -> None:
    done = toolorchestra("evaluate", "--env", "no_module:Some-v0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
