"""Turns of rollouts, sampled by SkyRL's inference client: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.envs.base.errors import Outage


class SkyrlTurns:
    """What rollouts of one batch sample with. A trajectory is one session of the client's router."""

    def __init__(
        self, client: Any, model: str | None, sampling: Mapping[str, Any] | None = None, salt: str | None = None
    ) -> None:
        self._client, self._model, self._salt = client, model, salt
        self._sampling = {"max_tokens": 1024, "temperature": 1.0, **(sampling or {})}
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds spent in sampling, by trajectory."""

    @property
    def max_tokens(self) -> int:
        """The most tokens that one turn may have."""
        return int(self._sampling["max_tokens"])

    @property
    def temperature(self) -> float:
        """The temperature that turns are sampled with."""
        return float(self._sampling["temperature"])

    @property
    def scored(self) -> bool:
        """Whether log-probabilities were asked for."""
        return self._sampling.get("logprobs") is not None

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """Continue a prompt. What the client raises when no server answers is an Outage."""
        name, started = trajectory_of(session), time.monotonic()
        stops = [*(self._sampling.get("stop_token_ids") or ()), *params.stops]
        asked = {
            "prompt_token_ids": [list(prompt)],
            "session_ids": [name],
            "sampling_params": {**self._sampling, **({"stop_token_ids": stops} if stops else {})},
            "cache_salt": self._salt,
        }
        try:
            got = await self._client.generate(asked, model=self._model)
        except Exception as err:
            if not _no_answer(err):
                raise
            raise Outage(
                f"SkyRL's inference server gave no answer ({type(err).__name__}: {err!s:.300}); is it up, and the vLLM "
                "that this version of SkyRL starts?"
            ) from err
        self.seconds[name] += time.monotonic() - started
        tokens = list(got["response_ids"][0])
        logprobs = (got.get("response_logprobs") or [None])[0]
        if self.scored and len(logprobs or ()) != len(tokens):
            raise Outage(
                f"{len(tokens)} tokens came with {len(logprobs or ())} log-probabilities, though "
                f"sampling_params.logprobs={self._sampling['logprobs']} asks for one each; the "
                "server is of another version than SkyRL's client"
            )
        return Sample(tokens, list(logprobs or [0.0] * len(tokens)), got["stop_reasons"][0] == "stop")

    def release(self, session: str) -> None:
        """The client is told at the trajectory's end: see end()."""

    async def end(self, name: str) -> float:
        """A trajectory is over. Gives the seconds that were spent in sampling it."""
        await self._client.finish_session(name)
        return self.seconds.pop(name, 0.0)


def trajectory_of(session: str) -> str:
    """The trajectory that a session of Rollouts belongs to."""
    return session.rpartition("/")[0]


def _no_answer(err: Exception) -> bool:
    """A connection that broke or a refusal of the server, of any HTTP client; nothing that is a bug here."""
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(err).__mro__}
    return isinstance(err, OSError | TimeoutError) or not kinds.isdisjoint(("aiohttp.ClientError", "httpx.HTTPError"))
