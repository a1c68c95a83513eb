"""The SkyRL integration against SkyRL itself, on a CPU: its data set, its trainers' own code, its validation. It wants
Python 3.12 and an environment of its own: `make test-skyrl`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if util.find_spec("skyrl") is None:
    pytest.skip("skyrl is not installed here: make test-skyrl", allow_module_level=True)

import aiohttp
import numpy as np
import torch
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.train.dataset import PromptDataset
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.utils.trainer_utils import validate_generator_output

from tests.integrations.skyrl_stand_in import LocalClient
from tests.integrations.skyrl_tiny import ASYNCHRONOUS, MERGED, STEPWISE, warm_engine, words
from tests.paths import REPOSITORY
from toolorchestra.agents.adapters import skyrl_samples
from toolorchestra.agents.adapters.skyrl import SimulatedTrainer, ToolOrchestraGenerator
from toolorchestra.agents.adapters.skyrl_samples import PLAYED, check_skyrl
from toolorchestra.agents.adapters.skyrl_train import Experiment, read_config, trainer_kind
from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.rollouts.grpo import Group, Grpo, training_batch
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Pending
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import spec_of

pytestmark = pytest.mark.filterwarnings("ignore")
SKYRL = REPOSITORY / "deploy" / "skyrl"
PLACES, SOURCES = ("1x8", "2x8", "1x8-async", "2x8-async"), ("hle", "frames", "toolscale", "tau2")
FORMS = pytest.mark.parametrize("form", [(), STEPWISE, MERGED], ids=["one", "turns", "merged"])


class Tiny(SimpleNamespace):
    folder: Path
    engine: Any
    chat: Any


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    folder = tmp_path_factory.mktemp("tiny")
    engine, chat = warm_engine(folder / "run")
    chat.tokenizer.save_pretrained(folder)
    yield Tiny(folder=folder, engine=engine, chat=chat)
    engine.close()


def trainer(tiny: Tiny, *more: str, tasks: int = 16, kind: type[Any] | None = None) -> Any:
    """One of SkyRL's trainers over the tiny model, made as its experiment makes it."""
    cfg = read_config(words(tiny.folder, *more, tasks=tasks))
    client = LocalClient(tiny.engine, tiny.chat)
    generator = ToolOrchestraGenerator(cfg, tiny.chat.tokenizer, client, cfg.toolorchestra.rollout())
    dataset = PromptDataset(cfg.data.train_data, tiny.chat.tokenizer, cfg.trainer.max_prompt_length, num_workers=1)
    tracker = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    made = (kind or trainer_kind(cfg))(
        cfg=cfg,
        tracker=tracker,
        tokenizer=tiny.chat.tokenizer,
        train_dataset=dataset,
        inference_engine_client=client,
        generator=generator,
    )
    made.advantage = cfg.toolorchestra.advantages()
    made.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    return made


def batch_input(made: Any, phase: Any = "train") -> tuple[Any, list[str]]:
    """What SkyRL's trainer gives a generator: four tasks, four times each."""
    sampling = get_sampling_params_for_backend("vllm", made.cfg.generator.sampling_params)
    prompts = made.train_dataset.collate_fn([made.train_dataset[i] for i in range(4)])
    return prepare_generator_input(prompts, 4, sampling, "toolorchestra", phase, 1)


def learnt(batch: Any) -> list[Datum]:
    """What SkyRL's trainer would learn from, as our own takes it: the sequences with an unmasked token."""
    rows = []
    for row in range(len(batch["sequences"])):
        tokens = batch["sequences"][row][batch["attention_mask"][row].bool()].tolist()
        kept = batch["response_mask"][row].bool()
        given = [0.0] * (len(tokens) - int(kept.sum()))
        mask = [*given, *batch["loss_mask"][row][kept].tolist()]
        advantages = [a * m for a, m in zip([*given, *batch["advantages"][row][kept].tolist()], mask, strict=True)]
        logprobs = [*given, *batch["rollout_logprobs"][row][kept].tolist()]
        if any(mask):
            rows.append(Datum(tokens, logprobs, advantages, [bool(m) for m in mask]))
    return rows


