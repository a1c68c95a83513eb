"""Sampling from a running `vllm serve`, token ids in and out: for rollouts on other machines.

New weights reach the server as files in a folder that both see. An adapter is loaded by a name of its own beside the
model that the server was started with, which has to be the one that the run trains; whole weights are loaded by its own
`reload_weights`, which it offers in development mode:

VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --generation-config vllm --logprobs-mode processed_logprobs \
    --enable-lora --max-lora-rank 64
VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --generation-config vllm --logprobs-mode processed_logprobs
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from toolorchestra.agents.engines import without

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as err:
    raise without(err) from None

from toolorchestra.agents.engines.base import NONE, Adapter, Sample, SamplingParams
from toolorchestra.agents.engines.loop_thread import LoopThread
from toolorchestra.agents.engines.weights import Handover, write_adapter
from toolorchestra.envs.base.errors import ConfigError, Outage, install

FIRST_BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.5, 30.0
_COULD_NOT = 500
"""Of a reload: the server tried, and will not do better a second time."""
_PASSING = frozenset({408, 409, 425, 429, _COULD_NOT, 502, 503, 504})
_NO_JSON = (json.JSONDecodeError, UnicodeDecodeError)
T = TypeVar("T")


class _Unexpected(Exception):
    """A reply that is JSON and no answer."""


@dataclass(frozen=True)
class ServedConfig:
    """Which server, and how long it is waited for."""

    base_url: str
    model: str = ""
    """What the server calls the model; "" asks it."""
    length: int = 512
    request_seconds: float = 600.0
    """Of one turn with all its retries."""
    retries: int = 4
    handover: str = ""
    """The folder for weights, under the same path on both machines; "" leaves the server's weights as they are."""
    reload_seconds: float = 600.0
    adapters: bool = False
    """Hand over adapters alone, over the model that the server was started with."""


