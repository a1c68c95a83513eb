"""Sampling with vLLM: every episode streams in and out on its own, over a cache of the prefixes that episodes share.

The engine runs in processes of its own and is driven from one event loop in one thread, so a crash of it is survived:
the turns in flight end in an Outage, and the next sync() starts a new engine with the weights it brings.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines import without

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as err:
    raise without(err) from None

from toolorchestra.agents.engines.base import NONE, Adapter, Sample, SamplingParams
from toolorchestra.agents.engines.loop_thread import LoopThread
from toolorchestra.agents.engines.vllm_process import EngineProcess, VllmConfig, check_heads, load_vllm
from toolorchestra.agents.engines.weights import Handover, write_adapter
from toolorchestra.envs.base.errors import ConfigError, Outage

SHARED_MEMORY = Path("/dev/shm")


class VllmSampler:
    """A vLLM engine on this machine. `shape` is the model's configuration as transformers writes it."""

    suspends = True

    def __init__(
        self, shape: Mapping[str, Any], stop: Sequence[int], config: VllmConfig, say: Callable[[str], None] = print
    ) -> None:
        self._vllm = load_vllm()
        self.config, self._stop, self._say = config, tuple(stop), say
        check_heads(head_width(shape), config)
        need = handover_bytes(shape, config.dtype, config.lora_rank)
        self.folder = handover_folder(config.folder, need)
        self._handover = Handover(self.folder, shape, getattr(torch, config.dtype))
        self._scratch = Path(tempfile.mkdtemp(prefix="toolorchestra-vllm-"))
        self._run = uuid.uuid4().hex
        """Salts the prefix cache with the weights' version: what was cached under other weights is never found."""
        self._loop = LoopThread("vllm")
        self._engine: EngineProcess | None = None
        self.takes_adapters = config.lora_rank > 0
        self._held = self._base = NONE
        self._lora: Any = None
        """What vLLM calls the adapter that it holds."""
        self._asleep = self._closed = self._told = False
        self._numbers = itertools.count()
        self.restarts = 0
        self.prompt_tokens = self.cached_tokens = self.sampled_tokens = 0
        atexit.register(self.close)

    # -- sampling ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """See Sampler."""
        away = self._engine is None or self._asleep or self._engine.dead
        return NONE if away else self._held

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """See Sampler. The cache is shared by all sessions, so a session's name is not needed."""
        del session
        self._check_length(prompt, params)
        return await self._loop.until_done(self._generate(prompt, params))

    @property
    def unfinished(self) -> int:
        """Turns that the engine works on now."""
        return int(self._engine.llm.get_num_unfinished_requests()) if self._engine else 0

    @property
    def pids(self) -> list[int]:
        """Of the engine's own processes."""
        return list(self._engine.pids) if self._engine else []

    def release(self, session: str) -> None:
        """Nothing: what is not used any more is what the cache drops first."""

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """See Probed."""

        async def all_of_them() -> list[Sample]:
            return list(await asyncio.gather(*(self._generate(p, params, counted=False) for p in prompts)))

        return self._loop.wait(all_of_them())

    def _check_length(self, prompt: Sequence[int], params: SamplingParams) -> None:
        if len(prompt) + params.max_tokens > self.config.length:
            need = f"{len(prompt)} tokens of prompt and {params.max_tokens} to sample"
            raise ValueError(f"the context is too long for the sampler: {need}, of {self.config.length}")

    async def _generate(self, prompt: Sequence[int], params: SamplingParams, *, counted: bool = True) -> Sample:
        """One turn, on the engine's loop. Leaving it, for whatever reason, aborts the request in the engine."""
        engine, dead = self._engine, self._vllm.v1.engine.exceptions.EngineDeadError
        failed = self._vllm.v1.engine.exceptions.EngineGenerateError
        if engine is None:
            raise Outage("the vLLM engine is not running")
        asked = {"prompt_token_ids": list(prompt), "cache_salt": f"{self._run}-{self._held}"}
        name = f"{self._run}-{next(self._numbers)}"
        output = None
        try:
            async with asyncio.timeout(self.config.request_seconds):
                async for made in engine.llm.generate(asked, self._wire(params), name, lora_request=self._lora):
                    output = made  # there is one: the last
        except TimeoutError:
            raise Outage(f"a turn was not sampled within {self.config.request_seconds:g} s, and was aborted") from None
        except (dead, failed) as err:
            raise Outage(f"the vLLM engine broke off: {err}") from err
        if output is None:
            raise Outage("the vLLM engine ended a request without an answer")
        return self._read(output, params, counted=counted)

    def _wire(self, params: SamplingParams) -> Any:
        return self._vllm.SamplingParams(
            temperature=params.temperature,
            max_tokens=params.max_tokens,
            logprobs=0,  # the sampled token's own
            stop_token_ids=[*self._stop, *params.stops],
            ignore_eos=True,
            detokenize=False,
            output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )

    def _read(self, output: Any, params: SamplingParams, *, counted: bool) -> Sample:
        made = output.outputs[0]
        tokens = list(made.token_ids)
        if made.finish_reason not in ("stop", "length"):
            raise Outage(f"the vLLM engine ended a turn by {made.finish_reason!r} after {len(tokens)} tokens")
        logprobs = [float(row[token].logprob) for row, token in zip(made.logprobs, tokens, strict=True)]
        if counted:
            self.prompt_tokens += len(output.prompt_token_ids)
            self.cached_tokens += output.num_cached_tokens or 0
            self.sampled_tokens += len(tokens)
        return Sample(tokens, logprobs, tokens[-1] in {*self._stop, *params.stops})

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """See Sampler. Starts the engine where none runs; turns must not be in flight."""
        if self._closed:
            raise RuntimeError("this sampler is closed; make another one")
        self._held, fresh = NONE, adapter is None or adapter.base != self._base
        if fresh:
            self._base = NONE
            self._handover.write(weights)
            self._base = adapter.base if adapter else NONE
        self._lora = self._written(adapter, version) if adapter else None
        if self._engine is not None and not self._engine.dead:
            try:
                self._loop.wait(self._take(self._engine, reload=fresh or self._asleep))
            except self._vllm.v1.engine.exceptions.EngineDeadError:
                self._say("the vLLM engine died while it took new weights")
        if self._engine is None or self._engine.dead:
            self._loop.wait(self._take(self._start(), reload=False))
        self._asleep = False
        self._held = version

    def _written(self, adapter: Adapter, version: int) -> Any:
        """The adapter in a folder of its own, in place of the last one's. Each has another number, by which vLLM, which
        holds one, knows that it is another."""
        for old in self.folder.glob("adapter-*"):
            shutil.rmtree(old)
        folder = self.folder / f"adapter-{version}"
        write_adapter(adapter, folder)
        return self._vllm.lora.request.LoRARequest(folder.name, version + 1, str(folder))

    async def _take(self, engine: EngineProcess, *, reload: bool) -> None:
        """What lies in the folders, into an engine that runs. Asleep it dropped the weights below an adapter too."""
        if reload:
            if self._asleep:
                await engine.llm.wake_up(tags=["weights"])
            await engine.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(self.folder)})
            if self._asleep:
                await engine.llm.wake_up(tags=["kv_cache"])
        if self._lora is not None:
            await engine.llm.add_lora(self._lora)

    def _start(self) -> EngineProcess:
        if self._engine is not None:
            self.restarts += 1
            self._loop.wait(self._end(self._engine))
            self._engine = None
            if self.restarts > self.config.restarts:
                raise RuntimeError(
                    f"the vLLM engine died {self.restarts} times, and {self.config.restarts} restarts are allowed; its "
                    "own last words stand above (memory is the usual reason: less model.memory_share, fewer model.rows)"
                )
            self._say(f"the vLLM engine died; starting it again ({self.restarts} of {self.config.restarts})")
        self._engine = made = self._loop.wait(self._made())
        return made

    async def _made(self) -> EngineProcess:
        return EngineProcess(self.folder, self._scratch, self.config)

    @staticmethod
    async def _end(engine: EngineProcess) -> None:
        engine.close()

    def sleep(self) -> None:
        """See Sampler. Weights and cache are dropped, for the next sync() loads all weights anyway."""
        if self._engine is None or self._asleep or self._engine.dead:
            return
        if self.config.on_cpu:
            if not self._told:
                self._say("vLLM sleeps on GPUs only: on a CPU it keeps its memory while the trainer works")
            self._told = True
            return
        self._loop.wait(self._engine.llm.sleep(level=2))
        self._asleep = True

    # -- keeping -----------------------------------------------------------------------------------------------------

    def random_state(self) -> Tensor:
        """How many requests were made: the engine's own state cannot be read, so a resumed run draws anew."""
        number = next(self._numbers)
        self._numbers = itertools.count(number)
        return torch.tensor([number])

    def set_random_state(self, state: Tensor) -> None:
        """See random_state()."""
        self._numbers = itertools.count(int(state[0]))

    def stats(self) -> Mapping[str, float]:
        """See Sampler."""
        hits = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        self.prompt_tokens = self.cached_tokens = 0
        return {"prefix_hits": hits, "sampler_restarts": float(self.restarts)}

    def close(self) -> None:
        """See Sampler."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._engine is not None:
            self._loop.wait(self._end(self._engine))
            self._engine = None
        self._loop.close()
        for folder in (self.folder, self._scratch):
            shutil.rmtree(folder, ignore_errors=True)


def head_width(shape: Mapping[str, Any]) -> int:
    """The width of one attention head, from the keys of a config.json."""
    return int(shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"])


def handover_folder(wanted: str, need_bytes: int) -> Path:
    """A fresh folder with room for the weights: in memory if they fit there, on disk otherwise."""
    places = [Path(wanted)] if wanted else [SHARED_MEMORY, Path(tempfile.gettempdir())]
    for place in places:
        if place.is_dir() and shutil.disk_usage(place).free > need_bytes:
            return Path(tempfile.mkdtemp(prefix="toolorchestra-", dir=place))
    raise ConfigError(
        f"handing the weights over takes {need_bytes / 1e9:.1f} GB in a folder, and none of "
        f"{', '.join(map(str, places))} has that much free; name one with model.handover=FOLDER"
    )


def handover_bytes(shape: Mapping[str, Any], dtype: str, lora_rank: int = 0) -> int:
    """Of the weights as they are handed over: in the engine's dtype, the head too where it is the embedding; and of an
    adapter."""
    from toolorchestra.agents.engines.budget import ADAPTER_WIDTH, Shape

    width = 4 if dtype == "float32" else 2
    made = Shape.read(shape)
    adapter = ADAPTER_WIDTH * made.adapter_parameters(lora_rank)
    return width * (made.parameters + made.vocabulary * made.hidden) + adapter