def by_trajectory(output: Any) -> dict[str, list[Any]]:
    """Rollouts by task, each once."""
    groups: dict[str, dict[int, Any]] = {}
    for which, one in zip(output["trajectory_ids"], output[PLAYED], strict=True):
        groups.setdefault(which.instance_id, {})[which.repetition_id] = one.trajectory
    return {task: [some[number] for number in sorted(some)] for task, some in groups.items()}


def same(got: Sequence[Datum], expected: Sequence[Datum]) -> None:
    """Token by token; our sequences may end with tokens that nobody sampled."""
    assert len(got) == len(expected)
    for mine, ours in zip(sorted(got, key=_order), sorted(expected, key=_order), strict=True):
        size = len(mine.tokens)
        assert list(mine.tokens) == list(ours.tokens[:size])
        assert not any(ours.mask[size:])
        assert list(mine.mask) == list(ours.mask[:size])
        assert np.allclose(mine.advantages, ours.advantages[:size], atol=1e-5)
        assert np.allclose(mine.logprobs, ours.logprobs[:size], atol=1e-5)


def _order(datum: Datum) -> list[tuple[int, float]]:
    return list(zip(datum.tokens, datum.logprobs, strict=True))[: max(i for i, m in enumerate(datum.mask) if m) + 1]


# -- our generator ----------------------------------------------------------------------------------------------------


@FORMS
def test_what_is_learnt_is_what_our_own_trainer_learns(tiny: Tiny, form: tuple[str, ...]) -> None:
    """SkyRL's own code from the batch to the tensors, in its three forms of samples."""
    made = trainer(tiny, *form)
    given, uids = batch_input(made)
    output = asyncio.run(made.generator.generate(given))
    validate_generator_output(len(given["prompts"]), output, step_wise=bool(form))
    rollouts = by_trajectory(output)
    ours = training_batch([Group(some) for some in rollouts.values()], Grpo(made.advantage))
    assert ours.used >= 4  # a group of four, at least
    if form:
        uids = [which.instance_id for which in output["trajectory_ids"]]
    output.pop("rollout_metrics")
    processed, uids = made.postprocess_generator_output(output, uids)
    batch = made.convert_to_training_input(processed, uids)
    batch["values"] = None
    batch = made.compute_advantages_and_returns(batch)
    got = learnt(batch)
    if form == STEPWISE:  # as many rows as turns: each sampled token once, under the same advantage
        assert len(got) > len(ours.data)
        assert spread(got) == spread(ours.data)
    else:
        same(got, ours.data)
    assert made.all_metrics["reward/used_rollouts"] == ours.used
    assert made.all_metrics["reward/avg_raw_reward"] == pytest.approx(
        np.mean([t.measure.outcome for some in rollouts.values() for t in some])
    )


def spread(data: Sequence[Datum]) -> list[tuple[int, float]]:
    """Sampled tokens with their advantages, in no order."""
    return sorted(
        (token, round(advantage, 4))
        for datum in data
        for token, advantage, sampled in zip(datum.tokens, datum.advantages, datum.mask, strict=True)
        if sampled
    )


def test_bills_are_those_of_the_same_turns_without_it(tiny: Tiny) -> None:
    made = trainer(tiny)
    given, _ = batch_input(made)
    output = asyncio.run(made.generator.generate(given))
    everything = given["env_extras"], given["trajectory_ids"], output[PLAYED], output["env_metrics"]
    for row, which, one, told in zip(*everything, strict=True):
        arguments = {**spec_of(row["gym_id"]).kwargs, **json.loads(row["arguments"])}
        options = {"task_id": row["task_id"], "luck": which.repetition_id}
        episode = factory(**arguments).start(row["seed"], options).episode
        for message in one.trajectory.messages:
            if message["role"] == "assistant":
                moved: Any = episode.act(message["content"])
                while isinstance(moved, Pending):
                    moved = episode.resolve(run_calls(moved.calls))
        assert episode.over
        assert told["outcome"] == episode.outcome.value  # type: ignore[union-attr]
        others = {role: usd for role, usd in episode.ledger.summary()["usd_by_role"].items() if role != "orchestrator"}
        assert {role: told[f"usd_{role}"] for role in others} == others
    assert all(value > 0 for value in output["trajectory_generation_times"])
    assert len(made.inference_engine_client.finished) == len(set(made.inference_engine_client.finished)) == 16


