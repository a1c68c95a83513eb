"""A saved router plays by its numbers, is known by its digest, and is refused where it does not fit."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from tests.command_line import toolorchestra
from toolorchestra.agents.policies.players import player
from toolorchestra.agents.policies.router import (
    Layers,
    Router,
    TrainedRouter,
    drawn,
    layers_of,
    load_router,
    save_router,
)
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.wrappers import Routing


def how(**changed: object) -> TrainedRouter:
    routing = Routing(gym.make("ToolOrchestra/HLE-v0"))
    parts: dict[str, object] = {
        "algo": "PPO",
        "library": "nothing",
        "environments": {"ToolOrchestra/HLE-v0": {}},
        "features": routing.feature_names,
        "actions": routing.action_meanings,
        "training": {"seed": 0, "hidden": [8]},
    }
    return TrainedRouter(**{**parts, **changed})  # type: ignore[arg-type]


def layers(seed: int = 0, hidden: int = 8) -> Layers:
    rng, known = np.random.default_rng(seed), how()
    sizes = [len(known.features), hidden, len(known.actions)]
    return [
        (rng.normal(size=(out, into)).astype(np.float32), rng.normal(size=out).astype(np.float32))
        for into, out in pairwise(sizes)
    ]


def always(action: str) -> Layers:
    """A network that likes one action best whatever it sees."""
    known = how()
    bias = np.array([100.0 * (name == action) for name in known.actions], np.float32)
    return [(np.zeros((len(known.actions), len(known.features)), np.float32), bias)]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_it_computes_what_torch_computes(activation: str) -> None:
    made = torch.nn.Tanh() if activation == "tanh" else torch.nn.ReLU()
    known = how(activation=activation)
    body = torch.nn.Sequential(torch.nn.Linear(len(known.features), 16), made, torch.nn.Linear(16, 8), made)
    head = torch.nn.Linear(8, len(known.actions))
    state = {
        f"{part}.{name}": t for part, net in (("body", body), ("head", head)) for name, t in net.state_dict().items()
    }
    router = Router(known, layers_of(state, "body.", "head."), "")
    seen = np.random.default_rng(0).random((5, len(known.features)), dtype=np.float32)
    for row in seen:
        wanted = head(body(torch.from_numpy(row))).detach().numpy()
        np.testing.assert_allclose(router.scores(row), wanted, atol=1e-5)


def test_what_was_saved_is_read_again_and_a_change_is_noticed(tmp_path: Path) -> None:
    saved = save_router(tmp_path / "r", layers(), how())
    read = load_router(tmp_path / "r")
    assert read.digest == saved.digest != save_router(tmp_path / "other", layers(1), how()).digest
    assert read.how.features == how().features
    np.savez(tmp_path / "r" / "weights.npz", **np.load(tmp_path / "other" / "weights.npz"))
    with pytest.raises(ConfigError, match="was changed after it was written"):
        load_router(tmp_path / "r")


def test_it_makes_the_call_it_likes_best_of_those_that_are_offered(tmp_path: Path) -> None:
    save_router(tmp_path, always("search search-3"), how())
    made = factory_of("HLE-v0", split="test", preference="none")
    who = player(f"router:{tmp_path}", made)
    assert (who.name, who.simulated) == (f"router:{tmp_path}", True)
    episode = made.start(5).episode
    move = asyncio.run(who.move(episode))
    (call,) = parse(move.text).calls
    assert (call.name, call.arguments) == ("search", {"model": "search-3"})
    assert move.usage is None
    few = made.start(5, {"tools": ["answer"]}).episode
    (call,) = parse(asyncio.run(who.move(few)).text).calls
    assert call.name == "answer"


def test_calls_are_drawn_by_their_chances_and_a_temperature_of_0_takes_the_likeliest(tmp_path: Path) -> None:
    scores = np.log([0.5, 0.25, 1e-300, 0.25])
    scores[2] = -np.inf
    got = [drawn(scores, 1.0, draw) for draw in (0.0, 0.49, 0.51, 0.74, 0.76, 0.999999)]
    assert got == [0, 0, 1, 1, 3, 3]
    assert [drawn(scores, 0.0, draw) for draw in (0.0, 0.9)] == [0, 0]
    made = factory_of("HLE-v0", split="test", preference="none")
    texts = {}
    for temperature in (0.0, 1.0):
        folder = tmp_path / str(temperature)
        flat = [(weight * 0, bias * 0) for weight, bias in layers()]
        save_router(folder, flat, how(temperature=temperature))
        episodes = [made.start(seed).episode for seed in range(30)]
        for seed in (0, 0, 1):
            who = player(f"router:{folder}", made, seed)
            texts.setdefault((temperature, seed), []).append([asyncio.run(who.move(one)).text for one in episodes])
    assert texts[1.0, 0][0] == texts[1.0, 0][1] != texts[1.0, 1][0]
    assert len(set(texts[1.0, 0][0])) > 5
    assert set(texts[0.0, 0][0]) == set(texts[0.0, 1][0])
    assert len(set(texts[0.0, 0][0])) == 1


def test_it_stands_in_the_table_and_its_digest_in_the_manifest(tmp_path: Path) -> None:
    router = save_router(tmp_path / "r", always("answer answer-1"), how())
    options = f"--policy router:{tmp_path}/r cheapest --tasks 4 --out {tmp_path}/run"
    done = toolorchestra("evaluate", *options.split())
    assert done.returncode == 0, done.stderr
    assert f"as router:{tmp_path}/r was trained: --env HLE-v0" in done.stdout
    assert "cheapest" in done.stdout
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "run").glob("*.json")]
    assert router.digest in json.dumps(manifests)


def test_it_is_refused_where_it_does_not_fit(tmp_path: Path) -> None:
    save_router(tmp_path, layers(), how())
    name = f"router:{tmp_path}"
    with pytest.raises(ConfigError, match=r"knows 12 actions, and those of .* are others; play it on .*HLE-v0"):
        player(name, factory_of("HLE-v0", tools="plain"))
    with pytest.raises(ConfigError, match="no tool configuration to number"):
        player(name, factory_of("ToolScale-v0"))
    with pytest.raises(ConfigError, match=r"holds no router .*; name a folder that `toolorchestra train --rou"):
        player(f"router:{tmp_path}/none", factory_of("HLE-v0"))
    for file, torn in (("weights.npz", ""), ("router.json", "[]")):
        (tmp_path / file).write_text(torn)
        with pytest.raises(ConfigError, match="holds no router"):
            load_router(tmp_path)


def test_layers_that_fit_nothing_are_not_saved(tmp_path: Path) -> None:
    (first, *_), whole = layers(), layers()
    with pytest.raises(ConfigError, match="the last layer gives 8 numbers, for 12 actions"):
        save_router(tmp_path, [first], how())
    with pytest.raises(ConfigError, match="a layer over 146 numbers expected"):
        save_router(tmp_path, whole[1:], how())
    with pytest.raises(ConfigError, match="not a finite number"):
        save_router(tmp_path, [(first[0] * np.nan, first[1]), whole[1]], how())
    with pytest.raises(ConfigError, match="no activation 'gelu'; valid: relu, tanh"):
        how(activation="gelu")
    with pytest.raises(ConfigError, match=r"no layer named pi\. among a\.weight"):
        layers_of({"a.weight": first[0], "a.bias": first[1]}, "pi.")
    assert not list(tmp_path.iterdir())
