"""Makes the engine and the chat that a configuration asks for. Imports torch and vLLM only when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import LAYERS, EnvMix, ModelConfig, TrainConfig
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import EngineSettings
from toolorchestra.agents.rollouts.rollout import DEADLINE_SECONDS, Chat
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, install

Say = Callable[[str], None]
SLOW = 2.0
"""Times as long as float32: then a narrow format is not worth its memory on a CPU."""


def build(config: TrainConfig, say: Say = print) -> tuple[Any, Chat]:
    """The engine that trains as the configuration says, and the chat of its model."""
    check_processes(config)
    with _training_packages():
        return _local(config, say)


def _local(config: TrainConfig, say: Say) -> tuple[Any, Chat]:
    """Build over the tiny model or over one of transformers', with the sampler of the configuration."""
    from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
    from toolorchestra.agents.engines.pretrained import device_of, shape_of, times_float32

    wanted = config.model
    device_of(wanted.device)  # what it says is said before a model is loaded
    if wanted.device.startswith("cuda"):
        _check_memory(config, shape_of(wanted.path) if wanted.path else {}, say)
    elif wanted.dtype != "float32" and (slower := times_float32(wanted.dtype)) >= SLOW:
        say(f"{wanted.dtype} takes this processor {slower:.0f} times as long as float32: take model.dtype=float32")
    model, chat = base_model(config)
    longest = getattr(model.config, "max_position_embeddings", config.max_context)
    if config.max_context > longest:
        raise ConfigError(f"max_context is {config.max_context}, but {wanted.path or 'the tiny model'} reads {longest}")
    held = LocalConfig(
        **{setting.name: getattr(wanted, setting.name) for setting in fields(EngineSettings)},
        length=config.max_context,
        average=config.average,
        seed=config.seed,
        reference=bool(config.loss.kl_weight),
    )
    shape = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    if processes() == 1:
        return LocalEngine(model, [chat.stop], held, _sampler(config, shape, chat.stop, say)), chat
    from toolorchestra.agents.engines.ranks import Following, Ranks

    ranks = Ranks(wanted.device)
    if ranks.number:
        sampler = Following(takes_adapters=bool(wanted.lora_rank) and wanted.sampler == "served")
    else:
        sampler = _sampler(config, shape, chat.stop, say)
    return LocalEngine(model, [chat.stop], held, sampler, ranks), chat


