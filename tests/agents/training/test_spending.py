"""A training run over real models: what it pays is counted, told, kept over its lives, and held to its cap."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands.train import main
from toolorchestra.agents.configuration.config import WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.rows import PAID
from toolorchestra.agents.training.spending import episodes_of
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.prices import EXPERT, NANO, Charge


def reply(_asked: ReceivedRequest) -> ServerReply:
    used = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
    return ServerReply("<query>river</query> <answer>42</answer>", usage=used)


def words(folder: Path, server: Loopback, *more: str) -> list[str]:
    row = "price = {usd_per_mtok = {input = 10, output = 10000}}\noutput_tokens = 300\n"
    (folder / "b.toml").write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n{row}')
    small = "--steps 1 --groups 2 --rollouts 2 --evaluation-tasks 2 --model.hidden 16 --baselines".split()
    start = (
        "--warm-start.steps 2 --warm-start.demonstrations 8 --warm-start.planned False --warm-start.gate False".split()
    )
    env = ["--env", "HLE-v0", f"backends={folder / 'b.toml'}"]
    return ["--preset", "tiny", *small, *start, *env, "--out", str(folder / "run"), "--no-report", *more]


def told(text: str) -> float:
    """Dollars that the run says it paid."""
    found = re.findall(r"billed, and paid where models and tools are real: ([0-9.]+) \$", text)
    assert len(found) == 1
    return float(found[0])


def kept(folder: Path) -> list[Charge]:
    return [one for charges in SpendJournal.left(folder / "run" / PAID).values() for one in charges]


def test_a_run_says_what_it_paid_holds_its_cap_and_goes_on_under_a_higher_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Loopback(reply) as server:
        for cap, code in ((8, 1), (1000, 0)):
            before = len(server.seen)
            assert main(words(tmp_path, server, "--spend-cap", str(cap), "--resume")) == code
            out, err = capsys.readouterr()
            paid = kept(tmp_path)
            assert sum(charge.role == EXPERT for charge in paid) == len(server.seen) > before
            assert round(told(out) * NANO) == sum(charge.nano_usd for charge in paid) <= cap * NANO
            assert ("--resume --spend-cap USD" in err) == bool(code)
            assert ("nothing is learnt from what was played last" in err) == bool(code)


@pytest.mark.parametrize(("steps", "evaluations"), [(100, 5), (90, 5), (25, 2), (1, 2)])
def test_an_evaluation_follows_the_last_step_whatever_its_number(steps: int, evaluations: int) -> None:
    config = replace(preset("8b-h100"), steps=steps, evaluate_every=25, warm_start=WarmStart(steps=0))
    of_steps, tasks = steps * config.groups * config.rollouts, config.evaluation_tasks * len(config.environments)
    assert episodes_of(config) == of_steps + evaluations * tasks


def test_an_estimate_says_what_a_run_may_pay_and_asks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Loopback(reply) as server:
        assert main(words(tmp_path, server, "--estimate")) == 0
        assert not server.seen
    out = capsys.readouterr().out
    found = re.search(r"16 episodes: \$ ([0-9.]+) \(([0-9.]+) to ([0-9.]+)\), an estimate; nothing was spent", out)
    assert found is not None, out
    likely, low, high = map(float, found.groups())
    assert 0 < low < likely < high
    assert not (tmp_path / "run").exists()


def test_a_router_is_estimated_by_its_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Loopback(reply) as server:
        for steps in ("1000", "4000"):
            env = words(tmp_path, server)[words(tmp_path, server).index("--env") :][:3]
            assert main(["--router", *env, "--steps", steps, "--estimate"]) == 0
        assert not server.seen
    out = capsys.readouterr().out
    found = re.findall(r"([0-9,]+) turns: \$ ([0-9.e+]+) \(", out)
    assert [turns for turns, _ in found] == ["1,000", "4,000"], out
    assert float(found[1][1]) == pytest.approx(4 * float(found[0][1]), rel=1e-3)
