"""A training run over real models: what it pays is counted, told, kept over its lives, and held to its cap."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.training.even_source import EvenSource
from tests.agents.training.test_trainer import COLD, run
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands.train import main
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.rows import PAID
from toolorchestra.agents.training.checkpoint import latest, read_state
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.spending import episodes_of
from toolorchestra.envs.base.errors import SpendCapReached
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.prices import EXPERT, NANO, Charge, PriceSheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import register


def reply(_asked: ReceivedRequest) -> ServerReply:
    used = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
    return ServerReply("<query>river</query> <answer>42</answer>", usage=used)


def words(folder: Path, server: Loopback, *more: str) -> list[str]:
    row = "price = {usd_per_mtok = {input = 10, output = 10000}}\noutput_tokens = 300\n"
    (folder / "b.toml").write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n{row}')
    small = "--steps 1 --groups 2 --rollouts 2 --evaluation-tasks 2 --model.hidden 16 --baselines".split()
    start = "--warm-start.steps 2 --warm-start.demonstrations 8 --warm-start.planned False --warm-start.gate 0".split()
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


def test_demonstrations_that_were_paid_are_not_played_again_when_the_run_goes_on(tmp_path: Path) -> None:
    """Here some, behind which the cap was used up. Those of other settings are others."""

    def kept_tasks() -> list[int]:
        return [row["task"] for row in read(tmp_path / "run" / "warm_start" / "demonstrations.jsonl")]

    with Loopback(reply) as server:
        assert main(words(tmp_path, server, "--spend-cap", "8")) == 1
        first, asked = kept_tasks(), len(server.seen)
        assert first == list(range(len(first)))
        assert 0 < len(first) < 8
        assert main(words(tmp_path, server, "--spend-cap", "9", "--resume")) == 1
        assert (kept_tasks(), len(server.seen)) == (first, asked)
        assert main(words(tmp_path, server, "--spend-cap", "9", "--seed", "1")) == 1
        assert kept_tasks()[: len(first) + 1] == [*first, 0]
        assert main(words(tmp_path, server, "--spend-cap", "1000")) == 0
    assert not (tmp_path / "run" / "warm_start").exists()


class PaidSource(EvenSource):
    """Each held-out task costs a dollar, and a tenth is what others cost."""

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        journal = JOURNAL.get()
        if journal is not None and journal.cap is not None:
            journal.cap.add(NANO if "/test/" in task_id else NANO // 10)
        return super().open(task_id, seed, sheet, tools)


@pytest.mark.parametrize(
    ("dollars", "step", "made", "left"),
    [(0.5, 0, [], 2.2), (1.1, 0, [0], 1.2), (1.5, 1, [0], 1.0)],
    ids=["in the first evaluation", "in a step", "in the last evaluation"],
)
def test_an_evaluation_in_which_the_cap_was_used_up_is_made_when_the_run_goes_on(
    tmp_path: Path, dollars: float, step: int, made: list[int], left: float
) -> None:
    """And once: what was evaluated already is not paid again."""
    register("Tests/Paid-v0", f"{__name__}:PaidSource")
    mix = EnvMix("Tests/Paid-v0", 1.0, {"max_turns": 1}, validation="test")
    config = replace(COLD, environments=(mix,), groups=1, rollouts=2, evaluation_tasks=1, model=ModelConfig(hidden=8))

    paid: list[float] = []

    def evaluated(usd: float, *, resume: bool) -> list[int]:
        token = JOURNAL.set(SpendJournal(tmp_path / PAID, cap := SpendCap(usd)))
        try:
            with nullcontext() if resume else pytest.raises(SpendCapReached):
                run(tmp_path, config, resume=resume)
        finally:
            JOURNAL.reset(token)
        paid.append(cap.spent_usd)
        newest = latest(tmp_path / "checkpoints")
        assert newest is not None
        assert read_state(newest)["step"] == (1 if resume else step)
        return [row["step"] for row in read(tmp_path / "metrics.jsonl") if row["kind"] == "eval"]

    assert evaluated(dollars, resume=False) == made
    assert evaluated(100.0, resume=True) == [0, 1]
    assert evaluated(0.5, resume=True) == [0, 1]
    assert paid[1:] == pytest.approx([left, 0.0])


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
