"""What users write is read by one reader, and every error of pydantic's is said in this suite's words."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pytest

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import ConfigError, PriceError


class Window(NamedTuple):
    width: int = 1
    height: int = 1


@dataclass(frozen=True)
class Part:
    name: str
    kind: Literal["door", "wall"] = "wall"
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a part needs a name")


@dataclass(frozen=True)
class House:
    parts: tuple[Part, ...]
    address: str | Window = ""
    level: int = 0
    area: float = 1.0
    lived_in: bool | None = None
    rooms: Mapping[Literal["bath", "kitchen"], int] = field(default_factory=dict)
    built: str = ""


def refusal(**data: Any) -> str:
    with pytest.raises(PriceError) as caught:
        shapes.read(House, {"parts": [], **data}, "a.toml", PriceError, level=3)
    return str(caught.value)


def test_what_fits_is_made() -> None:
    data = {"parts": [{"name": "a", "window": {"width": 3}}], "area": 2, "rooms": {"bath": 1}, "address": {"height": 2}}
    made = shapes.read(House, {**data, "built": datetime.date(2026, 1, 2)}, "here", level=3)
    assert made == House((Part("a", window=Window(3)),), Window(1, 2), 3, 2.0, None, {"bath": 1}, "2026-01-02")
    assert shapes.read(House, {"parts": (), "address": Decimal("1.50")}, "here").address == "1.50"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"parts": 5}, "a.toml: parts: a list expected, got 5"),
        ({"parts": [{}]}, "a.toml: parts[0]: name is missing; the keys are name, kind, window"),
        ({"parts": [{"name": "a"}, {"name": ""}]}, "a.toml: parts[1]: a part needs a name"),
        ({"parts": [{"nam": "a"}]}, "a.toml: parts[0]: no key 'nam'; valid: kind, name, window. Did you mean 'name'?"),
        ({"parts": [{"name": "a", "kind": "dor"}]},
         "a.toml: parts[0]: no kind 'dor'; valid: door, wall. Did you mean 'door'?"),
        ({"parts": [{"name": "a", "window": 3}]},
         "a.toml: parts[0].window: keys with values (width, height) expected, got 3"),
        ({"parts": [{"name": "a", "window": {"widht": 3}}]},
         "a.toml: parts[0].window: no key 'widht'; valid: height, width. Did you mean 'width'?"),
        ({"address": 5}, "a.toml: address: a text or keys with values (width, height) expected, got 5"),
        ({"address": {"width": "wide"}}, "a.toml: address.width: a whole number expected, got 'wide'"),
        ({"area": "3"}, "a.toml: area: a number expected, got '3'"),
        ({"area": math.nan}, "a.toml: area: a finite number expected, got nan"),
        ({"area": "http://me:hidden@there/path"}, "a.toml: area: a number expected, got 'http://there/path'"),
        ({"rooms": {"baht": 1}}, "a.toml: rooms: no key 'baht'; valid: bath, kitchen. Did you mean 'bath'?"),
        ({"rooms": "http://me:hidden@there"}, "a.toml: rooms: keys with values expected, got a text"),
        ({"levels": 1}, "a.toml: no key 'levels'; valid: address, area, built, lived_in, parts, rooms."),
    ],
)  # fmt: skip
def test_an_error_says_where_what_was_expected_and_what_came(data: dict[str, Any], says: str) -> None:
    assert refusal(**data) == says


def test_no_mapping_at_all_and_no_text() -> None:
    assert refusal(built="\ud800").startswith("a.toml: it cannot be read: ")
    with pytest.raises(ConfigError, match=r"^here: keys with values \(name, kind, window\) expected, got a list$"):
        shapes.read(Part, [1], "here")


def test_packaged_files_are_read_without_pydantic() -> None:
    code = (
        "import sys, gymnasium as gym, toolorchestra\n"
        "for name in ('HLE-v0', 'FRAMES-v0'): gym.make(f'ToolOrchestra/{name}', preference='sampled').reset(seed=1)\n"
        "print([m for m in ('pydantic', 'pydantic_core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