class ServedSampler:
    """A server's model. `shape` is the model's configuration as transformers writes it."""

    suspends = True

    def __init__(self, shape: Mapping[str, Any], stop: Sequence[int], config: ServedConfig) -> None:
        self.config, self._stop = config, tuple(stop)
        self._handover = Handover(Path(config.handover) / "weights", shape) if config.handover else None
        self.takes_adapters = config.adapters and bool(config.handover)
        self._adapter = ""
        """What the server calls the adapter that it holds."""
        self._sdk = _load_sdk()
        self._loop = LoopThread("vllm-served")
        """Connections belong to one loop, and those of rollouts end with each collection."""
        self._client: Any = self._loop.wait(self._connect())
        self._jitter = random.Random()
        self._run = uuid.uuid4().hex
        self._closed = False
        self.version = NONE
        self.prompt_tokens = self.cached_tokens = self.sampled_tokens = 0
        try:
            self._model = config.model or self._loop.wait(self._ask_model())
        except ConfigError:
            self.close()
            raise

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """See Sampler. Cancelling it closes the connection, and the server aborts the turn."""
        del session
        if len(prompt) + params.max_tokens > self.config.length:
            need = f"{len(prompt)} tokens of prompt and {params.max_tokens} to sample"
            raise ValueError(f"the context is too long for the sampler: {need}, of {self.config.length}")
        made, usage = await self._loop.until_done(self._complete(prompt, params))
        self.prompt_tokens += len(prompt)
        self.cached_tokens += usage
        self.sampled_tokens += len(made.tokens)
        return made

    def release(self, session: str) -> None:
        """Nothing: the server's cache drops what is not used."""

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """See Probed."""

        async def all_of_them() -> list[Sample]:
            return [made for made, _ in await asyncio.gather(*(self._complete(p, params) for p in prompts))]

        return self._loop.wait(all_of_them())

    async def _complete(self, prompt: Sequence[int], params: SamplingParams) -> tuple[Sample, int]:
        """One turn, and how many of its prompt's tokens were cached."""

        async def turn() -> tuple[Sample, int]:
            return self._read(await self._post(prompt, params), params)

        try:
            return await self._tried(turn, "sample a turn", self.config.request_seconds, _PASSING)
        except self._sdk.APIStatusError as err:
            if self._adapter and err.status_code == 404:
                self.version = NONE
                raise Outage(f"{self.config.base_url} has no adapter any more: it was started anew ({err})") from None
            raise ConfigError(f"{self.config.base_url} refused a turn: {err}") from None

    async def _tried(self, ask: Callable[[], Awaitable[T]], what: str, seconds: float, passing: frozenset[int]) -> T:
        """Ask again while what is wrong may pass, and then raise an Outage; another status is raised at once."""
        problems: list[str] = []
        try:
            async with asyncio.timeout(seconds):
                for attempt in range(self.config.retries + 1):
                    if attempt:
                        most = min(MOST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (attempt - 1))
                        await asyncio.sleep(most * self._jitter.uniform(0.5, 1.0))
                    try:
                        return await ask()
                    except self._sdk.APIStatusError as err:
                        if err.status_code not in passing:
                            raise
                        problems.append(f"{err.status_code}: {err}")
                    except self._sdk.APIConnectionError as err:
                        problems.append(f"{err} {err.__cause__ or ''}".strip())
                    except (_Unexpected, *_NO_JSON) as err:
                        problems.append(f"no readable answer: {err}")
        except TimeoutError:
            problems.append(f"no answer within {seconds:g} s")
        raise Outage(f"{self.config.base_url} did not {what}: {'; '.join(problems[-3:])}")

    async def _post(self, prompt: Sequence[int], params: SamplingParams) -> Any:
        # What is left out the server fills in from the model's own generation defaults.
        whole_distribution = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        tokens = {
            "return_token_ids": True,
            "stop_token_ids": [*self._stop, *params.stops],
            "ignore_eos": True,
            "cache_salt": f"{self._run}-{self.version}",
        }
        return await self._client.completions.create(
            model=self._adapter or self._model,
            prompt=list(prompt),
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=1.0,
            logprobs=0,
            extra_body={**whole_distribution, **tokens},
        )

    def _read(self, reply: Any, params: SamplingParams) -> tuple[Sample, int]:
        choices = getattr(reply, "choices", None)
        if not isinstance(choices, list) or len(choices) != 1:
            raise _Unexpected(f"one choice was expected, got {reply!s:.120}")
        choice, tokens = choices[0], getattr(choices[0], "token_ids", None)
        if choice.finish_reason not in ("stop", "length"):
            count = len(tokens or ())
            raise Outage(f"{self.config.base_url} ended a turn by {choice.finish_reason!r} after {count} tokens")
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else None
        if not tokens or logprobs is None or len(logprobs) != len(tokens):
            raise ConfigError(
                f"{self.config.base_url} gave no token ids with log-probabilities; it has to be a `vllm serve` of 0.10 "
                "or newer that knows return_token_ids"
            )
        if None in logprobs:
            raise Outage(f"{self.config.base_url} gave no log-probability for {logprobs.count(None)} of its tokens")
        details = reply.usage and reply.usage.prompt_tokens_details
        made = Sample(list(tokens), list(logprobs), tokens[-1] in {*self._stop, *params.stops})
        return made, (details.cached_tokens or 0) if details else 0

    async def _connect(self) -> Any:
        return self._sdk.AsyncOpenAI(api_key="none", base_url=self.config.base_url, max_retries=0, timeout=None)

    async def _ask_model(self) -> str:
        try:
            found = await self._client.models.list()
            if not getattr(found, "data", None):
                raise _Unexpected(f"a list of models was expected, got {found!s:.120}")
        except (self._sdk.APIError, _Unexpected, *_NO_JSON) as err:
            raise ConfigError(
                f"no server at {self.config.base_url} ({err}); start one: vllm serve MODEL --generation-config vllm "
                "--logprobs-mode processed_logprobs"
            ) from None
        return str(found.data[0].id)

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """See Sampler. Without a folder the server keeps its own weights, as it does below an adapter, and the
        verification tells if they differ."""
        if adapter is None:
            self.write(weights)
        self.take_written(version, adapter)

    def write(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """The first half of sync(): the files. Several servers that see one folder need them once."""
        if self._handover is not None:
            self._handover.write(weights)

    def take_written(self, version: int, adapter: Adapter | None = None) -> None:
        """The second half: let the server load what was written. An adapter is small: each server has files of it."""
        self.version = NONE
        if adapter is not None:
            self._take_adapter(adapter, version)
        elif self._handover is not None:
            self._loop.wait(self._reload(str(self._handover.folder)))
            self._adapter = ""
        self.version = version

    async def _reload(self, folder: str) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._load(
            "/collective_rpc",
            body,
            unknown="takes no new weights: start it with VLLM_SERVER_DEV_MODE=1, where nobody else can reach it",
            failed=f"could not load the weights in {folder}; does it see that folder?",
        )

    def _take_adapter(self, adapter: Adapter, version: int) -> None:
        """A name and a folder for each. A server that was started anew holds none, and is given it a second time."""
        name, old = f"{self._run}-{version}", self._adapter
        folder = Path(self.config.handover) / name
        if name != old:
            write_adapter(adapter, folder)
        try:
            self._loop.wait(self._load_adapter(name, folder, adapter.rank))
            self._adapter = name
            if old not in ("", name):
                self._loop.wait(self._unload_adapter(old))
        finally:
            for gone in {name, old} - {self._adapter, ""}:
                shutil.rmtree(Path(self.config.handover) / gone, ignore_errors=True)

    async def _load_adapter(self, name: str, folder: Path, rank: int) -> None:
        start = f"start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank {rank} or more"
        await self._load(
            "/v1/load_lora_adapter",
            {"lora_name": name, "lora_path": str(folder), "load_inplace": True},  # asked a second time it is the same
            unknown=f"takes no adapters, or does not see {folder}: {start}, where nobody else can reach it",
            failed=f"could not load the adapter in {folder}; {start}.",
        )

    async def _unload_adapter(self, name: str) -> None:
        """A server that was started anew meanwhile knows nothing of it."""
        with contextlib.suppress(self._sdk.APIError):
            await self._client.post(f"{self._root}/v1/unload_lora_adapter", body={"lora_name": name}, cast_to=str)

    @property
    def _root(self) -> str:
        return str(self._client.base_url).removesuffix("/").removesuffix("/v1")

    async def _load(self, path: str, body: Mapping[str, Any], *, unknown: str, failed: str) -> None:
        """Ask the server to load something; what is said where it knows no such path, and where it could not."""

        async def load() -> None:
            await self._client.post(f"{self._root}{path}", body=body, cast_to=str)

        try:
            await self._tried(load, "load new weights", self.config.reload_seconds, _PASSING - {_COULD_NOT})
        except self._sdk.NotFoundError as err:
            raise ConfigError(f"{self._root} {unknown} ({err})") from None
        except self._sdk.APIStatusError as err:
            raise ConfigError(f"{self._root} {failed} {err}") from None

    def sleep(self) -> None:
        """Nothing: the server has a device of its own."""

    # -- keeping -----------------------------------------------------------------------------------------------------

    def random_state(self) -> Tensor:
        """The server's cannot be read: a resumed run draws anew."""
        return torch.tensor([0])

    def set_random_state(self, state: Tensor) -> None:
        """See random_state()."""

    def stats(self) -> Mapping[str, float]:
        """See Sampler."""
        hits = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        self.prompt_tokens = self.cached_tokens = 0
        return {"prefix_hits": hits}

    def close(self) -> None:
        """Close the connections. The server goes on: others may use it."""
        if not self._closed:
            self._closed = True
            self._loop.wait(self._client.close())
            self._loop.close()


def _load_sdk() -> Any:
    try:
        import openai
    except ModuleNotFoundError:
        raise ConfigError(f"a served sampler needs the openai SDK: {install('models')}") from None
    return openai
