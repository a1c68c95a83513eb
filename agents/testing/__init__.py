"""What every engine has to do, as one function for engines of your own.

from toolorchestra.agents.testing import check_engine

check_engine(lambda: YourEngine(config, chat), vocabulary=len(tokenizer), folder=tmp_path)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from toolorchestra.agents.engines.base import Engine
from toolorchestra.agents.testing.engine_rules import RULES, EngineUnderTest
from toolorchestra.envs.testing import ConformanceError
from toolorchestra.envs.testing.conformance_rules import BrokenRule


def check_engine(make: Callable[[], Engine], vocabulary: int, folder: Path, rules: Collection[str] = RULES) -> None:
    """Try an engine by every rule, and raise ConformanceError with those that it breaks.

    `make` gives a fresh engine over the same model each time, and each is closed. Prompts are of token ids below
    `vocabulary` and at most 8 tokens long, turns of at most 6 tokens; a few dozen optimiser steps are taken. `folder`
    is where checkpoints are written: an empty one. `rules` are names of RULES, to try some again.
    """
    broken = []
    for number, (name, rule) in enumerate((name, rule) for name, rule in RULES.items() if name in rules):
        place = folder / f"rule-{number}"
        place.mkdir()
        engine = make()
        try:
            rule(EngineUnderTest(engine, make, vocabulary, place))
        except BrokenRule as seen:
            broken.append(f"{name}: {seen}")
        except Exception as err:  # noqa: BLE001 - an engine's own fault has any type
            broken.append(f"{name}: it raised {type(err).__name__}: {err}")
        finally:
            engine.close()
    if broken:
        raise ConformanceError("\n".join(broken))


__all__ = ["RULES", "ConformanceError", "check_engine"]
