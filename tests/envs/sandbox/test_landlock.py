"""The sandbox holds what is hostile, runs what is useful, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from glob import glob
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.support.hostile_programs import examine, programs, run, scratch_of, together, works
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.sandbox import SPELLED, Bounds, Execution, Interpreter, harmless
from toolorchestra.envs.sandbox.confine import (
    AARCH64,
    ARCHITECTURES,
    FREE,
    STAND_IN,
    X86_64,
    arguments,
    build,
    for_process,
    landlock_abi,
)
from toolorchestra.envs.sandbox.e2b_and_unsafe import Unsafe, interpreter
from toolorchestra.envs.sandbox.landlock import LandlockSandbox
from toolorchestra.envs.sandbox.scratch import counting
from toolorchestra.envs.testing.rehearsal import Held
from toolorchestra.envs.tools import ToolContext
from toolorchestra.envs.tools.cassette_backends import RecordedInterpreter
from toolorchestra.envs.tools.code import Code

T = TypeVar("T")
Opened = Callable[..., LandlockSandbox]
PARTS = 12
"""Of the list of hostile programs: a test each."""
KINDS = ("read a secret file", "write outside", "append to the secret file", "TCP", "UDP", "unix socket",
         "kill another process", "run a command", "class walk", "chmod, chown, utime")  # fmt: skip
BUSY_SECONDS = 2.0
"""What the machine may be late by, for it may run other tests too."""
needs_landlock = pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LandlockSandbox]:
    made = LandlockSandbox(Bounds(seconds=1.0))
    yield made
    made.close()


@pytest.fixture(scope="module")
def impatient() -> Iterator[LandlockSandbox]:
    made = LandlockSandbox(Bounds(seconds=0.5))
    yield made
    made.close()


def within(seconds: float, call: Callable[[], T]) -> T:
    """What a call gives, of which it is not sure that it ever ends."""
    said: Future[T] = Future()
    threading.Thread(target=lambda: said.set_result(call()), daemon=True).start()
    return said.result(seconds)


@needs_landlock
@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_programs_are_contained(impatient: LandlockSandbox, part: int) -> None:
    for verdict in examine(impatient, 0.5, only=list(programs())[part::PARTS]):
        assert verdict.contained, verdict
        assert verdict.seconds < 0.5 + 1.0 + BUSY_SECONDS, verdict
        assert verdict.neighbour_seconds < 0.5 + BUSY_SECONDS, verdict


@needs_landlock
def test_one_of_each_kind_is_contained(impatient: LandlockSandbox) -> None:
    assert [verdict for verdict in examine(impatient, 0.5, only=KINDS) if not verdict.contained] == []


def test_there_are_more_than_a_hundred_and_forty_hostile_programs() -> None:
    assert len(programs()) > 140


def test_the_examiner_sees_what_gets_through() -> None:
    """Without walls the harmless half of the list does its damage, and each is seen by another of the checks."""
    verdicts = {v.name: v for v in examine(Unsafe(Bounds(seconds=5.0)), 5.0, only=KINDS)}
    assert [name for name in KINDS if verdicts[name].contained] == []
    assert "the canary came out" in verdicts["read a secret file"].seen
    assert "TCP listener reached" in verdicts["TCP"].seen
    assert "the victim is dead" in verdicts["kill another process"].seen


@needs_landlock
def test_useful_programs_work(opened: Opened) -> None:
    pytest.importorskip("sympy", reason="needs pip install sympy")
    made = opened()
    assert [v.name for v in works(made) if not v.contained] == []


@needs_landlock
def test_stdout_stderr_and_exit_status_come_back(sandbox: LandlockSandbox) -> None:
    done = run(sandbox, "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)")
    assert (done.stdout, done.stderr, done.exit_status) == ("out\n", "err\n", 3)
    failed = run(sandbox, "print('before')\nraise ValueError('no')")
    assert (failed.stdout, failed.exit_status) == ("before\n", 1)
    assert failed.stderr.startswith('Traceback (most recent call last):\n  File "<program>", line 2')
    assert run(sandbox, "import ctypes; ctypes.string_at(0)").exit_status == -11
    wrong = '  File "<program>", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
    assert run(sandbox, "def f(:").stderr == wrong
    assert run(sandbox, "print(1)\0").stderr == "SyntaxError: source code string cannot contain null bytes\n"
    assert "File" not in run(sandbox, f"x={'-' * 200_000}1").stderr  # too deep for the parser


@needs_landlock
def test_one_run_sees_nothing_of_another(sandbox: LandlockSandbox) -> None:
    run(sandbox, "x = 1\nopen('left', 'w').write('x')\nimport builtins\nbuiltins.leak = 1", "a")
    done = run(sandbox, "import os\nprint(os.listdir('.'), 'x' in globals())\nleak", "a")
    assert done.stdout == "[] False\n"
    assert "NameError" in done.stderr


@needs_landlock
def test_a_session_keeps_names_and_files_and_another_does_not_see_them(opened: Opened) -> None:
    made = opened(Bounds(seconds=2.0), sessions=True)
    run(made, "x = 41\nopen('kept', 'w').write('x')", "a")
    assert run(made, "import os\nprint(x + 1, os.listdir('.'))", "a").stdout == "42 ['kept']\n"
    assert "NameError" in run(made, "x", "b").stderr
    assert run(made, "1/0", "a").exit_status == 1
    assert run(made, "print(x)", "a").stdout == "41\n"
    assert run(made, "while True: pass", "a").exit_status == -9
    again = run(made, "x", "a")
    assert "NameError" in again.stderr
    assert again.stderr.startswith("note: the session was ended")
    assert run(made, "print(1)", "a").stderr == ""


@needs_landlock
def test_more_sessions_than_are_kept_tell_whoever_comes_back(opened: Opened) -> None:
    made = opened(Bounds(seconds=5.0), sessions=True, most_sessions=2)
    for name in "abc":
        run(made, f"x = {name!r}", name)
    assert run(made, "print(x)", "c").stdout == "c\n"
    assert run(made, "print('on')", "a").stderr.startswith("note: the session was ended")


@needs_landlock
def test_the_same_program_gives_the_same_result(sandbox: LandlockSandbox) -> None:
    code = "import random, numpy as np\nprint(random.random(), np.random.rand(), hash('x'))"
    assert run(sandbox, code).stdout == run(sandbox, code).stdout


def _processes(parent: int) -> list[str]:
    """State of each child and grandchild: `Z` is a zombie. One that ends while this looks is not there."""
    out, level = [], [parent]
    while level:
        below = []
        for pid in level:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    below += [int(child) for child in children.read_text().split()]
        for pid in below:
            with contextlib.suppress(OSError):
                out.append(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0])
        level = below
    return out


def _all_that_is_left(made: LandlockSandbox) -> bool:
    """Whether the server comes to hold only its seeds, who counts, who removes, and the children that wait."""
    server, end = made.server()._process.pid, time.monotonic() + 5.0
    at_rest = 2 + made._settings["seeds"] + made._settings["waiting_children"]
    while (there := _processes(server)) != ["S"] * at_rest and time.monotonic() < end:
        time.sleep(0.02)
    return there == ["S"] * at_rest


@needs_landlock
def test_sixty_four_at_once_are_each_answered_and_leave_no_process(opened: Opened) -> None:
    made = opened(Bounds(seconds=10.0), most_children=8)
    done = together(made, *(f"print({i} ** 2)" for i in range(64)))
    assert [d.stdout for d in done] == [f"{i**2}\n" for i in range(64)]
    assert _all_that_is_left(made)
    assert len(_processes(os.getpid())) - len(_processes(made.server()._process.pid)) >= 1  # at rest, or it changes


@needs_landlock
def test_orders_and_outputs_that_fill_the_pipes_hold_nobody_up() -> None:
    made = LandlockSandbox(Bounds(seconds=20.0))
    process, padding = made.server()._process, "#" * 8_000
    try:
        done = within(60, lambda: together(made, *(f"print({i}, 'y' * 300_000){padding}" for i in range(64))))
        assert [d.stdout for d in done] == [f"{i} {'y' * 300_000}\n" for i in range(64)]
    finally:
        process.kill()
        made.close()


@needs_landlock
def test_closing_leaves_no_thread_and_no_process_and_tells_who_waits() -> None:
    made = LandlockSandbox(Bounds(seconds=5.0))
    before = Held.now()
    waiting = [made.server().ask("while True: pass", "")[1] for _ in range(64)]
    made.close()
    assert {type(future.exception(5)) for future in waiting} == {Outage}
    assert not before.leaked_since()


@needs_landlock
def test_a_forked_process_has_a_server_of_its_own_and_leaves_its_parents_alone() -> None:
    code = (
        "import asyncio, os\n"
        "from toolorchestra.envs.sandbox.landlock import LandlockSandbox\n"
        "s = LandlockSandbox(); asyncio.run(s.run('1'))\n"
        "if os.fork() == 0:\n"
        "    print(asyncio.run(s.run('print(2)')).stdout, flush=True); s.close(); os._exit(0)\n"
        "os.wait(); print(asyncio.run(s.run('print(3)')).stdout); s.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["2", "3"]


@needs_landlock
def test_a_session_that_does_not_read_its_order_holds_nobody_up() -> None:
    made = LandlockSandbox(Bounds(seconds=1.0), sessions=True)
    process = made.server()._process

    async def both() -> list[Execution]:
        deaf = "import os, time\nos.write(4, bytes(4))\ntime.sleep(60)"
        await made.run(deaf, "a")
        return await asyncio.gather(made.run("#" * 200_000, "a"), made.run("print(1)", "b"))

    try:
        unread, done = within(20, lambda: asyncio.run(both()))
        assert (unread.exit_status, done.stdout) == (-9, "1\n")
        assert run(made, f"print(2){'#' * 200_000}", "b").stdout == "2\n"
    finally:
        process.kill()
        made.close()


@needs_landlock
def test_a_run_that_nobody_waits_for_is_ended(opened: Opened) -> None:
    made = opened(Bounds(seconds=60.0))

    async def cancelled() -> None:
        running = asyncio.create_task(made.run("while True: pass"))
        await asyncio.sleep(0.3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    made.server()
    asyncio.run(cancelled())
    assert _all_that_is_left(made)


@needs_landlock
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root reads every folder")
def test_a_folder_that_cannot_be_listed_counts_and_is_removed() -> None:
    program = (
        "import os\n"
        "os.mkdir('d', 0o300)\n"
        "for i in range(40):\n"
        "    with open(f'd/{i}', 'wb') as file: file.write(b'x' * (1 << 20))\n"
        "import time; time.sleep(2)"
    )
    code = (
        "import asyncio, os; from pathlib import Path\n"
        "from toolorchestra.envs.sandbox import Bounds\n"
        "from toolorchestra.envs.sandbox.landlock import LandlockSandbox\n"
        "s = LandlockSandbox(Bounds(seconds=10))\n"
        f"done = asyncio.run(s.run({program!r}))\n"
        "scratch = Path(s._server._finalizer.peek()[2][1])\n"
        "import time; end = time.monotonic() + 5\n"
        "def left(): return [file for folder in scratch.iterdir() for file in os.listdir(folder)]\n"
        "while left() and time.monotonic() < end: time.sleep(0.02)\n"
        "print(done.stderr, left())\n"
        "s.close()\n"
        "print(scratch.exists())"
    )
    rights = "-dac_override,-dac_read_search"
    as_an_owner = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.geteuid() == 0 else []
    done = subprocess.run([*as_an_owner, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"ended: more than {Bounds().disk_bytes} bytes of files []\nFalse\n"


@needs_landlock
def test_folders_nested_beyond_any_path_end_their_program_alone(opened: Opened) -> None:
    name = "d" * 250
    nested = f"import os, time\nfor _ in range(3000): os.mkdir({name!r}); os.chdir({name!r})\ntime.sleep(9)"
    made = opened(Bounds(seconds=10.0))
    scratch = scratch_of(made)
    other, deep = together(made, "import time; time.sleep(1); print(1)", nested)
    assert other.stdout == "1\n"
    assert deep.stderr == f"ended: more than {Bounds().disk_bytes} bytes of files"
    end = time.monotonic() + 10
    left = partial(glob, str(scratch / "*/*"))  # Path.glob breaks where a folder goes while it looks
    while left() and time.monotonic() < end:
        time.sleep(0.02)
    assert left() == []


@needs_landlock
def test_a_session_whose_server_died_is_told(opened: Opened) -> None:
    made = opened(Bounds(seconds=5.0), sessions=True)
    run(made, "x = 1", "mine")
    process = made.server()._process
    process.kill()
    process.wait()
    assert run(made, "print(1)", "another").stderr == ""
    told = run(made, "x = 2; print(x)", "mine")
    assert told.stdout == "2\n"
    assert "the session was ended" in told.stderr
    assert run(made, "print(x)", "mine").stderr == ""


@pytest.mark.parametrize(
    ("code", "said", "status"),
    [("print(1)\0", "", 1), ("#" * 200_000 + "\nprint(2)", "2\n", 0), ("print('\ud800')", "?\n", 0)],
    ids=["a zero byte", "200 KB", "half a surrogate pair"],
)
def test_a_program_that_no_command_line_takes_runs_without_walls_too(code: str, said: str, status: int) -> None:
    done = asyncio.run(Unsafe(Bounds(seconds=20.0)).run(code))
    assert (done.stdout, done.exit_status) == (said, status)


def test_the_filter_is_built_for_both_machines() -> None:
    for name, constant in ARCHITECTURES.items():
        program = build(name, 7)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096
        assert constant.to_bytes(4, "little") in program
        assert for_process(build(name, STAND_IN), 7) == program != build(name, 8)
    columns = {X86_64: [a for a, _ in FREE.values()], AARCH64: [b for _, b in FREE.values()]}
    for numbers in columns.values():
        known = [n for n in numbers if n is not None]
        assert len(set(known)) == len(known)
    assert not {41, 42, 59, 57, 101} & {a for a, _ in FREE.values()}  # socket, connect, execve, fork, ptrace
    assert {rule.numbers[0] for rule in arguments(1)}.isdisjoint({a for a, _ in FREE.values()})


def test_output_cannot_steer_a_terminal() -> None:
    assert harmless("a\tb\r\n\x1b[2J\x9b1m\x07\ud800ü") == "a\tb\n\\x1b[2J\\x9b1m\\x07?ü"
    assert harmless("\x9b\x00x\r\n" + "ü" * SPELLED) == "??x\n" + "ü" * SPELLED


@needs_landlock
def test_floods_of_output_and_long_programs_delay_nobody(sandbox: LandlockSandbox) -> None:
    flood = "import sys\nfor s in (sys.stdout, sys.stderr): s.write('\\0' * (1 << 19)); print(7, file=s)"

    async def watched() -> list[Execution]:
        started = time.thread_time()
        done = list(await asyncio.gather(*(sandbox.run(flood) for _ in range(8))))
        assert time.thread_time() - started < 0.4  # what is read is spelled in the listener's thread
        return done

    done = asyncio.run(watched())
    size = (1 << 19) + 2 + 3 * (SPELLED - 2)
    assert {(len(one.stdout), one.stdout[-6:], one.stderr[-6:]) for one in done} == {(size, "\\x007\n", "\\x007\n")}
    assert run(sandbox, "#" * (1 << 22)).stderr == "a program has at most 1048576 characters, this one 4194304"


def test_nothing_falls_back_to_running_without_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="export E2B_API_KEY="):
        interpreter("e2b")
    with pytest.raises(ConfigError, match=r"no sandbox 'exec'; valid: .*unsafe-exec"):
        interpreter("exec")
    assert isinstance(interpreter("unsafe-exec"), Unsafe)


class _Machine:
    """A machine of E2B's, as its SDK has it: the program may never end, or the machine never come."""

    made: int = 0

    @classmethod
    async def create(cls, api_key: str, timeout: int) -> _Machine:
        cls.made += 1
        if cls.made == 3:
            await asyncio.sleep(60)
        return cls()

    async def run_code(self, code: str, timeout: float) -> object:
        assert timeout > 1
        self.code = code
        if "while" in code:
            await asyncio.sleep(60)
        if "lost" in code:
            raise ConnectionResetError("the stream broke, of E2B_API_KEY=a-secret-key")
        return SimpleNamespace(logs=SimpleNamespace(stdout=["4"], stderr=[]), error=None)

    async def kill(self) -> None:
        if "stays" in self.code:
            await asyncio.sleep(60)