def test_log_probabilities_are_those_of_the_trained_model(tiny: Tiny) -> None:
    """Of the engine's own forward pass over the same tokens."""
    made = trainer(tiny)
    given, _ = batch_input(made)
    output = asyncio.run(made.generator.generate(given))
    for row in range(0, 16, 5):
        tokens = torch.tensor([output["prompt_token_ids"][row] + output["response_ids"][row]])
        with torch.no_grad():
            scores = torch.log_softmax(tiny.engine.model(tokens).logits[0, :-1].float(), -1)
        size = len(output["response_ids"][row])
        expected = scores.gather(1, tokens[0, 1:, None])[-size:, 0].numpy()
        mask = np.array(output["loss_masks"][row], dtype=bool)
        assert np.abs(expected - np.array(output["rollout_logprobs"][row]))[mask].max() < 1e-4


class Breaking(LocalClient):
    """Whose server goes away at some turns."""

    turns = 0

    async def generate(self, input_batch: dict[str, Any], model: str | None = None) -> dict[str, Any]:
        self.turns += 1
        if self.turns % self.every == 0:
            raise aiohttp.ClientConnectionError("connection refused")
        return await super().generate(input_batch, model)

    every = 9


def test_failed_episodes_are_masked_and_never_rewarded(tiny: Tiny) -> None:
    made = trainer(tiny, *MERGED)
    made.generator.client = Breaking(tiny.engine, tiny.chat)
    given, _ = batch_input(made)
    output = asyncio.run(made.generator.generate(given))
    failed = [one.trajectory.measure.failed for one in output[PLAYED]]
    assert 0 < sum(failed) < len(failed)
    output.pop("rollout_metrics")
    ours = training_batch([Group(some) for some in by_trajectory(output).values()], Grpo(made.advantage))
    uids = [which.instance_id for which in output["trajectory_ids"]]
    processed, _ = made.postprocess_generator_output(output, uids)
    for row, broke in enumerate(failed):
        if broke:
            assert not any(processed["loss_masks"][row])
            assert not any(processed["rewards"][row])
    assert made.all_metrics["reward/failed_rollouts"] == ours.failed == sum(failed)


def test_a_server_that_is_away_is_said(tiny: Tiny) -> None:
    made = trainer(tiny)
    made.generator.client = Breaking(tiny.engine, tiny.chat)
    made.generator.client.every = 1
    with pytest.raises(Outage, match=r"none of 16 rollouts could be sampled.*gave no answer \(ClientConnectionError"):
        asyncio.run(made.generator.generate(batch_input(made)[0]))


# -- its trainers ------------------------------------------------------------------------------------------------------


def test_the_fully_asynchronous_trainer_runs_without_a_model(tiny: Tiny) -> None:
    """Its own loop: workers, staleness, weights handed over in flight; a batch is full of groups that teach."""
    full = ("trainer.fully_async.sample_full_batch=true", "trainer.algorithm.zero_variance_filter=true")
    made = trainer(tiny, *ASYNCHRONOUS, *MERGED, *full, tasks=64)
    assert isinstance(made, SimulatedTrainer)
    logged: list[dict[str, float]] = []
    made.tracker.log = lambda metrics, **_: logged.append(dict(metrics))
    made.cfg.trainer.max_training_steps = made.total_training_steps = 4
    asyncio.run(made.train())
    client = made.inference_engine_client
    assert client.weight_version == 5
    assert len(client.salts) > 1
    steps = [metrics for metrics in logged if "reward/used_rollouts" in metrics]
    assert len(steps) == 4
    assert all(0 <= metrics["async/staleness_mean"] <= 2 for metrics in steps)  # SkyRL bounds them together
    assert all(metrics["reward/flat_groups"] == 0 for metrics in steps)
    assert any(metrics["async/num_groups_dropped"] for metrics in steps)


