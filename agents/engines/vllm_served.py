"""Sampling from running `vllm serve`s, token ids in and out: for rollouts on other machines.

New weights reach the server as files in a folder that both see. An adapter is loaded by a name of its own beside the
model that the server was started with, which has to be the one that the run trains; whole weights are loaded by its own
`reload_weights`, which it offers in development mode:

VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --generation-config vllm --logprobs-mode processed_logprobs \
    --enable-lora --max-lora-rank 64
VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --generation-config vllm --logprobs-mode processed_logprobs

One server, or several of one model, stand behind one sampler. An episode's turns go to the server that has its past, a
new one to the server with the fewest. Where a turn ends in an Outage the server is left alone until the next weights,
and where none is left these are handed out at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from toolorchestra.agents.engines.base import NONE, Adapter, EngineLost, Sample, Sampler, SamplingParams, check_length
from toolorchestra.agents.engines.guarded_processes import LoopThread
from toolorchestra.agents.engines.lora import write_adapter
from toolorchestra.agents.engines.weights import Handover
from toolorchestra.envs.base.errors import ConfigError, Outage

FIRST_BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.5, 30.0
_COULD_NOT = 500
"""The status of a reload that the server tried, and will not do better a second time."""
_PASSING = frozenset({408, 409, 425, 429, _COULD_NOT, 502, 503, 504})
_NO_JSON = (json.JSONDecodeError, UnicodeDecodeError)
MOST_MISSED = 3
"""Weights in a row that a server may miss; then nobody waits for it any more."""
T = TypeVar("T")


class _Unexpected(Exception):
    """A reply that is JSON and no answer."""


@dataclass(frozen=True)
class ServedConfig:
    """Server, and how long it is waited for."""

    base_url: str
    length: int = 512
    request_seconds: float = 600.0
    """Seconds of one turn with all its retries."""
    retries: int = 4
    handover: str = ""
    """The folder for weights, under the same path on both machines; "" leaves the server's weights as they are."""
    reload_seconds: float = 600.0
    adapters: bool = False
    """Hand over adapters alone, over the model that the server was started with."""


