"""Tools of one's own: made from functions, kept by name, priced by the sheet that bills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from toolorchestra.envs.base.errors import ConfigError, PriceError
from toolorchestra.envs.money.prices import Price, PriceSheet
from toolorchestra.envs.tools import Toolbox, tool

SHEET = PriceSheet.read(
    {
        "id": "mine",
        "date": "2026-11-01",
        "source": "invented",
        "prices": {"tracking": {"usd_per_unit": 0.01}, "phone": {"usd_per_second": 0.005}, "log": {"free": "our own"}},
    },
    "mine",
)


@tool
def note(text: str) -> str:
    """Write it down."""
    return text


@tool(bills=("tracking",))
def track() -> str:
    """Ask the service."""
    return "?"


@tool(bills=("phone", "log"), keyed_by="whom")
def call(whom: Literal["depot", "carrier"]) -> str:
    """Call somebody."""
    return whom


BOX = Toolbox([note, track, call])


def test_a_decorated_function_says_what_it_bills_and_is_counted_under() -> None:
    assert (note.bills, track.bills, call.bills) == ((), ("tracking",), ("phone", "log"))
    assert BOX.keys == ("note", "track", "depot", "carrier")
    assert call.key({"whom": "depot"}) == "depot"


def odd(text: str) -> str:
    return text


def spared(text: Literal["a", "b"] = "a") -> str:
    return text


def counted(text: Literal[1, 2]) -> str:
    return str(text)


@pytest.mark.parametrize("function", [odd, spared, counted])
def test_a_key_needs_choices_of_text_in_every_call(function: Callable[..., str]) -> None:
    said = f"tool '{function.__name__}' is keyed_by 'text', which is no required argument with choices of text"
    with pytest.raises(ConfigError, match=said):
        tool(keyed_by="text")(function)


def test_the_price_that_is_shown_is_the_sheets() -> None:
    shown = {t.name: t.description for t in BOX.priced(SHEET)}
    assert shown == {
        "note": "Write it down.",
        "track": "Ask the service. Price: $0.01 each.",
        "call": "Call somebody. Price: phone: $0.005 per second; log: free (our own).",
    }
    costlier = PriceSheet("other", "2026-11-01", "invented", {**SHEET.prices, "tracking": Price(nano_usd_per_unit=2)})
    assert BOX.priced(costlier)["track"].description == "Ask the service. Price: $0.000000002 each."
    assert BOX["track"].description == "Ask the service."


def test_a_sheet_that_cannot_bill_a_tool_is_refused() -> None:
    lacking = PriceSheet("lacking", "2026-11-01", "invented", {"log": SHEET.prices["log"]})
    with pytest.raises(PriceError, match=r"lacking cannot bill \['phone', 'tracking'\]"):
        BOX.priced(lacking)


def test_some_of_the_tools() -> None:
    assert BOX.only(None) is BOX
    assert [t.name for t in BOX.only(["call", "note"])] == ["note", "call"]
    with pytest.raises(ConfigError, match="no tool 'phone'; valid: call, note, track"):
        BOX.only(["note", "phone"])
