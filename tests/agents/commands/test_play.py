"""The player as its users start it: from a shell, by hand or with a policy."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.command_line import TOOLORCHESTRA, unboxed
from tests.tau2_playing import needs_package
from toolorchestra.agents.configuration.environment_options import value

CLEAN = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LINES", "COLUMNS")}


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
    said = "?\nsearch search-2\n\nwhat now\ny\nanswer none-such\nanswer answer-4\n"
    done = play("--env", "HLE-v0", said=said)
    assert (done.returncode, done.stderr) == (0, "")
    assert "    model (reasoner-1 | reasoner-2" in done.stdout
    assert "say TEXT              say something" in done.stdout
    assert '{"name": "search", "arguments": {"model": "search-2"}}' in done.stdout
    assert "[assistant] what now\n" in done.stdout
    assert "none-such'; nothing was sent" in done.stdout
    assert "[assistant] answer none-such" not in done.stdout
    assert '{"name": "answer", "arguments": {"model": "answer-4"}}' in done.stdout
    assert "bill after turn 3" in done.stdout
    assert re.search(r"^done: outcome [01], ", done.stdout, re.M)
    by_role, _, by_tool = done.stdout.partition("by role\n")[2].partition("by tool\n")
    for rows in (by_role, by_tool):
        sums = [float(number) for number in re.findall(r"([\d.]+) ¢", rows)]
        assert sum(sums) == pytest.approx(float(re.findall(r"turn 3: ([\d.]+) ¢", done.stdout)[0]), abs=0.0005)


def test_what_is_mistyped_is_asked_back_and_costs_nothing() -> None:
    lines = ["serach search-2", "n", '<tool_call>{"name": "search", "arguments": {"model": "x"}}</tool_call>', "q"]
    done = play("--env", "HLE-v0", said="\n".join(lines) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "'serach' is no tool (search, enhance_reasoning, answer). Did you mean 'search'?" in done.stdout
    assert "got 'x'; nothing was sent" in done.stdout
    assert "left; bill after turn 0: 0.0000 ¢" in done.stdout


def test_parameters_are_asked_for_one_by_one_and_the_end_is_clear() -> None:
    said = "ask\nnobody\ngpt-5\nwhat is it?\nsubmit\n\n.\nsubmit\n42 km\n"
    done = play("--tools", "plain", said=said)
    assert (done.returncode, done.stderr) == (0, "")
    assert "model is one of: " in done.stdout
    assert "answer is needed; . gives up" in done.stdout
    assert '{"name": "ask", "arguments": {"model": "gpt-5", "question": "what is it?"}}' in done.stdout
    assert "given up; nothing was sent" in done.stdout
    assert re.search(
        r"^not solved \(outcome 0\); [\d.]+ ¢, [\d.]+ s, 2 turns\n  answered  42 km\n  expected  \S", done.stdout, re.M
    )


def test_every_parameter_of_a_service_tool_is_shown_and_filled() -> None:
    """By name on one line, or one by one; the policy is shown whole."""
    settings = ("--env", "ToolScale-v0", "domain=finance", "call_expert=False", "--preference", "none")
    whole = play(*settings, said="?\nq\n")
    assert "more characters)" not in whole.stdout
    tools = re.findall(r"^(\w+): .*\n((?:    \w+ \(.*\n?)+)", whole.stdout, re.M)
    name, lines = next((n, p.splitlines()) for n, p in tools if len(p.splitlines()) > 1 and "left out" not in p)
    given = {re.findall(r"\w+", line)[0]: "1" for line in lines}
    one_by_one = play(*settings, said=f"{name}\n" + "".join(f"{value}\n" for value in given.values()) + "q\n")
    named = play(*settings, said=f"{name} " + " ".join(f"{key}={value}" for key, value in given.items()) + "\nq\n")
    for done in (one_by_one, named):
        assert (done.returncode, done.stderr) == (0, "")
    told = [re.findall(r'"arguments": .*|[^>\n]*; nothing was sent', done.stdout)[-1:] for done in (one_by_one, named)]
    assert told[0] == told[1] != []


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
    done = play("--env", "Tau2-v0", *settings, said="say Is there anything else?\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[assistant] Hi! How can I help you today?\n[user] I" in done.stdout
    assert "'termination': 'user_stop'" in done.stdout
    assert "--set takes NAME=VALUE" in play("--env", "Tau2-v0", "--set", "domain").stderr


class Terminal:
    """A person's: what the player shows on a pseudo-terminal, and keys typed into it."""

    def __init__(self, *arguments: str, rows: int = 24, columns: int = 80) -> None:
        self.here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.player = subprocess.Popen(
            [*TOOLORCHESTRA, "play", "--no-color", *arguments],
            stdin=there, stdout=there, stderr=there, env={**CLEAN, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(there)
        self.shown = ""

    def until(self, text: str) -> str:
        """What was shown since the last call, to this text. It has a minute."""
        end = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self.here], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.here, 65536).decode(errors="replace").replace("\r\n", "\n")
                except OSError:  # Linux says so when the other end is closed
                    assert text in self.shown, self.shown
        seen, _, self.shown = self.shown.partition(text)
        return seen

    def type(self, keys: str) -> None:
        os.write(self.here, keys.encode())

    def end(self) -> int:
        code = self.player.wait(timeout=30)
        os.close(self.here)
        return code


PROMPT = "action (? for help, q to quit)> "


def test_a_person_edits_a_line_recalls_one_and_completes_one() -> None:
    pytest.importorskip("readline")
    terminal = Terminal("--env", "HLE-v0", rows=1000)
    terminal.until(PROMPT)
    terminal.type("earch search-1\x01s\r")  # Ctrl-A goes to the line's beginning
    assert '"arguments": {"model": "search-1"}' in terminal.until(PROMPT)
    terminal.type("\x1b[A\x7f2\r")  # the line before, with another last letter
    assert '"arguments": {"model": "search-2"}' in terminal.until(PROMPT)
    terminal.type("answ\t")
    terminal.type("\r")
    terminal.until("  model (")
    terminal.type("answer-4\r")
    assert '"arguments": {"model": "answer-4"}' in terminal.until("by tool")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    "env_id", ["HLE-v0", "FRAMES-v0", "ToolScale-v0", pytest.param("Tau2-v0", marks=needs_package)]
)
def test_every_id_has_a_policy(env_id: str) -> None:
    done = play("--env", env_id, "--policy", "random", "--split", "train", "--set", "max_turns=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "by role" in done.stdout


def test_random_fills_what_a_tool_of_any_world_needs() -> None:
    done = play("--env", "ToolScale-v0", "--policy", "random", "--set", "max_turns=12", "call_expert=False")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r'"arguments": \{"', done.stdout)) > 6
    assert "needs the argument" not in done.stdout


def test_policies_of_evaluate_play_too_and_a_folder_is_a_run() -> None:
    done = play("--policy", "cascade", "--full")
    assert (done.returncode, done.stderr) == (0, "")
    assert "by role" in done.stdout
    done = play("--policy", "/")
    assert (done.returncode, done.stderr[:33]) == (2, "error: no whole checkpoint in '/'")
