"""A run at its edges: locks, interrupts, threads, and what a warm start cannot use."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.test_heldout import CHAT, HLE, SAME
from tests.agents.reports.test_training_report import UNEVEN, Moody
from tests.agents.rollouts.test_chat import QWEN3_LIKE, chat_with
from tests.agents.training.test_trainer import COLD, run
from tests.agents.training.trained_models import TOY
from tests.support.loopback import Loopback, ServerReply
from tests.two_texts import raises
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, WarmStart
from toolorchestra.agents.engines import pretrained
from toolorchestra.agents.engines.base import EngineLost, Sample, SamplingParams
from toolorchestra.agents.engines.pretrained import times_float32
from toolorchestra.agents.rollouts.grpo import Group, Grpo, Measure, TokenSequence, Trajectory, training_batch
from toolorchestra.agents.rollouts.rollout import OUTAGE
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.demonstrations import recorded
from toolorchestra.agents.training.metrics import Log, Progress, read
from toolorchestra.agents.training.rollouts_ahead import TakenGroups
from toolorchestra.agents.training.step_log import Choices, StepTimes, choices, log_step, rewriting, warnings
from toolorchestra.agents.training.trainer import _unsampled, collect_groups, evaluate, train
from toolorchestra.agents.training.training_run import TrainingRun, claimed, open_run
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.base.preference import Preference

QUICK = replace(COLD, environments=(TOY,), evaluation_tasks=1, groups=1, rollouts=2, model=ModelConfig(hidden=8))


@pytest.mark.parametrize(("slower", "warns"), [(22.2, True), (0.5, False)])
def test_a_run_in_a_format_that_the_processor_does_not_have_says_so(
    slower: float, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    assert times_float32("float64") > 0
    monkeypatch.setattr(pretrained, "times_float32", lambda _: slower)
    build(replace(QUICK, model=ModelConfig(hidden=8, dtype="bfloat16", lora_rank=2)), said.append)[0].close()
    told = "bfloat16 takes this processor 22 times as long as float32: take model.dtype=float32"
    assert said == [told] * warns
    build(QUICK, said.append)[0].close()
    assert len(said) == warns


# -- a run's folder ----------------------------------------------------------------------------------------------------


def test_a_folder_is_held_by_one_run_at_a_time(tmp_path: Path) -> None:
    other = "--out FOLDER, another one"
    with claimed(tmp_path / "run"):
        with (
            raises(ConfigError, rf"is training in {tmp_path / 'run'}; wait .* or name another folder$", other),
            claimed(tmp_path / "run"),
        ):
            raise AssertionError("held twice")
        assert {path.name for path in (tmp_path / "run").iterdir()} >= {"checkpoints", "report"}
    with claimed(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    with (
        raises(ConfigError, r"cannot be written: \[Errno 17\] .*; name another folder$", "--out FOLDER, another one"),
        claimed(tmp_path),
    ):
        raise AssertionError("held")


def test_a_checkpoint_of_the_same_step_takes_the_place_of_the_other(tmp_path: Path) -> None:
    for text in ("one", "other"):
        found = checkpoint.save(tmp_path, 4, {"said": text}, lambda folder, t=text: (folder / t).touch())  # type: ignore[misc]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000004"]
    assert checkpoint.check(found) == ""
    assert checkpoint.read_state(found) == {"said": "other"}
    assert not (found / "one").exists()


# -- interrupts and threads --------------------------------------------------------------------------------------------


def test_an_interrupt_before_anything_is_learnt_ends_at_once_and_leaves_the_signal_as_it_was(tmp_path: Path) -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    class Said(list[str]):
        def append(self, text: str) -> None:
            said.append(text)
            if text.endswith("demonstrations"):
                signal.raise_signal(signal.SIGINT)

    start = WarmStart(steps=20, batch=2, demonstrations=8)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, replace(COLD, warm_start=start, model=ModelConfig(hidden=8)), said=Said())
    assert re.fullmatch(r"warm start: \d demonstrations", said[-1])
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "checkpoints").exists()
    assert not (tmp_path / "warm_start").exists()


def test_a_run_in_another_thread_than_the_main_one_takes_no_signal(tmp_path: Path) -> None:
    made: list[TrainingRun] = []
    thread = threading.Thread(target=lambda: made.append(run(tmp_path, QUICK)))
    thread.start()
    thread.join(120)
    assert made[0].step == 1
    assert not made[0].stopping
    assert checkpoint.latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-000001"


class Stopped(Moody):
    """A SIGTERM comes in its second step, and its second evaluation breaks."""

    steps = 0

    def sync_seconds(self) -> float:
        self.steps += 1
        if self.steps == 2:
            signal.raise_signal(signal.SIGTERM)
        return 0.0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        with super().averaged():
            yield
        if self.evaluated == 1:
            raise EngineLost("gone")


def test_a_step_is_saved_before_it_is_evaluated_and_a_run_that_stops_evaluates_nothing(tmp_path: Path) -> None:
    config = replace(UNEVEN, evaluate_every=2, save_every=9, evaluation_tasks=2, groups=1, rollouts=2)

    def go_on(engine: Moody, *, resume: bool) -> tuple[Path | None, int]:
        with pytest.raises(EngineLost) if resume else nullcontext():
            train(config, tmp_path, engine, CHAT, resume=resume, say=str)  # type: ignore[arg-type]
        newest = checkpoint.latest(tmp_path / "checkpoints")
        assert newest is not None
        return newest, checkpoint.read_state(newest)["evaluated"]

    first, second = Stopped(), Stopped()
    assert go_on(first, resume=False) == (tmp_path / "checkpoints" / "step-000002", 0)
    assert first.evaluated == 0
    second.steps = 2
    assert go_on(second, resume=True) == (tmp_path / "checkpoints" / "step-000004", 2)
    assert second.evaluated == 1


class Asking(Moody):
    """Asks an expert in each episode."""

    async def sample(self, *_: object) -> Sample:
        said = CHAT.encode(render_call("answer", {"model": "answer-1"}))
        return Sample([*said, CHAT.stop], [0.0] * (len(said) + 1), True)

    def publish(self) -> Moody:
        return self


class Flaky(Moody):
    """Breaks off all but one episode of its first evaluation."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        if self.evaluated == 0 and session != "0/1":
            raise Outage("it is busy")
        return await super().sample(prompt, params, session)


