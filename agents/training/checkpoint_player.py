"""A trained checkpoint as a player: its own model, tokenizer, chat template and sampler, as the run held them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig
from toolorchestra.agents.configuration.environments import limited
from toolorchestra.agents.engines.base import Engine, SamplingParams
from toolorchestra.agents.policies.base import Move, PlayerOptions
from toolorchestra.agents.rollouts.grpo import TokenSequence
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.saved_model import SavedModel, config_of, saved_model
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage

PREFIX = "checkpoint:"
"""Prefix before a run's folder, whose best checkpoint plays, a checkpoint's own, or one that `export model` wrote."""
ROWS = 32
"""Episodes of an exported model that are sampled at once."""


@dataclass
class _Seat:
    """What is remembered of an episode in progress. It holds the episode, so that its id stays taken."""

    episode: Episode
    sequence: TokenSequence | None = None


class CheckpointPlayer:
    """Continues each episode's tokens, as the rollouts of training do, from the weights that the run's evaluations
    sample from. What no longer fits its context is answered with silence, which costs a turn and no tokens."""

    simulated = False

    def __init__(self, name: str, engine: Engine, chat: Chat, config: TrainConfig, temperature: float) -> None:
        self.name = name
        self.engine, self.chat, self.config = engine, chat, config
        self.made_of = ""
        """A digest of the checkpoint's files."""
        self._params = SamplingParams(config.max_tokens, temperature)
        self._seats: dict[int, _Seat] = {}
        self._sampling = asyncio.Semaphore(config.model.rows)
        self._open = ExitStack()
        self._open.callback(engine.close)
        self._open.enter_context(engine.averaged())

    async def move(self, episode: Episode) -> Move:
        """Sample the next turn."""
        seat = self._seats.get(id(episode))
        if seat is None:
            self._seats = {key: one for key, one in self._seats.items() if not one.episode.over}
            seat = self._seats[id(episode)] = _Seat(episode)
        seat.sequence, _fresh = self.chat.follow(seat.sequence, episode.observation)
        item, prompt = episode.rules.orchestrator, len(seat.sequence.tokens)
        if prompt + self._params.max_tokens > self.config.max_context:
            return Move("", Usage(item, ORCHESTRATOR, Tokens()))
        async with self._sampling:  # no session: any number of episodes may be in progress
            sample = await self.engine.sample(seat.sequence.tokens, self._params, "")
        text = self.chat.take(seat.sequence, sample)
        return Move(text, Usage(item, ORCHESTRATOR, Tokens(prompt, 0, len(sample.tokens))))

    def forget(self, episode: Episode) -> None:
        """Drop what is remembered of an episode that nobody plays on."""
        self._seats.pop(id(episode), None)

    def close(self) -> None:
        """End the engine. May be called twice."""
        self._open.close()


def checkpoint_player(name: str, factory: EpisodeFactory, seed: int, options: PlayerOptions) -> CheckpointPlayer:
    """The player of `checkpoint:FOLDER`. The seed is that of sampling, where the sampler is in this process."""
    saved = saved_model(Path(name.removeprefix(PREFIX)))
    config = limited(_as_exported(saved) if saved.exported else config_of(saved.path), factory)
    sampler = options.sampler or config.model.sampler
    model = replace(
        config.model,
        processes=1,
        sampler=sampler,
        cache="auto" if sampler == "local" else config.model.cache,
        device=options.device or config.model.device,
    )
    config = replace(config, model=model)
    engine, chat = build(config, lambda _line: None)
    try:
        if not saved.exported:
            engine.load(saved.path)
        elif saved.how.lora_rank:
            engine.start_from(saved.path)
        if generator := getattr(getattr(engine, "sampler", None), "generator", None):
            generator.manual_seed(seed)  # draw anew, and not as the run would have gone on
        made = CheckpointPlayer(name, engine, chat, config, options.temperature)
        made.made_of = saved.digest()
        return made
    except BaseException:
        engine.close()
        raise


def _as_exported(saved: SavedModel) -> TrainConfig:
    """Settings under which an exported folder plays as its run's checkpoint does, in this process."""
    how = saved.how
    path = how.base if how.lora_rank else str(saved.path)
    model = ModelConfig(path=path, thinking=how.thinking, rows=ROWS)
    if how.lora_rank:
        model = replace(model, lora_rank=how.lora_rank, lora_alpha=how.lora_alpha)
    return TrainConfig(
        preset="",
        environments=how.environments,
        model=model,
        max_tokens=how.max_tokens,
        max_context=how.max_context,
    )
