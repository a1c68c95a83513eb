"""What a training run is made of, and the presets. Frozen, so that a checkpoint's configuration is the run's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, get_type_hints

from toolorchestra.agents.configuration.option_types import pairs, value
from toolorchestra.agents.engines.base import Divergence, Kind, LossParams
from toolorchestra.agents.policies.baselines import NAMES
from toolorchestra.agents.rollouts.rewards import AdvantageParams
from toolorchestra.envs.base.errors import AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, SHARE, ConfigError, no_such, require
from toolorchestra.envs.registration import full_id

SAMPLERS = ("local", "vllm", "served")


@dataclass(frozen=True)
class EnvMix:
    """One environment of the mix."""

    env_id: str
    weight: float = 1.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What gym.make is given, in training and evaluation alike."""
    train: str = "train"
    """Split of the rollouts that are learnt from."""
    validation: str = "validation"
    """Split of the evaluations during the run, which pick the best checkpoint."""
    test: str = "test"
    """Split of the report."""

    def __post_init__(self) -> None:
        require(self, POSITIVE, "weight", where=f"{self.env_id}: ")


@dataclass(frozen=True)
class ModelConfig:
    """Which model, and how the local engine holds it."""

    path: str = ""
    """A folder or hub id of transformers; "" makes the tiny model."""
    hidden: int = 64
    layers: int = 2
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    processes: int = 1
    """That share the rollouts, each with a copy of the model, and the warm start's routes; an optimiser step takes as
    many threads. For small models on a CPU: a GPU holds one."""
    rows: int = 128
    """Rollouts in the sampler's cache at a time."""
    tokens_per_batch: int = 16_384
    lora_rank: int = 0
    lora_alpha: int = 32
    gradient_checkpointing: bool = False
    thinking: bool | None = None
    """enable_thinking of the chat template; None leaves it to the template."""
    sampler: str = "local"
    """What rollouts are sampled with: "local" in this process, "vllm" an engine of vLLM beside it, "served" a running
    `vllm serve`."""
    memory_share: float = 0.5
    """Of the GPU's memory, that vLLM beside the trainer may take while it is awake."""
    server: str = ""
    """Base URL of the running server, http://HOST:PORT/v1."""
    served_name: str = ""
    """What the server calls the model; "" asks it."""
    handover: str = ""
    """Folder through which weights reach the sampler; a server must see it under the same path. "" finds one."""
    tolerance: float = 0.0
    """Most mean gap between the sampler's log-probabilities and the trainer's; 0 goes by the dtype."""

    def __post_init__(self) -> None:
        counts = ("hidden", "layers", "threads", "rows", "tokens_per_batch", "lora_alpha")
        require(self, AT_LEAST_ONE, *counts, where="model.")
        require(self, NOT_NEGATIVE, "lora_rank", "tolerance", where="model.")
        if self.sampler not in SAMPLERS:
            raise ConfigError(no_such("model.sampler", self.sampler, SAMPLERS))
        if self.sampler == "served" and not (self.server and self.handover):
            raise ConfigError(
                "model.sampler=served needs model.server=http://HOST:PORT/v1 and model.handover=FOLDER, a folder that "
                "the server sees under the same path: new weights go through it"
            )
        if not self.path and self.hidden % 8:
            raise ConfigError(f"model.hidden is a multiple of 8, for four heads of even width; got {self.hidden}")
        if not 0 < self.memory_share < 1:
            raise ConfigError(f"model.memory_share is a share between 0 and 1, got {self.memory_share!r}")
        if self.processes > 1 and self.sampler != "local":
            raise ConfigError(f"model.sampler={self.sampler} batches all rollouts itself: set model.processes=1")


@dataclass(frozen=True)
class WarmStart:
    """Supervised start from scripted demonstrations."""

    steps: int = 800
    """0 skips it, for models that already speak the grammar."""
    batch: int = 32
    learning_rate: float = 3e-3
    demonstrations: int = 12_000
    """Tasks whose best random route is shown."""
    routes: int = 8
    """Random routes tried for each of them."""
    trajectories: str = ""
    """A JSONL of recorded trajectories to learn from instead."""
    least_valid: float = 0.97
    """Share of readable turns below which reinforcement learning does not start."""
    margin: float = 0.05
    """By how much the mean outcome must exceed answering at once."""
    rounds: int = 3
    """How often `steps` may be repeated before the run gives up."""

    def __post_init__(self) -> None:
        require(self, NOT_NEGATIVE, "steps", where="warm_start.")
        require(self, AT_LEAST_ONE, "batch", "demonstrations", "routes", "rounds", where="warm_start.")
        require(self, POSITIVE, "learning_rate", where="warm_start.")
        require(self, SHARE, "least_valid", where="warm_start.")


