"""A trained model on disk, by its path: a run's folder, one of its checkpoints, or an exported folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import toolorchestra
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig, from_json, settings_from_json
from toolorchestra.agents.policies.base import digest
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import base_model
from toolorchestra.envs.base.errors import AT_LEAST_ONE, NOT_NEGATIVE, ConfigError, require

HOW = "toolorchestra.json"
"""What an exported folder has beside the files of transformers."""


@dataclass(frozen=True)
class TrainedAs:
    """How a model was trained and evaluated, as far as who plays it later has to know."""

    environments: tuple[EnvMix, ...]
    max_tokens: int
    max_context: int
    thinking: bool | None
    evaluation_temperature: float
    base: str
    """The model that was trained further, as an adapter needs it; "" is the tiny one."""
    lora_rank: int
    """The rank of the adapter that is kept; 0: whole weights are kept."""
    lora_alpha: int
    averaged: bool
    """Whether the weights are the running average."""
    step: int
    version: str

    def __post_init__(self) -> None:
        require(self, AT_LEAST_ONE, "max_tokens", "max_context")
        require(self, NOT_NEGATIVE, "lora_rank", "evaluation_temperature")

    @classmethod
    def of(cls, config: TrainConfig, step: int) -> TrainedAs:
        """A run's, at a step."""
        model = config.model
        return cls(
            config.environments,
            config.max_tokens,
            config.max_context,
            model.thinking,
            config.evaluation_temperature,
            base_name(model.path),
            model.lora_rank,
            model.lora_alpha,
            bool(config.average),
            step,
            toolorchestra.__version__,
        )

    def write(self, folder: Path) -> None:
        """Writes this into an exported folder."""
        (folder / HOW).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> TrainedAs:
        """Reads how the model of an exported folder was trained."""
        try:
            made: TrainedAs = settings_from_json(cls, json.loads((folder / HOW).read_bytes()))
        except (OSError, TypeError, ValueError, LookupError, RecursionError) as err:
            raise ConfigError(
                f"{folder / HOW} does not say how the model was trained ({err!s:.200}); write the folder again with "
                "`toolorchestra export model`"
            ) from None
        return made


@dataclass(frozen=True)
class SavedModel:
    """Trained weights on disk: their folder, and how they were trained."""

    path: Path
    """The checkpoint's folder, or the exported one."""
    exported: bool
    how: TrainedAs

    def digest(self) -> str:
        """A name for what is in the files: others' weights have another."""
        if not self.exported:
            return digest((self.path / checkpoint.MANIFEST).read_text(encoding="utf-8"))  # it has their hashes
        parts = [(self.path / HOW).read_text(encoding="utf-8")]
        for file in sorted(self.path.glob("*.safetensors")):
            with file.open("rb") as weights:
                parts += [file.name, hashlib.file_digest(weights, "blake2b").hexdigest()]
        return digest(*parts)


def saved_model(path: Path) -> SavedModel:
    """The trained model that a path names: an exported folder, a run's folder or one of its checkpoints."""
    if (path / HOW).is_file():
        return SavedModel(path, True, TrainedAs.read(path))
    found = checkpoint_of(path)
    step = int(checkpoint.read_state(found, checked=True).get("step", 0))
    return SavedModel(found, False, TrainedAs.of(config_of(found), step))


def checkpoint_of(folder: Path) -> Path:
    """The checkpoint that a folder stands for: itself, or of a run the best one, or the newest where that is gone. It
    is whole."""
    if (folder / checkpoint.STATE).is_file():
        if wrong := checkpoint.check(folder):
            raise ConfigError(f"{folder} is not a whole checkpoint: {wrong}")
        return folder
    newest = checkpoint.latest(folder / "checkpoints")
    if newest is None:
        raise ConfigError(
            f"no whole checkpoint in {str(folder)!r}; name a run's folder (toolorchestra train --out FOLDER), one in "
            "its checkpoints, or a folder that `toolorchestra export model` wrote"
        )
    best = newest.with_name(f"step-{int(checkpoint.read_state(newest, checked=True).get('best_step', -1)):06d}")
    return best if best.is_dir() and not checkpoint.check(best) else newest


def config_of(path: Path) -> TrainConfig:
    """The settings of a checkpoint's run. It is whole, as what checkpoint_of() gives."""
    try:
        return from_json(checkpoint.read_state(path, checked=True).get("config"))
    except (TypeError, ValueError, LookupError) as err:
        raise ConfigError(f"{path} was written with settings that this version does not read ({err!s:.200})") from None


def base_name(path: str) -> str:
    """A model's folder by its whole path, so that it is found from anywhere; a hub's name as it is."""
    found = Path(path).expanduser()
    return str(found.resolve()) if path and found.is_dir() else path


def check_can_start(saved: SavedModel, model: ModelConfig) -> None:
    """Refuse to start a run from weights that are not what it trains: an adapter from an adapter of the same scale on
    the same model, all weights from all weights."""
    how, where = saved.how, f"init_from: {saved.path} holds"
    if how.lora_rank and not model.lora_rank:
        raise ConfigError(
            f"{where} an adapter of rank {how.lora_rank}, and this run trains all weights; set model.lora_rank, or "
            "merge it with `toolorchestra export model` and name that folder with model.path in place of init_from"
        )
    if model.lora_rank and not how.lora_rank:
        raise ConfigError(
            f"{where} all weights of a model, and this run trains an adapter; name a folder that `toolorchestra "
            "export model` wrote with model.path in place of init_from, or set model.lora_rank=0"
        )
    mine = (model.lora_rank, model.lora_alpha, base_name(model.path))
    theirs = (how.lora_rank, how.lora_alpha, how.base)
    if model.lora_rank and mine != theirs:
        said = [f"rank {rank} and alpha {alpha} on {base or 'the tiny model'}" for rank, alpha, base in (theirs, mine)]
        raise ConfigError(f"{where} an adapter of {said[0]}, and this run trains one of {said[1]}; give the same ones")


# -- exporting one -----------------------------------------------------------------------------------------------------


def export_model(path: Path, folder: Path, *, adapter: bool = False, dtype: str = "") -> TrainedAs:
    """Write what a run has trained as a folder that transformers, peft and vLLM load. `dtype` "" takes that of the
    run's weights. Gives what was written."""
    saved = saved_model(path)
    if saved.exported:
        raise ConfigError(f"{path} is such a folder already; name a run's folder, or a checkpoint")
    config = config_of(saved.path)
    wanted = config.model
    if adapter and not (wanted.lora_rank and wanted.path):
        why = "an adapter on the tiny model, which is no folder that an adapter could name"
        raise ConfigError(
            f"{path} trained {why if wanted.lora_rank else 'all weights, so there is no adapter to write'}; leave "
            "adapter=True out",
            command_line="the same without --adapter",
        )
    model, chat = base_model(config)  # says what is missing, before anything is written
    from toolorchestra.agents.engines import weights as files
    from toolorchestra.agents.engines.lora import with_lora

    if wanted.lora_rank:
        model = with_lora(model, wanted, config.seed)
    how = replace(saved.how, averaged=files.take_evaluated(saved.path, model))
    with files.new_folder(folder) as draft:
        if adapter:
            files.export_adapter(model, chat.tokenizer, draft, dtype or "float32", how.base)
        else:
            how = replace(how, base="", lora_rank=0, lora_alpha=0)
            told = files.generation(chat.tokenizer, chat.stop, config.evaluation_temperature)
            files.export_merged(model, chat.tokenizer, draft, dtype or wanted.dtype, told)
        how.write(draft)
    return how