def test_a_program_that_does_not_end_is_told_from_a_machine_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "e2b_code_interpreter", SimpleNamespace(AsyncSandbox=_Machine))
    monkeypatch.setenv("E2B_API_KEY", "key")
    e2b: Any = interpreter("e2b", Bounds(seconds=0.2))
    assert run(e2b, "print(2 + 2)").stdout == "4"
    assert run(e2b, "while True: pass")[1:3] == ("ended: not done after 0.2 s", -9)
    e2b.patience_seconds = 0.3
    with pytest.raises(Outage, match=r"E2B gave or ended no machine in 0\.3 s"):
        run(e2b, "print(2 + 2)")


@pytest.mark.parametrize(("code", "said"), [("lost", r"broke off: .*the stream broke, .*=\[key\]"), ("stays", "0.3 s")])
def test_a_machine_that_is_lost_is_an_outage_and_is_billed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "e2b_code_interpreter", SimpleNamespace(AsyncSandbox=_Machine))
    monkeypatch.setattr(_Machine, "made", 3)
    monkeypatch.setenv("E2B_API_KEY", "a-secret-key")
    e2b: Any = interpreter("e2b", Bounds(seconds=0.2))
    e2b.patience_seconds = 0.3

    def billed(box: Interpreter) -> tuple[Usage, ...]:
        context = ToolContext(None, 1)
        with pytest.raises(Outage, match=f"E2B .*{said}"):
            asyncio.run(Code(box).given(context, code))
        return context.bill.take()

    (used,) = recorded = billed(RecordedInterpreter(e2b, Cassette(tmp_path / "tape", "record")))
    assert (used.item, used.unconfirmed) == ("e2b", True)
    assert used.seconds >= (0.3 if code == "stays" else 0)
    assert billed(RecordedInterpreter(None, Cassette(tmp_path / "tape", "replay"))) == recorded


def test_counting_changes_no_folder_of_a_program_that_runs(tmp_path: Path) -> None:
    """It may have put a link to a folder of somebody else's there."""
    (tmp_path / "d").mkdir(mode=0o300)
    assert [*counting(str(tmp_path), 1 << 20)]
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o300
