"""A tiny model that speaks the grammar a little, and SkyRL's configuration for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.adapters.prompt_rows import prompt_rows, write_rows
from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.training_run import open_run
from toolorchestra.agents.training.warmstart import warm_start

TINY: TrainConfig = replace(
    preset("tiny"),
    environments=preset("tiny").environments[:1],
    model=ModelConfig(hidden=32, rows=32),
    warm_start=WarmStart(steps=120, batch=16, demonstrations=200, gate=0),
)


def warm_engine(folder: Path) -> tuple[Any, Any]:
    """The engine and its chat, behind the warm start."""
    engine, chat = build(TINY, lambda _line: None)
    warm_start(open_run(TINY, folder, engine, chat, resume=False, say=lambda _line: None))
    return engine, chat


def words(folder: Path, *more: str, tasks: int = 16) -> list[str]:
    """SkyRL's options for a data set of so many tasks and a tokenizer in this folder."""
    data = folder / f"train-{tasks}.parquet"
    if not data.exists():
        write_rows(list(prompt_rows(TINY.environments[0], "train", tasks, seed=1)), data)
    return [
        f"data.train_data=['{data}']",
        "data.dataloader.num_workers=0",
        f"trainer.policy.model.path={folder}",
        "trainer.strategy=fsdp",
        "trainer.logger=console",
        "trainer.train_batch_size=4",
        "trainer.policy_mini_batch_size=4",
        "trainer.micro_train_batch_size_per_gpu=1",
        "trainer.micro_forward_batch_size_per_gpu=1",
        "trainer.max_prompt_length=200",
        "trainer.eval_interval=0",
        "trainer.ckpt_interval=0",
        "trainer.hf_save_interval=0",
        "trainer.resume_mode=none",
        "trainer.enable_ray_gpu_monitor=false",
        "generator.inference_engine.enable_ray_prometheus_stats=false",
        "trainer.algorithm.advantage_estimator=toolorchestra",
        "generator.inference_engine.served_model_name=tiny",
        "generator.n_samples_per_prompt=4",
        "generator.max_turns=10",
        "generator.max_input_length=246",
        "generator.sampling_params.max_generate_length=10",
        "generator.sampling_params.logprobs=1",
        "toolorchestra.advantage.least_spread=0.0",
        *more,
    ]


STEPWISE = ("generator.step_wise_trajectories=true",)
MERGED = (*STEPWISE, "generator.merge_stepwise_output=true")
ASYNCHRONOUS = (
    "trainer.placement.colocate_all=false",
    "trainer.fully_async.enabled=true",
    "trainer.fully_async.max_staleness_steps=2",
    "trainer.fully_async.num_parallel_generation_workers=8",
    "trainer.fully_async.simulate_training=true",
    "trainer.fully_async.simulate_training_step_seconds=0.05",
    "trainer.algorithm.policy_loss_type=rollout_is",
)
