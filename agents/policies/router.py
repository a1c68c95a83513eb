"""A trained router: a small network of numbers that chooses among the calls of an environment. Played with numpy alone.

    save_router(folder, layers, TrainedRouter(algo="PPO", ...))      # layers: (weight, bias) as torch's Linear has them
    toolorchestra evaluate --policy router:FOLDER cheapest strongest

A folder holds `router.json` (how it was trained, what its inputs and outputs are, a digest) and `weights.npz`. Whatever
trained it can write one: the network's input is what the wrapper Routing observes, its output a score for each of its
actions.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolorchestra.agents.policies.base import Move, draws, unasked, unreal
from toolorchestra.envs.base.errors import NOT_NEGATIVE, ConfigError, one_of, require
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.wrappers.routing import RoutingView

PREFIX = "router:"
SETTINGS, WEIGHTS = "router.json", "weights.npz"
FORMAT = 1
ACTIVATIONS: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "tanh": np.tanh,
    "relu": lambda values: np.maximum(values, 0),
}
Layers = Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Layers of a plain network: weight (outputs x inputs) and bias of each, the last without an activation."""


@dataclass(frozen=True)
class TrainedRouter:
    """What is known of a router beside its weights."""

    algo: str
    """Algorithm, for example "PPO"."""
    library: str
    """What trained it, with its version."""
    environments: Mapping[str, Mapping[str, Any]]
    """Id -> arguments of gym.make."""
    features: tuple[str, ...]
    """Names of the inputs: Routing.feature_names."""
    actions: tuple[str, ...]
    """Names of the outputs: Routing.action_meanings."""
    activation: str = "tanh"
    temperature: float = 1.0
    """How its calls are drawn: 1 by the chances that were trained, 0 takes the likeliest."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Seeds, split, steps and settings: what it takes to train it again."""

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        require(self, NOT_NEGATIVE, "temperature")


@dataclass(frozen=True)
class Router:
    """A network with what is known of it."""

    how: TrainedRouter
    layers: Layers
    digest: str

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """One number for each action."""
        values = features
        for number, (weight, bias) in enumerate(self.layers):
            values = weight @ (values if number == 0 else ACTIVATIONS[self.how.activation](values)) + bias
        return values


def save_router(folder: Path, layers: Layers, how: TrainedRouter) -> Router:
    """Write a router's folder. Raises ConfigError where the layers do not fit the inputs and outputs."""
    plain = [(np.asarray(w, np.float32), np.asarray(b, np.float32)) for w, b in layers]
    _check(plain, how, "the layers")
    made = Router(how, plain, _digest(plain, how))
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"{kind}_{n}": part for n, pair in enumerate(plain) for kind, part in zip(("w", "b"), pair, strict=True)}
    np.savez(folder / WEIGHTS, **arrays)  # type: ignore[arg-type]
    told = {"format": FORMAT, "digest": made.digest, "layers": len(plain), **asdict(how)}
    (folder / SETTINGS).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return made


def layers_of(state: Mapping[str, Any], *prefixes: str) -> Layers:
    """The layers of a torch network's state_dict whose names begin so, in that order: of Stable-Baselines3
    `layers_of(model.policy.state_dict(), "mlp_extractor.policy_net.", "action_net.")`."""
    names = [
        name.removesuffix(".weight")
        for prefix in prefixes
        for name in state
        if name.startswith(prefix) and name.endswith(".weight")
    ]
    if not names:
        raise ConfigError(f"no layer named {' or '.join(prefixes)} among {', '.join(state)}")
    return [(_numbers(state[f"{name}.weight"]), _numbers(state[f"{name}.bias"])) for name in names]


def load_router(folder: Path) -> Router:
    """Read a router's folder. Nothing in it is run. Raises ConfigError where it is none, or was changed."""
    try:
        told = json.loads((folder / SETTINGS).read_bytes())
        if told.pop("format") != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        digest, count = told.pop("digest"), told.pop("layers")
        parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
        how = TrainedRouter(**parts)
        with np.load(folder / WEIGHTS, allow_pickle=False) as arrays:
            layers = [(arrays[f"w_{n}"], arrays[f"b_{n}"]) for n in range(count)]
    except (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, zipfile.BadZipFile) as err:
        raise ConfigError(
            f"{folder} holds no router ({err!s:.200}); name a folder that `toolorchestra train --router` wrote"
        ) from None
    _check(layers, how, str(folder))
    if _digest(layers, how) != digest:
        raise ConfigError(f"{folder} was changed after it was written: its digest is another; train it again")
    return Router(how, layers, digest)


class RouterPlayer:
    """Makes a call that the episode offers, drawn by the network's scores."""

    def __init__(self, name: str, router: Router, factory: EpisodeFactory, view: RoutingView, seed: int) -> None:
        self.name, self.simulated = name, unreal(factory)
        self.made_of = router.digest
        self._router, self._view, self._seed = router, view, seed

    async def move(self, episode: Episode) -> Move:
        """Make a player's move: see Player."""
        scores = self._router.scores(self._view.features(episode)).astype(np.float64)
        offered = np.where(self._view.mask(episode) == 1, scores, -np.inf)
        chosen = drawn(offered, self._router.how.temperature, draws(self._seed, episode).random())
        return unasked(self._view.text(chosen, episode), episode, simulated=self.simulated)


def drawn(scores: NDArray[np.float64], temperature: float, draw: float) -> int:
    """The number of an action, by a draw from 0 to 1; -inf is never taken. The first of equals is the likeliest."""
    if not temperature:
        return int(scores.argmax())
    chances = np.exp((scores - scores.max()) / temperature)
    reached = np.cumsum(chances / chances.sum())
    return int(np.searchsorted(reached, draw * reached[-1], side="right"))


def router_player(name: str, factory: EpisodeFactory, seed: int = 0) -> RouterPlayer:
    """Make the player of `router:FOLDER`. The seed is that of its draws."""
    router, view = load_router(Path(name.removeprefix(PREFIX))), RoutingView(factory)
    for kind, known, here in (
        ("actions", router.how.actions, view.action_meanings),
        ("features", router.how.features, view.feature_names),
    ):
        if tuple(known) != tuple(here):
            raise ConfigError(
                f"{name} knows {len(known)} {kind}, and those of {factory.source.name} are others; play it on "
                f"{', '.join(router.how.environments)} with the tools that it was trained with"
            )
    return RouterPlayer(name, router, factory, view, seed)


def _numbers(tensor: Any) -> NDArray[np.float32]:
    """Numbers of a tensor of torch or of numpy."""
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor, np.float32)


def _check(layers: Layers, how: TrainedRouter, where: str) -> None:
    """Each layer takes what the one before gives, from the features to the actions."""
    width = len(how.features)
    for weight, bias in layers:
        if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
            raise ConfigError(f"{where}: a layer over {width} numbers expected, got {weight.shape} and {bias.shape}")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ConfigError(f"{where}: a weight is not a finite number; the training broke down, so train again")
        width = weight.shape[0]
    if width != len(how.actions):
        raise ConfigError(f"{where}: the last layer gives {width} numbers, for {len(how.actions)} actions")


def _digest(layers: Layers, how: TrainedRouter) -> str:
    """Hash of every weight, and of what is known of the router."""
    made = hashlib.blake2b(json.dumps(asdict(how), sort_keys=True).encode(), digest_size=16)
    for part in (part for pair in layers for part in pair):
        made.update(np.ascontiguousarray(part, "<f4").tobytes())
    return made.hexdigest()
