"""The player as its users start it: from a shell, by hand or with a policy."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from tests.command_line import TOOLORCHESTRA, unboxed
from tests.tau2_playing import needs_package
from toolorchestra.agents.configuration.environment_options import value

CLEAN = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}


def play(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOOLORCHESTRA, "play", *arguments], input=said, capture_output=True, text=True, timeout=60, env=CLEAN
    )


@pytest.mark.parametrize("policy", ["cheapest", "strongest", "random", "oracle"])
def test_policies_play_to_the_verdict_and_the_bill(policy: str) -> None:
    done = play("--policy", policy, "--seed", "3", "--episodes", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^(done|cut off by)", done.stdout, re.M)) == 2
    assert len(re.findall(r"^by role$", done.stdout, re.M)) == len(re.findall(r"^by tool$", done.stdout, re.M)) == 2
    turns = done.stdout.count("[assistant]")
    assert done.stdout.count("bill after turn") == turns
    assert "\033" not in done.stdout
    again = play("--policy", policy, "--seed", "3", "--episodes", "2")
    assert again.stdout == done.stdout


def test_shorthand_text_and_help() -> None:
    done = play("--env", "HLE-v0", said="?\nsearch search-2\n\nwhat now\nanswer none-such\nanswer answer-4\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "reasoner-1|reasoner-2" in done.stdout
    assert '{"name": "search", "arguments": {"model": "search-2"}}' in done.stdout
    assert "[assistant] what now\n" in done.stdout
    assert "[assistant] answer none-such\n" in done.stdout
    assert '{"name": "answer", "arguments": {"model": "answer-4"}}' in done.stdout
    assert "bill after turn 4" in done.stdout
    assert re.search(r"^done: outcome [01], ", done.stdout, re.M)
    by_role, _, by_tool = done.stdout.partition("by role\n")[2].partition("by tool\n")
    for rows in (by_role, by_tool):
        sums = [float(number) for number in re.findall(r"([\d.]+) ¢", rows)]
        assert sum(sums) == pytest.approx(float(re.findall(r"turn 4: ([\d.]+) ¢", done.stdout)[0]), abs=0.0005)


def test_plain_tools_take_the_rest_of_the_line() -> None:
    done = play("--tools", "plain", said="local_search river Thames\nask gpt-5 what is it?\nsubmit 42 km\n")
    assert done.returncode == 0
    assert '{"name": "local_search", "arguments": {"query": "river Thames"}}' in done.stdout
    assert '{"name": "ask", "arguments": {"model": "gpt-5", "question": "what is it?"}}' in done.stdout
    assert "'answer': '42 km'" in done.stdout


@pytest.mark.parametrize("said", ["", "q\n", "search search-1\nq\n"])
def test_quitting_is_no_error(said: str) -> None:
    done = play("--env", "HLE-v0", "--episodes", "5", said=said)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("left; bill") == 1


def test_task_preference_and_prices() -> None:
    done = play(
        "--task-id", "frames-sim/test/5", "--preference", "none", "--prices", "unseen-2026-01", "--split", "test"
    )
    assert "task frames-sim/test/5" in done.stdout
    assert "prices: unseen-2026-01" in done.stdout
    assert "The user's wish" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--env", "HEL-v0"], "HLE-v0"),
        (["--env", "no_module:Some-v0"], "no_module"),
        (["--split", "dev"], "validation"),
        (["--tools", "papr"], "paper"),
        (["--prices", "free"], "paper-2025-11"),
        (["--preference", "thrifty"], "frugal"),
        (["--policy", "best"], "strongest"),
        (["--policy", "guess"], "plain"),
        (["--task-id", "7"], "SPLIT/N"),
    ],
)
def test_bad_names_get_one_line_and_status_2(arguments: list[str], expected: str) -> None:
    done = play(*arguments)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*\n", done.stderr), done.stderr
    assert expected in done.stderr


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_a_delay_is_a_time(seconds: str) -> None:
    done = play("--delay", seconds)
    assert done.returncode == 2
    assert f"--delay must be 0 or more seconds, got {seconds}" in unboxed(done.stderr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5), ("0.01", 0.01), ("true", True), ("False", False), ("None", None), ("null", None),
        ('["a"]', ["a"]), ('{"a": 1}', {"a": 1}), ('"5"', "5"), ("retail", "retail"), ("a=b", "a=b"), ("", ""),
    ],
)  # fmt: skip
def test_settings_are_json_or_text(text: str, expected: object) -> None:
    got = value(text)
    assert (type(got), got) == (type(expected), expected)


def test_settings_reach_the_environment_with_their_types() -> None:
    settings = ("--set", "max_turns=1", "call_expert=False", "domain=finance")
    done = play("--env", "ToolScale-v0", "--policy", "random", *settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("[assistant] <tool_call>") == 1
    assert "call_expert" not in done.stdout


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        ("oracle", ["--env", "ToolScale-v0"]),
        ("cheapest", ["--env", "ToolScale-v0"]),
        ("guess", ["--env", "HLE-v0"]),
        pytest.param("strongest", ["--env", "Tau2-v0", "--split", "base"], marks=needs_package),
    ],
)
def test_a_policy_that_cannot_play_is_refused_before_anything_is_shown(policy: str, arguments: list[str]) -> None:
    done = play("--policy", policy, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    who = "random, cheapest, strongest, oracle, you" if policy == "guess" else "random, you"
    assert f"--policy {policy} cannot play {arguments[1]}: " in done.stderr
    assert f"; who can: {who} (no --policy)\n" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_is_answered_with_a_word() -> None:
    with subprocess.Popen(
        [*TOOLORCHESTRA, "play", "--policy", "oracle", "--delay", "60"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN,
    ) as player:  # fmt: skip
        assert player.stdout is not None
        assert player.stdout.readline().startswith("task ")
        player.send_signal(signal.SIGINT)
        _, err = player.communicate(timeout=30)
    assert (player.returncode, err) == (130, "stopped\n")


@pytest.mark.parametrize(
    ("arguments", "extra", "coloured"), [([], {}, True), (["--no-color"], {}, False), ([], {"NO_COLOR": "1"}, False)]
)
def test_colour_on_a_terminal_alone(arguments: list[str], extra: dict[str, str], coloured: bool) -> None:
    here, there = pty.openpty()
    player = subprocess.Popen(
        [*TOOLORCHESTRA, "play", "--env", "HLE-v0", "--policy", "cheapest", *arguments],
        stdin=subprocess.DEVNULL, stdout=there, stderr=there, env={**CLEAN, **extra},
    )  # fmt: skip
    os.close(there)
    shown = b""
    while True:
        try:
            chunk = os.read(here, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(here)
    assert player.wait(timeout=30) == 0
    assert (b"\033[" in shown) == coloured
    assert b"by tool" in shown


@needs_package
def test_a_task_with_a_user_is_played_by_hand() -> None:
    settings = ("--split", "base", "--preference", "none", "--set", "domain=mock", "user=scripted")
    done = play("--env", "Tau2-v0", *settings, said="Is there anything else?\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[assistant] Hi! How can I help you today?\n[user] I" in done.stdout
    assert "'termination': 'user_stop'" in done.stdout
    assert "--set takes NAME=VALUE" in play("--env", "Tau2-v0", "--set", "domain").stderr
