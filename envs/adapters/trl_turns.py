"""The turns of an episode that TRL trains on: how they are sampled, and how they are played."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, REWARDED_ROLES, Tokens, Usage
from toolorchestra.envs.runtime.background import BackgroundLoop
from toolorchestra.envs.runtime.invoke import advance


class Turn(NamedTuple):
    """One turn that the model sampled: its tokens, their log-probabilities, and whether it came to its end."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool


@dataclass
class Play:
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

    async def writes(self, chat: Any, turn: Turn, seconds: float) -> None:
        """Play the model's turn, which is billed by its tokens."""
        if len(turn.tokens) > self.room:
            turn = Turn(turn.tokens[: self.room], turn.logprobs[: self.room], False)
        tokens = Tokens(len(self.sequence.tokens), 0, len(turn.tokens))
        usage, text = Usage(self.episode.rules.orchestrator, ORCHESTRATOR, tokens), chat.take(self.sequence, turn)
        try:
            async with asyncio.timeout(seconds):
                step = await advance(self.episode, text, BackgroundLoop.shared().gates, usage)
        except TimeoutError:
            self.cut = "deadline"
        else:
            self.reward, self.cut = self.reward + step.reward, step.info.get("truncated_by", "")

    def row(self, stop: int) -> dict[str, Any]:
        """For TRL and its reward functions. Of a failed episode nothing is learnt: no reward, and a mask of zeros."""
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


class Heard:
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


def sampled(trainer: Any, chat: Any, prompts: list[list[int]], most: int) -> list[Turn]:
    """A turn behind each prompt, from TRL's vLLM or from the model itself."""
    ends = {chat.stop, *trainer.eos_token_ids}
    if trainer.use_vllm:
        _, ids, logprobs, _ = trainer.vllm_generation.generate(prompts, None, 1)
        rows = zip(ids, logprobs, strict=True)
        return [_up_to(ends, row[:most], [best[0] for best in heard]) for row, heard in rows]
    from trl.models.utils import unwrap_model_for_generation

    batch = chat.tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
    heard, how = Heard(trainer.temperature), copy(trainer.generation_config)
    how.max_new_tokens, how.use_cache = most, True
    with unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, generation_kwargs=trainer.generation_kwargs
    ) as model:
        made = model.generate(
            **batch.to(trainer.accelerator.device),
            generation_config=how,
            logits_processor=[heard],
        )
    heard.hears(made)
    rows = made[:, batch["input_ids"].shape[1] :].tolist()
    return [_up_to(ends, row, [at[n] for at in heard.rows]) for n, row in enumerate(rows)]


def _up_to(ends: set[int], tokens: list[int], logprobs: list[float]) -> Turn:
    """A turn ends with the first token that ends one; what follows is padding."""
    length = next((place for place, token in enumerate(tokens, 1) if token in ends), len(tokens))
    return Turn(tokens[:length], logprobs[:length], tokens[length - 1] in ends)
