"""When a trial may begin under a spend cap; and a wrong setting, which ends a run early and is mended."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row
from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of
from tests.agents.evaluation.test_runs import Plays, contest, made, played
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.tau2_playing import needs_package
from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.evaluation.rows import (
    RETRIED,
    SUMMARY,
    EvaluationRow,
    bill_of,
    line_of,
    read_learnt,
    read_rows,
    row_of,
)
from toolorchestra.agents.evaluation.summary import summarise
from toolorchestra.agents.evaluation.trials import FIRST_AT_ONCE, Spending
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.errors import ConfigError, WrongSetting
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import NANO, Price, PriceSheet, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap


async def begun(spending: Spending, names: list[str]) -> list[str]:
    """Which of these trials begin at once."""
    tasks = {name: asyncio.create_task(spending.begin(name)) for name in names}
    for _ in range(3):
        await asyncio.sleep(0)
    at_once = [name for name, task in tasks.items() if task.done()]
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    return at_once


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_a_few_begin_while_nobody_knows_what_one_costs_and_more_once_one_has_ended() -> None:
    async def run() -> None:
        spending = Spending(SpendCap(100))
        first = await begun(spending, names("a", 20))
        assert len(first) == FIRST_AT_ONCE
        spending.ended(first[0], NANO)
        assert len(await begun(spending, names("b", 20))) == 20

    asyncio.run(run())


def test_a_run_whose_first_trials_all_fail_does_not_stay_slow() -> None:
    async def run() -> list[int]:
        spending, running, widths = Spending(SpendCap(100)), list[str](), list[int]()
        for turn in range(5):
            running = await begun(spending, names(f"t{turn}-", 64))
            widths.append(len(running))
            for name in running:
                spending.ended(name, None)
        return widths

    assert asyncio.run(run()) == [4, 8, 16, 32, 64]


def test_a_resumed_run_knows_what_its_trials_cost(tmp_path: Path) -> None:
    """A cap that pays for one trial and a half: whoever knew nothing would begin four at once."""
    together = most = 0
    calm = player("cheapest", made())

    async def slowly(episode: Episode) -> Any:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.01)
        together -= 1
        return await calm.move(episode)

    first = played(contest(made(), calm, 6), folder=tmp_path)
    each = max(row.nano_usd for row in first.rows.values())
    cap = SpendCap(1.5 * each / NANO)
    played(contest(made(spend_cap=cap), Plays(slowly), 20), folder=tmp_path, resume=True)
    assert most == 1


def judged(asked: ReceivedRequest) -> bool:
    return "You compare a student's answer" in asked.text


def hired(asked: ReceivedRequest) -> bool:
    """By a tool: not the orchestrator."""
    return asked.json["model"] != "qwen3-8b" and not judged(asked)


def words(tmp_path: Path, server: Loopback, *more: str) -> list[str]:
    file = file_of(tmp_path, server, retries=0)
    return ["--env", "HLE-v0", "--tasks", "16", "--policy", "chat", "--backends", file, "judge=gpt-5-mini",
            "--at-once", "4", "--out", str(tmp_path / "run"), *more]  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "status", "says"),
    [
        (judged, 404, "has no model 'gpt-5-mini'"),
        (hired, 403, "refused a call without a key"),
        (hired, 200, "has answered none of"),
    ],
)  # fmt: skip
def test_it_ends_the_run_early_and_a_mended_run_goes_on(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refused: Callable[[ReceivedRequest], bool],
    status: int,
    says: str,
) -> None:
    wrong = True

    def reply(asked: ReceivedRequest) -> ServerReply:
        said = ServerReply("", 200) if status == 200 else ServerReply("no", status)
        return said if wrong and refused(asked) else expert(asked)

    with Loopback(reply) as server:
        assert evaluate.main(words(tmp_path, server)) == 2
        told = capsys.readouterr()
        rows = list(read_rows(tmp_path / "run"))
        failed = [row for row in rows if row.status == "failed"]
        assert 1 <= len(failed) <= 8  # one, and those in flight beside it
        assert len(rows) <= 12
        assert all(says in row.failure and row.nano_usd > 0 for row in failed)
        assert (told.out + told.err).count(says) == 1
        assert f"failed {len(failed)} times: by the error that ended the run" in told.out
        assert told.err.startswith("error: ")
        assert "; mend it, then go on with --resume" in told.err
        assert json.loads((tmp_path / "run" / SUMMARY).read_text())
        wrong = False
        assert evaluate.main(words(tmp_path, server, "--resume")) == 0
    again = list(read_rows(tmp_path / "run"))
    assert Counter(row.status for row in again) == {"ended": 16}
    kept = {row.key: row for row in again}
    assert all(kept[row.key] == row for row in rows if row.status == "ended")
    assert [row.key for row in read_rows(tmp_path / "run" / RETRIED)] == [row.key for row in failed]


def test_a_player_that_learns_first_is_told_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else each play of its train tasks would fail alone, and it would have learnt nothing."""
    with Loopback(lambda asked: ServerReply("no", 404)) as server:
        given = [*words(tmp_path, server), "--player", "fit_tasks=2"]
        assert evaluate.main([word if word != "chat" else "knn" for word in given]) == 2
    assert "error: endpoint 'here' has no model" in capsys.readouterr().err


