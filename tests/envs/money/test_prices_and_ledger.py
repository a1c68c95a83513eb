"""Owns the checks of money: price sheets, what they say and bill, the ledger's sums, repricing and the spend cap."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.base.errors import PriceError, SpendCapReached
from toolorchestra.envs.money.ledger import Ledger
from toolorchestra.envs.money.prices import (
    CLASSES,
    NANO,
    NO_TOKENS,
    REWARDED_ROLES,
    ROLES,
    Price,
    PriceSheet,
    Tokens,
    Usage,
    in_words,
    load_sheet,
)
from toolorchestra.envs.money.spend_cap import SpendCap

PAPER, UNSEEN = load_sheet("paper-2025-11"), load_sheet("unseen-2026-01")
MILLION = 1_000_000

PAPER_TABLE = {
    "gpt-5": (1.25, 10),
    "gpt-5-mini": (0.25, 2),
    "o3-mini": (1.1, 4.4),
    "qwen3-32b": (0.8, 0.8),
    "qwen2.5-coder-32b": (0.8, 0.8),
    "qwen2.5-math-72b": (0.9, 0.9),
    "llama-3.3-70b": (0.9, 0.9),
    "nemotron-ultra-253b": (0.9, 0.9),
    "nemotron-super-49b": (0.9, 0.9),
    "qwen3-235b": (0.9, 0.9),
    "qwen2.5-math-7b": (0.2, 0.2),
    "qwen3-8b": (0.2, 0.2),
    "claude-opus-4.1": (15, 75),
    "claude-sonnet-4": (3, 15),
}


def bill(sheet: PriceSheet, item: str, **used: Any) -> int:
    return sheet.charge(Usage(item, "tool", **used)).nano_usd


def refusal(make: Callable[[], object], kind: type[Exception] = PriceError) -> str:
    with pytest.raises(kind) as caught:
        make()
    assert type(caught.value) is kind
    return str(caught.value)


def test_the_papers_table() -> None:
    for item, (into, out) in PAPER_TABLE.items():
        charge = PAPER.charge(Usage(item, "expert", Tokens(input=MILLION)))
        assert (charge.usd, charge.nano_usd) == (into, round(into * NANO))
        assert PAPER.charge(Usage(item, "expert", Tokens(output=MILLION))).usd == out
        assert PAPER.charge(Usage(item, "expert", Tokens(cached=MILLION))).usd == into
        assert PAPER.charge(Usage(item, "expert", Tokens(reasoning=MILLION))).usd == out
        assert PAPER.charge(Usage(item, "expert", Tokens(1, 1, 1, 1))).nano_usd == round(2000 * (into + out))


def priced(**row: Any) -> Price:
    return Price.read(row, "s: m")


def test_a_charge_is_rounded_once_half_up() -> None:
    fine = priced(usd_per_mtok={"input": 0.0005, "output": 0.000001})
    assert [fine.nano_usd(Usage("m", "tool", Tokens(n))) for n in range(5)] == [0, 1, 1, 2, 2]
    assert [fine.nano_usd(Usage("m", "tool", Tokens(output=n))) for n in (0, 499, 500, 1499, 1500)] == [0, 0, 1, 1, 2]
    assert fine.nano_usd(Usage("m", "tool", Tokens(1, 0, 0, 0))) == 1
    assert fine.nano_usd(Usage("m", "tool", Tokens(1, 1, 0, 0))) == 1
    slow = priced(usd_per_second=0.000000001)
    assert [slow.nano_usd(Usage("m", "tool", seconds=s)) for s in (0.0, 0.49, 0.5, 1.49, 1.5)] == [0, 0, 1, 1, 2]
    both = priced(usd_per_mtok={"input": 0.0004, "output": 1}, usd_per_second=0.000000001)
    assert both.nano_usd(Usage("m", "tool", Tokens(1), seconds=0.4)) == 1


def test_what_is_not_sold_that_way_is_refused() -> None:
    assert refusal(lambda: bill(PAPER, "tavily/search", tokens=Tokens(1))) == (
        "'tavily/search' was used by the token, but the sheet has no price per token for it"
    )
    assert refusal(lambda: bill(PAPER, "gpt-5", units=1)) == (
        "'gpt-5' was used by the unit, but the sheet has no price per unit for it"
    )
    assert bill(PAPER, "gpt-5", seconds=96.0) == 0
    assert bill(PAPER, "tavily/search") == 0


@pytest.mark.parametrize(
    "usage",
    [
        Usage("gpt-5", "expert", Tokens(10, 0, -1)),
        Usage("tavily/search", "tool", units=-1),
        Usage("gpt-5", "expert", seconds=float("nan")),
        Usage("gpt-5", "expert", Tokens(1.5)),  # type: ignore[arg-type]
        Usage("gpt-5", "expert", Tokens(output=True)),
        Usage("gpt-5", "expert", seconds="0.1"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_count_is_refused(usage: Usage) -> None:
    said = refusal(lambda: PAPER.charge(usage))
    assert re.search(r"a usage counts from 0 up|counted in whole numbers|seconds are a number from 0 up", said)


@pytest.mark.parametrize("kind", [np.int8, np.uint64])
def test_counts_from_arrays_are_billed_like_pythons_own(kind: Any) -> None:
    most = min(int(np.iinfo(kind).max), 10**13)
    charge = PAPER.charge(Usage("gpt-5", "expert", Tokens(kind(most), kind(0), kind(most), kind(0))))
    assert charge == PAPER.charge(Usage("gpt-5", "expert", Tokens(most, 0, most, 0)))
    assert json.loads(json.dumps(charge.usage)) == ["gpt-5", "expert", [most, 0, most, 0], 0, 0.0, False, False, None]
    assert bill(PAPER, "tavily/search", units=kind(100)) == 100 * NANO // 100
    assert type(PAPER.charge(Usage("code-interpreter", "tool", seconds=np.float32(0.5))).seconds) is float


def test_models_have_to_be_sold_by_the_token() -> None:
    rows = {"m": {"usd_per_unit": 1}, "ours": {"free": "runs at home"}}
    sheet = PriceSheet.read({"id": "s", "date": "d", "source": "t", "prices": rows}, "s")
    assert refusal(lambda: sheet.require_tokens(["ours", "m"], "tool 'x'")) == (
        "tool 'x': price sheet s sells m by the unit alone; give it usd_per_mtok"
    )
    assert "cannot bill ['n']" in refusal(lambda: sheet.require_tokens(["n"], "tool 'x'"))


BAD_ROWS: list[tuple[Any, list[str]]] = [
    ({"usd_per_mtok": {"input": -1, "output": 1}}, [".usd_per_mtok.input: a price is finite and not negative, got -1"]),
    ({"usd_per_mtok": {"input": 1}}, ["usd_per_mtok: output is missing; the keys are input, output, cached, reas"]),
    ({"usd_per_mtok": {"input": "cheap", "output": 1}}, ["usd_per_mtok.input: a price is a number, got 'cheap'"]),
    ({"usd_per_mtok": {"input": True, "output": 1}}, ["usd_per_mtok.input: a number or a text expected, got True"]),
    ({"usd_per_mtok": {"input": 0.0000001, "output": 1}}, ["usd_per_mtok.input", "finer than", "round it to 0.000001"]),
    ({"usd_per_mtok": {"input": 1, "output": 1, "thought": 1}}, ["no key 'thought'; valid: cached, input, output"]),
    ({"usd_per_unit": 1e-10}, ["usd_per_unit", "finer than", "1E-9"]),
    ({"usd_per_second": "Infinity"}, ["usd_per_second", "finite"]),
    ({}, ["costs nothing", "say why", '"free"']),
    ({"usd_per_mtok": {"input": 0, "output": 0}}, ["costs nothing", "say why"]),
    ({"free": "on us", "usd_per_unit": 1}, ["is free (on us) and has a price"]),
]


@pytest.mark.parametrize(("row", "said"), BAD_ROWS, ids=str)
def test_bad_rows_are_price_errors_that_name_the_item(row: Any, said: list[str]) -> None:
    data = {"id": "s", "date": "2026-01-01", "source": "test", "prices": {"good": {"free": "x"}, "my-model": row}}
    message = refusal(lambda: PriceSheet.read(data, "mine.json"))
    assert message.startswith("mine.json: prices.my-model")
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prices": [1]}, "prices: keys with values expected, got a list"),
        ({"dated": "2026-01-01"}, "no key 'dated'; valid: date, id, prices, source. Did you mean 'date'?"),
    ],
)
def test_bad_sheets(change: Mapping[str, Any], said: str) -> None:
    data = {"id": "s", "date": "2026-01-01", "source": "test", "prices": {}, **change}
    message = refusal(lambda: PriceSheet.read(data, "mine.json"))
    assert message.startswith("mine.json: ")
    assert said in message


def written(path: Path, prices: Mapping[str, Any], name: str = "mine") -> Path:
    path.write_text(json.dumps({"id": name, "date": "2026-02-03", "source": "test", "prices": prices}))
    return path


def test_a_sheet_by_its_path(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.json", {"m": {"usd_per_mtok": {"input": 0.1, "output": 0.3}}})
    assert bill(load_sheet(str(path)), "m", tokens=Tokens(MILLION, 0, MILLION)) == 400_000_000
    written(path, {"m": {"usd_per_mtok": {"input": 1, "output": 3}}})
    assert bill(load_sheet(path), "m", tokens=Tokens(MILLION)) == NANO


def test_a_file_may_not_price_what_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"id": "s", "date": "d", "source": "t", "prices": {"m": {"usd_per_unit": NaN}}}')
    assert "m.usd_per_unit: a finite number" in refusal(lambda: load_sheet(path))
    path.write_text("{not json")
    assert refusal(lambda: load_sheet(path)).startswith(f"price sheet {path} is not valid JSON: ")
    path.write_text('{"id": "mine",}')
    assert refusal(lambda: load_sheet(path)).endswith("; a comma too many before it?")
    rows = '"m": {"usd_per_unit": 1}, "m": {"usd_per_unit": 2}'
    path.write_text(f'{{"id": "s", "date": "d", "source": "t", "prices": {{{rows}}}}}')
    assert "'m' stands there twice; take one of them out" in refusal(lambda: load_sheet(path))


@pytest.mark.parametrize("price", ["1e999999", "1000000000.5", "9" * 4000])
def test_a_price_has_a_bound_and_is_refused_at_once(tmp_path: Path, price: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(f'{{"id": "s", "date": "d", "source": "t", "prices": {{"m": {{"usd_per_unit": {price}}}}}}}')
    started = time.process_time()
    said = refusal(lambda: load_sheet(path))
    assert time.process_time() - started < 0.5
    assert any(part in said for part in ("a price is at most 1000000000 $", "a price is a number", "a finite number"))
    assert len(said) < 300
    path.write_text(path.read_text().replace(price, "1000000000"))
    assert load_sheet(path).prices["m"]


_MTOK = st.decimals(0, 1000, places=6).map(lambda d: d.normalize())
_RATES = st.decimals(0, 1000, places=9).map(lambda d: d.normalize())
_ROWS = st.one_of(
    st.fixed_dictionaries({"usd_per_mtok": st.fixed_dictionaries({"input": _MTOK, "output": _MTOK})}),
    st.fixed_dictionaries({"usd_per_mtok": st.fixed_dictionaries(dict.fromkeys(CLASSES, _MTOK))}),
    st.fixed_dictionaries({"usd_per_unit": _RATES}),
    st.fixed_dictionaries({"usd_per_second": _RATES}),
    st.fixed_dictionaries({"usd_per_unit": _RATES, "usd_per_second": _RATES}),
).filter(lambda row: any(v for r in row.values() for v in (r.values() if isinstance(r, dict) else [r])))


_SPOKEN = re.compile(
    r"(?:\$([\d.]+) in(?: \(\$([\d.]+) cached\))?, \$([\d.]+) out(?: \(\$([\d.]+) reasoning\))? per million tokens)?"
    r"(?:, )?(?:\$([\d.]+) each)?(?:, )?(?:\$([\d.]+) per second)?"
)


def heard(price: Price) -> list[Fraction | None]:
    """What a reader of the description takes the prices to be: input, cached, output, reasoning, a unit, a second."""
    found = _SPOKEN.fullmatch(in_words(price))
    assert found, in_words(price)
    into, cached, out, reasoning, unit, second = found.groups()
    amounts = (into, cached or into, out, reasoning or out, unit, second)
    return [None if amount is None else Fraction(amount) for amount in amounts]


USED_ONE = (
    *(Usage("m", "tool", Tokens(**{name: MILLION})) for name in CLASSES),
    Usage("m", "tool", units=1),
    Usage("m", "tool", seconds=1.0),
)


@given(_ROWS)
def test_spoken_prices_are_the_billed_ones(row: dict[str, Any]) -> None:
    price = Price.read(row, "m")
    amounts = heard(price)
    sold = [*["usd_per_mtok" in row] * 4, "usd_per_unit" in row, "usd_per_second" in row]
    assert [amount is not None for amount in amounts] == sold
    for amount, usage in zip(amounts, USED_ONE, strict=True):
        if amount is not None:
            assert Fraction(price.nano_usd(usage), NANO) == amount, in_words(price)


def test_with_factors_scales_the_named_items_alone() -> None:
    sheet = PAPER.with_factors({"gpt-5": Decimal("1.4"), "tavily/search": Decimal("0.5")}, "paper*x")
    assert sheet.sheet_id == "paper*x"
    assert sheet.source.endswith("; scaled")
    assert in_words(sheet.price("gpt-5")) == "$1.75 in, $14 out per million tokens"
    assert bill(sheet, "gpt-5", tokens=Tokens(MILLION)) == 1_750_000_000
    assert in_words(sheet.price("tavily/search")) == "$0.005 each"
    changed = {item for item in PAPER.prices if sheet.prices[item] != PAPER.prices[item]}
    assert changed == {"gpt-5", "tavily/search"}
    assert in_words(PAPER.price("gpt-5")) == "$1.25 in, $10 out per million tokens"
    assert PAPER.with_factors({"local-index": Decimal(2)}, "x").prices == PAPER.prices
    assert priced(usd_per_unit="0.000000001").times(Decimal("0.3")).nano_usd_per_unit == 1  # never billed as nothing


def usages(items: list[str], most: int = 10**7) -> st.SearchStrategy[Usage]:
    def used(item: str) -> st.SearchStrategy[Usage]:
        price = PAPER.prices[item]
        count = st.integers(0, most)
        tokens = st.builds(Tokens, count, count, count, count)
        return st.builds(
            Usage,
            st.just(item),
            st.sampled_from(ROLES),
            tokens if price.pico_usd_per_token is not None or price.free else st.just(NO_TOKENS),
            st.integers(0, 100) if price.nano_usd_per_unit is not None else st.just(0),
            st.floats(0, 1000),
            st.booleans(),
            told_nano_usd=st.none(),
        )

    return st.sampled_from(items).flatmap(used)


_USAGES = st.lists(st.tuples(usages(sorted(PAPER.prices)), st.sampled_from(["", "search-1", "answer-1"])), max_size=12)


def owed(sheet: PriceSheet, usage: Usage) -> int:
    """The bill in nano-dollars by exact fractions, rounded half up at the end."""
    price = sheet.prices[usage.item]
    if price.free:
        return 0
    rates = price.pico_usd_per_token or (0, 0, 0, 0)
    usd = sum((Fraction(rate, 10**12) * used for rate, used in zip(rates, usage.tokens, strict=True)), Fraction())
    usd += Fraction(price.nano_usd_per_unit or 0, NANO) * usage.units
    usd += Fraction(price.nano_usd_per_second or 0, NANO) * Fraction(round(usage.seconds * NANO), NANO)
    return math.floor(usd * NANO + Fraction(1, 2))


def filled(sheet: PriceSheet, used: list[tuple[Usage, str]]) -> Ledger:
    ledger = Ledger()
    for usage, key in used:
        ledger.add(sheet.charge(usage, key))
    return ledger


@given(_USAGES, st.randoms(use_true_random=False))
def test_sums_are_exact_in_any_order(used: list[tuple[Usage, str]], rng: Any) -> None:
    ledger = filled(PAPER, used)
    bills = [owed(PAPER, usage) for usage, _ in used]
    assert [charge.nano_usd for charge in ledger] == bills
    assert ledger.nano_usd == sum(bills)
    assert ledger.usd == sum(bills) / NANO
    assert len(ledger) == len(used)
    by_role = {role: sum(b for b, (u, _) in zip(bills, used, strict=True) if u.role == role) for role in ROLES}
    assert {role: ledger.nano_usd_of([role]) for role in ROLES} == by_role
    assert ledger.nano_usd_of(ROLES) == sum(bills)
    assert ledger.nano_usd_of(REWARDED_ROLES) == sum(by_role[role] for role in REWARDED_ROLES)
    assert ledger.usd_by_role() == {
        role: by_role[role] / NANO for role in ROLES if any(u.role == role for u, _ in used)
    }
    assert ledger.tokens() == Tokens(*(sum(u.tokens[i] for u, _ in used) for i in range(4)))
    shuffled = list(used)
    rng.shuffle(shuffled)
    other = filled(PAPER, shuffled)
    assert (other.nano_usd, other.usd_by_role()) == (ledger.nano_usd, ledger.usd_by_role())


@given(_USAGES)
def test_repricing(used: list[tuple[Usage, str]]) -> None:
    ledger = filled(PAPER, used)
    ledger.elapsed_ns = 5
    same = ledger.reprice(PAPER)
    assert list(same) == list(ledger)
    assert same.summary() == ledger.summary()
    other = ledger.reprice(UNSEEN)
    assert [charge.nano_usd for charge in other] == [owed(UNSEEN, usage) for usage, _ in used]
    assert [(c.usage, c.tool) for c in other] == [(c.usage, c.tool) for c in ledger]
    assert {c.sheet for c in other} <= {"unseen-2026-01"}
    assert other.seconds == ledger.seconds
    assert list(other.reprice(PAPER)) == list(ledger)


def test_the_cap_stops_what_comes_after_it_is_reached() -> None:
    cap = SpendCap(1.2345678)
    cap.add(1_234_567_799)
    cap.check()
    cap.add(102)
    with pytest.raises(SpendCapReached, match=r"spent 1\.234567901 \$ of its cap of 1\.2345678 \$"):
        cap.check()
    assert cap.spent_usd == 1.234567901


@pytest.mark.parametrize("usd", [0, math.nan, "5"])
def test_a_cap_is_a_positive_number(usd: Any) -> None:
    with pytest.raises(ValueError, match="a positive, finite number of dollars, got"):
        SpendCap(usd)


def test_no_payment_of_any_thread_is_lost() -> None:
    cap = SpendCap(1000)
    running = [threading.Thread(target=lambda: [cap.add(1) for _ in range(20_000)]) for _ in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(30)
    assert cap.spent_usd == 160_000 / NANO
