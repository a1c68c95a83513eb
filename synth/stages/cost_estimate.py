"""What a run with a model author will cost at least and at most, before a call is made: `--dry-run`."""

from __future__ import annotations

from typing import NamedTuple

from toolorchestra.envs.money.prices import NANO, PriceSheet, Tokens, Usage
from toolorchestra.synth.authors import PART_OF, PartRequest, author_prompts
from toolorchestra.synth.authors.model_author import DOUBTED
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.storage.paid_calls import AUTHOR

CHARACTERS_A_TOKEN = 4
TURNS = 16
"""Of an episode that a model solver plays."""


class Estimate(NamedTuple):
    """How many calls of a model a run will make, and how many dollars they will cost."""

    least_calls: int
    most_calls: int
    """How many calls there are when every round of repair is needed."""
    least_usd: float
    most_usd: float

    def text(self) -> str:
        """The estimate in one line of text."""
        return (
            f"estimated from a shipped example: {self.least_calls} to {self.most_calls} calls,"
            f" {self.least_usd:.4f} to {self.most_usd:.4f} $ (tokens counted as characters / {CHARACTERS_A_TOKEN})"
        )


def author(domain: str, model: str, sheet: PriceSheet, settings: SynthesisSettings, batches: int) -> Estimate:
    """Of the parts, their repair, the second reader and the rounds of harder intents."""
    example = specs.texts(specs.SHIPPED / "extra" / f"{author_prompts.EXAMPLE}.yaml")
    parts: dict[str, str] = {}
    least_calls = most_calls = least = most = 0
    for stage, name in PART_OF.items():
        asked = author_prompts.author(domain, PartRequest(stage, parts))
        told = sum(len(str(message["content"])) for message in asked)
        calls = batches if stage == "intents" else 1
        first = calls * _nano(sheet, model, told, len(example[name]))
        again = settings.rounds * _nano(sheet, model, told + len(example[name]), len(example[name]))
        parts[name] = example[name]
        doubt = _nano(sheet, model, sum(map(len, parts.values())), 100) if name in DOUBTED else 0
        least, most = least + first + doubt, most + first + again + (settings.rounds + 1) * doubt
        least_calls += calls + bool(doubt)
        most_calls += calls + settings.rounds + (settings.rounds + 1) * bool(doubt)
    harder = _nano(sheet, model, sum(map(len, example.values())), 4000) * settings.evolve
    return Estimate(
        least_calls + settings.evolve, most_calls + settings.evolve, (least + harder) / NANO, (most + harder) / NANO
    )


def solver(model: str, sheet: PriceSheet, settings: SynthesisSettings) -> Estimate:
    """Of a model that tries every draft k times."""
    calls = round(settings.tasks * settings.oversample) * settings.band.k * TURNS
    usd = calls * _nano(sheet, model, 20_000, 300) / NANO
    return Estimate(calls, calls, usd, usd)


def _nano(sheet: PriceSheet, model: str, told: int, said: int) -> int:
    tokens = Tokens(input=told // CHARACTERS_A_TOKEN, output=said // CHARACTERS_A_TOKEN)
    return sheet.charge(Usage(model, AUTHOR, tokens)).nano_usd