def test_what_a_router_pays_to_learn_is_booked_and_paid_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off while it learns, and without a cap: the run that goes on plays what is missing."""
    asked, known = 0, "toolorchestra.agents.policies.knn_and_skillbook._KNOWN"
    most = 60

    def reply(seen: ReceivedRequest) -> ServerReply:
        nonlocal asked
        asked += 1
        return expert(seen) if asked <= most else ServerReply("no more", 402)

    with Loopback(reply) as server:
        given = ["--env", "HLE-v0", "--tasks", "2", "--policy", "knn", "--player", "fit_tasks=2"]
        given += ["--backends", file_of(tmp_path, server, retries=0), "--out", str(tmp_path / "run")]
        monkeypatch.setattr(known, {})
        assert evaluate.main(given) == 1
        assert "has no credit left" in capsys.readouterr().err
        first = read_learnt(tmp_path / "run")
        most = 10**6
        monkeypatch.setattr(known, {})
        assert evaluate.main([*given, "--resume"]) == 0
        out = capsys.readouterr().out
    paid = read_learnt(tmp_path / "run")
    assert 0 < sum(first.values()) < sum(paid.values())
    summary = json.loads((tmp_path / "run" / SUMMARY).read_text())
    assert summary["policies"][0]["usd_to_learn"] == pytest.approx(sum(paid.values()) / NANO)
    (fit,) = (tmp_path / "run" / "fit").glob("*.json")
    assert json.loads(fit.read_text())["usd"] <= sum(paid.values()) / NANO
    assert f"and {sum(paid.values()) / NANO:.9f} $ to learn" in out
    assert "$ to learn" in out.split("¢ a trial")[1]
    assert not list((tmp_path / "run" / "fit").glob("*.jsonl"))


@needs_package
def test_a_wrong_setting_of_a_user_that_is_a_model_ends_the_run_too() -> None:
    class Refused:
        suspends = True

        async def complete(self, request: ChatRequest) -> Completion:
            raise WrongSetting(f"no model {request.model!r}")

    one = made("Tau2-v0", domain="mock", user=(Refused(), "gpt-5-mini"), split="base")
    rows: list[EvaluationRow] = []
    with pytest.raises(ConfigError, match="no model 'gpt-5-mini'"):
        played(contest(one, player("random", one), 8), at_once=1, watch=rows.append)
    assert [row.status for row in rows] == ["failed"]


def test_a_run_that_books_what_its_servers_tell_says_so_and_replays_to_the_same_bill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(_asked: ReceivedRequest) -> ServerReply:
        return ServerReply("<answer>42</answer>", usage={"prompt_tokens": 900, "completion_tokens": 200, "cost": 0.001})

    words = ["--env", "HLE-v0", "max_turns=3", "--tasks", "3", "--policy", "always:answer-1", "--backends"]
    with Loopback(reply) as server:
        (tmp_path / "b.toml").write_text(
            f'[endpoints.e]\nbase_url = "{server.base_url}"\ntells_cost = true\n[models."*"]\n'
        )
        tape = tmp_path / "tape.jsonl"
        for mode in ("record", "replay"):
            out = tmp_path / mode
            assert evaluate.main([*words, str(tmp_path / "b.toml"), f"{mode}={tape}", "--out", str(out)]) == 0
            told = capsys.readouterr().out
            rows = list(read_rows(out))
            assert [row.nano_usd for row in rows] == [1_000_000] * 3
            assert all(row.over_price_nano_usd < 0 for row in rows)
            by_price = sum(row.nano_usd - row.over_price_nano_usd for row in rows) / NANO
            assert f"Servers told what replies cost: 0.003 $ in all, where the prices come to {by_price:.4g} $." in told
        assert len(server.seen) == 3
    known = [
        (row.digest, row.over_price_nano_usd) for name in ("record", "replay") for row in read_rows(tmp_path / name)
    ]
    assert known[:3] == known[3:]


def test_what_a_server_tells_of_a_reply_that_is_free_by_the_sheet_is_said_too() -> None:
    sheet = PriceSheet("mine", "2026-01-01", "", {"small": Price(free="a server of ours")})
    usage = Usage("small", "expert", Tokens(900, 0, 200, 0), told_nano_usd=2_000_000)
    bill = bill_of([sheet.charge(usage, "answer-1")])
    row = replace(made_row("a"), **bill)
    assert (row.nano_usd, row.over_price_nano_usd, row_of(json.loads(line_of(row)))) == (2_000_000, 2_000_000, row)
    told = summarise([row]).notes
    assert "Servers told what replies cost: 0.002 $ in all, where the prices come to 0 $." in told
