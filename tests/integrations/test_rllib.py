"""RLlib itself over the routing environment: `make test-rllib`, in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.command_line import TOOLORCHESTRA, toolorchestra
from tests.integrations.breaking import breaks
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import train
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.evaluation.rows import PAID
from toolorchestra.agents.policies.players import player
from toolorchestra.agents.policies.router import layers_of, load_router
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training import router_training
from toolorchestra.agents.training.router_training import RouterTraining, cluster, config_of, train_router
from toolorchestra.envs.adapters.learner_env import RoutingEnv
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.prices import NANO, Price, Tokens, Usage
from toolorchestra.envs.wrappers import Routing

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ray = pytest.importorskip("ray", reason="needs an environment of its own: make test-rllib")

SMALL = RouterTraining(steps=2048, batch=512, hidden=(16, 16))


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """One Ray on this machine for all tests."""
    with cluster(SMALL):
        yield


def runner(**fault_tolerance: Any) -> Any:
    """One env runner in this process."""
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = config_of(SMALL).env_runners(num_env_runners=0, num_envs_per_env_runner=3)
    return SingleAgentEnvRunner(config=config.fault_tolerance(**fault_tolerance), worker_index=0)


def test_the_same_seeds_and_actions_give_the_same_rewards_and_bills() -> None:
    worlds = set()
    for episode in runner().sample(num_episodes=12):
        infos, actions = episode.get_infos(), episode.get_actions()
        world = infos[0]["world"]
        worlds.add(world)
        env = Routing(gym.make(world, reward="scalar", preference="none", disable_env_checker=True))
        observation, info = env.reset(seed=int(infos[0]["seed"]))
        assert info["task_id"] == infos[0]["task_id"]
        assert (observation == episode.get_observations(0)).all()
        for number, action in enumerate(actions):
            observation, reward, terminated, truncated, info = env.step(int(action))
            assert float(reward) == episode.get_rewards(number)
            bill = infos[number + 1]["cost"]
            assert (bill["usd"], bill["seconds"]) == (info["cost"]["usd"], info["cost"]["seconds"])
            assert (observation == episode.get_observations(number + 1)).all()
        assert (terminated or truncated, False) == (episode.is_terminated, episode.is_truncated)
        assert info["cost"]["usd"] > 0
    assert worlds == {"ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0"}


def test_two_remote_runners_train_a_router_that_plays_without_ray(tmp_path: Path) -> None:
    said: list[str] = []
    given = RouterTraining(steps=1024, batch=256, hidden=(16, 16))
    router = train_router(given, tmp_path, said.append)
    assert load_router(tmp_path).digest == router.digest
    told = json.loads((tmp_path / "router.json").read_text())
    assert told["training"]["runner_seeds"] == [1, 2]
    assert (told["algo"], told["library"]) == ("PPO", f"ray {ray.__version__}")
    rows = [json.loads(line) for line in (tmp_path / router_training.PROGRESS).read_text().splitlines()]
    assert rows[-1]["steps"] >= 1024
    assert rows[-1]["healthy_runners"] == 2
    made = factory_of("HLE-v0", split="test", preference="none")
    assert player(f"router:{tmp_path}", made).simulated


def test_the_saved_network_gives_what_rllibs_gives() -> None:
    import torch

    algorithm = config_of(SMALL).env_runners(num_env_runners=0).build_algo()
    try:
        module = algorithm.get_module()
        layers = layers_of(module.get_state(), *router_training.LAYERS)
        seen = np.random.default_rng(0).random((7, 146), dtype=np.float32)
        wanted = module.forward_inference({"obs": torch.from_numpy(seen)})["action_dist_inputs"]
    finally:
        algorithm.stop()
    values = seen
    for number, (weight, bias) in enumerate(layers):
        values = (np.tanh(values) if number else values) @ weight.T + bias
    np.testing.assert_allclose(values, wanted.detach().numpy(), atol=1e-5)


def test_killing_an_env_runner_does_not_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithms: list[Any] = []
    said: list[str] = []
    sampled = router_training._round

    def keep(algorithm: Any) -> Any:
        algorithms.append(algorithm)
        return sampled(algorithm)

    def kill_one(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            pids = algorithms[0].env_runner_group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)
            os.kill(pids[0], signal.SIGKILL)

    monkeypatch.setattr(router_training, "_round", keep)
    given = RouterTraining(steps=512 * 14, batch=512, hidden=(16, 16))
    train_router(given, tmp_path, kill_one)
    died = said.index("1 of 2 env runners died; Ray starts them again, and the run goes on")
    assert said.index("1 of 2 env runners are back") > died
    rows = [json.loads(line) for line in (tmp_path / router_training.PROGRESS).read_text().splitlines()]
    assert rows[-1]["steps"] >= given.steps
    assert rows[-1]["healthy_runners"] == 2


def test_an_exception_on_a_runner_ends_the_run_and_names_the_task(tmp_path: Path) -> None:
    given = RouterTraining(
        environments={"tests.integrations.breaking:Tests/Breaking-v0": {"one_in": 200}},
        steps=10_000,
        batch=512,
        hidden=(8,),
    )
    said = r"^tests.integrations.breaking:Tests/Breaking-v0, task hle-sim/train/\d+: RuntimeError: the grader is away$"
    with pytest.raises(TrainingFailed, match=said):
        train_router(given, tmp_path, lambda _: None)
    assert not (tmp_path / "router.json").exists()


def test_what_rllib_learns_from_and_counts_when_a_tool_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole episodes without an outage, and no others: neither their turns, nor a reward of 0 in the means."""
    one_in = 4
    worlds = {"tests.integrations.breaking:Tests/AnswerAway-v0": {"one_in": one_in}}
    config = config_of(replace(SMALL, environments=worlds)).environment(env_config={"raising": True, "max_turns": 6})
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=3, batch_mode="complete_episodes")
    config.fault_tolerance(restart_failed_sub_environments=True).debugging(seed=None)
    config.reporting(metrics_num_episodes_for_smoothing=10_000)
    algorithm = config.build_algo()
    learnt: list[Any] = []
    update = algorithm.learner_group.update

    def look(*given: Any, episodes: Any, **named: Any) -> Any:
        learnt.extend(episodes)
        return update(*given, episodes=episodes, **named)

    monkeypatch.setattr(algorithm.learner_group, "update", look)
    try:
        told = algorithm.train()["env_runners"]
    finally:
        algorithm.stop()
    assert told["num_env_step_failures"] > 0, "some episodes met the outage"
    assert told["num_episodes"] == len(learnt) > 20
    meanings = RoutingEnv(["HLE-v0"]).action_meanings
    for episode in learnt:
        assert episode.is_done
        answered = [meanings[action].startswith("answer") for action in episode.get_actions()]
        assert not (any(answered) and breaks(episode.get_infos(0)["task_id"], one_in))
    assert told["episode_return_mean"] == pytest.approx(np.mean([episode.get_return() for episode in learnt]))