def test_an_evaluation_of_which_most_failed_chooses_no_best_step(tmp_path: Path) -> None:
    said: list[str] = []
    made = open_run(UNEVEN, tmp_path, Flaky(0), CHAT, resume=False, say=said.append)  # type: ignore[arg-type]
    evaluate(made)
    assert (made.best_step, made.best) == (-1, -math.inf)
    assert "held out, step 0: so many episodes failed that it is not compared with other steps" in said
    made.step = 1
    evaluate(made)
    assert made.best_step == 1


class Away(Moody):
    """A sampler that is away."""

    async def sample(self, *_: object) -> Sample:
        raise Outage("nobody answers")


def test_a_run_whose_sampler_is_away_ends_and_knows_nothing_of_its_weights(tmp_path: Path) -> None:
    said: list[str] = []
    lost = r"in 3 steps in a row the sampler broke off every rollout; .* nobody answers\. Look into .* resume=True$"
    with raises(EngineLost, lost, "--resume"):
        train(UNEVEN, tmp_path, Away(), CHAT, resume=False, say=said.append)  # type: ignore[arg-type]
    assert "held out, step 0: every episode failed, and nothing is known of these weights" in said
    rows = [row for row in read(tmp_path / "metrics.jsonl") if row["kind"] == "eval"]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert {row[name] for row in rows for name in ("policy/reward", "policy/accuracy", "policy/cents")} == {None}
    found = checkpoint.latest(tmp_path / "checkpoints")
    assert found is None or checkpoint.read_state(found)["best_step"] == -1


