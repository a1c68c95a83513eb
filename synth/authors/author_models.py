"""The model behind `--model`: an OpenAI-compatible server's, or the scripted stand-in."""

from __future__ import annotations

import importlib
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, install, no_such
from toolorchestra.envs.models import ChatModel, ChatRequest
from toolorchestra.envs.models.scripted import ScriptedModel
from toolorchestra.envs.money.prices import PriceSheet, load_sheet
from toolorchestra.synth.authors import scripted_author

SCHEMES = ("openai", "standin")
STANDIN_PRICED_AS = "gpt-5"
_OPENAI = {"endpoints": {"openai": {"base_url": "https://api.openai.com/v1", "key_env": "OPENAI_API_KEY"}}}
_ANY = {
    "models": {
        "*": {
            "endpoints": ["openai"],
            "output_key": "max_completion_tokens",
            "output_tokens": 32_000,
            "context_tokens": 272_000,
            "deadline_seconds": 600.0,
            "patience_seconds": 900.0,
        }
    }
}
"""A part such as the tools of a bank has 15,000 tokens, and what a model thinks before counts too."""


class Backend(NamedTuple):
    """A model, the name that it is asked and billed under, and the sheet that has its price."""

    models: ChatModel
    model: str
    sheet: PriceSheet


def load(
    named: str, prices: str, price_as: str = "", endpoints: Path | None = None, *, silent: bool = False
) -> Backend:
    """`openai:NAME` or `standin:SPEC`. `price_as` bills it as another item of the sheet; a silent one is never asked,
    since a cassette answers."""
    scheme, _, name = named.partition(":")
    if scheme not in SCHEMES or not name:
        raise ConfigError(
            f"a model is written SCHEME:NAME, got {named!r:.80}; {no_such('scheme', scheme, SCHEMES)}",
            command_line="--model openai:NAME",
        )
    sheet = load_sheet(prices)
    if scheme == "standin":
        model = f"{scripted_author.NAME}:{name}"
        return Backend(
            scripted_author.model(name, scripted_author.USUAL), model, _as(sheet, model, price_as or STANDIN_PRICED_AS)
        )
    models = ScriptedModel(_nobody) if silent else _served(endpoints)
    return Backend(models, name, _as(sheet, name, price_as) if price_as else sheet)


def _nobody(_request: ChatRequest) -> str:
    raise ConfigError("a model was asked although a cassette answers; record the cassette anew")


def _as(sheet: PriceSheet, model: str, item: str) -> PriceSheet:
    return replace(sheet, prices={**sheet.prices, model: sheet.price(item)})


def _served(endpoints: Path | None) -> ChatModel:
    try:
        rows: Any = tomllib.loads(endpoints.read_text(encoding="utf-8")) if endpoints else {**_OPENAI, **_ANY}
        files: Any = importlib.import_module("toolorchestra.envs.models.endpoints")
        backend: Any = importlib.import_module("toolorchestra.envs.models.openai")
    except ModuleNotFoundError as err:
        raise ConfigError(
            f"models behind servers need {err.name}, which is not there: {install('models')}. Without it "
            "a spec makes a domain, and standin:public_library stands in for a model",
            command_line="synth make SPEC, or --model standin:public_library",
        ) from None
    except (OSError, tomllib.TOMLDecodeError) as err:
        raise ConfigError(
            f"{endpoints}: a TOML file of servers and models expected, got {err}; mend it or name another",
            command_line="--backends FILE",
        ) from None
    made: ChatModel = backend.OpenAiModels(files.Endpoints.read(rows, str(endpoints or "openai")))
    return made
