"""Sampling with vLLM: every episode streams in and out on its own, over a cache of the prefixes that episodes share.

The engine runs in processes of its own, which die with this one, and is driven from one event loop in one thread. So a
crash of it is survived: the turns in flight end in an Outage, and the next sync() starts a new engine with the weights
it brings.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolorchestra.agents.engines.base import NONE, Adapter, EngineLost, Sample, Sampler, SamplingParams, check_length
from toolorchestra.agents.engines.gpu_arithmetic import Shape
from toolorchestra.agents.engines.guarded_processes import LoopThread, ProcessGuard
from toolorchestra.agents.engines.lora import write_adapter
from toolorchestra.agents.engines.weights import Handover
from toolorchestra.envs.base.errors import ConfigError, Outage, install

SHARED_MEMORY = Path("/dev/shm")
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that vLLM makes room for."""
CPU_CACHE_BYTES = 1 << 28
EXIT_SECONDS = 3.0
"""How long an engine may take to end by itself. It holds nothing that is worth waiting for."""


@dataclass(frozen=True)
class VllmConfig:
    """How the engine is held."""

    length: int = 512
    """Tokens of prompt and answer together."""
    rows: int = 128
    """Sequences that are run at once; more may wait."""
    device: str = "cpu"
    dtype: str = "float32"
    memory_share: float = 0.5
    """Share of the GPU's memory for its weights, its work and its cache."""
    cache: str = "auto"
    """What keys and values are kept in: "auto" as the weights are, "fp8" in eight bits."""
    request_seconds: float = 600.0
    """Seconds that one turn may take; then it is aborted and its episode fails."""
    restarts: int = 3
    """Crashes of its processes that a run survives."""
    folder: str = ""
    """Where the weights are handed over; "" takes shared memory where it is large enough, or a temporary folder."""
    lora_rank: int = 0
    """Rank of the adapters that it is handed; 0 hands it whole models alone."""
    seed: int = 0
    """Seed of the engine. Draws also depend on which sequences are batched together, so they do not repeat exactly."""

    @property
    def on_cpu(self) -> bool:
        return self.device.startswith("cpu")