# -- over real models --------------------------------------------------------------------------------------------------

EACH = Price.read({"usd_per_mtok": {"input": 10, "output": 10_000}}, "test").nano_usd(
    Usage("", "", Tokens(900, 0, 200, 0))
)


def answered(_asked: ReceivedRequest) -> ServerReply:
    used = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
    return ServerReply("<query>river</query> <answer>42</answer>", usage=used, seconds=0.02)


def over(folder: Path, server: Loopback, *more: str) -> list[str]:
    row = "price = {usd_per_mtok = {input = 10, output = 10000}}\noutput_tokens = 300\n"
    (folder / "b.toml").write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n{row}')
    env = ["--env", "HLE-v0", f"backends={folder / 'b.toml'}", "max_turns=4"]
    return ["train", "--router", *env, "--batch", "32", "--hidden", "8", "--out", str(folder / "run"), *more]


def known(folder: Path) -> int:
    """What the folder knows that it has paid, in nano-dollars."""
    return sum(charge.nano_usd for left in SpendJournal.left(folder / "run" / PAID).values() for charge in left)


def test_a_router_over_real_models_holds_its_cap_over_all_its_lives_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Loopback(answered) as server:
        words = over(tmp_path, server, "--resume", "--steps", "96", "--spend-cap")
        with subprocess.Popen([*TOOLORCHESTRA, *words, "120"]) as run:
            while not list((tmp_path / "run" / "checkpoints").glob("step-*")):
                assert run.poll() is None
                time.sleep(0.01)
            run.kill()
        asked = len(server.seen)
        assert asked * EACH <= known(tmp_path) <= 120 * NANO
        assert train.main([*words[1:], "120"]) == 1
        out, err = capsys.readouterr()
        assert "real models are paid by one process" in out
        assert "resuming from step-000001" in out
        assert "nothing is learnt from what was played last" in err
        assert asked < len(server.seen)
        assert len(server.seen) * EACH <= known(tmp_path) <= 120 * NANO
        assert train.main([*words[1:], "100000"]) == 0
        assert len(server.seen) * EACH <= known(tmp_path) < (len(server.seen) + 2) * EACH
        rows = [json.loads(line) for line in (tmp_path / "run" / router_training.PROGRESS).read_text().splitlines()]
        assert [row["steps"] // 32 for row in rows] == [1, 2, 3]
        assert train.main([*over(tmp_path, server, "--steps", "96")[1:]]) == 2
        assert "holds a run already (step-000003); go on with it" in capsys.readouterr().err
        assert train.main([*over(tmp_path, server, "--steps", "96", "--resume", "--seed", "1")[1:]]) == 2
        assert "was trained with other settings (seed); give the same ones" in capsys.readouterr().err


def test_what_goes_on_has_the_weights_and_the_optimiser_of_its_checkpoint(tmp_path: Path) -> None:
    from toolorchestra.agents.engines.learner_state import load_learner

    algorithm = config_of(SMALL).env_runners(num_env_runners=0).build_algo()
    try:
        algorithm.train()
        router_training._save(algorithm, SMALL, tmp_path, 512)
        kept = algorithm.learner_group.get_state()["learner"]
        seen = layers_of(algorithm.get_module().get_state(), *router_training.LAYERS)
    finally:
        algorithm.stop()
    found, done = router_training._last_of(SMALL, tmp_path, True, lambda _: None)
    assert found is not None
    other = config_of(SMALL, done).env_runners(num_env_runners=0).build_algo()
    try:
        load_learner(other, found / router_training.LEARNER)
        for mine, theirs in zip(layers_of(other.get_module().get_state(), *router_training.LAYERS), seen, strict=True):
            assert all((one == two).all() for one, two in zip(mine, theirs, strict=True))
        first, again = (
            state["optimizer"]["default_policy_default_optimizer"]["state"]["state"][0]["exp_avg"]
            for state in (kept, other.learner_group.get_state()["learner"])
        )
        assert float(np.abs(first).sum()) == float(np.abs(again).sum()) > 0
    finally:
        other.stop()


def refused(address: str) -> str:
    done = toolorchestra("train", "--router", "--address", address, timeout=100)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_a_cluster_that_is_not_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = refused(f"127.0.0.1:{port}")
    assert said.startswith(f"error: no Ray cluster at 127.0.0.1:{port}: ")
    assert said.endswith(
        "; start one with `ray start --head`, or leave address out to train here. On the command line: --address "
        "HOST:PORT, or leave --address out"
    )
    assert "the address of a Ray cluster is auto or HOST:PORT, got 'here:x'" in refused("here:x")


@pytest.fixture
def another_cluster() -> Iterator[str]:
    """A cluster of its own that `ray start` has made, as on several machines; its address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ray_start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    ray_start += ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    # In a folder of its own: Ray notes its clusters there, and other commands would look for this one when it is gone.
    place = tempfile.mkdtemp(prefix="ray")
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(ray_start, env={**os.environ, "RAY_TMPDIR": place}, **silent) as started:
        try:
            wait_for(port)
            yield f"127.0.0.1:{port}"
        finally:
            started.terminate()
    shutil.rmtree(place, ignore_errors=True)


def wait_for(port: int, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise TimeoutError(f"nothing listens at port {port} after {seconds} s")


def test_a_cluster_that_runs_already_trains_a_router(another_cluster: str, tmp_path: Path) -> None:
    small = "--steps 512 --batch 256 --hidden 8".split()
    options = ["train", "--router", "--address", another_cluster, "--out", tmp_path / "r", *small]
    done = toolorchestra(*options, timeout=200)
    assert done.returncode == 0, done.stderr
    assert load_router(tmp_path / "r").digest in done.stdout
    done = toolorchestra(*options, "--runners", "3", timeout=200)
    assert done.returncode == 2
    assert "error: 3 env runners take a CPU each, and the cluster has 2; lower runners" in done.stderr
    assert "On the command line: a lower --runners" in done.stderr
