"""What a training run is made of, and the presets. Frozen, so that a checkpoint's configuration is the run's."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.agents.engines.base import DTYPES, EngineSettings, Kernels, LossParams, OptimizerKind
from toolorchestra.agents.policies.baselines import NAMES
from toolorchestra.agents.rollouts.grpo import AdvantageParams
from toolorchestra.envs.base.errors import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    ConfigError,
    no_such,
    one_of,
    require,
)

SamplerKind = Literal["local", "vllm", "served"]
Cache = Literal["auto", "fp8"]
TaskOrder = Literal["random", "epochs"]
LAYERS = 2
"""Layers of the tiny model."""


@dataclass(frozen=True)
class EnvMix:
    """One environment that the run trains on. A run may mix several."""

    env_id: str
    weight: float = 1.0
    """How often this environment is drawn, in proportion to the weights of the others."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of gym.make, in training and in evaluations."""
    train: str = "train"
    """The split whose tasks the model learns from."""
    validation: str = "validation"
    """The split that evaluations during the run play. They choose the best checkpoint."""
    test: str = "test"
    """The split whose tasks the final report plays."""
    max_tokens: int = 0
    """The most tokens that the model may sample in one turn; 0: as for the run."""
    max_context: int = 0
    """The most tokens of an episode, prompt included. It is not above the run's. 0: as for the run."""

    def __post_init__(self) -> None:
        if "split" in self.arguments:
            raise ConfigError(f"{self.env_id}: split is set by train, validation and test: a run plays all three")
        require(self, POSITIVE, "weight", where=f"{self.env_id}: ")
        require(self, NOT_NEGATIVE, "max_tokens", "max_context", where=f"{self.env_id}: ")
        for name in ("max_tokens", "max_context"):
            if type(value := getattr(self, name)) is not int:  # a command line gives what JSON reads
                raise ConfigError(f"{self.env_id}: {name} is a whole number of tokens, got {value!r}")


@dataclass(frozen=True)
class ModelConfig(EngineSettings):
    """The model, how the local engine holds it, and what it is sampled with."""

    path: str = ""
    """A folder or hub id of transformers; "" makes the tiny model."""
    hidden: int = 64
    """Width of the tiny model."""
    processes: int = 1
    """Processes that share the rollouts, the batches of optimiser steps and the warm start's plays, each with a copy of
    the model. For small models on a CPU: a GPU holds one."""
    thinking: bool | None = None
    """enable_thinking of the chat template; None leaves it to the template."""
    sampler: SamplerKind = "local"
    """What rollouts are sampled with: "local" in this process, "vllm" an engine of vLLM beside it, "served" a running
    `vllm serve`."""
    memory_share: float = 0.5
    """Share of the GPU's memory that vLLM beside the trainer may take while it is awake."""
    cache: Cache = "auto"
    """The keys and values that vLLM keeps: "auto" as wide as the weights; "fp8" in eight bits, so that twice as many
    tokens fit. A server is started so by its own option, `--kv-cache-dtype fp8`."""
    server: str = ""
    """Base URL of the running server, http://HOST:PORT/v1; of several servers of one model with commas between them."""
    handover: str = ""
    """Folder through which weights reach the sampler; a server must see it under the same path. "" finds one."""

    def __post_init__(self) -> None:
        counts = ("hidden", "threads", "rows", "tokens_per_batch", "lora_alpha")
        require(self, AT_LEAST_ONE, *counts, where="model.")
        require(self, NOT_NEGATIVE, "lora_rank", where="model.")
        one_of("model.dtype", self.dtype, DTYPES)
        one_of("model.optimizer", self.optimizer, get_args(OptimizerKind))
        one_of("model.kernels", self.kernels, get_args(Kernels))
        one_of("model.sampler", self.sampler, get_args(SamplerKind))
        one_of("model.cache", self.cache, get_args(Cache))
        if self.cache != "auto" and self.sampler == "local":
            raise ConfigError(f"model.cache={self.cache} is of vLLM: set model.sampler=vllm or served, or leave it out")
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
    """The supervised start: before reinforcement learning, the model learns from demonstrations that a script
    played."""

    steps: int = 800
    """Optimiser steps of the supervised start. 0 skips it, for models that already speak the grammar."""
    batch: int = 32
    """How many demonstrations each optimiser step learns from."""
    learning_rate: float = 3e-3
    """Rises for 20 steps, then falls to a tenth by the last."""
    demonstrations: int = 3_000
    """How many train tasks are demonstrated, each by one random play: any tool, any arguments. What the user's sentence
    asks for, and the random habit that each subject of questions has, are more likely, whatever they earn."""
    planned: bool = False
    """Show a plan in place of a random play: the one that is worth most by what random plans on all tasks tell. It is
    what reinforcement learning is compared with."""
    trajectories: str = ""
    """A JSONL of recorded trajectories to learn from instead."""
    gate: float = 0.97
    """The share of rollouts that must be readable in every turn before reinforcement learning begins. The steps are
    repeated for that, twice at most. 0 begins in any case."""

    def __post_init__(self) -> None:
        require(self, NOT_NEGATIVE, "steps", where="warm_start.")
        require(self, AT_LEAST_ONE, "batch", "demonstrations", where="warm_start.")
        require(self, POSITIVE, "learning_rate", where="warm_start.")
        require(self, SHARE, "gate", where="warm_start.")


