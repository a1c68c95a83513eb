"""The command that trains with SkyRL on a Ray cluster, from its first word to its last or to the GPU that a CPU lacks:
`make test-skyrl`. Its inference server is a stand-in that answers with tokens that were sampled before."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

if util.find_spec("skyrl") is None:
    pytest.skip("skyrl is not installed here: make test-skyrl", allow_module_level=True)

from pyarrow import parquet

from tests.integrations.skyrl_tiny import ASYNCHRONOUS, MERGED, warm_engine, words
from tests.paths import REPOSITORY
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.adapters.prompt_rows import job_of_row
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.rollouts.rollout import RolloutParams, Rollouts

pytestmark = pytest.mark.filterwarnings("ignore")
SECONDS = 900
"""A run's deadline: SkyRL's imports take half a minute of CPU time in each of its processes."""
STEPS = 2
PATHS = (REPOSITORY / "src", REPOSITORY, REPOSITORY / "tests" / "integrations" / "without_gpu")


class Noted:
    """An engine, and every turn that it made."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.release = engine, engine.release
        self.turns: list[Sample] = []

    async def sample(self, prompt: Any, params: SamplingParams, session: str = "") -> Sample:
        made: Sample = await self.engine.sample(prompt, params, session)
        self.turns.append(made)
        return made


@pytest.fixture(scope="module")
def turns(folder: Path) -> list[Sample]:
    """What a small model says; and its tokenizer lies in the folder then, and the tasks."""
    engine, chat = warm_engine(folder / "run")
    chat.tokenizer.save_pretrained(folder)
    words(folder, tasks=64)
    noted = Noted(engine)
    jobs = [job_of_row(row) for row in parquet.read_table(folder / "train-64.parquet").to_pylist()[:8]]
    Rollouts(noted, chat, RolloutParams(max_tokens=10, max_context=256)).collect(jobs)
    engine.close()
    return noted.turns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skyrl")


def skyrl_train(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    command = [sys.executable, "-m", "toolorchestra.agents.adapters.skyrl_train", *words(folder, *options, tasks=64)]
    places = [f"trainer.{name}_path={folder / name}" for name in ("log", "ckpt", "export")]
    # A cluster of its own, whatever else runs here.
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "RAY_ADDRESS": "local", **environment}
    return subprocess.run(
        [*command, *places], capture_output=True, text=True, check=False, timeout=SECONDS, env=known, cwd=folder
    )


def test_it_trains_on_a_cluster_without_gpus(folder: Path, turns: list[Sample]) -> None:
    """SkyRL's experiment in Ray's task, its own client of a server over HTTP, and its asynchronous trainer without a
    model: all but what a GPU does."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        if not asked.path.startswith("/inference/v1/generate"):
            return ServerReply(body={})  # paused, resumed, a session that ended
        turn = turns[asked.number % len(turns)]
        probabilities = {"content": [{"logprob": logprob} for logprob in turn.logprobs]}
        choice = {"token_ids": list(turn.tokens), "logprobs": probabilities, "finish_reason": "stop"}
        return ServerReply(body={"choices": [choice]})

    with Loopback(reply) as server:
        served = (
            f"generator.inference_engine.external_proxy_url=http://127.0.0.1:{server.port}",
            "generator.inference_engine.run_engines_locally=false",
            f"trainer.max_training_steps={STEPS}",
        )
        done = skyrl_train(folder, *ASYNCHRONOUS, *MERGED, *served)
    assert done.returncode == 0, done.stderr[-3000:]
    asked = [one for one in server.seen if one.path.startswith("/inference/v1/generate")]
    assert len(asked) >= STEPS * 4 * 4, "four tasks a step, four rollouts each"
    assert {"/pause", "/resume"} <= {one.path.partition("?")[0] for one in server.seen}
    assert "reward/toolorchestra" in done.stdout + done.stderr, "our advantages were made and logged"


def test_without_a_gpu_it_says_that_it_waits_for_one(folder: Path, turns: list[Sample]) -> None:
    """Where SkyRL's own workers would start."""
    assert turns
    done = skyrl_train(folder, *MERGED, SKYRL_RAY_PG_TIMEOUT_IN_S="5")
    assert done.returncode != 0
    assert "Failed to create placement group with 1 bundles (requiring 1" in done.stderr


def test_a_cluster_that_is_gone_is_not_waited_for(folder: Path, turns: list[Sample], tmp_path: Path) -> None:
    """Ray notes the cluster that `ray start` made, and a killed one stays noted."""
    assert turns
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    done = skyrl_train(folder, *MERGED, RAY_ADDRESS="", RAY_TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert "error: no Ray cluster at 127.0.0.1:9: " in done.stderr
    assert f"{tmp_path}/ray/ray_current_cluster names it" in done.stderr
