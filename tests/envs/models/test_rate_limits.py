"""How hard an endpoint is driven: what its rates let through, and when it rests."""

from __future__ import annotations

import asyncio
import time

import pytest

from toolorchestra.envs.models.endpoints import Endpoint
from toolorchestra.envs.models.rate_limits import EndpointLimits, duration
from toolorchestra.envs.models.wire import retry_after

PER_SECOND = 1000


def metered() -> EndpointLimits:
    """An endpoint that takes 1000 tokens a second."""
    return EndpointLimits(Endpoint("end", "http://end", tokens_per_minute=60 * PER_SECOND))


async def sent(limits: EndpointLimits, tokens: float, queue_seconds: float = 60) -> float:
    """The seconds that a call waited for its place."""
    started = time.monotonic()
    async with limits.place("a-model", tokens, queue_seconds):
        return time.monotonic() - started


def test_what_an_idle_endpoint_saves_up_is_one_second_at_most() -> None:
    limits = metered()
    time.sleep(0.4)
    assert asyncio.run(sent(limits, 1.4 * PER_SECOND)) >= 0.35


def test_a_guess_that_was_too_low_is_waited_for_by_the_next() -> None:
    limits = metered()

    async def two() -> float:
        await sent(limits, PER_SECOND)
        limits.used("a-model", PER_SECOND, 3 * PER_SECOND)
        return await sent(limits, 0)

    assert asyncio.run(two()) >= 1.0


def test_failures_of_a_model_rest_it_when_they_come_in_a_row_and_no_other() -> None:
    limits = EndpointLimits(Endpoint("end", "http://end", failures_to_open=3, rest_seconds=60))
    for _ in range(3):
        limits.failed("a-model")
        limits.failed("a-model")
        assert limits.rests_for("a-model") == 0.0
        limits.went_well("a-model")
    for _ in range(3):
        limits.failed("a-model")
    assert 59 < limits.rests_for("a-model") <= 60
    assert limits.rests_for("another") == 0.0
    limits.went_well("a-model")
    assert limits.rests_for("a-model") == 0.0


def test_a_call_that_is_given_up_unsent_uses_up_no_rate_and_no_place() -> None:
    limits = metered()

    async def several() -> float:
        await sent(limits, PER_SECOND)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await sent(limits, PER_SECOND, queue_seconds=0.02)
        return await sent(limits, 0.2 * PER_SECOND)

    assert asyncio.run(several()) < 1.0


def test_a_place_that_comes_at_the_moment_of_a_cancellation_is_not_lost() -> None:
    limits = EndpointLimits(Endpoint("end", "http://end", in_flight=1))

    async def cancelled() -> None:
        async with limits.place("a-model", 0, 60):
            waiting = asyncio.create_task(sent(limits, 0))
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await sent(limits, 0, queue_seconds=5)
        assert waiting.cancelled()

    asyncio.run(cancelled())


def test_a_rate_that_the_server_tells_is_kept_to() -> None:
    """Twenty a second, of which two are left: the next two go at once, and then one every twentieth of a second."""
    limits = EndpointLimits(Endpoint("end", "http://end"))
    told = {"limit": "20", "remaining": "2", "reset": "900ms"}
    limits.told("a-model", {f"x-ratelimit-{name}-requests": value for name, value in told.items()})

    async def waits() -> list[float]:
        return await asyncio.gather(*(sent(limits, 0) for _ in range(6)))

    assert sorted(waited >= 0.04 for waited in asyncio.run(waits())) == [False] * 2 + [True] * 4


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12", 12), ("0.5", 0.5), ("6m0s", 360), ("120ms", 0.12), ("1h2m3.5s", 3723.5), ("soon", None), ("", None)],
)
def test_a_duration_of_a_rate_limit_is_read_in_every_spelling(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "3"}, 3.0),
        ({"date": "Mon, 01 Jan 2024 00:00:00 GMT", "retry-after": "Mon, 01 Jan 2024 00:00:07 GMT"}, 7.0),
        ({"retry-after-ms": "inf"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_a_wait_that_a_server_asks_for_is_a_number_of_seconds_or_nothing(
    headers: dict[str, str], wait: float | None
) -> None:
    assert retry_after(headers) == wait