@dataclass(frozen=True)
class TrainConfig:
    """All settings of one training run. A preset fills them, and options on the command line change single ones."""

    preset: str = "tiny"
    """The preset that gives every other setting its default."""
    seed: int = 0
    """Seed of the first weights, of the choice of tasks and of the sampling."""
    environments: tuple[EnvMix, ...] = ()
    model: ModelConfig = ModelConfig()
    init_from: str = ""
    """What to start from: a run's folder, one of its checkpoints, or a folder that export model wrote. The weights are
    taken, averaged ones where there are any; the optimiser starts afresh, and the warm start follows as it is set."""
    warm_start: WarmStart = WarmStart()
    steps: int = 200
    """How many steps of reinforcement learning the run takes."""
    groups: int = 16
    """How many tasks each step plays. Each task is played by one group of rollouts."""
    rollouts: int = 8
    """How many rollouts play the same task in each group."""
    task_order: TaskOrder = "random"
    """"random" draws every task anew. "epochs" takes an environment's tasks in a shuffled order, each once, then in
    another order; where tasks are generated without end they are drawn."""
    max_staleness: int = 0
    """How many steps the weights that sampled a token may be older than those that learn from it. 0: all rollouts of
    a step are made before it. Above 0 rollouts go on while the trainer steps, so many steps ahead of it at most."""
    baselines: tuple[str, ...] = ()
    """Baselines that play each group's task too, where they can: its rewards are scaled between them, as held-out
    evaluation does. The paper has none; without them a group of like rollouts is spread over the whole scale, and a
    cheap gamble looks better than it is."""
    updates: int = 1
    """Optimiser steps that one step's groups are split over; the clip bounds what the later ones may do."""
    learning_rate: float = 1e-3
    """The learning rate at the first step."""
    final_learning_rate: float = 1e-4
    """The learning rate at the last step. From the first step to the last it changes by the same factor each time."""
    average: float = 0.0
    """Decay, per optimiser step, of the running average of the weights that is evaluated; 0 evaluates the last ones."""
    algorithm: str = "grpo"
    """What turns rewards into advantages: "grpo", "leave-one-out", "gated", "critic", or your.module:YourAlgorithm."""
    expected_outcome: bool = False
    """Learn from what was to be expected in place of what was drawn, where simulated experts answer: how likely the
    answer was right, and what such calls cost in the mean. In training alone; evaluations count what was drawn."""
    loss: LossParams = field(default_factory=LossParams)
    advantage: AdvantageParams = field(default_factory=AdvantageParams)
    max_tokens: int = 10
    """The most tokens that the model may sample in one turn."""
    max_context: int = 256
    """Tokens of an episode, prompt and all; one that reaches it is cut. Environments may have less."""
    temperature: float = 1.0
    """The sampling temperature of training rollouts."""
    evaluate_every: int = 50
    """How many steps lie between two evaluations on held-out tasks."""
    evaluation_temperature: float = 1.0
    """The sampling temperature of evaluations."""
    evaluation_tasks: int = 100
    """How many held-out tasks of each environment an evaluation plays; where its split lists fewer, each of those once.
    Prices, tools and wordings are held out too."""
    spend_cap: float | None = None
    """The most dollars that real models may cost in the run, over all its lives. None: no limit."""
    save_every: int = 10
    """How many steps lie between two checkpoints."""
    wandb: bool = False
    """Log to Weights & Biases too (pip install wandb)."""
    dump_every: int = 10
    """Steps between those of which the rollouts of a group are kept in rollouts.jsonl, turn by turn; 0 keeps none."""

    def __post_init__(self) -> None:
        counts = ("groups", "rollouts", "steps", "updates", "max_tokens")
        require(self, AT_LEAST_ONE, *counts, "evaluate_every", "evaluation_tasks", "save_every")
        require(self, POSITIVE, "learning_rate", "final_learning_rate", "temperature")
        not_negative = ("evaluation_temperature", "seed", "dump_every")
        require(self, NOT_NEGATIVE, *not_negative, "max_staleness")
        require(self, SHARE, "average")
        if self.average == 1:
            raise ConfigError("average=1 would never leave the first weights; take one below, such as 0.95")
        if self.model.processes < 1 or (self.model.processes > 1 and self.model.device != "cpu"):
            raise ConfigError(
                f"model.processes is at least 1, and 1 on a {self.model.device}; got {self.model.processes}"
            )
        for name in self.baselines:
            one_of("baseline", name, NAMES)
        if self.rollouts < 2:
            raise ConfigError("rollouts must be at least 2: a group's reward compares siblings")
        if not self.environments or not all(isinstance(mix, EnvMix) for mix in self.environments):
            raise ConfigError(
                f"environments is a list of at least one EnvMix(id), of {EnvMix.__module__}, got "
                f"{self.environments!r:.60}; a preset has some: train('tiny', steps=5)"
            )
        one_of("task_order", self.task_order, get_args(TaskOrder))
        if self.spend_cap is not None:
            require(self, POSITIVE, "spend_cap")
        self._check_limits()
        self._check_ahead()

    def _check_ahead(self) -> None:
        if not self.max_staleness:
            return
        if self.model.sampler == "vllm" and self.model.device != "cpu":
            raise ConfigError(
                f"max_staleness={self.max_staleness} samples while it trains, and vLLM beside the trainer sleeps then, "
                "for it has the same GPU: set max_staleness=0, or model.sampler=served with a server on another GPU"
            )
        if self.model.processes > 1:
            raise ConfigError(
                f"max_staleness={self.max_staleness} samples in this process, beside the training: set "
                f"model.processes=1; got {self.model.processes}"
            )

    def _check_limits(self) -> None:
        if self.max_tokens >= self.max_context:
            raise ConfigError(f"max_context ({self.max_context}) must exceed max_tokens ({self.max_tokens})")
        for mix in self.environments:
            if mix.max_context > self.max_context:
                raise ConfigError(
                    f"{mix.env_id}: max_context is {mix.max_context}, and the run's is {self.max_context}, which the "
                    f"sampler's cache is made for: lower the one, or set the run's max_context to {mix.max_context}",
                    command_line=f"--max-context {mix.max_context}",
                )
            turn, context = mix.max_tokens or self.max_tokens, mix.max_context or self.max_context
            if turn >= context:
                raise ConfigError(f"{mix.env_id}: max_context ({context}) must exceed max_tokens ({turn})")


