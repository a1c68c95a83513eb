"""A backend refuses a key or knows no such model: the run ends early, keeps what it has, goes on when mended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of
from tests.agents.evaluation.test_runs import contest, made, played
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.tau2_playing import needs_package
from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.commands.evaluation_setup import EvaluateOptions, wanted_of
from toolorchestra.agents.evaluation.rows import RETRIED, SUMMARY, EvaluationRow, read_rows
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.errors import ConfigError, WrongSetting
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.tools.backends import Backing, read

pytest.importorskip("openai", reason='needs pip install ".[models]"')


def judged(asked: ReceivedRequest) -> bool:
    return "You compare a student's answer" in asked.text


def hired(asked: ReceivedRequest) -> bool:
    """By a tool: not the orchestrator."""
    return asked.json["model"] != "qwen3-8b" and not judged(asked)


def words(tmp_path: Path, server: Loopback, *more: str) -> list[str]:
    file = file_of(tmp_path, server, retries=0)
    return ["--env", "HLE-v0", "--tasks", "24", "--policy", "chat", "--backends", file, "judge=gpt-5-mini",
            "--at-once", "4", "--out", str(tmp_path / "run"), *more]  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "status", "says"),
    [(judged, 404, "has no model 'gpt-5-mini'"), (judged, 401, "refused a call without a key"),
     (hired, 403, "refused a call without a key")],
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
        return ServerReply("no", status) if wrong and refused(asked) else expert(asked)

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
        assert told.err.startswith("error: endpoint 'here' ")
        assert "; mend it, then go on with --resume" in told.err
        assert json.loads((tmp_path / "run" / SUMMARY).read_text())
        wrong = False
        assert evaluate.main(words(tmp_path, server, "--resume")) == 0
    again = list(read_rows(tmp_path / "run"))
    assert Counter(row.status for row in again) == {"ended": 24}
    kept = {row.key: row for row in again}
    assert all(kept[row.key] == row for row in rows if row.status == "ended")
    assert [row.key for row in read_rows(tmp_path / "run" / RETRIED)] == [row.key for row in failed]


def test_trials_in_flight_end_and_their_rows_are_kept(tmp_path: Path) -> None:
    """Eight begin; the judge is asked by the first of them while the others still play."""
    refused = 0

    def reply(asked: ReceivedRequest) -> ServerReply:
        nonlocal refused
        if judged(asked):
            refused += 1
            return ServerReply("no", 404) if refused == 1 else ServerReply("<verdict>right</verdict>", seconds=0.05)
        return expert(asked)

    rows: list[EvaluationRow] = []
    with Loopback(reply) as server:
        file = file_of(tmp_path, server, retries=0)
        one = made(backends=Backing(read(file, judges=("gpt-5-mini",))))
        with pytest.raises(ConfigError, match="has no model 'gpt-5-mini'"):
            played(contest(one, player("chat", one), 40), at_once=8, watch=rows.append)
    assert sum(row.status == "failed" for row in rows) == 1
    assert 1 < len(rows) <= 16


def test_a_player_that_learns_first_is_told_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else each play of its train tasks would fail alone, and it would have learnt nothing."""
    with Loopback(lambda asked: ServerReply("no", 404)) as server:
        given = [*words(tmp_path, server), "--policy", "knn", "--player", "fit_tasks=2"]
        assert evaluate.main(given) == 2
    assert "error: endpoint 'here' has no model" in capsys.readouterr().err


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


def test_what_a_backends_file_says_of_the_web_holds(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("[retrieval]\nweb = true\n")
    assert wanted_of(EvaluateOptions(backends=(str(tmp_path / "b.toml"),))).web
    assert wanted_of(EvaluateOptions(backends=("web=true",))).web
    assert not wanted_of(EvaluateOptions()).web
