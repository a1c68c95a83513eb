"""Programs of one server know nothing of one another, cost one another little, and end when they should."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.hostile_programs import run, scratch_of, together, walker
from toolorchestra.envs.sandbox import Bounds, Execution
from toolorchestra.envs.sandbox.confine import landlock_abi
from toolorchestra.envs.sandbox.landlock import LandlockSandbox
from toolorchestra.envs.sandbox.scratch import MOST_DEEP, counting

pytestmark = pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
Opened = Callable[..., LandlockSandbox]
CANARY = "kept-from-neighbours-4711"


def disk_bytes(folder: str, most: int = sys.maxsize) -> int:
    *_, total = counting(folder, most)
    return total


@pytest.fixture
def sessions() -> Iterator[LandlockSandbox]:
    made = LandlockSandbox(Bounds(seconds=2.0, disk_bytes=4 << 20), sessions=True)
    yield made
    made.close()


@pytest.mark.parametrize("keeps", [False, True], ids=["fresh", "sessions"])
def test_no_program_finds_what_runs_beside_it_or_waits(opened: Opened, keeps: bool) -> None:
    """By frames, by all objects of the interpreter, by modules, threads and descriptors, by its own whole memory."""
    made = opened(Bounds(seconds=10.0), sessions=keeps, most_children=3)
    neighbour = f"x = {CANARY!r}\nprint(x, flush=True)\nimport time; time.sleep(1.5)"

    async def together() -> Execution:
        beside = [asyncio.create_task(made.run(neighbour, f"n{i}")) for i in range(2)]
        await asyncio.sleep(0.3)
        searching = asyncio.create_task(made.run(walker(CANARY), "walker"))
        await asyncio.sleep(0.05)
        beside += [asyncio.create_task(made.run(neighbour, f"w{i}")) for i in range(2)]
        done = await searching
        assert all(CANARY in one.stdout for one in await asyncio.gather(*beside))
        return done

    run(made, "print(0)")
    done = asyncio.run(together())
    assert done.stdout.endswith("looked everywhere\n"), done.stderr
    assert "found" not in done.stdout


def test_a_program_starts_from_an_interpreter_that_was_told_nothing() -> None:
    made = LandlockSandbox(Bounds(seconds=5.0))
    program = (
        "import sys, os, gc, linecache, __main__\n"
        "frame, names = sys._getframe().f_back, []\n"
        "while frame: names.append(frame.f_code.co_name); frame = frame.f_back\n"
        "print(names, sys.argv, sys.orig_argv, dict(os.environ), vars(__main__) is globals())\n"
        "print([m for m in sys.modules if 'toolorchestra' in m], [f for f in linecache.cache if f != '<program>'])\n"
        "print([p for p in sys.path if not p.startswith((sys.prefix, sys.base_prefix))])\n"
    )
    try:
        told = run(made, program).stdout.splitlines()
    finally:
        made.close()
    assert told == ["['_run', 'serve', '<module>'] ['<program>'] ['<program>'] {} True", "[] []", "[]"]


def test_a_thread_that_outlives_its_program_stands_still_until_the_next(sessions: LandlockSandbox) -> None:
    counts = (
        "import threading, time\nn = 0\n"
        "def count():\n    global n\n    while True: n += 1\n"
        "threading.Thread(target=count, daemon=True).start()"
    )
    run(sessions, counts, "a")
    first, last = map(int, run(sessions, "a = n\ntime.sleep(0.2)\nprint(a, n)", "a").stdout.split())
    each_second = (last - first) / 0.2
    assert each_second > 0  # it goes on while a program of its session runs
    time.sleep(1.0)
    again = run(sessions, "print(n)", "a")
    assert int(again.stdout) - last < 0.3 * each_second
    assert again.seconds < 0.3


def test_files_written_between_programs_are_bounded_and_end_the_session(sessions: LandlockSandbox) -> None:
    writes = (
        "import threading, time\n"
        "def fill():\n"
        "    for i in range(600):\n"
        "        with open(f'f{i}', 'wb') as file: file.write(b'x' * (1 << 20))\n"
        "threading.Thread(target=fill, daemon=True).start()"
    )
    scratch = scratch_of(sessions)
    assert run(sessions, writes, "a").exit_status == 0
    most = 0
    for _ in range(20):
        time.sleep(0.05)
        most = max(most, disk_bytes(str(scratch)))
    assert most < 256 << 20  # of 600 MiB: what a thread writes until its files are counted again
    ended = run(sessions, "import time; time.sleep(1); print('on')", "a")
    assert ended.stdout == "" or "the session was ended" in ended.stderr
    assert disk_bytes(str(scratch)) < 256 << 20


def test_a_program_of_a_session_is_billed_for_what_ran_before_it(sessions: LandlockSandbox) -> None:
    first = run(sessions, "x = 1", "a")
    (stopped,) = stopped_children(sessions)
    spins = "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()"
    run(sessions, spins, "a")
    os.kill(stopped, signal.SIGCONT)
    time.sleep(0.6)
    assert first.seconds < 0.3
    assert run(sessions, "1", "a").seconds > 0.1


def stopped_children(made: LandlockSandbox) -> list[int]:
    """Children of the server's seeds that stand still, as soon as there are any."""
    end = time.monotonic() + 5
    while not (found := _stopped(made)) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def _stopped(made: LandlockSandbox) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = stat.read_text().split(" ", 1)
            state, parent = rest.rsplit(")", 1)[1].split()[:2]
            if state == "T" and made.server()._process.pid in parents(int(parent)):
                found.append(int(pid))
    return found


