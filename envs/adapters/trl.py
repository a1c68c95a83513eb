"""TRL: GRPOTrainer trains on any id. docs/trainers.md has the few lines that it takes.

TrlRollouts is a `rollout_func`: it plays whole episodes, each with the tools, the seed and the preference of its own
task. TRL hands it prompts and nothing else, so task_rows() writes into a prompt which task is meant.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from importlib.util import find_spec
from operator import index
from typing import Any, NamedTuple

from gymnasium.utils.seeding import np_random

from toolorchestra.envs.base.errors import ConfigError, Outage, install
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, REWARDED_ROLES, Tokens, Usage
from toolorchestra.envs.registration import spec_of
from toolorchestra.envs.runtime.background import BackgroundLoop
from toolorchestra.envs.runtime.invoke import advance, begin

MOST_UNPLAYED = 3
"""Batches in a row of which every episode failed, until the run ends. One alone may be a single broken task."""


def task_rows(env_id: str, seeds: Iterable[int], options: Any = None, **arguments: Any) -> list[dict[str, Any]]:
    """A data set's rows, one a task: that of `gym.make(env_id, **arguments).reset(seed=seed, options=options)`."""
    same = {"id": spec_of(env_id).id, "options": options, "arguments": arguments}
    whole = [index(seed) for seed in seeds]  # NumPy's too
    try:
        return [{"prompt": json.dumps({**same, "seed": seed})} for seed in whole]
    except TypeError as err:
        raise ConfigError(
            f"a prompt holds what JSON can hold ({err}); give the rest to TrlRollouts(arguments=)"
        ) from None


def environment_reward(reward: list[float | None], **_: Any) -> list[float | None]:
    """A reward function: the environment's own reward; None, which TRL leaves out, where the episode failed."""
    return reward


@dataclass
class TrlRollouts:
    """Episodes for GRPOTrainer(rollout_func=); those of a batch take their turns together."""

    chat: Any
    """toolorchestra.agents.rollouts.rollout.Chat of the tokenizer: how a transcript becomes tokens."""
    turn_tokens: int = 0
    """Most tokens of one turn; 0: all that is left of `max_completion_length`, which is for a whole episode."""
    deadline_seconds: float = 600.0
    """Time for a turn's calls."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of gym.make for all tasks: those that no prompt can hold, such as a spend cap."""
    unplayed: int = field(default=0, init=False)
    """Number of batches since one had a result."""

    def __post_init__(self) -> None:
        if find_spec("trl") is None:
            raise ConfigError(f"trl is not installed: {install('trl')}")

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        started, most, played = list[Episode](), trainer.max_completion_length, Counter[str]()
        for prompt in prompts:
            started.append(self._started(prompt, luck=played[prompt]))
            played[prompt] += 1
        plays = [SampledEpisode(episode, most) for episode in started]
        longest = getattr(trainer.model.config, "max_position_embeddings", 2**31)
        _wait(begin(play.episode, BackgroundLoop.shared().gates) for play in plays)
        while playing := [play for play in plays if play.reads(self.chat, longest)]:
            most = max(play.room for play in playing)
            histories = [play.sequence.tokens for play in playing]
            turns = sampled(trainer, self.chat, histories, min(most, self.turn_tokens or most))
            _wait(p.writes(self.chat, turn, self.deadline_seconds) for p, turn in zip(playing, turns, strict=True))
        if all(play.cut == "rewritten" for play in plays):
            raise ConfigError(
                "the chat template writes earlier turns anew, and TRL trains on one sequence that only grows: set "
                "tokenizer.chat_template = trl.chat_template_utils.get_training_chat_template(tokenizer), or "
                "to one of yours that keeps them, where TRL does not know it"
            )
        siblings = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        rows = [{**play.row(self.chat.stop), "siblings": siblings} for play in plays]
        self.unplayed = self.unplayed + 1 if all(row["failed"] for row in rows) else 0
        if self.unplayed == MOST_UNPLAYED:
            first = plays[0].episode.failure
            heard = f"failed in {first.where}: {first.error}" if first else f"ran into its {plays[0].cut}"
            raise Outage(f"{MOST_UNPLAYED} batches in a row have no result to learn from; the last one's first {heard}")
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _started(self, prompt: str, luck: int = 0) -> Episode:
        """The episode of a prompt. Those of equal prompts, siblings of a group, have each their own luck."""
        try:
            env_id, options, arguments, seed = map(
                json.loads(prompt).__getitem__, ("id", "options", "arguments", "seed")
            )
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError):
            raise ConfigError(f"a prompt is one of task_rows(ID, seeds), got {prompt!r:.80}") from None
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
        made = factory(**{**spec_of(env_id).kwargs, **self.arguments, **given})
        made.require_money()
        options = {"luck": luck, **(options or {})} if luck else options
        return made.reset(np_random(seed)[0], options).episode


