"""The gate that turns pass: closed for new ones, patient with those under way, and no deadline runs meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from toolorchestra.agents.training.rollouts_ahead import TurnGate


def play(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


async def some_turns_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_it_is_closed_until_it_is_opened_and_tells_the_step() -> None:
    async def story() -> list[int]:
        gate, seen = TurnGate(8), []

        async def turn() -> None:
            async with gate.turn() as step:
                seen.append(step)

        first = asyncio.create_task(turn())
        await some_turns_of_the_loop()
        assert not seen
        await gate.open(3)
        await first
        await gate.close()
        second = asyncio.create_task(turn())
        await some_turns_of_the_loop()
        assert seen == [3]
        await gate.open(4)
        await second
        return seen

    assert play(story()) == [3, 4]


def test_closing_waits_for_the_turns_that_are_under_way() -> None:
    async def story() -> list[str]:
        gate, said, may_end = TurnGate(8), [], asyncio.Event()
        await gate.open(0)

        async def turn() -> None:
            async with gate.turn():
                await may_end.wait()
                said.append("the turn ended")

        async def close() -> None:
            await gate.close()
            said.append("it is closed")

        tasks = [asyncio.create_task(turn()), asyncio.create_task(turn())]
        await some_turns_of_the_loop()
        closing = asyncio.create_task(close())
        await some_turns_of_the_loop()
        assert not said
        may_end.set()
        await asyncio.gather(closing, *tasks)
        return said

    assert play(story()) == ["the turn ended", "the turn ended", "it is closed"]


def test_no_more_turns_at_a_time_than_there_are_places() -> None:
    async def story() -> int:
        gate, inside, most = TurnGate(3), 0, 0
        await gate.open(0)

        async def turn() -> None:
            nonlocal inside, most
            async with gate.turn():
                inside += 1
                most = max(most, inside)
                await some_turns_of_the_loop()
                inside -= 1

        await asyncio.gather(*(turn() for _ in range(12)))
        return most

    assert play(story()) == 3


def test_of_those_that_wait_for_a_place_the_lowest_order_comes_first() -> None:
    async def story() -> list[int]:
        gate, seen, may_end = TurnGate(1), [], asyncio.Event()
        await gate.open(0)

        async def turn(order: int) -> None:
            async with gate.turn(order):
                seen.append(order)
                await may_end.wait()

        tasks = []
        for order in (9, 5, 7, 5, 1):
            tasks.append(asyncio.create_task(turn(order)))
            await some_turns_of_the_loop()
        may_end.set()
        await asyncio.gather(*tasks)
        return seen

    assert play(story()) == [9, 1, 5, 5, 7]


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "as it is given a place"])
def test_who_is_cancelled_takes_no_place_along(given: bool) -> None:
    async def story() -> list[str]:
        gate, seen, may_end = TurnGate(1), [], asyncio.Event()
        await gate.open(0)

        async def turn(name: str) -> None:
            async with gate.turn():
                seen.append(name)
                if name == "first":
                    await may_end.wait()

        first, second, third = [asyncio.create_task(turn(name)) for name in ("first", "second", "third")]
        await some_turns_of_the_loop()
        if given:
            may_end.set()
            while not first.done():
                await asyncio.sleep(0)
        second.cancel()
        may_end.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        async with gate.turn():
            seen.append("later")
        return seen

    seen = play(story())
    assert seen[0] == "first"
    assert seen[-2:] == ["third", "later"]


def test_a_turn_that_breaks_off_does_not_keep_the_gate_from_closing() -> None:
    async def story() -> None:
        gate = TurnGate(1)
        await gate.open(0)
        with contextlib.suppress(ValueError):
            async with gate.turn():
                raise ValueError
        await gate.close()

    play(story())


@pytest.mark.parametrize("begun_closed", [False, True])
def test_deadlines_stand_still_while_it_is_closed(begun_closed: bool) -> None:
    async def story() -> str:
        gate = TurnGate(1)
        if not begun_closed:
            await gate.open(0)

        async def episode() -> str:
            try:
                async with gate.deadline(0.2):
                    if not begun_closed:
                        await gate.close()
                    await asyncio.sleep(0.4)  # would be too long
                    await gate.open(1)
                    await asyncio.sleep(0)
                return "ended"
            except TimeoutError:
                return "too late"

        return await episode()

    assert play(story()) == "ended"


def test_deadlines_go_on_when_it_is_open_again() -> None:
    async def story() -> None:
        gate = TurnGate(1)
        await gate.open(0)
        async with gate.deadline(0.05):
            await gate.close()
            await gate.open(1)
            await asyncio.sleep(20)

    with pytest.raises(TimeoutError):
        asyncio.run(story())
