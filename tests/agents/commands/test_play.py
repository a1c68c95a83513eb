"""`play`: by hand or with a policy, in this process; and on a pseudo-terminal, as a person sees it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils.seeding import np_random

from tests.command_line import TOOLORCHESTRA, ended
from tests.tau2_playing import needs_package
from toolorchestra.agents.commands import play
from toolorchestra.agents.configuration.environment_options import value
from toolorchestra.envs.factory import next_seed

Capture = pytest.CaptureFixture[str]
CLEAN = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LINES", "COLUMNS")}
FRAMES = ("--policy", "cheapest", "--split", "test", "--env", "FRAMES-v0")


class Hand:
    """A person at the keyboard who types some lines, and then ends the input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self.patch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str, said: str = "") -> str:
        """What is shown, where nothing is wrong."""
        self.patch.setattr("sys.stdin", io.StringIO(said))
        assert play.main([*words]) == 0
        out, err = self.capsys.readouterr()
        assert err == ""
        return out


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Hand:
    return Hand(monkeypatch, capsys)


# -- a policy plays ----------------------------------------------------------------------------------------------------


def test_policies_play_to_the_verdict_and_the_bill_of_the_seeds_that_follow(hand: Hand) -> None:
    whole = hand(*FRAMES, "--seed", "3", "--episodes", "2")
    assert len(re.findall(r"^done: outcome [01], ", whole, re.M)) == 2
    assert len(re.findall(r"^by role$", whole, re.M)) == len(re.findall(r"^by tool$", whole, re.M)) == 2
    assert whole.count("bill after turn") == whole.count("[assistant]")
    assert "\033" not in whole
    assert whole == hand(*FRAMES, "--seed", "3") + hand(*FRAMES, "--seed", "4")


def test_the_very_episode_of_a_record_is_played(hand: Hand) -> None:
    by_seed = hand(*FRAMES, "--seed", "3")
    assert by_seed == hand(*FRAMES, "--episode-seed", str(next_seed(np_random(3)[0])))
    assert by_seed != hand(*FRAMES, "--episode-seed", "3")


def test_what_is_asked_for_reaches_the_environment(hand: Hand) -> None:
    words = ("--task-id", "frames-sim/test/5", "--preference", "none", "--prices", "unseen-2026-01", "--split", "test")
    out = hand(*words, "--policy", "strongest", "--set", "max_turns=1")
    assert out.startswith("task frames-sim/test/5")
    assert "prices: unseen-2026-01" in out
    assert "The user's wish" not in out
    assert out.count("[assistant]") == 1
    assert "cut off by" in out


def test_random_fills_what_a_tool_of_any_world_needs(hand: Hand) -> None:
    out = hand("--env", "ToolScale-v0", "--policy", "random", "--set", "max_turns=12", "call_expert=False")
    assert len(re.findall(r'"arguments": \{"', out)) > 6
    assert "needs the argument" not in out
    assert "call_expert" not in out


def test_policies_of_evaluate_play_too_and_a_folder_is_a_run(hand: Hand, capsys: Capture) -> None:
    assert "by role" in hand("--policy", "cascade", "--full")
    assert play.main(["--policy", "/"]) == 2
    assert capsys.readouterr().err.startswith("error: no whole checkpoint in '/'")


# -- a person plays ----------------------------------------------------------------------------------------------------


def test_shorthand_text_and_help(hand: Hand) -> None:
    out = hand("--env", "HLE-v0", said="?\nsearch search-2\n\nwhat now\ny\nanswer none-such\nanswer answer-4\n")
    assert "    model (reasoner-1 | reasoner-2" in out
    assert "say TEXT              say something" in out
    assert "none-such'; nothing was sent" in out
    assert re.findall(r"\[assistant\] (.*)$", out, re.M) == [
        '<tool_call>{"name": "search", "arguments": {"model": "search-2"}}</tool_call>',
        "what now",
        '<tool_call>{"name": "answer", "arguments": {"model": "answer-4"}}</tool_call>',
    ]
    assert re.search(r"^done: outcome [01], ", out, re.M)
    assert re.search(r"^  \(own tokens\) +[\d.]+ ¢$", out, re.M)
    by_role, _, by_tool = out.partition("by role\n")[2].partition("by tool\n")
    for rows in (by_role, by_tool):
        sums = [float(number) for number in re.findall(r"([\d.]+) ¢", rows)]
        assert sum(sums) == pytest.approx(float(re.findall(r"turn 3: ([\d.]+) ¢", out)[0]), abs=0.0005)


def test_what_is_mistyped_is_asked_back_and_costs_nothing(hand: Hand) -> None:
    lines = ["serach search-2", "n", '<tool_call>{"name": "search", "arguments": {"model": "x"}}</tool_call>', "q"]
    out = hand("--env", "HLE-v0", said="\n".join(lines) + "\n")
    assert "'serach' is no tool (search, enhance_reasoning, answer). Did you mean 'search'?" in out
    assert "got 'x'; nothing was sent" in out
    assert "left; bill after turn 0: 0.0000 ¢" in out


def test_parameters_are_asked_for_one_by_one_and_the_end_is_clear(hand: Hand) -> None:
    out = hand("--tools", "plain", said="ask\nnobody\ngpt-5\nwhat is it?\nsubmit\n\n.\nsubmit\n42 km\n")
    assert "model is one of: " in out
    assert "answer is needed; . gives up" in out
    assert '{"name": "ask", "arguments": {"model": "gpt-5", "question": "what is it?"}}' in out
    assert "given up; nothing was sent" in out
    verdict = r"^not solved \(outcome 0\); [\d.]+ ¢, [\d.]+ s, 2 turns\n  answered  42 km\n  expected  \S"
    assert re.search(verdict, out, re.M)


