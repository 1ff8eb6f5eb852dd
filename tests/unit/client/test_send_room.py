"""Back-pressure: bounds in messages and bytes, in the order of arrival, within each send's time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.client._async.sending.send_room import SendRoom
from orbitmq.errors import SendFailedError

Run = Callable[[Callable[[], Awaitable[None]]], None]


def test_messages_and_bytes_are_bounded() -> None:
    room = SendRoom(3, 100)
    assert room.enter_now(60)
    assert not room.enter_now(41)
    assert room.enter_now(40)
    assert not room.enter_now(1)
    room.leave(60)
    assert room.enter_now(1)
    assert (room.messages_count, room.bytes_count) == (2, 41)
    assert room.enter_now(1)
    assert not room.enter_now(1)


def test_a_message_larger_than_the_room_goes_alone() -> None:
    room = SendRoom(3, 100)
    assert room.enter_now(500)
    assert not room.enter_now(1)
    room.leave(500)
    assert room.enter_now(1)
    assert not room.enter_now(500)


def test_who_finds_no_room_waits_and_is_let_in_first_come_first_served(run: Run) -> None:
    async def test() -> None:
        room = SendRoom(10, 100)
        await room.enter(90, 1)
        order: list[int] = []

        async def enter(size: int) -> None:
            await room.enter(size, 1_000)
            order.append(size)

        waiting = [asyncio.ensure_future(enter(size)) for size in (80, 10, 5)]
        await asyncio.sleep(0.1)
        assert order == []
        assert not room.enter_now(1)  # nobody overtakes
        room.leave(90)
        await asyncio.gather(*waiting)
        assert order == [80, 10, 5]
        assert (room.messages_count, room.bytes_count) == (3, 95)

    run(test)


def test_waiting_ends_with_the_time_and_says_what_is_full(run: Run) -> None:
    async def test() -> None:
        room = SendRoom(1, 100)
        await room.enter(7, 1)
        second = asyncio.ensure_future(room.enter(1, 60_000))
        with pytest.raises(SendFailedError, match="1 sends with 7 bytes under way") as caught:
            await room.enter(1, 500)
        assert not caught.value.maybe_stored
        room.leave(7)
        await second
        assert room.messages_count == 1

    run(test)


def test_a_large_message_that_gives_up_lets_the_next_one_in(run: Run) -> None:
    async def test() -> None:
        room = SendRoom(10, 100)
        await room.enter(60, 1)
        large = asyncio.ensure_future(room.enter(90, 500))
        small = asyncio.ensure_future(room.enter(10, 5_000))
        with pytest.raises(SendFailedError):
            await large
        await small

    run(test)


@pytest.mark.parametrize("let_in_first", [False, True])
def test_an_interrupted_wait_takes_no_room(run: Run, let_in_first: bool) -> None:
    async def test() -> None:
        room = SendRoom(1, 100)
        await room.enter(1, 1)
        waiting = asyncio.ensure_future(room.enter(2, 60_000))
        await asyncio.sleep(0.1)
        if let_in_first:
            room.leave(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if not let_in_first:
            room.leave(1)
        assert (room.messages_count, room.bytes_count) == (0, 0)
        assert room.enter_now(1)

    run(test)
