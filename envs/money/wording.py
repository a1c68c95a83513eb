"""Prices as an agent reads them: the one place that writes a price into text. What is shown is what is billed."""

from __future__ import annotations

from collections.abc import Sequence

from toolorchestra.envs.money.prices import Price, PriceSheet, plain


def in_words(price: Price) -> str:
    """A price: "$1.25 in ($0.125 cached), $10 out per million tokens"."""
    if price.free:
        return f"free ({price.free})"
    parts = []
    if price.pico_usd_per_token is not None:
        into, cached, out, reasoning = (f"${plain(pico, 6)}" for pico in price.pico_usd_per_token)
        into += f" in ({cached} cached)" if cached != into else " in"
        out += f" out ({reasoning} reasoning)" if reasoning != out else " out"
        parts.append(f"{into}, {out} per million tokens")
    if price.nano_usd_per_unit is not None:
        parts.append(f"${plain(price.nano_usd_per_unit, 9)} each")
    if price.nano_usd_per_second is not None:
        parts.append(f"${plain(price.nano_usd_per_second, 9)} per second")
    return ", ".join(parts)


def item_prices(sheet: PriceSheet, items: Sequence[str]) -> str:
    """Several items, each with its name: "retriever: $0.001 each; sandbox: $0.0001 per second"."""
    return "; ".join(f"{item}: {in_words(sheet.price(item))}" for item in items)


def tool_price(sheet: PriceSheet, items: Sequence[str]) -> str:
    """What a tool of a user's own bills: one item goes without its name."""
    shown = in_words(sheet.price(items[0])) if len(items) == 1 else item_prices(sheet, items)
    return f"Price: {shown}."


def offer_line(sheet: PriceSheet, alias: str, item: str, note: str, time: str = "") -> str:
    """A model on offer: "- search-1: strong; $1.25 in, $10 out per million tokens; about 8 s a call"."""
    return f"- {alias}: " + "; ".join(filter(None, (note, in_words(sheet.price(item)), time)))


def brief_offer(sheet: PriceSheet, alias: str, item: str, seconds: float) -> str:
    """A model on offer in three words: alias, dollars per million output tokens (two digits), seconds."""
    return f"{alias} {output_price(sheet, item)} {seconds:g}"


def output_price(sheet: PriceSheet, item: str) -> str:
    """Dollars per million output tokens to two digits; a price that is not by the token is told in full."""
    price = sheet.price(item)
    rate = price.pico_usd_per_token
    return f"{float(f'{rate[2] / 1_000_000:.2g}'):g}" if rate else in_words(price)