def test_a_run_whose_episodes_run_into_their_deadline_goes_on(tmp_path: Path) -> None:
    """Or whose world is broken: neither the sampler nor an expert is gone."""
    made = open_run(UNEVEN, tmp_path, Moody(), CHAT, resume=False, say=lambda _: None)  # type: ignore[arg-type]
    made.unsampled = 2
    failed = rollout(measure=Measure(0.0, 0.0, 0.0, {}, failed=True))
    broken = replace(failed, failure={"where": "grade", "error": "KeyError: 'answer'"})
    away = replace(failed, truncated_by=OUTAGE)
    assert _unsampled(made, [Group([failed, broken])]) == 0
    assert _unsampled(made, [Group([away, away]), Group([away, failed])]) == 0
    with pytest.raises(EngineLost):
        _unsampled(made, [Group([away, away])])


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_step_whose_experts_are_away_is_not_taken(tmp_path: Path, staleness: int) -> None:
    """The run ends, and goes on with the same tasks."""
    models = '[endpoints.here]\nbase_url = "{}"\n[models."*"]\nprice = {{free = "own"}}\n'
    with Loopback(lambda _: ServerReply("", status=402)) as server:
        (tmp_path / "b.toml").write_text(models.format(server.base_url))
        arguments = {**SAME, "max_turns": 1, "vary": (), "backends": str(tmp_path / "b.toml")}
        config = replace(
            UNEVEN,
            environments=(EnvMix(HLE, 1.0, arguments),),
            groups=1,
            rollouts=2,
            evaluation_tasks=1,
            baselines=(),
            max_staleness=staleness,
        )
        away = r"^2 of 2 rollouts of a step failed, the first of these by Outage: .* no credit left .* resume=True$"
        for resume in (False, True):
            with raises(Outage, away, "--resume"):
                train(config, tmp_path, Asking(), CHAT, resume=resume, say=str)  # type: ignore[arg-type]
            newest = checkpoint.latest(tmp_path / "checkpoints")
            assert newest == tmp_path / "checkpoints" / "step-000000"
            state = checkpoint.read_state(newest)
            assert state.get("groups") == ({"taken_below": 0, "taken": []} if staleness else None)


