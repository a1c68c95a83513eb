"""The training loop of docs/examples/one_file_loop.py: small, deterministic, and taught by its own tokens alone."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from tests.paths import REPOSITORY

FILE = REPOSITORY / "docs" / "examples" / "one_file_loop.py"
SMALL = ["--steps", "2", "--tasks", "2", "--siblings", "2", "--imitation-steps", "2"]


@pytest.fixture(scope="module")
def loop() -> Iterator[Any]:
    """The example as a module; torch's threads are afterwards as many as before."""
    threads = torch.get_num_threads()
    spec = importlib.util.spec_from_file_location("one_file_loop", FILE)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["one_file_loop"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made
    del sys.modules["one_file_loop"]
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def played(loop: Any) -> tuple[Any, list[Any]]:
    """A model, and four scripted episodes with the log-probabilities that it would have sampled them with."""
    model = loop.build_model(len(loop.TOKENIZER), hidden=32, layers=1)
    rng = random.Random(4)
    envs = [gym.make("ToolOrchestra/HLE-v0", **loop.SETTINGS) for _ in range(4)]
    rollouts = loop.play(envs, [5, 5, 6, 6], lambda playing: loop.any_calls(playing, rng))
    with torch.no_grad():
        logprobs, _ = loop.scored(model, rollouts)
    return model, [
        replace(r, logprobs=[0.0, *row[: len(r.tokens) - 1]])
        for r, row in zip(rollouts, logprobs.tolist(), strict=True)
    ]


def taught(loop: Any, model: Any, rollouts: list[Any], advantages: list[float]) -> torch.Tensor:
    """Which tokens the loss has a gradient for, as it arrives at the model's logits."""
    logits: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, made: torch.Tensor) -> None:
        made.retain_grad()
        logits.append(made)

    watch = model.lm_head.register_forward_hook(keep)
    loop.policy_loss(model, rollouts, advantages)[0].backward()
    watch.remove()
    assert logits[0].grad is not None
    return logits[0].grad[:, :-1].abs().sum(-1) > 0


def said(loop: Any, rollout: Any) -> list[bool]:
    """Which tokens after the first are the assistant's, found again from the transcript's own marks."""
    inside, found = False, []
    for token in rollout.tokens:
        found.append(inside)
        text = loop.TOKENIZER.decode([token])
        inside = text == "<|im_start|>assistant\n" or (inside and text != "<|im_end|>")
    return found[1:]


def test_it_fits_one_file() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 300


def test_a_seed_writes_the_same_metrics_again(loop: Any, tmp_path: Path, capsys: Any) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        loop.main([*SMALL, "--seed", seed, "--out", str(tmp_path / name)])
    a, b, c = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    lines = [json.loads(line) for line in a.splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["cents"] == pytest.approx(sum(line["cents_by_role"].values()))
        assert line["cents_by_role"]["orchestrator"] > 0
        assert line["reward"] == pytest.approx(sum(line["reward_by_task"]) / 2)
        assert line["gap"] < 1e-5
    assert "mean reward, first 1 steps: " in capsys.readouterr().out.splitlines()[-1]
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "a" / "curves.png").stat().st_size > 1000


def test_only_what_the_model_said_is_learnt_from(loop: Any, played: tuple[Any, list[Any]]) -> None:
    model, rollouts = played
    wanted = loop.padded([said(loop, r) for r in rollouts], False)
    assert wanted.any()
    assert not wanted.all()
    assert taught(loop, model, rollouts, [1.0, -1.0, 0.5, -0.5]).equal(wanted)
    # The check can fail: a mask that takes in what the tools said, and one that is a token late, are both found out.
    unmasked = [replace(r, sampled=[True] * len(r.tokens)) for r in rollouts]
    late = [replace(r, sampled=[False, *r.sampled[:-1]]) for r in rollouts]
    for wrong in (unmasked, late):
        assert not taught(loop, model, wrong, [1.0, -1.0, 0.5, -0.5]).equal(wanted)


def test_like_its_siblings_is_nothing_to_learn_from(loop: Any, played: tuple[Any, list[Any]]) -> None:
    model, rollouts = played
    assert not taught(loop, model, rollouts, loop.advantages_of([0.5, 0.5, 0.5, 0.5])).any()


def test_what_was_sampled_is_scored_alike(loop: Any, played: tuple[Any, list[Any]]) -> None:
    model, rollouts = played
    dice = torch.Generator().manual_seed(0)
    sampled = loop.play(
        [r.env for r in rollouts], [1, 2, 3, 4], lambda playing: loop.sampled_calls(playing, model, dice)
    )
    assert loop.policy_loss(model, sampled, [1.0] * 4)[1] < 1e-5
    again = [replace(r, tokens=loop.TOKENIZER.encode(r.text, add_special_tokens=False)) for r in sampled]
    assert any(len(a.tokens) != len(r.tokens) for a, r in zip(again, sampled, strict=True))  # why none is split again


@pytest.mark.parametrize(
    ("weights", "cheaper_wins"), [({"outcome": 1, "usd": 0}, False), ({"outcome": 1, "usd": 1}, True)]
)
def test_cost_is_judged_against_siblings_as_the_user_prefers(
    loop: Any, weights: dict[str, float], cheaper_wins: bool
) -> None:
    start = {"preference": {"weights": {"seconds": 0, **weights}}}

    def ended(outcome: float, usd: float) -> Any:
        ledger = {"seconds": 9.0, "usd_by_role": {"orchestrator": 0.001, "expert": usd, "judge": 1.0}}
        return loop.Rollout(None, None, start, {"ledger": ledger, "calls": {}}, outcome)

    cheap, expensive, wrong = loop.advantages_of(loop.rewards_of([ended(1, 0.01), ended(1, 0.08), ended(0, 0.0)]))
    assert (cheap > expensive) is cheaper_wins
    assert min(cheap, expensive) > wrong


def test_an_only_child_is_refused(loop: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        loop.main(["--siblings", "1"])
    assert "judged against its siblings" in capsys.readouterr().err