def parents(pid: int) -> list[int]:
    """A process, its parent, and so on."""
    out = [pid]
    while out[-1] > 1:
        out.append(int(Path(f"/proc/{out[-1]}/stat").read_text().rsplit(")", 1)[1].split()[1]))
    return out


def test_a_session_ends_with_its_episode(sessions: LandlockSandbox) -> None:
    run(sessions, "x = 1", "a")
    run(sessions, "y = 2", "b")
    before = len(list(scratch_of(sessions).iterdir()))
    sessions.end_session("a")
    sessions.end_session("never there")
    assert run(sessions, "print(y)", "b").stdout == "2\n"
    end = time.monotonic() + 5
    while len(list(scratch_of(sessions).iterdir())) >= before and time.monotonic() < end:
        time.sleep(0.02)
    assert len(list(scratch_of(sessions).iterdir())) < before
    again = run(sessions, "print('x' in globals())", "a")
    assert (again.stdout, again.stderr) == ("False\n", "")  # another one of that name: nothing was lost


def test_a_program_whose_episode_ends_is_ended(sessions: LandlockSandbox) -> None:
    async def both() -> Execution:
        running = asyncio.create_task(sessions.run("while True: pass", "a"))
        await asyncio.sleep(0.2)
        sessions.end_session("a")
        return await running

    sessions.server()
    done = asyncio.run(both())
    assert (done.exit_status, done.stderr) == (-9, "ended: its episode is over")
    assert done.seconds < 1.5


def test_the_number_of_threads_is_bounded(opened: Opened) -> None:
    made = opened(Bounds(seconds=30.0, threads=20))
    start = "for _ in range(40): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    done = run(made, f"import threading, time\n{start}\ntime.sleep(20)")
    assert (done.exit_status, done.stderr) == (-9, "ended: more than 20 threads")


def test_nested_folders_hold_no_neighbour_up(opened: Opened) -> None:
    nests = (
        "import os, time\nfor _ in range(1900): os.mkdir('d'); os.chdir('d')\n"
        "for i in range(6000): open(f'f{i}', 'w').close()\ntime.sleep(1)"
    )
    made = opened(Bounds(seconds=2.0))

    async def together() -> float:
        hostile = [asyncio.create_task(made.run(nests)) for _ in range(2)]
        slowest = 0.0
        while not all(h.done() for h in hostile):
            started = time.monotonic()
            assert (await made.run("print(1)")).stdout == "1\n"
            slowest = max(slowest, time.monotonic() - started)
            await asyncio.sleep(0.02)
        return slowest

    run(made, "print(1)")
    assert asyncio.run(together()) < 0.5 + 1.0  # beside what else this machine does


