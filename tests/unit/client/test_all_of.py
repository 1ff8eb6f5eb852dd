"""Several works at the same time: all results in order, or the first error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.client._async.runtime import all_of, monotonic_ms, sleep_ms

Run = Callable[[Callable[[], Awaitable[None]]], None]


async def after(ms: int, ended: list[int]) -> int:
    await sleep_ms(ms)
    if ms == 13:
        raise ValueError("unlucky")
    ended.append(ms)
    return ms


def test_results_come_in_the_order_of_the_works(run: Run) -> None:
    async def test() -> None:
        began_ms = monotonic_ms()
        assert await all_of([after(30, []), after(10, []), after(20, [])]) == [30, 10, 20]
        assert monotonic_ms() - began_ms == 30
        assert await all_of([after(5, [])]) == [5]
        assert await all_of([]) == []

    run(test)


def test_the_first_error_ends_the_others_and_is_raised_as_it_is(run: Run) -> None:
    async def test() -> None:
        for works in (1, 3):
            ended: list[int] = []
            with pytest.raises(ValueError, match="unlucky"):
                await all_of([after(ms, ended) for ms in (13, 10, 20)[:works]])
            await asyncio.sleep(1)
            assert ended == [10][: works - 1]

    run(test)