@dataclass(frozen=True)
class TrainConfig:
    """A run."""

    preset: str = "tiny"
    seed: int = 0
    environments: tuple[EnvMix, ...] = ()
    model: ModelConfig = ModelConfig()
    warm_start: WarmStart = WarmStart()
    steps: int = 200
    groups: int = 16
    rollouts: int = 8
    """Per group."""
    anchors: tuple[str, ...] = ()
    """Baselines that play each group's task too, where they can, and widen the scale of its reward. The paper has none;
    without them a group of like rollouts is spread over the whole scale, and a cheap gamble looks better than it is."""
    updates: int = 1
    """Optimiser steps that one step's rollouts are split over; the clip bounds what the later ones may do."""
    epochs: int = 1
    """Passes over one step's rollouts."""
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    """Reached linearly at the last step."""
    average: float = 0.0
    """Decay, per optimiser step, of the running average of the weights that is evaluated; 0 evaluates the last ones."""
    loss: LossParams = field(default_factory=LossParams)
    advantage: AdvantageParams = field(default_factory=AdvantageParams)
    max_tokens: int = 10
    """Of one turn."""
    max_context: int = 256
    temperature: float = 1.0
    deadline_seconds: float = 600.0
    stop_at_call: bool = False
    """End a turn behind its first tool call: sooner, but never several calls in one turn."""
    evaluate_every: int = 50
    evaluation_temperature: float = 1.0
    evaluation_tasks: int = 100
    """Per environment, on held-out tasks, prices, tools and wordings."""
    save_every: int = 10
    keep_last: int = 2

    def __post_init__(self) -> None:
        counts = ("groups", "rollouts", "steps", "updates", "epochs", "max_tokens")
        require(self, AT_LEAST_ONE, *counts, "evaluate_every", "evaluation_tasks", "save_every", "keep_last")
        require(self, POSITIVE, "learning_rate", "temperature", "deadline_seconds")
        require(self, NOT_NEGATIVE, "final_learning_rate", "evaluation_temperature", "seed")
        require(self, SHARE, "average")
        if self.average == 1:
            raise ConfigError("average=1 would never leave the first weights; take one below, such as 0.95")
        if self.model.processes < 1 or (self.model.processes > 1 and self.model.device != "cpu"):
            raise ConfigError(
                f"model.processes is at least 1, and 1 on a {self.model.device}; got {self.model.processes}"
            )
        for name in self.anchors:
            if name not in NAMES:
                raise ConfigError(no_such("anchor", name, NAMES))
        if self.rollouts < 2:
            raise ConfigError("rollouts must be at least 2: a group's reward compares siblings")
        if not self.environments:
            raise ConfigError("environments is empty; name at least one, as EnvMix(id)")
        if self.max_tokens >= self.max_context:
            raise ConfigError(f"max_context ({self.max_context}) must exceed max_tokens ({self.max_tokens})")


_TINY_ARGUMENTS = {"style": "brief", "shown_characters": 0, "max_turns": 10, "vary": ("tools", "prices")}
_WORLDS = ("ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0")