def test_counting_is_bounded_in_depth_and_in_entries(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(MOST_DEEP + 2):
        deep = deep / "d"
        deep.mkdir()
    assert disk_bytes(str(tmp_path)) > 1 << 60
    many = tmp_path / "many"
    many.mkdir()
    for number in range(300):
        (many / str(number)).touch()
    assert 100 * 4096 < disk_bytes(str(many), 100 * 4096) < 110 * 4096  # it stopped there
    assert disk_bytes(str(many)) == 300 * 4096
    assert disk_bytes(str(tmp_path / "missing")) == 0


def test_programs_cannot_talk_by_locks_nor_by_wakes_nor_find_each_others_folders(opened: Opened) -> None:
    talks = (
        "import ctypes, fcntl, mmap, os, struct\n"
        "with open(os.__file__, 'rb') as file:\n"
        "    for call in (fcntl.F_GETLK, fcntl.F_SETLK):\n"
        "        try: fcntl.fcntl(file, call, struct.pack('hhqqi', fcntl.F_RDLCK, 0, 42, 7, 0)); print('talks')\n"
        "        except PermissionError: print('held')\n"
        "    page = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)\n"
        "    place = ctypes.addressof(ctypes.c_int.from_buffer(page))\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        "    wakes = {'x86_64': 202, 'aarch64': 98}[os.uname().machine]\n"
        "    print(libc.syscall(wakes, ctypes.c_void_p(place), 1, 9), ctypes.get_errno())\n"
        "print(os.path.basename(os.getcwd()))"
    )
    made = opened()
    first, second = (run(made, talks).stdout.split() for _ in range(2))
    assert first[:4] == ["held", "held", "-1", "1"]
    assert len(first[4]) == len(second[4]) == 32
    assert first[4] != second[4]


def test_a_program_whose_files_nobody_counts_stands_still(opened: Opened) -> None:
    made = opened(Bounds(seconds=1.5))
    server = made.server()._process.pid
    _, counter, _ = map(
        int, Path(f"/proc/{server}/task/{server}/children").read_text().split()
    )  # seed, counter, remover
    writes = "import time\nfor i in range(150):\n    open(f'f{i}', 'w').close(); time.sleep(0.01)\nprint('done')"
    os.kill(counter, signal.SIGSTOP)
    try:
        assert run(made, writes).stderr == "ended: not done after 1.5 s"
    finally:
        os.kill(counter, signal.SIGCONT)


def test_no_program_starts_while_the_files_of_many_wait_to_be_removed(opened: Opened) -> None:
    made, most = opened(Bounds(seconds=5.0), most_children=4), 0
    leaves = "import os\nfor i in range(200): os.mkdir(str(i))"

    async def together() -> list[Execution]:
        nonlocal most
        running = asyncio.gather(*(made.run(leaves) for _ in range(24)))
        while not running.done():
            most = max(most, len(os.listdir(scratch_of(made))))
            await asyncio.sleep(0.01)
        return list(await running)

    assert {one.exit_status for one in asyncio.run(together())} == {0}
    assert most <= 4 + 4 + 4 + 4  # that run, that wait, that are left, and that ended since


def test_what_all_hold_together_is_bounded(opened: Opened) -> None:
    made = opened(Bounds(seconds=5.0))
    made._settings["together"] = {"memory_bytes": 300 << 20}
    holds = "import time\nheld = b'x' * (200 << 20)\ntime.sleep(1)\nprint(len(held))"
    done = together(made, holds, holds)
    assert sorted(one.exit_status for one in done) == [-9, 0]
    assert {one.stderr for one in done} == {"", "ended: all programs together have more than 314572800 memory_bytes"}


def test_the_server_and_its_files_go_with_the_process_that_started_it_even_by_a_signal_to_all() -> None:
    code = (
        "import asyncio\n"
        "from toolorchestra.envs.sandbox.landlock import LandlockSandbox\n"
        "s = LandlockSandbox(); asyncio.run(s.run('print(1)'))\n"
        "print(s.server()._process.pid, s._server._finalizer.peek()[2][1], flush=True)\n"
        "asyncio.run(s.run('import time; time.sleep(9)'))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    server, scratch = map(Path, process.stdout.readline().decode().split())
    assert scratch.is_dir()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    process.stdout.close()
    end = time.monotonic() + 5
    while (scratch.exists() or ("/proc" / server).exists()) and time.monotonic() < end:
        time.sleep(0.02)
    assert not scratch.exists()
    assert not ("/proc" / server).exists()


def test_the_server_is_deaf_to_signals_that_end_its_starter(sessions: LandlockSandbox) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        sessions.server()._process.send_signal(number)
    assert run(sessions, "import signal; print(signal.getsignal(15), signal.getsignal(1))").stdout == "0 0\n"
