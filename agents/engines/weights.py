"""A model's weights: by transformers' names, held to by a KL term, in checkpoints, handed over, and exported."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolorchestra.agents.engines.lora import NAME
from toolorchestra.agents.engines.pretrained import without_progress_bar
from toolorchestra.agents.engines.sharded import like, whole
from toolorchestra.envs.base.errors import ConfigError

HEAD = "lm_head.weight"
SHARD_BYTES = 2 << 30
ENGINE = "engine.pt"
"""What a checkpoint keeps an engine's state in."""
ADAPTER = "adapter_model.safetensors"
SHARD = "5GB"
"""A larger model's weights are written in several files of at most this size."""


def named_weights(
    model: Any, dtype: torch.dtype | None = None, *, adapted: bool = True, copies: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """One weight after the other, with LoRA added in where there is any: a whole second model is never held. Each is
    rounded to `dtype`, which is the model's own where none is named. Not `adapted`: the weights below LoRA. `copies`:
    later training changes none of what is given; what an adapter leaves frozen is no copy."""
    if not hasattr(model, "get_base_model"):
        for name, value in model.state_dict().items():
            yield name, whole(value).detach().to(dtype or value.dtype, copy=copies)
        return
    base = model.get_base_model()
    for name, module in base.named_modules():
        for key, value in module.named_parameters(recurse=False):
            if "base_layer" in name:
                place = name.removesuffix(".base_layer")
                held = whole(value)
                if adapted and key == "weight":
                    held = held + _delta(base.get_submodule(place))
                yield f"{place}.{key}", held.detach().to(dtype or value.dtype)
            elif "lora_" not in name:
                yield f"{name}.{key}", whole(value).detach().to(dtype or value.dtype)


def _delta(layer: Any) -> Tensor:
    """What an adapted layer of PEFT adds to its weight."""
    a, b = (whole(getattr(layer, name)[NAME].weight) for name in ("lora_A", "lora_B"))
    made: Tensor = (b @ a) * layer.scaling[NAME]
    return made


def held_in(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The model on a device, with its weights in a dtype. Its buffers keep theirs: the frequencies of rotary positions
    are rounded by 16 bits so far that late positions are other ones."""
    model = model.to(device)
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


# -- the reference -----------------------------------------------------------------------------------------------------


class ReferenceWeights:
    """The weights of construction, until take() is called. With LoRA they are there anyway: the adapter is switched
    off."""

    def __init__(self, model: Any, *, kept: bool, lora: bool) -> None:
        """Make it before the adapter is put on. `kept`: a full model's weights are copied."""
        self._wanted, self._lora = kept, lora
        self.copy = copy.deepcopy(model).requires_grad_(False).eval() if kept and not lora else None
        """A model apart, where all weights are trained."""
        self._model: Any = None
        self._trained: list[Tensor] = []
        self.taken: list[Tensor] = []
        """The trained weights as take() found them; none where they were still those of construction."""

    def attach(self, model: Any) -> None:
        """The model that is trained, with its adapter."""
        self._model = model
        self._trained = [p for p in model.parameters() if p.requires_grad]

    def take(self) -> None:
        """Makes the present weights the reference."""
        if self._wanted and self._has_moved():
            self.refer_to(self._trained)

    def _has_moved(self) -> bool:
        """Whether the model is another than the reference of construction; an adapter is none while its B are 0."""
        if self.copy is None:
            return any(bool(whole(p).any()) for name, p in self._model.named_parameters() if "lora_B" in name)
        pairs = zip(self.copy.parameters(), self._model.parameters(), strict=True)
        return any(not torch.equal(whole(kept), whole(p)) for kept, p in pairs)

    def refer_to(self, weights: Sequence[Tensor]) -> None:
        """Makes these weights the reference."""
        if self.copy is None:
            self.taken = [like(w.detach(), p).clone() for w, p in zip(weights, self._trained, strict=True)]
            return
        self.taken = [p.detach() for p in self.copy.parameters()]
        for kept, w in zip(self.taken, weights, strict=True):
            kept.copy_(like(w.detach(), kept))

    def ask(self, question: Callable[[Any], Tensor]) -> Tensor:
        """What a function of the model gives with the reference's weights, without gradients."""
        with torch.no_grad():
            if self.copy is not None:
                return question(self.copy)
            if not self._lora:
                raise ConfigError("a KL term needs the starting weights: set reference=True, or train with LoRA")
            if not self.taken:
                with self._model.disable_adapter():
                    return question(self._model)
            exchange(self.taken, self._trained)
            try:
                return question(self._model)
            finally:
                exchange(self.taken, self._trained)


def exchange(others: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Each holds what the other held."""
    with torch.no_grad():
        for other, p in zip(others, weights, strict=bool(others)):
            now = p.detach().clone()
            p.copy_(other)
            other.copy_(now)


# -- on disk -----------------------------------------------------------------------------------------------------------


def names_of(model: Any) -> list[str]:
    """Names of the weights that are trained, in the optimiser's order."""
    return [name for name, p in model.named_parameters() if p.requires_grad]


def read_engine(path: Path, device: Any = "cpu", *, mapped: bool = False) -> dict[str, Any]:
    """What an engine saved into a checkpoint. `mapped`: of a tensor only what is looked at is read, and no memory
    holds all."""
    state: dict[str, Any] = torch.load(path / ENGINE, map_location=device, weights_only=True, mmap=mapped)
    return state


def kept_names(model: Any) -> list[str]:
    """Names of the weights that a checkpoint keeps: an adapter's alone, where there is one."""
    adapted = hasattr(model, "get_base_model")
    return [name for name in model.state_dict() if not adapted or "lora_" in name]


def take_evaluated(path: Path, model: Any) -> bool:
    """Put a checkpoint's weights into a model, those that its run's evaluations were of: the averaged ones where it
    kept any, which is what the answer says, or else the last ones."""
    state = read_engine(path)
    put(state["weights"], model, kept_names(model), path)
    average = state["average"]
    put(average, model, (), path)  # behind the others: a tensor may have two names, and an average has one
    return bool(average)


def exported_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder that `export model` wrote, by the names that a run trains them under."""
    from safetensors.torch import load_file

    adapter = (folder / ADAPTER).is_file()
    found: dict[str, Tensor] = {}
    for part in [folder / ADAPTER] if adapter else sorted(folder.glob("*.safetensors")):
        found |= load_file(part)
    if not found:
        raise ConfigError(f"no *.safetensors in {folder}; name a folder that `toolorchestra export model` wrote")
    if adapter:  # in a file an adapter has no name, in a model it is called "default"
        return {f"{name.removesuffix('.weight')}.default.weight": value for name, value in found.items()}
    return found


def put(weights: Mapping[str, Tensor], model: Any, wanted: Collection[str], where: Path) -> None:
    """Put these weights into a model, by name. Raises ConfigError where they are another model's: where a wanted one is
    missing, or one is unknown to the model or of another shape."""
    own = model.state_dict()
    missing = [name for name in wanted if name not in weights]
    unknown = [name for name in weights if name not in own]
    other = [name for name, value in weights.items() if name in own and own[name].shape != value.shape]
    if missing or unknown or other:
        first = (missing + unknown + other)[0]
        shapes = f", {tuple(weights[first].shape)} there and {tuple(own[first].shape)} here" if first in other else ""
        raise ConfigError(
            f"{where} holds another model: {len(missing)} weights missing, {len(unknown)} unknown, {len(other)} of "
            f"another shape (first: {first}{shapes}); give the configuration it was trained with"
        )
    model.load_state_dict({name: like(value, own[name]) for name, value in weights.items()}, strict=False)


# -- handed over -------------------------------------------------------------------------------------------------------


class Handover:
    """A folder that another process loads weights from: safetensors in parts, and the model's config.json. vLLM says
    nothing of what is not there, and a head that is left out stays as it was: so a hand-over without it is refused."""

    def __init__(self, folder: Path, config: Mapping[str, Any], dtype: torch.dtype | None = None) -> None:
        """`dtype`: what the weights are written in, whatever they come in; None leaves each as it comes."""
        self.folder, self._dtype = folder, dtype
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dict(config), indent=1, default=str), encoding="utf-8")

    def write(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace what is there. Old parts are unlinked first: a process that still maps one keeps what it maps."""
        for old in self.folder.glob("*.safetensors"):
            old.unlink()
        names: set[str] = set()
        part: dict[str, Tensor] = {}
        size = number = 0
        for name, given in weights:
            names.add(name)
            # A copy: tied weights share one storage, which the format refuses.
            value = given.to("cpu", self._dtype or given.dtype, copy=True).contiguous()
            if size and size + value.nbytes > SHARD_BYTES:
                self._save(part, number)
                part, size, number = {}, 0, number + 1
            part[name] = value
            size += value.nbytes
        if HEAD not in names:
            raise ConfigError(
                f"the weights to hand over lack {HEAD} ({len(names)} came): without it the sampler keeps an old head "
                "and says nothing; give all of named_weights(model), a tied head too"
            )
        self._save(part, number)

    def _save(self, part: dict[str, Tensor], number: int) -> None:
        from safetensors.torch import save_file

        save_file(part, self.folder / f"part-{number:05d}.safetensors")


# -- exported ----------------------------------------------------------------------------------------------------------


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that is there when all of it has been written, and not before. One with something in it is refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigError(f"a new or an empty folder expected, but {folder} {what}; name another, or remove it")
    draft = folder.absolute().with_name(f".{folder.absolute().name}.{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(folder.absolute())
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def export_merged(model: Any, tokenizer: Any, folder: Path, dtype: str, told: Any) -> None:
    """The whole model; an adapter is added into the weights, and the model has none afterwards. `told`: what
    generation() gave."""
    merged = dict(named_weights(model, getattr(torch, dtype))) if hasattr(model, "get_base_model") else {}
    model = (model.unload() if merged else model).to(getattr(torch, dtype))
    if merged:
        model.load_state_dict(merged)
    model.config.use_cache = True
    model.generation_config = told
    with without_progress_bar():
        model.save_pretrained(folder, max_shard_size=SHARD)
    tokenizer.save_pretrained(folder)


def export_adapter(model: Any, tokenizer: Any, folder: Path, dtype: str, base: str) -> None:
    """The adapter alone, as peft writes it, which names the model that it belongs on."""
    model.peft_config["default"].base_model_name_or_path = base
    weights = {k: v.to(getattr(torch, dtype)) for k, v in model.state_dict().items() if "lora_" in k}
    # Whether the embedding belongs to it is known, and peft would ask a hub; its page about the model says nothing.
    model.save_pretrained(folder, state_dict=weights, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)


def generation(tokenizer: Any, stop: int, temperature: float) -> Any:
    """What a server takes as its defaults: the distribution that the model was trained and evaluated with, in which
    this token ends a turn."""
    from transformers import GenerationConfig

    make: Any = GenerationConfig
    whole = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    return make(
        eos_token_id=stop,
        pad_token_id=tokenizer.pad_token_id,
        **(whole if temperature else {"do_sample": False}),
    )