PRESETS: Mapping[str, TrainConfig] = {
    "tiny": TrainConfig(
        environments=tuple(EnvMix(env_id, 1.0, _TINY_ARGUMENTS) for env_id in _WORLDS),
        model=ModelConfig(processes=2),
        steps=240,
        anchors=("cheapest", "strongest"),
        updates=4,
        learning_rate=5e-4,
        final_learning_rate=5e-5,
        average=0.95,
        loss=LossParams(entropy_weight=0.004),
        advantage=AdvantageParams(strict_format=True, least_spread=0.0, floor=0.15),
        evaluate_every=60,
        evaluation_temperature=0.5,
        evaluation_tasks=200,
    ),
    "small-gpu": TrainConfig(
        preset="small-gpu",
        environments=tuple(EnvMix(env_id, 1.0, {"max_turns": 12}) for env_id in _WORLDS),
        model=ModelConfig(
            path="Qwen/Qwen3-0.6B", device="cuda", dtype="bfloat16", lora_rank=32, rows=64, gradient_checkpointing=True
        ),
        warm_start=WarmStart(steps=0),
        learning_rate=2e-5,
        final_learning_rate=2e-5,
        max_tokens=1024,
        max_context=16_384,
    ),
    # The paper's numbers: 16 prompts x 8 rollouts, lr 1e-6, 24,000 + 8,000 tokens, 50 turns, clip 0.2 / 0.28.
    "8b-h100": TrainConfig(
        preset="8b-h100",
        environments=tuple(EnvMix(env_id, 1.0, {"max_turns": 50}) for env_id in _WORLDS),
        model=ModelConfig(
            path="Qwen/Qwen3-8B",
            device="cuda",
            dtype="bfloat16",
            lora_rank=64,
            rows=128,
            tokens_per_batch=32_768,
            gradient_checkpointing=True,
            sampler="vllm",
            memory_share=0.65,
        ),
        warm_start=WarmStart(steps=0),
        learning_rate=1e-6,
        final_learning_rate=1e-6,
        loss=LossParams(kl="k2", kl_weight=1e-4),
        max_tokens=8_000,
        max_context=32_000,
        deadline_seconds=3600.0,
        evaluate_every=25,
    ),
}


def preset(name: str) -> TrainConfig:
    """A preset by its name."""
    if name not in PRESETS:
        raise ConfigError(no_such("preset", name, PRESETS))
    return PRESETS[name]


def with_settings(config: Any, settings: Mapping[str, str]) -> Any:
    """The configuration with `model.hidden=96`-like settings from a command line, read as the field's type. All take
    effect at once: what does not go together is found whatever their order."""
    return _with_settings(config, {tuple(path.split(".")): text for path, text in settings.items()}, "")


def _with_settings(config: Any, settings: Mapping[tuple[str, ...], str], above: str) -> Any:
    names = [f.name for f in fields(config)]
    changes: dict[str, Any] = {}
    for name in dict.fromkeys(path[0] for path in settings):
        where = f"{above}{name}"
        mine = {path[1:]: text for path, text in settings.items() if path[0] == name}
        if name not in names:
            raise ConfigError(f"setting {'.'.join([where, *next(iter(mine))])!r}: {no_such('field', name, names)}")
        if () in mine:
            changes[name] = _read(mine[()], get_type_hints(type(config))[name], where)
        elif is_dataclass(current := getattr(config, name)):
            changes[name] = _with_settings(current, mine, f"{where}.")
        else:
            raise ConfigError(f"setting {'.'.join([where, *next(iter(mine))])!r}: {name} has no fields of its own")
    return replace(config, **changes)


def _read(text: str, kind: Any, path: str) -> Any:
    words = {"true": True, "false": False}
    readers: Mapping[Any, Any] = {
        int: int,
        float: float,
        str: str,
        Kind: str,
        Divergence: str,
        bool: words.__getitem__,
        bool | None: {**words, "none": None}.__getitem__,
    }
    if kind not in readers:
        raise ConfigError(f"setting {path!r} cannot be given on the command line; make a TrainConfig in Python")
    try:
        return readers[kind](text)
    except (ValueError, KeyError):
        raise ConfigError(f"setting {path!r} takes a {getattr(kind, '__name__', kind)}, got {text!r}") from None


def with_environments(config: TrainConfig, given: Sequence[Sequence[str]]) -> TrainConfig:
    """The configuration with other environments, each given as its id and NAME=VALUE of EnvMix's fields and of
    gym.make's arguments. What the configuration gives the same id stays where nothing else is said."""
    known = {mix.env_id: mix for mix in config.environments}
    own = {f.name: get_type_hints(EnvMix)[f.name] for f in fields(EnvMix) if f.name not in ("env_id", "arguments")}
    mixes = []
    for name, *settings in given:
        env_id = name if ":" in name else full_id(name)  # "module:id" has to import its module wherever it is used
        mix, arguments = known.get(env_id, EnvMix(env_id)), {}
        for key, text in pairs("--env", settings).items():
            if key in own:
                mix = replace(mix, **{key: _read(text, own[key], f"{env_id}: {key}")})
            else:
                arguments[key] = value(text)
        mixes.append(replace(mix, arguments={**mix.arguments, **arguments}))
    return replace(config, environments=tuple(mixes))


def as_json(config: TrainConfig) -> dict[str, Any]:
    """For the checkpoint and the report."""
    return dataclasses.asdict(config)
