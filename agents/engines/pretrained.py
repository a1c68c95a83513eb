"""Models, tokenizers and chat templates of transformers, from a folder or a hub."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.errors import ConfigError, install

if TYPE_CHECKING:
    import torch

    from toolorchestra.agents.engines.base import Kernels


@contextmanager
def _loading(path: str, where: str = "model.path") -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as err:
        raise ConfigError(f"{where} {path!r} could not be loaded: {err}") from None


def shape_of(path: str) -> Mapping[str, Any]:
    """A model's configuration, without its weights."""
    from transformers import AutoConfig

    with _loading(path):
        found: Mapping[str, Any] = AutoConfig.from_pretrained(path).to_dict()
    return found


def device_of(name: str) -> torch.device:
    """The device of a name."""
    import torch

    try:
        return torch.device(name)
    except RuntimeError:
        raise ConfigError(f"model.device is cpu, cuda, or one of several GPUs, such as cuda:1; got {name!r}") from None


def device_memory(device: str) -> tuple[str, int]:
    """A GPU's name and its bytes."""
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"model.device={device}, and torch sees no GPU here; install its CUDA build, or take cpu")
    found = torch.cuda.get_device_properties(device)
    return str(found.name), int(found.total_memory)


def times_float32(dtype: str) -> float:
    """How many times as long as in float32 this processor takes for a product of matrices: processors that do not
    compute in a narrow format convert each number of it."""
    import torch

    def seconds(kind: torch.dtype) -> float:
        one, other = torch.ones(256, 512, dtype=kind), torch.ones(512, 512, dtype=kind)
        took = []
        for _ in range(4):  # the first prepares
            began = time.perf_counter()
            torch.mm(one, other)
            took.append(time.perf_counter() - began)
        return min(took)

    return seconds(getattr(torch, dtype)) / seconds(torch.float32)


def load(path: str, dtype: str) -> tuple[Any, Any]:
    """Model and tokenizer. A path that looks like a folder must be one: transformers would ask a hub for it."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(path)
    with _loading(path), without_progress_bar():
        return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)), tokenizer


def load_tokenizer(path: str, where: str = "model.path") -> Any:
    """Loads the tokenizer of a model, without the model. `where`: what named the path, for the error."""
    from transformers import AutoTokenizer

    if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
        raise ConfigError(f"{where} {path!r} is not a folder; name a folder with a model of transformers, or a hub id")
    with _loading(path, where):
        return AutoTokenizer.from_pretrained(path)


COMPILER = "inductor"
"""What torch.compile makes blocks with."""
_FLASH = ("flash_attention_3", "flash_attention_2")


def take_kernels(model: Any, kernels: Kernels, device: torch.device) -> bool:
    """Let a model be computed as model.kernels says. Gives whether liger-kernel computes what torch would."""
    if kernels == "compiled":
        for block in model.model.layers:
            block.compile(backend=COMPILER)
    if kernels == "flash":
        _use_flash_attention(model)
    return device.type == "cuda" and kernels in ("auto", "flash") and use_fused_kernels(model)


def _use_flash_attention(model: Any) -> None:
    for name in _FLASH:
        with suppress(ImportError):
            return model.set_attn_implementation(name)  # type: ignore[no-any-return]
    raise ConfigError(
        "model.kernels=flash needs FlashAttention, which is not installed: pip install flash-attn, on a machine with a "
        "GPU; or leave model.kernels out, for attention by torch"
    )


def use_fused_kernels(model: Any) -> bool:
    """Let liger-kernel compute this model's norms, rotary positions and gates, where it is installed and knows the
    model. It changes transformers' own norms and rotary positions for the whole process: for models on GPUs."""
    try:
        liger: Any = importlib.import_module("liger_kernel.transformers.monkey_patch")
    except ModuleNotFoundError:
        return False
    if model.config.model_type not in liger.MODEL_TYPE_TO_APPLY_LIGER_FN:
        return False
    # The head is run in parts by the trainer itself, on the tokens that count.
    off = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    liger._apply_liger_kernel_to_instance(model, rope=True, rms_norm=True, swiglu=True, **off)
    return True


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Reading or writing weights without a line on the terminal."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def token_begins(path: str) -> Callable[[str], list[int]]:
    """What says at which characters of a text its tokens begin, by the tokenizer in a folder or of a hub."""
    tokenizer = _tokenizer(path)
    if not tokenizer.is_fast:
        raise ConfigError(f"tokenizer {path!r} does not say where its tokens are; take one with a tokenizer.json")

    def begins(text: str) -> list[int]:
        told = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [start for start, _ in told["offset_mapping"]]

    return begins


def _tokenizer(path: str) -> Any:
    try:
        return load_tokenizer(path, "tokenizer")
    except ModuleNotFoundError:
        raise ConfigError(f"cutting by tokens needs transformers: {install('train')}") from None


@cache
def last_tokens(path: str) -> Callable[[str, int], str]:
    """What gives the last so many tokens of a text, by the tokenizer in a folder or of a hub."""
    tokenizer = _tokenizer(path)

    def cut(text: str, tokens: int) -> str:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) <= tokens:
            return text
        return str(tokenizer.decode(ids[len(ids) - max(tokens, 0) :])) if tokens > 0 else ""

    return cut


def compiled_template(tokenizer: Any) -> Any:
    """The template as transformers compiles it; None where it cannot be had, as in other versions of transformers."""
    if not isinstance(tokenizer.chat_template, str) or not hasattr(tokenizer, "special_tokens_map"):
        return None
    try:
        from transformers.utils.chat_template_utils import _compile_jinja_template

        template = _compile_jinja_template(tokenizer.chat_template)
        template.globals = dict(template.globals)  # each rendering copies them, and copying a ChainMap is slow
        return template
    except Exception:  # noqa: BLE001 - a private function: it may be gone, or refuse, in any way
        return None