# -- configurations ----------------------------------------------------------------------------------------------------


def given_by_train_sh(place: str, source: str, folder: Path) -> list[str]:
    """The settings that train.sh gives; a program in place of uv writes its words."""
    uv = folder / "uv"
    uv.write_text("#!/bin/sh\nshift 6\nprintf '%s\\n' \"$@\"\n")
    uv.chmod(0o755)
    words = ["sh", str(SKYRL / "train.sh"), place, source, "/data", "/run"]
    search = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(words, env=search, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("source", SOURCES)
def test_skyrl_accepts_the_configurations_that_are_shipped(place: str, source: str, tmp_path: Path) -> None:
    given = given_by_train_sh(place, source, tmp_path)
    cfg = read_config(given)
    assert cfg.trainer.policy.model.path == "Qwen/Qwen3-8B"
    window = cfg.generator.inference_engine.engine_init_kwargs["max_model_len"]
    assert cfg.generator.max_input_length + cfg.generator.sampling_params.max_generate_length <= window
    lines = (SKYRL / "lora.options").read_text(encoding="utf-8").splitlines()
    lora = read_config([*given, *(line for line in lines if not line.startswith("#"))])
    assert (lora.trainer.policy.model.lora.rank, lora.trainer.policy.optimizer_config.lr) == (64, 2e-5)
    asynchronous = cfg.trainer.fully_async
    assert asynchronous.enabled == place.endswith("async") == (trainer_kind(cfg).__name__ == "AsyncTrainer")
    if asynchronous.enabled:  # as its constructor asserts
        size = cfg.trainer.policy_mini_batch_size
        assert size <= asynchronous.num_parallel_generation_workers <= size * (asynchronous.max_staleness_steps + 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("trainer.algorithm.advantage_estimator=grpo", "set it to toolorchestra"),
        ("trainer.algorithm.dynamic_sampling.type=filter", "sample_full_batch=true"),
        ("toolorchestra.advantage.least_sprea=0.1", "least_spread"),
    ],
)
def test_a_wrong_setting_is_said(tiny: Tiny, wrong: str, said: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=said):
        read_config(words(tiny.folder, wrong))


def test_settings_of_skyrls_own_generator_are_refused_and_not_ignored(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="apply_overlong_filtering=true has no meaning"):
        trainer(tiny, "generator.apply_overlong_filtering=true")


def test_another_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    check_skyrl()
    monkeypatch.setattr(skyrl_samples, "SERIES", "9.9")
    with pytest.raises(ConfigError, match=r"this integration is for skyrl 9\.9, found 0\.4"):
        check_skyrl()


def test_the_experiment_is_skyrls_with_our_parts(tiny: Tiny) -> None:
    """What Ray runs, without its servers and workers."""
    cfg = read_config(words(tiny.folder, *MERGED, 'toolorchestra.baselines=["cheapest"]', "data.val_data=[]"))
    made = Experiment.__new__(Experiment)
    made.cfg, made.tokenizer = cfg, tiny.chat.tokenizer
    generator = made.get_generator(cfg, tiny.chat.tokenizer, LocalClient(tiny.engine, tiny.chat))
    assert generator.settings.baselines == ("cheapest",)
    shell = trainer(tiny, *MERGED)
    shell.generator = generator
    given, _ = batch_input(shell)
    output = asyncio.run(generator.generate(given))
    assert all(len(one.baselines) == 1 for one in output[PLAYED])
    given, _ = batch_input(shell, "eval")
    assert all(one.baselines == () for one in asyncio.run(generator.generate(given))[PLAYED])
