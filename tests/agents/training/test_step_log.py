"""A run over several environments, and its numbers: by environment, and whole after a crash."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agents.training.even_source import ENV_ID, TASKS
from tests.agents.training.test_trainer import COLD, configured, run
from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Group
from toolorchestra.agents.training.metrics import Log, read
from toolorchestra.agents.training.step_log import context_warnings
from toolorchestra.agents.training.trainer import collect_groups
from toolorchestra.agents.training.training_run import TrainingRun
from toolorchestra.envs.base.errors import ConfigError

MIX = replace(
    COLD,
    environments=(
        EnvMix("ToolOrchestra/HLE-v0", 1.0, {"style": "brief", "max_turns": 3}, max_context=90),
        EnvMix("ToolOrchestra/ToolScale-v0", 1.0, {"domain": "finance", "max_turns": 2}, max_tokens=6),
        EnvMix(
            ENV_ID, 1.0, {"max_turns": 2, "preference": "accurate"}, validation="test", max_tokens=4, max_context=200
        ),
    ),
    steps=2,
    groups=8,
    rollouts=2,
    baselines=("cheapest",),
    max_context=1900,
    evaluate_every=2,
    evaluation_tasks=TASKS + 2,
    task_order="epochs",
    advantage=AdvantageParams(least_spread=0.0),
)
NAMES = ("HLE-v0", "ToolScale-v0", "Even-v0")


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> TrainingRun:
    return run(tmp_path_factory.mktemp("mixed"), MIX, said=said)


def rows(made: TrainingRun, kind: str) -> list[dict[str, Any]]:
    return [row for row in read(made.folder / "metrics.jsonl") if row["kind"] == kind]


def test_each_environment_has_limits_of_its_own(mixed: TrainingRun) -> None:
    found: dict[str, list[Group]] = {}
    for group in collect_groups(mixed):
        found.setdefault(group.label, []).append(group)
    assert sorted(found) == sorted(NAMES)
    for mix, name in zip(MIX.environments, NAMES, strict=True):
        sequences = [s for group in found[name] for t in group.trajectories for s in t.sequences]
        ends = [max((at + 1 for at, own in enumerate(s.sampled) if own), default=0) for s in sequences]
        assert max(ends) <= (mix.max_context or MIX.max_context)
        assert name != "ToolScale-v0" or max(ends) > 200  # more than the others may
        turns = "".join("x" if sampled else " " for s in sequences for sampled in (*s.sampled, False)).split()
        assert max(map(len, turns)) <= (mix.max_tokens or MIX.max_tokens)
    even = [group.trajectories[0].task_id for group in found["Even-v0"]]
    assert len(even) <= TASKS


def test_numbers_by_environment(mixed: TrainingRun, said: list[str]) -> None:
    first, *_ = rows(mixed, "train")
    for name in {key.split("/")[1] for key in first if key.startswith("env/")}:
        assert {key.split("/")[2] for key in first if key.startswith(f"env/{name}/")} == {
            "group_reward", "accuracy", "cents", "failed", "context",
        }  # fmt: skip
    assert 0.0 < first["env/Even-v0/accuracy"] < 1.0
    assert first["env/ToolScale-v0/accuracy"] == 0.0
    assert first["context"] == sum(first[key] for key in first if key.endswith("/context"))
    assert first["env/HLE-v0/context"] > 0 == first["env/Even-v0/context"]
    cut = f"{first['env/HLE-v0/context']} of "
    (warning,) = [line for line in said if line.startswith(f"warning, step 0: {cut}")]
    assert warning.endswith(
        "rollouts of HLE-v0 ran out of context and are left out: raise its max_context, which is 90"
    )
    held_out = rows(mixed, "eval")[0]
    assert {f"env/{name}/{what}" for name in NAMES for what in ("accuracy", "reward")} <= set(held_out)
    fewer = f"held out: Tests/Even-v0 has {TASKS} tasks in split 'test', and each is played once: {TASKS + 2} were "
    assert [line.startswith(fewer) for line in said].count(True) == 1
    counts = (TASKS + 2, TASKS + 2, TASKS)
    right = sum(n * held_out[f"env/{name}/accuracy"] for n, name in zip(counts, NAMES, strict=True))
    assert 0 < right == pytest.approx(sum(counts) * held_out["policy/accuracy"])


def test_limits_on_a_command_line() -> None:
    where = ["--env", "ToolScale-v0", "domain=finance", "weight=2", "max_context=8192", "max_tokens=64"]
    (mix,) = configured(*where, "--max-context", "16384").environments
    assert (mix.weight, mix.max_context, mix.max_tokens, mix.arguments) == (2, 8192, 64, {"domain": "finance"})
    with pytest.raises(ConfigError, match=r"ToolScale-v0: max_context is 8192, and the run's is 256") as refused:
        _ = configured(*where)
    assert "--max-context" in refused.value.command_line


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_context": 10}, r"^HLE-v0: max_context \(10\) must exceed max_tokens \(10\)$"),
        ({"max_tokens": 256}, r"^HLE-v0: max_context \(256\) must exceed max_tokens \(256\)$"),
        ({"max_context": 20, "max_tokens": 30}, r"^HLE-v0: max_context \(20\) must exceed max_tokens \(30\)$"),
        ({"max_tokens": 2.5}, r"^HLE-v0: max_tokens is a whole number of tokens, got 2\.5$"),
        ({"max_tokens": -1}, "^HLE-v0: max_tokens must be a number from 0 up"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(COLD, environments=(EnvMix("HLE-v0", **limits),))


@pytest.mark.parametrize(
    ("mix", "advice"),
    [
        (EnvMix("A/X-v0"), "raise the run's max_context, which is 256"),
        (EnvMix("A/X-v0", max_context=128), "raise its max_context, which is 128"),
        (
            EnvMix("A/X-v0", max_context=256),
            "raise its max_context, which is 256, and the run's max_context, which is 256",
        ),
        (
            EnvMix("A/X-v0", 1.0, {"max_context_tokens": 99}),
            "raise its max_context_tokens, which is 99, or its max_context",
        ),
    ],
)
def test_what_to_raise_is_said(mix: EnvMix, advice: str) -> None:
    config: TrainConfig = replace(COLD, environments=(mix,))
    played: list[Any] = [SimpleNamespace(measure=SimpleNamespace(context_cut=k < 4)) for k in range(100)]
    (said,) = context_warnings(config, {"X-v0": played}, "are left out")
    assert said == f"4 of 100 rollouts of X-v0 ran out of context and are left out: {advice}"
    assert context_warnings(config, {"X-v0": played[1:]}, "are left out") != []  # 3 of 99
    assert context_warnings(config, {"X-v0": played[2:]}, "are left out") == []  # 2 of 98


# -- the metrics file --------------------------------------------------------------------------------------------------


def rows_metrics(folder: Path) -> list[int]:
    return [row["step"] for row in read(folder / "metrics.jsonl")]


def written(folder: Path) -> None:
    log = Log(folder, 0)
    for step in range(100):
        log.write("train", step, {"reward": 0.5})
    log.close()


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:40], lines[40][:20], b"\n", *lines[41:], b"\0\xff"]))
    Log(tmp_path, 100).close()
    assert rows_metrics(tmp_path) == [*range(40), *range(41, 100)]


def test_resumed_on_a_full_disk_no_row_is_lost(tmp_path: Path) -> None:
    written(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # a longer write fails, as a full disk's does
    try:
        with pytest.raises(OSError, match="too large"):
            Log(tmp_path, 90)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert rows_metrics(tmp_path) == list(range(100))