def test_a_progress_line_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere than at a terminal a line now and then is enough; the last one always comes."""
    progress = Progress(8, 2)
    for done in (2, 3, 4):
        progress.show(done, f"so far {done}", always=done == 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "2/8 so far 2"
    assert len(lines) == 2
    assert re.fullmatch(r"4/8 so far 4, 0 s left", lines[1])


def test_a_run_that_goes_on_is_the_same_one_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb itself is not installed where tests run: a module that remembers what it is asked for takes its place."""
    code = "from unittest.mock import Mock\nasked = []\ndef init(**given):\n    asked.append(given)\n"
    (tmp_path / "wandb.py").write_text(code + "    return Mock()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    for folder in ("a", "a", "b"):
        Log(tmp_path / folder, 0, wandb={"preset": "tiny"}).close()
    first, again, other = sys.modules.pop("wandb").asked
    assert first == again
    assert (first["resume"], first["config"]) == ("allow", {"preset": "tiny"})
    assert first["id"] != other["id"]


def rollout(
    sequences: list[TokenSequence] | None = None, messages: Any = (), measure: Measure | None = None
) -> Trajectory:
    none, nothing = Preference(), Measure(0.0, 0.0, 0.0, {})
    return Trajectory("", "", 0, "", none, (), sequences or [], measure or nothing, 1, messages=messages)


# -- the warm start, and warnings --------------------------------------------------------------------------------------


def test_a_template_that_drops_old_thoughts_makes_a_sequence_of_each_stretch(tmp_path: Path) -> None:
    """What was said before is learnt as it was said, and never from the text that is left of it."""
    chat, path = chat_with(QWEN3_LIKE), tmp_path / "some.jsonl"
    thought = "<think>\nhm {}\n</think>\n\nhello"
    said = [{"role": "assistant", "content": thought.format(n)} for n in range(2)]
    asked = [{"role": "user", "content": f"u{n}"} for n in range(2)]
    path.write_text(json.dumps({"messages": [asked[0], said[0], asked[1], said[1]]}))
    learnt = []
    for datum in recorded(chat, path):
        tokens = [t for t, a in zip(datum.tokens, datum.mask, strict=True) if a]
        learnt.append(chat.tokenizer.decode(tokens, skip_special_tokens=False))
    assert learnt == [f"{thought.format(n)}<|im_end|>" for n in range(2)]


def test_collapses_are_noticed() -> None:
    said = warnings(choices([rollout(measure=Measure(0.0, 0.1, 1.0, {"answer-1": 1}))] * 3), 0.5)
    assert "collapsed: entropy 0.00 nats, 100% to answer-1" in said[0]
    assert "answers at once" in said[1]
    assert said[2] == "only 50% of the rollouts are readable in every turn"
    (said,) = warnings(choices([rollout(measure=Measure(0.0, 0.1, 1.0, {}))] * 3), 1.0)
    assert said == "0.00 calls an episode: it answers at once, or calls nothing"
    # Where the entropy alone would not show it: the few others are many.
    seen = Choices(entropy=0.6, most_used="answer-1", share=0.92, calls_per_episode=2.0, controllability=1.0)
    assert warnings(seen, 1.0) == ["92% of all calls go to answer-1"]
    assert warnings(replace(seen, share=0.9), 0.8) == []


@pytest.mark.parametrize("history", ["full", "state"])
def test_a_template_that_rewrites_the_past_is_warned_of_once(tmp_path: Path, history: str) -> None:
    """Unless the environment itself tells each turn anew."""
    mixes = tuple(replace(mix, arguments={**mix.arguments, "history": history}) for mix in COLD.environments)
    config, said = replace(COLD, environments=mixes, groups=1, rollouts=2), list[str]()
    engine, chat = build(config)
    made = open_run(config, tmp_path, engine, chat, resume=False, say=said.append)
    groups = collect_groups(made)
    for t in groups[0].trajectories:
        t.messages, t.sequences = ({"role": "user", "content": "u"},), t.sequences[:1] * 4
    for _ in range(2):
        batch = training_batch(groups, Grpo(config.advantage))
        log_step(made, TakenGroups(groups), batch, {}, StepTimes(1.0, 1.0, 0.0))
    warned = [line for line in said if "rewrites the past" in line]
    assert len(warned) == (history == "full")
    assert all(line.startswith("warning, step 0: rollouts have 4.0 sequences in the mean") for line in warned)
    assert [row["sequences"] for row in read(tmp_path / "metrics.jsonl")] == [4.0, 4.0]


def test_a_rollout_needs_a_sequence_for_each_message_of_its_user() -> None:
    """There many templates drop old thoughts, and mean to."""

    def rollouts(*made: tuple[int, int]) -> list[Trajectory]:
        given = [(n, ({"role": "system"}, *[{"role": "user"}, {"role": "assistant"}, {"role": "tool"}] * users))
                 for n, users in made]  # fmt: skip
        return [rollout([TokenSequence()] * n, m) for n, m in given]

    assert rewriting([]) == []
    assert rewriting(rollouts((1, 1), (1, 1), (2, 1))) == []
    assert rewriting(rollouts((5, 5), (3, 3))) == []
    assert rewriting(rollouts((1, 0))) == []
    (said,) = rewriting(rollouts((4, 1), (4, 1), (4, 2)))
    assert said.startswith("rollouts have 4.0 sequences in the mean, where 1.3 would do: the chat template rewrites")
