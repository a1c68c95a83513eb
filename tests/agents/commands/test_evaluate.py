"""The command line names real backends, and says what to type where one is missing."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command_line import TOOLORCHESTRA, toolorchestra, unboxed


def test_an_index_is_built_named_recorded_and_replayed_without_it(tmp_path: Path) -> None:
    index, tape = tmp_path / "index", tmp_path / "tape.jsonl"
    made = toolorchestra("index", "embedded:frames", index)
    assert made.returncode == 0, made.stderr
    assert "bm25, 3728 passages" in made.stdout
    common = ("--env", "FRAMES-v0", "--split", "test", "--tasks", "3", "--policy", "cheap", "dear")
    recorded = toolorchestra("evaluate", *common, "--index", index, "--record", tape)
    assert recorded.returncode == 0, recorded.stderr
    assert "models SIMULATED" in recorded.stdout
    for file in index.rglob("*"):
        if file.is_file():
            file.unlink()
    replayed = toolorchestra("evaluate", *common, "--index", index, "--replay", tape)
    assert replayed.returncode == 0, replayed.stderr
    digests = [re.findall(r"(\S+ \$) in all, .* (digest \w+)", out) for out in (recorded.stdout, replayed.stdout)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 2
    missed = toolorchestra("evaluate", *common, "--seed", "5", "--index", index, "--replay", tape)
    assert "no recording of this" in missed.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backends", "none.toml"], "no file of backends 'none.toml'"),
        (["--index", "nowhere"], "toolorchestra index CORPUS nowhere"),
        (["--replay", "none.jsonl"], "record one first"),
        (["--record", "a", "--cache", "b"], "one cassette at a time"),
        (["--dataset", "some/set", "--index", "embedded"], "some/set@COMMIT"),
        (["--sandbox", "e2b"], "export E2B_API_KEY="),
        (["--index", "embedded", "--policy", "chat"], "--backends FILE"),
        (["--judge", "gpt-5-mini"], "the judge gpt-5-mini is a model: name its endpoint: --backends FILE"),
    ],
)
def test_what_is_missing_is_said_with_what_to_type(arguments: list[str], says: str) -> None:
    done = toolorchestra("evaluate", "--env", "HLE-v0", "--split", "test", "--tasks", "1", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_plain_execution_is_not_among_the_sandboxes() -> None:
    done = toolorchestra("evaluate", "--sandbox", "unsafe-exec")
    assert done.returncode == 2
    assert "invalid choice" in done.stderr


def test_one_spend_cap_for_the_whole_run_and_none_that_is_no_amount() -> None:
    common = ("--env", "HLE-v0", "--env", "FRAMES-v0", "--split", "test", "--tasks", "2", "--policy", "cheapest")
    done = toolorchestra("evaluate", *common, "--spend-cap", "0.0000001")
    assert done.returncode == 0, done.stderr
    first, second = (block for block in done.stdout.split("\n\n") if block)
    assert "not played" in first
    assert re.search(r"^cheapest +-", second, re.M), second
    for amount in ("0", "-1", "nan", "much"):
        refused = toolorchestra("evaluate", *common, "--spend-cap", amount)
        assert refused.returncode == 2
        assert "--spend-cap: a number of dollars above 0 expected" in unboxed(refused.stderr) or amount == "much"


@pytest.mark.parametrize("real", [[], ["--index", "embedded"]])
def test_an_interrupt_shows_what_was_played(real: list[str]) -> None:
    policy = "cheap" if real else "oracle"
    command = [*TOOLORCHESTRA, "evaluate", "--tasks", "1500", "--policy", policy, *real]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as evaluation:
        assert evaluation.stdout is not None
        assert "1500 tasks" in evaluation.stdout.readline()
        time.sleep(0.1)
        evaluation.send_signal(signal.SIGINT)
        out, err = evaluation.communicate(timeout=60)
    assert (evaluation.returncode, err) == (130, "stopped\n")
    (played,) = re.findall(rf"^stopped; played: {policy} (\d+) of 1500$", out, re.M)
    assert int(played) < 1500
    assert "spend cap" not in out


@pytest.mark.parametrize("option", ["--tasks", "--at-once"])
def test_evaluating_nothing_is_refused(option: str) -> None:
    refused = toolorchestra("evaluate", option, "0")
    assert refused.returncode == 2
    assert f"{option}: a whole number from 1 up expected, got 0" in unboxed(refused.stderr)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("Tau2-v0", "no question environment 'ToolOrchestra/Tau2-v0'; valid: "),
        ("ToolScale-v0", "no question environment 'ToolOrchestra/ToolScale-v0'; valid: "),
    ],
)
def test_what_is_evaluated_are_question_environments(env: str, says: str) -> None:
    done = toolorchestra("evaluate", "--env", "HLE-v0", "--env", env, "--tasks", "1")
    assert (done.returncode, done.stdout) == (2, "")
    named = done.stderr.removeprefix(f"error: {says}").partition(" Did you mean")[0]
    assert set(re.findall(r"[\w/]+-v0", named)) == {"ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0"}


def test_arguments_of_one_environment_and_of_all() -> None:
    """`--set` is for all environments, what stands behind an id for that one; both go to gym.make."""
    common = ("--split", "test", "--tasks", "2", "--policy", "cheapest")
    done = toolorchestra("evaluate", "--env", "HLE-v0", "max_turns=1", "--env", "FRAMES-v0", *common)
    first, second = (block for block in done.stdout.split("\n\n") if block)
    assert re.search(r"^cheapest .* 1\.00 +0$", first, re.M), first
    assert not re.search(r"^cheapest .* 1\.00 +0$", second, re.M), second
    done = toolorchestra("evaluate", "--env", "HLE-v0", "--env", "FRAMES-v0", "--set", "max_turns=1", *common)
    assert len(re.findall(r"^cheapest .* 1\.00 +0$", done.stdout, re.M)) == 2


def test_an_id_of_nowhere_is_refused_in_a_line() -> None:
    done = toolorchestra("evaluate", "--env", "no_module:Some-v0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