class ServedSampler(Sampler):
    """A server's model. `shape` is the model's configuration as transformers writes it."""

    def __init__(self, shape: Mapping[str, Any], stop: Sequence[int], config: ServedConfig) -> None:
        self.config, self._stop = config, tuple(stop)
        self._handover = Handover(Path(config.handover) / "weights", shape) if config.handover else None
        self.takes_adapters = config.adapters and bool(config.handover)
        self._adapter = ""
        """What the server calls the adapter that it holds."""
        self._sdk = _load_sdk()
        self._loop = LoopThread("vllm-served")
        """Connections belong to one loop, and those of rollouts end with each collection."""
        connect = partial(self._sdk.AsyncOpenAI, api_key="none", base_url=config.base_url, max_retries=0, timeout=None)
        self._client: Any = self._loop.call(connect)
        self._jitter = random.Random()
        self._run = uuid.uuid4().hex
        self._closed = False
        self.version = NONE
        try:
            self._model = self._loop.wait(self._ask_model())
        except ConfigError:
            self.close()
            raise

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """Continue a prompt. Cancelling it closes the connection, and the server aborts the turn."""
        del session
        check_length(prompt, params, self.config.length)
        try:
            made, usage = await self._loop.until_done(self._complete(prompt, params))
        except Outage:
            self.version = NONE  # when it answers again, it may have been started anew, with the weights of its disk
            raise
        self.prompt_tokens += len(prompt)
        self.cached_tokens += usage
        return made

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """Continue prompts, and wait for them."""

        async def all_of_them() -> list[Sample]:
            return [made for made, _ in await asyncio.gather(*(self._complete(p, params) for p in prompts))]

        return self._loop.wait(all_of_them())

    async def _complete(self, prompt: Sequence[int], params: SamplingParams) -> tuple[Sample, int]:
        """One turn, and how many of its prompt's tokens were cached."""
        tokens = {
            "return_token_ids": True,
            "stop_token_ids": self._stop,
            "ignore_eos": True,
            "cache_salt": f"{self._run}-{self.version}",
        }
        # What is left out the server fills in from the model's own generation defaults.
        whole_distribution = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

        async def turn() -> tuple[Sample, int]:
            reply = await self._client.completions.create(
                model=self._adapter or self._model,
                prompt=list(prompt),
                max_tokens=params.max_tokens,
                temperature=params.temperature,
                top_p=1.0,
                logprobs=0,
                extra_body={**whole_distribution, **tokens},
            )
            return self._read(reply, params)

        try:
            return await self._tried(turn, "sample a turn", self.config.request_seconds, _PASSING)
        except self._sdk.APIStatusError as err:
            if self._adapter and err.status_code == 404:
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
        made = Sample(list(tokens), list(logprobs), tokens[-1] in self._stop)
        return made, (details.cached_tokens or 0) if details else 0

    async def _ask_model(self) -> str:
        seconds = self.config.request_seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._client.models.list()
            if not getattr(found, "data", None):
                raise _Unexpected(f"a list of models was expected, got {found!s:.120}")
        except (self._sdk.APIError, _Unexpected, TimeoutError, *_NO_JSON) as err:
            told = f"no answer within {seconds:g} s" if isinstance(err, TimeoutError) else err
            raise ConfigError(
                f"no server at {self.config.base_url} ({told}); start one: vllm serve MODEL --generation-config vllm "
                "--logprobs-mode processed_logprobs"
            ) from None
        return str(found.data[0].id)

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """Hold these weights. Without a folder the server keeps its own weights, as it does below an adapter, and the
        verification tells if they differ."""
        with self.written(weights, version, adapter) as place:
            self.take_written(version, place, adapter)

    @contextmanager
    def written(
        self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None
    ) -> Iterator[Path | None]:
        """Files of the weights, which several servers that see one folder need once. An adapter has a folder of its
        own, which stays until the next one is there: a server may read it again."""
        place = self._handover.folder if self._handover else None
        if adapter is None or place is None:
            if self._handover is not None:
                self._handover.write(weights)
            yield place
            return
        folder, kept = place.with_name(f"{self._run}-{version}"), False
        try:
            if not folder.exists():
                write_adapter(adapter, folder)
            yield folder
            kept = True
        finally:
            for other in self._adapter_folders():
                if kept == (other != folder):
                    shutil.rmtree(other, ignore_errors=True)

    def _adapter_folders(self) -> list[Path]:
        """Folders that this sampler has written and not removed."""
        return list(self._handover.folder.parent.glob(f"{self._run}-*")) if self._handover else []

    def take_written(self, version: int, place: Path | None, adapter: Adapter | None = None) -> None:
        """Let the server load what was written."""
        self.version = NONE
        if adapter is not None and place is not None:
            self._take_adapter(place, adapter.rank, version)
        elif self._handover is not None:
            folder = str(self._handover.folder)
            self._load(
                "/collective_rpc",
                {"method": "reload_weights", "kwargs": {"weights_path": folder}},
                unknown="takes no new weights: start it with VLLM_SERVER_DEV_MODE=1, where nobody else can reach it",
                failed=f"could not load the weights in {folder}; does it see that folder?",
            )
            self._adapter = ""
        self.version = version

    def _take_adapter(self, folder: Path, rank: int, version: int) -> None:
        """A name for each. A server that was started anew holds none, and is given it a second time."""
        name, old = f"{self._run}-{version}", self._adapter
        start = f"start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank {rank} or more"
        self._load(
            "/v1/load_lora_adapter",
            {"lora_name": name, "lora_path": str(folder), "load_inplace": True},  # asked a second time it is the same
            unknown=f"takes no adapters, or does not see {folder}: {start}, where nobody else can reach it",
            failed=f"could not load the adapter in {folder}; {start}.",
        )
        self._adapter = name
        if old not in ("", name):
            with contextlib.suppress(self._sdk.APIError, TimeoutError):  # one that was started anew knows nothing of it
                self._loop.wait(self._unload(old))

    async def _unload(self, name: str) -> None:
        async with asyncio.timeout(self.config.reload_seconds):
            await self._post_json("/v1/unload_lora_adapter", {"lora_name": name})

    async def _post_json(self, path: str, body: Mapping[str, Any]) -> None:
        await self._client.post(f"{self._root}{path}", body=body, cast_to=str)

    @property
    def _root(self) -> str:
        return str(self._client.base_url).removesuffix("/").removesuffix("/v1")

    def _load(self, path: str, body: Mapping[str, Any], *, unknown: str, failed: str) -> None:
        """Ask the server to load something; what is said where it knows no such path, and where it could not."""
        ask, passing = partial(self._post_json, path, body), _PASSING - {_COULD_NOT}
        try:
            self._loop.wait(self._tried(ask, "load new weights", self.config.reload_seconds, passing))
        except self._sdk.NotFoundError as err:
            raise ConfigError(f"{self._root} {unknown} ({err})") from None
        except self._sdk.APIStatusError as err:
            raise ConfigError(f"{self._root} {failed} {err}") from None

    def close(self) -> None:
        """Close the connections, and remove the last adapter's folder. The server goes on: others may use it."""
        if not self._closed:
            self._closed = True
            for folder in self._adapter_folders():
                shutil.rmtree(folder, ignore_errors=True)
            self._loop.wait(self._client.close())
            self._loop.close()


def _load_sdk() -> Any:
    try:
        import openai
    except ModuleNotFoundError:
        raise ConfigError("a served sampler needs the openai SDK: pip install 'openai>=3,<4'") from None
    return openai


# -- several servers ---------------------------------------------------------------------------------------------------


def server_urls(text: str) -> list[str]:
    """The servers of model.server, which stands for one, or for several with commas between them."""
    found = [part.strip() for part in text.split(",")]
    if "" in found or len(set(found)) < len(found):
        raise ConfigError(
            f"model.server is http://HOST:PORT/v1, or several with commas between them, each of them once; got {text!r}"
        )
    return found


