"""What a run is trained on: the processor, its cores, the memory, and the GPU where there is one."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """The hardware and the versions of a run, as its report names them."""

    processor: str
    cores: int
    """Cores that this process may use."""
    memory_gigabytes: float | None
    """Memory of the whole machine; None where the system does not say."""
    gpu: str
    """Name of the GPU; empty where the run needs none."""
    python: str
    torch: str
    """Empty where torch is not installed."""

    def __str__(self) -> str:
        parts = [self.gpu] if self.gpu else []
        parts += [f"{self.processor}, {self.cores} {'core' if self.cores == 1 else 'cores'}"]
        if self.memory_gigabytes is not None:
            parts.append(f"{self.memory_gigabytes:.0f} GB of memory")
        return ", ".join(parts)


def this_machine(device: str) -> Machine:
    """The machine that this process runs on. `device` is the model's, as torch names it."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    memory, gpu, version = None, "", ""
    with suppress(AttributeError, ValueError, OSError):  # no such question on this system
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    with suppress(ImportError):
        import torch

        version = str(torch.__version__)
        if device.startswith("cuda") and torch.cuda.is_available():
            gpu = str(torch.cuda.get_device_name(device))
    return Machine(_processor(), cores, memory, gpu, platform.python_version(), version)


def _processor() -> str:
    """The processor's name as the system tells it; on Linux that is in /proc/cpuinfo."""
    told = Path("/proc/cpuinfo")
    if told.is_file():
        for line in told.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "an unknown processor"