def test_every_parameter_of_a_service_tool_is_shown_and_filled(hand: Hand) -> None:
    """By name on one line, or one by one; the policy is shown whole."""
    settings = ("--env", "ToolScale-v0", "domain=finance", "call_expert=False", "--preference", "none")
    whole = hand(*settings, said="?\nq\n")
    assert "more characters)" not in whole
    tools = re.findall(r"^(\w+): .*\n((?:    \w+ \(.*\n?)+)", whole, re.M)
    name, lines = next((n, p.splitlines()) for n, p in tools if len(p.splitlines()) > 1 and "left out" not in p)
    given = {re.findall(r"\w+", line)[0]: "1" for line in lines}
    one_by_one = hand(*settings, said=f"{name}\n" + "".join(f"{value}\n" for value in given.values()) + "q\n")
    named = hand(*settings, said=f"{name} " + " ".join(f"{key}={value}" for key, value in given.items()) + "\nq\n")
    told = [re.findall(r'"arguments": .*|[^>\n]*; nothing was sent', out)[-1:] for out in (one_by_one, named)]
    assert told[0] == told[1] != []


def test_plain_tools_take_the_rest_of_the_line(hand: Hand) -> None:
    out = hand("--tools", "plain", said="local_search river Thames\nask gpt-5 what is it?\nsubmit 42 km\n")
    assert '{"name": "local_search", "arguments": {"query": "river Thames"}}' in out
    assert '{"name": "ask", "arguments": {"model": "gpt-5", "question": "what is it?"}}' in out
    assert "'answer': '42 km'" in out


@pytest.mark.parametrize("said", ["", "q\n"])
def test_who_leaves_sees_the_bill_and_plays_no_other(said: str, hand: Hand) -> None:
    out = hand("--env", "HLE-v0", "--episodes", "3", said=f"search search-1\n{said}")
    assert len(re.findall(r"^task ", out, re.M)) == 1
    assert re.search(r"^(action .*> )*left; bill after turn 1: ", out, re.M)
    assert "by role" not in out


@needs_package
def test_a_task_with_a_user_is_played_by_hand(hand: Hand) -> None:
    settings = ("--split", "base", "--preference", "none", "--set", "domain=mock", "user=scripted")
    out = hand("--env", "Tau2-v0", *settings, said="say Is there anything else?\n")
    assert "[assistant] Hi! How can I help you today?\n[user] I" in out
    assert "'termination': 'user_stop'" in out


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env HEL-v0", "HLE-v0"),
        ("--env CartPole-v1", "no environment 'CartPole-v1'; valid: FRAMES-v0, GAIA-v0, "),
        ("--env Tests/Strange-v0", "--env Tests/Strange-v0 is not of this suite; valid: ToolOrchestra/HLE-v0, "),
        ("--split dev", "validation"),
        ("--tools papr", "paper"),
        ("--prices free", "paper-2025-11"),
        ("--preference thrifty", "frugal"),
        ("--task-id 7", "SPLIT/N"),
        ("--policy best", "no policy 'best'; valid: "),
        ("--policy oracle --env ToolScale-v0", "policy 'oracle' plays questions to simulated experts"),
    ],
)
def test_what_cannot_be_played_is_said_in_a_line_before_anything_is_shown(
    words: str, says: str, capsys: Capture
) -> None:
    if "Tests/Strange-v0" in words:  # takes whatever it is given
        gym.register("Tests/Strange-v0", lambda **_: CartPoleEnv())
    assert play.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err


@pytest.mark.parametrize(
    ("option", "says"),
    [("--delay=-1", "0 or more seconds, got -1"), ("--delay=nan", "got nan"), ("--episodes=0", "got 0")],
)
def test_numbers_that_are_none_of_play(option: str, says: str, capsys: Capture) -> None:
    assert ended(play.main, option) == 2
    assert says in capsys.readouterr().err


def test_settings_are_json_or_text() -> None:
    for text, expected in (
        ("5", 5), ("0.01", 0.01), ("true", True), ("False", False), ("None", None), ('["a"]', ["a"]), ('"5"', "5"),
        ("retail", "retail"), ("a=b", "a=b"), ("", ""),
    ):  # fmt: skip
        got = value(text)
        assert (type(got), got) == (type(expected), expected)


# -- on a terminal -----------------------------------------------------------------------------------------------------


class Terminal:
    """A person's: what the player shows on a pseudo-terminal, and keys typed into it."""

    def __init__(self, *arguments: str, rows: int = 24, **environment: str) -> None:
        self.here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
        self.player = subprocess.Popen(
            [*TOOLORCHESTRA, "play", *arguments], stdin=there, stdout=there, stderr=there,
            env={**CLEAN, "TERM": "xterm", **environment}, start_new_session=True,
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


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_on_a_terminal_unless_it_is_unwanted(environment: dict[str, str], coloured: bool) -> None:
    terminal = Terminal("--env", "HLE-v0", rows=1000, **environment)
    assert ("\033[" in terminal.until(PROMPT)) == coloured
    terminal.type("q\r")
    terminal.until("left; bill")
    assert terminal.end() == 0


def test_a_person_edits_a_line_recalls_one_and_completes_one() -> None:
    pytest.importorskip("readline")
    terminal = Terminal("--env", "HLE-v0", rows=1000, NO_COLOR="1")
    assert "\033[" not in terminal.until(PROMPT)
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