def _wait(all_of: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Run them side by side on the loop that all environments share; what one raises is raised."""

    async def run() -> None:
        await asyncio.gather(*all_of)

    BackgroundLoop.shared().run(run())


# -- turns: how they are sampled, and how they are played --------------------------------------------------------------


class SampledTurn(NamedTuple):
    """One turn that the model sampled: its tokens, their log-probabilities, and whether it came to its end."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool


@dataclass
class SampledEpisode:
    """One episode on its way. `most` tokens may follow its prompt."""

    episode: Episode
    most: int
    sequence: Any = None
    prompt: int = 0
    reward: float = 0.0
    cut: str = ""

    @property
    def room(self) -> int:
        """Tokens that may still come."""
        return self.prompt + self.most - len(self.sequence.tokens)

    def reads(self, chat: Any, longest: int) -> bool:
        """Take in what is new. Whether the model has a turn."""
        if self.episode.over or self.cut:
            return False
        sequence, fresh = chat.follow(self.sequence, self.episode.observation)
        if self.sequence is None:
            self.sequence, self.prompt = sequence, len(sequence.tokens)
            self.most = min(self.most, longest - self.prompt)
        self.cut = "rewritten" if fresh and sequence is not self.sequence else "" if self.room > 0 else "context"
        return not self.cut

    async def writes(self, chat: Any, turn: SampledTurn, seconds: float) -> None:
        """Play the model's turn, which is billed by its tokens."""
        if len(turn.tokens) > self.room:
            turn = SampledTurn(turn.tokens[: self.room], turn.logprobs[: self.room], False)
        tokens = Tokens(len(self.sequence.tokens), 0, len(turn.tokens))
        usage, text = Usage(self.episode.rules.orchestrator, ORCHESTRATOR, tokens), chat.take(self.sequence, turn)
        try:
            async with asyncio.timeout(seconds):
                step = await advance(self.episode, text, BackgroundLoop.shared().gates, usage)
        except TimeoutError:
            self.cut = "deadline"
            self.episode.settle()
        else:
            self.reward, self.cut = self.reward + step.reward, step.info.get("truncated_by", "")

    def row(self, stop: int) -> dict[str, Any]:
        """A row for TRL and its reward functions. A failed episode teaches nothing: no reward, and a mask of zeros."""
        episode, of_completion = self.episode, slice(self.prompt, self.prompt + max(self.most, 1))
        failed = episode.failure is not None or self.cut in ("deadline", "rewritten")
        return {
            "prompt_ids": self.sequence.tokens[: self.prompt],
            "completion_ids": self.sequence.tokens[of_completion] or [stop],
            "logprobs": self.sequence.logprobs[of_completion] or [0.0],
            "env_mask": [int(sampled and not failed) for sampled in self.sequence.sampled[of_completion]] or [0],
            "reward": None if failed else self.reward,
            "outcome": episode.outcome.value if episode.outcome and not failed else 0.0,
            "usd": episode.ledger.nano_usd_of(REWARDED_ROLES) / NANO,
            "seconds": episode.ledger.seconds,
            "calls": dict(episode.calls),
            "terms": dict(episode.terms),
            "failed": failed,
            "truncated_by": self.cut,
            "bill": episode.ledger.summary(),
            "preference": episode.preference,
            "keys": episode.world.toolbox.keys,
        }


class DrawnLogprobs:
    """A logits processor that changes nothing, and keeps the log-probability of each token that is drawn."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.rows: list[list[float]] = []
        self._last: Any = None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.hears(input_ids)
        self._last = (scores.float() / self.temperature).log_softmax(-1)
        return scores

    def hears(self, ids: Any) -> None:
        """Note what was drawn last."""
        if self._last is not None:
            self.rows.append(self._last.gather(1, ids[:, -1:]).squeeze(1).tolist())


def sampled(trainer: Any, chat: Any, prompts: list[list[int]], most: int) -> list[SampledTurn]:
    """A turn behind each prompt, from TRL's vLLM or from the model itself."""
    ends = {chat.stop, *trainer.eos_token_ids}
    if trainer.use_vllm:
        _, ids, logprobs, _ = trainer.vllm_generation.generate(prompts, None, 1)
        rows = zip(ids, logprobs, strict=True)
        return [_up_to(ends, row[:most], [best[0] for best in heard]) for row, heard in rows]
    from trl.models.utils import unwrap_model_for_generation

    batch = chat.tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
    heard, how = DrawnLogprobs(trainer.temperature), copy(trainer.generation_config)
    how.max_new_tokens, how.use_cache = most, True
    with unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, generation_kwargs=trainer.generation_kwargs
    ) as model:
        made = model.generate(**batch.to(trainer.accelerator.device), generation_config=how, logits_processor=[heard])
    heard.hears(made)
    rows = made[:, batch["input_ids"].shape[1] :].tolist()
    return [_up_to(ends, row, [at[n] for at in heard.rows]) for n, row in enumerate(rows)]


def _up_to(ends: set[int], tokens: list[int], logprobs: list[float]) -> SampledTurn:
    """A turn ends with the first token that ends one; what follows is padding."""
    length = next((place for place, token in enumerate(tokens, 1) if token in ends), len(tokens))
    return SampledTurn(tokens[:length], logprobs[:length], tokens[length - 1] in ends)
