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
from toolorchestra.agents.commands import report
from toolorchestra.agents.commands.report import reconciled
from toolorchestra.agents.evaluation.rows import LEARNT, PAID, RETRIED, ROWS, line_of, read_learnt, read_rows
from toolorchestra.agents.evaluation.runs import EvaluationRun
from toolorchestra.envs.base.cassette import PAYER
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.prices import NANO, Charge, Price, Tokens, Usage

ROW = {"usd_per_mtok": {"input": 10, "output": 10_000}}
USED = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
EACH = Price.read(ROW, "test").nano_usd(Usage("", "", Tokens(900, 0, 200, 0)))
PROGRAM = "import sys; from toolorchestra.agents.commands import evaluate; sys.exit(evaluate.main(sys.argv[1:]))"
CAP = 150
CHAT = ("--tasks", "30", "--policy", "chat")


def slow(asked: ReceivedRequest) -> ServerReply:
    """One good reply at once, and then slow ones: most of them are in flight when the run is stopped."""
    return ServerReply("<answer>42</answer>", usage=USED, seconds=0.1 if asked.number % 3 else 0.5)


def command(folder: Path, server: Loopback, *more: str) -> list[str]:
    row = "price = {usd_per_mtok = {input = 10, output = 10000}}\noutput_tokens = 300\n"
    (folder / "b.toml").write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n{row}')
    words = ["--env", "HLE-v0", "max_turns=3", "--at-once", "8", "--resume", *(more or CHAT)]
    backends = [] if "--backends" in more else ["--backends", str(folder / "b.toml")]
    kept = [*backends, "--out", str(folder / "run"), "--spend-cap", str(CAP)]
    return [sys.executable, "-c", PROGRAM, *words, *kept]


def stopped(folder: Path, server: Loopback, how: signal.Signals, after: int, *more: str) -> None:
    """Begin or go on, and stop when so many more requests have come."""
    wanted = len(server.seen) + after
    with subprocess.Popen(command(folder, server, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
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
    assert real <= found <= CAP * NANO, done.stderr
    assert f"{found / NANO:.9f} $ for the trials" in done.stdout
    assert SpendJournal.left(tmp_path / "run" / PAID) == {}


@pytest.mark.parametrize("more", [("--tasks", "5", "--policy", "knn", "--player", "fit_tasks=12"), (*CHAT, "cache")])
def test_what_is_learnt_and_what_a_cache_answers_is_counted_over_several_kills(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """A cache has no reply that was not read: it is asked for again, and paid again."""
    tape = ["--backends", str(tmp_path / "b.toml"), f"cache={tmp_path / 'c.jsonl'}"]
    words = [*more[:-1], *tape] if more[-1] == "cache" else [*more]
    with Loopback(slow) as server:
        for _ in range(2):
            stopped(tmp_path, server, signal.SIGKILL, 20, *words)
        subprocess.run(command(tmp_path, server, *words), capture_output=True, check=False)
        real = len(server.seen) * EACH
    run = EvaluationRun(tmp_path / "run", cached=more[-1] == "cache")
    run.rows = {row.key: row for row in read_rows(tmp_path / "run")} if (tmp_path / "run" / ROWS).is_file() else {}
    run.learning = read_learnt(tmp_path / "run")
    assert real <= run.nano_usd
    assert real <= CAP * NANO


def test_a_trial_that_is_killed_twice_in_the_same_request_has_paid_twice(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = EvaluationRun.open(tmp_path, {})
    payer = PAYER.set(run.payer(("HLE-v0", "test", "chat", "hle/test/1", 0)))
    request.addfinalizer(lambda: PAYER.reset(payer))  # other tests play for nobody
    most = Charge(Usage("m", "expert", Tokens(900, 0, 300, 0), estimated=True, unconfirmed=True), "", 7, "s")
    for life in (1, 2):
        SpendJournal(tmp_path / PAID).sent(most)
        kept = (tmp_path / PAID).read_bytes()
        assert EvaluationRun.open(tmp_path, {}, resume=True).nano_usd == 7 * life
        (tmp_path / PAID).write_bytes(kept)  # as by a kill before the journal was begun anew
        assert EvaluationRun.open(tmp_path, {}, resume=True).nano_usd == 7 * life


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
    unread = made_row(
        "b", nano_usd_by_role={"expert": 3 * NANO, "tool": NANO}, unconfirmed_nano_usd=3 * NANO,
        unconfirmed_tool_nano_usd=NANO,
    )  # fmt: skip
    write_run(tmp_path, [sure])
    (tmp_path / RETRIED).write_bytes(line_of(unread))
    known = "the models' servers counted 6.000000000 $, and 2.000000000 $ are unconfirmed; "
    assert reconciled([tmp_path], 7) == f"{known}of these 1.000000000 $ were paid, says the provider"
    assert reconciled([tmp_path], 5) == f"{known}the provider counts 1.000000000 $ less than its servers did"
    assert reconciled([tmp_path], 9).startswith(f"{known}the provider counts 1.000000000 $ more than can be: ")
    # With a cache a trial that was played again is billed the same replies again.
    write_run(tmp_path / "cached", [sure])
    (tmp_path / "cached" / RETRIED).write_bytes(line_of(made_row("a", nano_usd_by_role={"expert": 4 * NANO})))
    (tmp_path / "cached" / "manifest.json").write_text('{"asked": {"cache": "c.jsonl"}}')
    assert reconciled([tmp_path / "cached"], 5).startswith("the models' servers counted 5.000000000 $, and 0.0")
    # What a kill has left counts, and of what was paid to learn nobody kept who had counted it.
    journal = SpendJournal(tmp_path / PAID)
    journal.sent(Charge(Usage("m", "expert", unconfirmed=True), "", NANO, "s"))
    journal.booked(Charge(Usage("m", "expert"), "", NANO, "s"))
    (tmp_path / LEARNT).write_text(f'{{"player": ["e", "s", "knn"], "nano_usd": {NANO}}}\n')
    known = "the models' servers counted 7.000000000 $, and 4.000000000 $ are unconfirmed or were paid to learn; "
    assert reconciled([tmp_path], 8) == f"{known}of these 1.000000000 $ were paid, says the provider"


@pytest.mark.parametrize("paid", ["nan", "-1", "inf"])
def test_what_no_provider_counts_is_refused(paid: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["run", "--paid", paid]) == 2
    assert "paid must be a number from 0 up" in capsys.readouterr().err