class VllmSampler(Sampler):
    """A vLLM engine on this machine. `shape` is the model's configuration as transformers writes it. What its cache
    does not use any more is dropped first, so a session has nothing to release."""

    def __init__(
        self, shape: Mapping[str, Any], stop: Sequence[int], config: VllmConfig, say: Callable[[str], None] = print
    ) -> None:
        self._vllm = load_vllm()
        self.config, self._stop, self._say = config, tuple(stop), say
        check_cpu_build(shape, config)
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
        self._requests = itertools.count()
        self.restarts = 0
        atexit.register(self.close)

    # -- sampling ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:  # type: ignore[override]
        """The version of its weights, or NONE."""
        away = self._engine is None or self._asleep or self._engine.dead
        return NONE if away else self._held

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """Continue a prompt. The cache is shared by all sessions, so a session's name is not needed."""
        del session
        check_length(prompt, params, self.config.length)
        return await self._loop.until_done(self._generate(prompt, params))

    @property
    def pids(self) -> list[int]:
        """Ids of the engine's own processes."""
        return list(self._engine.pids) if self._engine else []

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """Continue prompts, and wait for them."""

        async def all_of_them() -> list[Sample]:
            return list(await asyncio.gather(*(self._generate(p, params, counted=False) for p in prompts)))

        return self._loop.wait(all_of_them())

    async def _generate(self, prompt: Sequence[int], params: SamplingParams, *, counted: bool = True) -> Sample:
        """One turn, on the engine's loop. Leaving it, for whatever reason, aborts the request in the engine."""
        engine, dead = self._engine, self._vllm.v1.engine.exceptions.EngineDeadError
        failed = self._vllm.v1.engine.exceptions.EngineGenerateError
        if engine is None:
            raise Outage("the vLLM engine is not running")
        asked = {"prompt_token_ids": list(prompt), "cache_salt": f"{self._run}-{self._held}"}
        name = f"{self._run}-{next(self._requests)}"
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
            stop_token_ids=list(self._stop),
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
        return Sample(tokens, logprobs, tokens[-1] in self._stop)

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """Hold these weights. Starts the engine where none runs; turns must not be in flight."""
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
                self._loop.wait(self._take(self._engine, reload=fresh))
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
        """What lies in the folders, into an engine that runs."""
        if self._asleep:
            await engine.llm.wake_up(tags=["weights"])
        if reload:
            await engine.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(self.folder)})
        if self._asleep:
            await engine.llm.wake_up(tags=["kv_cache"])
        if self._lora is not None:
            await engine.llm.add_lora(self._lora)

    def _start(self) -> EngineProcess:
        if self._engine is not None:
            self.restarts += 1
            self._loop.call(self._engine.close)
            self._engine = None
            if self.restarts > self.config.restarts:
                raise EngineLost(
                    f"the vLLM engine died {self.restarts} times, and {self.config.restarts} restarts are allowed; its "
                    "own last words stand above. Go on with resume=True; or where it lacked memory, which is the usual "
                    "reason, begin another run from the weights of the last checkpoint, init_from=FOLDER, with less "
                    "model.memory_share or fewer model.rows, in another folder",
                    command_line="--resume, or --init-from FOLDER --out ANOTHER",
                )
            self._say(f"the vLLM engine died; starting it again ({self.restarts} of {self.config.restarts})")
        self._engine = made = self._loop.call(EngineProcess, self.folder, self._scratch, self.config)
        return made

    def sleep(self) -> None:
        """Give the GPU's memory back. The weights below an adapter wait in the machine's memory. Others are dropped, as
        the cache is: the next sync() brings all of them anyway."""
        if self._engine is None or self._asleep or self._engine.dead:
            return
        if self.config.on_cpu:
            if not self._told:
                self._say("vLLM sleeps on GPUs only: on a CPU it keeps its memory while the trainer works")
            self._told = True
            return
        try:
            self._loop.wait(self._engine.llm.sleep(level=1 if self.takes_adapters else 2))
        except self._vllm.v1.engine.exceptions.EngineDeadError:
            self._say("the vLLM engine died while it went to sleep")  # the next sync() starts another one
            return
        self._asleep = True

    # -- keeping -----------------------------------------------------------------------------------------------------

    def stats(self) -> Mapping[str, float]:
        """The share of prompt tokens that came from the cache, and how often the engine was started again."""
        return {**super().stats(), "sampler_restarts": float(self.restarts)}

    def close(self) -> None:
        """End the engine, and remove its folders."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._engine is not None:
            self._loop.call(self._engine.close)
            self._engine = None
        self._loop.close()
        for folder in (self.folder, self._scratch):
            shutil.rmtree(folder, ignore_errors=True)


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
    """Bytes of what is handed over: weights in the engine's dtype, the head too where it is tied, and an adapter."""
    width = 4 if dtype == "float32" else 2
    made = Shape.read(shape)
    return width * (made.parameters + made.vocabulary * made.hidden + made.adapter_parameters(lora_rank))


# -- the engine and its processes --------------------------------------------------------------------------------------


