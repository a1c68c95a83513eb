"""One vLLM engine and its processes: how it is started, that it dies with this process, that none is left behind."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.process_guard import ProcessGuard
from toolorchestra.envs.base.errors import ConfigError, install

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""That vLLM makes room for."""
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
    """Of the GPU's memory, for its weights, its work and its cache."""
    cache_bytes: int = 1 << 28
    """Of the cache, on a CPU."""
    eager: bool = False
    """Neither compile nor capture graphs: starts sooner, runs slower. Always so on a CPU."""
    request_seconds: float = 600.0
    """Of one turn; then it is aborted and its episode fails."""
    restarts: int = 3
    """Crashes of its processes that a run survives."""
    folder: str = ""
    """Where the weights are handed over; "" takes shared memory where it is large enough, or a temporary folder."""
    lora_rank: int = 0
    """Of the adapters that it is handed; 0 hands it whole models alone."""
    seed: int = 0
    """Of the engine. Draws also depend on which sequences are batched together, so they do not repeat exactly."""

    @property
    def on_cpu(self) -> bool:
        return self.device.startswith("cpu")


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
                'CPU see "On a CPU" in docs/vllm.md'
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
        "enforce_eager": config.eager or config.on_cpu,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        # Of the distribution that was drawn from, temperature included: what an importance ratio needs.
        "logprobs_mode": "processed_logprobs",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if config.lora_rank:
        made |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": room_for_rank(config.lora_rank)}
    if config.on_cpu:
        return {**made, "kv_cache_memory_bytes": config.cache_bytes}
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
        if config.eager or config.on_cpu:
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


def check_heads(width: int, config: VllmConfig) -> None:
    """Refuse what the CPU build cannot run: it would start, and die at the first request."""
    if not config.on_cpu:
        return
    load_vllm()
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if width not in sizes:
        raise ConfigError(
            f"vLLM's CPU build runs attention heads of {', '.join(map(str, sizes))}, and this model's have {width}; "
            "take another model (the tiny one: model.hidden=128), or model.sampler=local"
        )