def with_environments(config: TrainConfig, given: Sequence[Sequence[str]], for_all: Sequence[str] = ()) -> TrainConfig:
    """The configuration with the environments of a command line: each an id with NAME=VALUE of EnvMix's fields and of
    gym.make's arguments, and `for_all` arguments for all of them. Without any, those of the configuration stay."""
    known = {mix.env_id: mix for mix in config.environments}
    chosen = chosen_envs(given or [[mix.env_id] for mix in config.environments], for_all)
    own = {f.name for f in fields(EnvMix)} - {"env_id", "arguments"}
    mixes = []
    for one in chosen:
        mix = known.get(one.env_id, EnvMix(one.env_id))
        for name in one.arguments:
            if name not in own and difflib.get_close_matches(name, own, 1, 0.8):
                raise ConfigError(no_such("part of the mix", name, own))
        for_make = {name: value for name, value in one.arguments.items() if name not in own}
        changed = {name: value for name, value in one.arguments.items() if name in own}
        mixes.append(replace(mix, **changed, arguments={**mix.arguments, **for_make}))
    return replace(config, environments=tuple(mixes))


def as_json(config: TrainConfig) -> dict[str, Any]:
    """Give the JSON for the checkpoint and the report."""
    return dataclasses.asdict(config)


def from_json(data: Any) -> TrainConfig:
    """A configuration from what as_json() gave, after a journey through JSON. Raises TypeError or ValueError where it
    is none."""
    made: TrainConfig = settings_from_json(TrainConfig, data)
    return made


def settings_from_json(kind: Any, data: Any) -> Any:
    """A dataclass of settings from a JSON object, and what it is made of likewise. Raises as from_json() does."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(data, Mapping):
            raise TypeError(f"an object expected for {getattr(kind, '__name__', kind)}, got {data!r:.60}")
        hints = get_type_hints(kind)
        return kind(**{name: settings_from_json(hints.get(name), value) for name, value in data.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple and isinstance(data, list):
        return tuple(settings_from_json(get_args(kind)[0], value) for value in data)
    return data