def load_vllm() -> Any:
    """The package, imported when it is first needed: that takes seconds."""
    with _environment(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports warn of its own deprecations
        try:
            import vllm
            from vllm.engine import arg_utils  # noqa: F401 - imported here, where its warnings are not heard
            from vllm.v1.engine import async_llm, exceptions  # noqa: F401
        except ModuleNotFoundError as err:
            raise ConfigError(
                f"vLLM rollouts need vllm, and {err.name} is missing: {install('vllm')} on a machine with a GPU; for a "
                'CPU see "On a CPU" in docs/eight-billion.md'
            ) from None
    return vllm


@contextmanager
def _environment(**forced: str) -> Iterator[None]:
    """Settings that vLLM takes from the environment alone, while it is imported and started. The user's own win, but
    for the forced ones."""
    before = dict(os.environ)
    os.environ.update({"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", **before, **forced})
    try:
        yield
    finally:
        for name in [name for name in os.environ if name not in before]:
            del os.environ[name]
        os.environ.update(before)


def engine_arguments(folder: Path, config: VllmConfig) -> Mapping[str, Any]:
    """What vLLM is told. Nothing of a model's own generation defaults: they would change the distribution."""
    made: dict[str, Any] = {
        "model": str(folder),
        "load_format": "safetensors",
        "skip_tokenizer_init": True,
        "dtype": config.dtype,
        "seed": config.seed,
        "max_model_len": config.length,
        "max_num_seqs": config.rows,
        "enforce_eager": config.on_cpu,  # nothing is compiled, and no graph captured
        "enable_prefix_caching": True,
        "kv_cache_dtype": config.cache,
        "generation_config": "vllm",
        # Of the distribution that was drawn from, temperature included: what an importance ratio needs.
        "logprobs_mode": "processed_logprobs",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if config.lora_rank:
        made |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": room_for_rank(config.lora_rank)}
    if config.on_cpu:
        return {**made, "kv_cache_memory_bytes": CPU_CACHE_BYTES}
    return {**made, "gpu_memory_utilization": config.memory_share, "enable_sleep_mode": True}


def room_for_rank(rank: int) -> int:
    """The smallest of vLLM's ranks that holds an adapter of this one."""
    able = [room for room in LORA_RANKS if room >= rank]
    if not able:
        raise ConfigError(f"vLLM takes adapters of rank {LORA_RANKS[-1]} at most, and model.lora_rank is {rank}")
    return able[0]


class EngineProcess:
    """A started engine. Made, used and closed on one event loop, except where a method says otherwise."""

    def __init__(self, folder: Path, scratch: Path, config: VllmConfig) -> None:
        vllm = load_vllm()
        # Its sockets lie where they are removed with everything else: it leaves them behind when it is killed.
        self._guard = ProcessGuard(folder, scratch)
        spawned = {"VLLM_RPC_BASE_PATH": str(scratch), "TMPDIR": str(scratch), "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        if config.on_cpu:
            spawned["TORCHDYNAMO_DISABLE"] = "1"  # eager mode still compiles its sampler, for half a minute
        arguments = vllm.engine.arg_utils.AsyncEngineArgs(**engine_arguments(folder, config))
        started = False
        try:
            with _environment(**spawned, **self._guard.environment), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.llm: Any = vllm.v1.engine.async_llm.AsyncLLM.from_engine_args(arguments)
            started = True
        finally:
            if not started:
                self._guard.strike()
        self._children: list[Any] = list(self.llm.engine_core.resources.engine_manager.processes)
        self.pids = [p.pid for p in self._children]

    @property
    def dead(self) -> bool:
        """Whether its processes have ended. From any thread."""
        return bool(self.llm.errored)

    def close(self) -> None:
        """End the processes and wait for them."""
        self.llm.shutdown(timeout=EXIT_SECONDS)
        for process in self._children:
            process.join(EXIT_SECONDS)
            if process.is_alive():
                process.kill()
                process.join(EXIT_SECONDS)
        self._guard.strike()  # what the engine's own children left


def check_cpu_build(shape: Mapping[str, Any], config: VllmConfig) -> None:
    """Refuse what the CPU build cannot run: it would start, and die then or at the first request."""
    if not config.on_cpu:
        return
    if config.cache == "fp8" and (has := torch.backends.cpu.get_cpu_capability()) != "AVX512":
        raise ConfigError(
            "on a CPU, vLLM keeps its cache in eight bits (model.cache=fp8) with AVX-512 alone, and this one has "
            f"{has}; take model.cache=auto"
        )
    load_vllm()
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    sizes, width = CPUAttentionBackend.get_supported_head_sizes(), Shape.read(shape).head_width
    if width not in sizes:
        raise ConfigError(
            f"vLLM's CPU build runs attention heads of {', '.join(map(str, sizes))}, and this model's have {width}; "
            "take another model (the tiny one: model.hidden=128), or model.sampler=local"
        )