def processes() -> int:
    """How many processes torchrun has started to train together, this one among them."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def follows() -> bool:
    """Whether this process is one of those, and not the first, which is the run."""
    return processes() > 1 and os.environ["RANK"] != "0"


def follow(config: TrainConfig) -> None:
    """Train as the first process says, until it ends."""
    engine, _ = build(with_room(config, lambda _: None), say=lambda _: None)
    engine.ranks.follow(engine)


def check_processes(config: TrainConfig) -> None:
    """Refuse what several processes cannot do together."""
    if processes() == 1:
        return
    model, elsewhere = config.model, os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]
    within = f"model.sampler={model.sampler} samples within one: start servers on other GPUs, and set "
    whole = "each holds a part of the weights: set model.processes=1 and model.optimizer=adamw, which need no whole"
    for wrong, says in (
        (elsewhere, "not all of them on one machine; beyond one, SkyRL trains: docs/eight-billion.md"),
        (model.sampler == "vllm", f"{within}model.sampler=served"),
        (model.sampler == "local" and model.dtype != "float32", f"{within}model.sampler=served"),
        (model.processes > 1 or model.optimizer == "muon", f"{whole} ones"),
        (model.kernels == "compiled", "blocks whose weights are in parts are not compiled: leave model.kernels out"),
    ):
        if wrong:
            raise ConfigError(f"torchrun started {processes()} processes, and {says}")


def base_model(config: TrainConfig) -> tuple[Any, Chat]:
    """The model that a run begins with, before any weight of it was trained, and its chat."""
    with _training_packages():
        from toolorchestra.agents.engines.pretrained import load
        from toolorchestra.agents.engines.tiny import build_model, load_tokenizer

        wanted = config.model
        if wanted.path:
            model, tokenizer = load(wanted.path, wanted.dtype)
        else:
            tokenizer = load_tokenizer()
            model = build_model(len(tokenizer), wanted.hidden, LAYERS, config.seed, tokenizer)
    return model, chat_of(tokenizer, wanted)


def base_chat(wanted: ModelConfig) -> Chat:
    """The chat of that model, without its weights."""
    with _training_packages():
        from toolorchestra.agents.engines import pretrained, tiny

        return chat_of(pretrained.load_tokenizer(wanted.path) if wanted.path else tiny.load_tokenizer(), wanted)


def chat_of(tokenizer: Any, wanted: ModelConfig) -> Chat:
    """The chat of a tokenizer, as the settings want it."""
    return Chat(tokenizer, {} if wanted.thinking is None else {"enable_thinking": wanted.thinking})


@contextmanager
def _training_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as err:
        raise ConfigError(
            f"training needs {err.name}, which is not installed: pip install torch==2.13.0, then {install('train')}"
        ) from None


def _sampler(config: TrainConfig, shape: Mapping[str, Any], stop: int, say: Say) -> Any:
    """The sampler apart from the trainer that is asked for, or None."""
    wanted = config.model
    if wanted.sampler == "local":
        return None
    if wanted.sampler == "served":
        return _served(config, shape, stop, say)
    from toolorchestra.agents.engines.vllm_sampler import VllmConfig, VllmSampler

    held = VllmConfig(
        length=config.max_context,
        rows=wanted.rows,
        device=wanted.device,
        dtype=wanted.dtype,
        memory_share=wanted.memory_share,
        cache=wanted.cache,
        request_seconds=DEADLINE_SECONDS,
        folder=wanted.handover,
        lora_rank=wanted.lora_rank,
        seed=config.seed,
    )
    return VllmSampler(shape, [stop], held, say)


def _served(config: TrainConfig, shape: Mapping[str, Any], stop: int, say: Say) -> Any:
    """Running servers behind one sampler, also where there is one: it knows what to do when none is left."""
    from toolorchestra.agents.engines.vllm_served import ServedConfig, ServedSampler, SeveralServers, server_urls

    wanted = config.model
    folder = str(Path(wanted.handover).resolve())  # a server has a working folder of its own
    servers: list[ServedSampler] = []
    with ExitStack() as opened:
        for url in server_urls(wanted.server):
            served = ServedConfig(
                url,
                length=config.max_context,
                request_seconds=DEADLINE_SECONDS,
                handover=folder,
                adapters=bool(wanted.lora_rank),
            )
            servers.append(opened.enter_context(closing(ServedSampler(shape, [stop], served))))
        opened.pop_all()
    return SeveralServers(servers, say)


def _check_memory(config: TrainConfig, shape: Mapping[str, Any], say: Say) -> None:
    """Say what a run on a GPU will take, and refuse what does not fit, before anything is loaded."""
    from toolorchestra.agents.engines.gpu_arithmetic import budget
    from toolorchestra.agents.engines.pretrained import device_memory

    name, device_bytes = device_memory(config.model.device)
    if not shape:
        return
    made = budget(plan(config, shape, device_bytes, processes()))
    say(f"memory of {name}:\n{made.table()}")
    made.check()


def plan(config: TrainConfig, shape: Mapping[str, Any], device_bytes: int, count: int = 1) -> Any:
    """What a configuration asks of a device's memory, where so many processes train."""
    from toolorchestra.agents.engines.gpu_arithmetic import MemoryPlan, Shape

    wanted: ModelConfig = config.model
    moved = config.warm_start.steps or config.init_from  # before the reference is taken
    return MemoryPlan(
        shape=Shape.read(shape),
        device_bytes=device_bytes,
        width=4 if wanted.dtype == "float32" else 2,
        lora_rank=wanted.lora_rank,
        tokens_per_batch=max(wanted.tokens_per_batch, config.max_context),  # the longest rollout is a batch by itself
        checkpointing=wanted.gradient_checkpointing,
        average=bool(config.average),
        reference=bool(config.loss.kl_weight and (moved or not wanted.lora_rank)),  # else it costs nothing
        memory_share=wanted.memory_share if wanted.sampler == "vllm" else 0.0,
        cache_width=1 if wanted.cache == "fp8" else None,
        local_cache_tokens=wanted.rows * config.max_context if wanted.sampler == "local" else 0,
        ahead=config.max_staleness > 0,
        processes=count,
        narrow=count > 1 and not wanted.lora_rank,
    )


TRIED_TASKS = 8
"""Tasks whose tools are looked at: where tools vary, names do."""


def with_room(config: TrainConfig, say: Say) -> TrainConfig:
    """The configuration with as many tokens a turn as the longest call takes whose arguments are all choices: names of
    one's own may take more than the preset's do, and a turn that is cut is never readable."""
    chat = base_chat(config.model)
    texts = {text for mix in config.environments if not mix.max_tokens for text in _calls(mix)}
    longest = max(texts, key=lambda text: len(chat.encode(text)), default="")
    needed = len(chat.encode(longest)) + 1  # the end of the turn
    if needed <= config.max_tokens:
        return config
    say(f"max_tokens is {needed}, where {config.max_tokens} was set: {longest} takes so many")
    return replace(config, max_tokens=needed, max_context=max(config.max_context, 2 * needed))


def _calls(mix: EnvMix) -> Iterator[str]:
    """The calls of an environment's tools, as long as their choices make them."""
    made = training(mix)
    for seed in range(TRIED_TASKS):
        for tool in made.start(seed).episode.world.toolbox:
            choices = {name: schema["enum"] for name, schema in tool.checker.arguments.items() if schema.get("enum")}
            if all(name in choices for name in tool.parameters.get("required", ())):
                yield render_call(
                    tool.name, {name: max(given, key=lambda one: len(str(one))) for name, given in choices.items()}
                )


def default_folder(config: TrainConfig) -> Path:
    """Where a run goes when nobody says."""
    return Path("runs") / f"{config.preset}-seed{config.seed}"