class SeveralServers(Sampler):
    """A sampler over servers that are reached by samplers of their own. All of these hand weights over through the same
    folder."""

    def __init__(self, servers: Sequence[ServedSampler], say: Callable[[str], None] = print) -> None:
        self.servers, self._say = list(servers), say
        self._of_session: dict[str, ServedSampler] = {}
        self._missed: Counter[ServedSampler] = Counter()
        self._up: set[ServedSampler] = set(servers)
        """The servers that nothing bad was heard of since the last weights."""
        self._episodes: Counter[ServedSampler] = Counter()
        self._probes = 0
        self.takes_adapters = all(server.takes_adapters for server in servers)
        self.version = NONE

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """Continue a prompt. What breaks a turn is an Outage, and its server is not asked for more."""
        server = self._server_of(session)
        if not session:
            self._episodes[server] += 1
        try:
            return await server.sample(prompt, params, session)
        except Outage as err:
            self._leave(server, err)
            raise
        finally:
            if not session:
                self._episodes[server] -= 1

    def release(self, session: str) -> None:
        """Forget which server has a session's past."""
        if (server := self._of_session.pop(session, None)) is not None:
            self._episodes[server] -= 1
            server.release(session)

    def _server_of(self, session: str) -> ServedSampler:
        """The one that has the session's past, or else the one with the fewest episodes; of equal ones the first."""
        known = self._of_session.get(session)
        if known is not None and known in self._up:
            return known
        if not self._up:
            raise self._none_left()
        self.release(session)
        chosen = min((s for s in self.servers if s in self._up), key=lambda s: self._episodes[s])
        if session:
            self._of_session[session] = chosen
            self._episodes[chosen] += 1
        return chosen

    def _none_left(self) -> Outage:
        return Outage(f"no server of {len(self.servers)} is left until the next weights are handed out")

    def _leave(self, server: ServedSampler, err: Outage) -> None:
        if server in self._up:
            self._up.discard(server)
            self._say(f"{server.config.base_url} is left alone until the next weights: {err}")
        if not self._up:
            self.version = NONE  # so that the engine tries to hand weights out before it asks again

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """Continue prompts, and wait for them. They go round the servers, so that several calls together ask all of
        them: where one has other weights by mistake, its share of the gap shows."""
        numbers = range(self._probes, self._probes + len(prompts))
        self._probes += len(prompts)
        with ThreadPoolExecutor(len(prompts)) as threads:
            return list(threads.map(lambda p, n: self._probed(p, n, params), prompts, numbers))

    def _probed(self, prompt: Sequence[int], number: int, params: SamplingParams) -> Sample:
        """One of them, by another server where the one whose turn it is has died."""
        while servers := [s for s in self.servers if s in self._up]:
            server = servers[number % len(servers)]
            try:
                return server.probe([prompt], params)[0]
            except Outage as err:
                self._leave(server, err)
        raise self._none_left()

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """Hold these weights. They are written once, and all servers read them at the same time."""
        asked = [s for s in self.servers if self._missed[s] < MOST_MISSED]
        first = self.servers[0]
        with ThreadPoolExecutor(len(self.servers)) as threads, first.written(weights, version, adapter) as place:
            told = threads.map(lambda s: _problem(s, version, place, adapter, known=s in self._missed), asked)
            problems = dict(zip(asked, told, strict=True))
        for server, problem in problems.items():
            self._missed[server] = self._missed[server] + 1 if problem else 0
            if problem:
                last = self._missed[server] == MOST_MISSED
                more = "; nobody waits for it any more" if last else f" ({self._missed[server]} of {MOST_MISSED})"
                self._say(f"{server.config.base_url} missed new weights{more}: {problem}")
        self._up = {server for server, problem in problems.items() if not problem}
        if not self._up:
            self.version = NONE
            raise EngineLost(
                f"no server of {len(self.servers)} took new weights; the last one said: "
                f"{next(reversed(problems.values()), 'nothing')}. Start them again, and go on with resume=True",
                command_line="--resume",
            )
        self._of_session.clear()
        self._episodes.clear()
        self.version = version

    # -- keeping -----------------------------------------------------------------------------------------------------

    def stats(self) -> Mapping[str, float]:
        """The share of prompt tokens that came from a cache. Hits over all servers, and how many of these answer."""
        self.prompt_tokens = sum(s.prompt_tokens for s in self.servers)
        self.cached_tokens = sum(s.cached_tokens for s in self.servers)
        for server in self.servers:
            server.stats()
        return {**super().stats(), "servers": float(len(self._up))}

    def close(self) -> None:
        """Close the connections. The servers go on."""
        for server in self.servers:
            server.close()


def _problem(server: ServedSampler, version: int, place: Path | None, adapter: Adapter | None, *, known: bool) -> str:
    """Why a server did not take what was written; "" where it did. What is set up wrongly is raised, unless weights
    were handed out to it before: then it is this server that broke."""
    try:
        server.take_written(version, place, adapter)
    except (Outage, ConfigError) as err:
        if isinstance(err, ConfigError) and not known:
            raise
        return str(err)
    return ""
