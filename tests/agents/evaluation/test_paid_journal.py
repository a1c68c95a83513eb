"""What a run has paid when it is stopped, in whatever way: its folder knows at least what the server was paid."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands.report import reconciled
from toolorchestra.agents.evaluation.rows import PAID, RETRIED, line_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.prices import NANO, Price, Tokens, Usage

ROW = {"usd_per_mtok": {"input": 10, "output": 10_000}}
USED = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
EACH = Price.read(ROW, "test").nano_usd(Usage("", "", Tokens(900, 0, 200, 0)))
PROGRAM = "import sys; from toolorchestra.agents.commands import evaluate; sys.exit(evaluate.main(sys.argv[1:]))"
CAP = 150


def slow(asked: ReceivedRequest) -> ServerReply:
    """One good reply at once, and then slow ones: most of them are in flight when the run is stopped."""
    return ServerReply("<answer>42</answer>", usage=USED, seconds=0.1 if asked.number % 3 else 0.5)


def command(folder: Path, server: Loopback) -> list[str]:
    row = "price = {usd_per_mtok = {input = 10, output = 10000}}\noutput_tokens = 300\n"
    (folder / "b.toml").write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n{row}')
    words = ["--env", "HLE-v0", "max_turns=3", "--tasks", "30", "--policy", "chat", "--at-once", "8", "--resume"]
    kept = ["--backends", str(folder / "b.toml"), "--out", str(folder / "run"), "--spend-cap", str(CAP)]
    return [sys.executable, "-c", PROGRAM, *words, *kept]


def stopped(folder: Path, server: Loopback, how: signal.Signals, after: int) -> None:
    """Begin or go on, and stop when so many more requests have come."""
    wanted = len(server.seen) + after
    with subprocess.Popen(command(folder, server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while len(server.seen) < wanted and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(how)


def told(folder: Path) -> int:
    """What the folder knows, in nano-dollars."""
    known = sum(charge.nano_usd for left in SpendJournal.left(folder / PAID).values() for charge in left)
    for name in ("rows.jsonl", "retried.jsonl"):
        for line in (folder / name).read_bytes().splitlines() if (folder / name).is_file() else []:
            known += sum(json.loads(line)["nano_usd_by_role"].values())
    return known


def test_a_run_that_is_stopped_knows_what_it_paid_and_holds_its_cap_over_all_its_lives(tmp_path: Path) -> None:
    with Loopback(slow) as server:
        for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT):
            stopped(tmp_path, server, how, after=12)
            assert len(server.seen) * EACH <= told(tmp_path / "run")
        done = subprocess.run(command(tmp_path, server), capture_output=True, text=True, check=False)
        real = len(server.seen) * EACH
    found = told(tmp_path / "run")
    assert real <= found <= CAP * NANO + EACH, done.stderr
    assert f"{found / NANO:.9f} $ for the trials" in done.stdout
    assert SpendJournal.left(tmp_path / "run" / PAID) == {}


def test_a_journal_with_a_torn_end_is_read_and_a_strangers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / PAID
    good = json.dumps({"payer": "p", "charge": [["m", "expert", [1, 0, 2, 0], 0, 0.5, False, False], "", 7, "s"]})
    path.write_text(f'{good}\n{{"payer": "p", "ch')
    assert [charge.nano_usd for charge in SpendJournal.left(path)["p"]] == [7]
    path.write_text(good.replace(" 7,", " -7,") + "\n")
    with pytest.raises(ConfigError, match=r"line 1: expected a line of a run's journal \(a charge is whole"):
        SpendJournal.left(path)


def test_a_providers_count_settles_what_is_unconfirmed(tmp_path: Path) -> None:
    sure = made_row("a", nano_usd_by_role={"expert": 5 * NANO, "tool": NANO})
    unread = made_row("b", nano_usd_by_role={"expert": 3 * NANO}, unconfirmed_nano_usd=2 * NANO)
    write_run(tmp_path, [sure])
    (tmp_path / RETRIED).write_bytes(line_of(unread))
    known = "the models' servers counted 6.000000000 $, and 2.000000000 $ are unconfirmed; "
    assert reconciled([tmp_path], 7) == f"{known}of these 1.000000000 $ were paid, says the provider"
    assert reconciled([tmp_path], 5) == f"{known}the provider counts 1.000000000 $ less than its servers did"
    assert reconciled([tmp_path], 9).startswith(f"{known}the provider counts 1.000000000 $ more than can be: ")
