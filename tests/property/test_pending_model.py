"""The bitmap of pending timers against a plain set, through everything that can be done with it and through its saved form."""

from __future__ import annotations

import random
from unittest import mock

import pytest

from orbitmq.timing.timers import pending
from orbitmq.timing.timers.pending import CHUNK_OFFSETS, PendingTimers


class Model:
    def __init__(self) -> None:
        self.known: set[int] = set()
        self.next = 0

    def add(self, first: int, end: int) -> None:
        self.known |= set(range(max(first, self.next), end))
        self.next = max(self.next, end)


def saved(timers: PendingTimers) -> PendingTimers:
    again = PendingTimers()
    for chunk, content in timers.chunks():
        again.put_chunk(chunk, content)
    again.next_offset = timers.next_offset
    return again


def one_life(seed: int) -> None:
    rng = random.Random(seed)
    timers, model = PendingTimers(), Model()
    timers.next_offset = model.next = rng.choice((0, 0, 5, CHUNK_OFFSETS - 2, 3 * CHUNK_OFFSETS))
    first = model.next
    for _ in range(rng.randint(5, 60)):
        way = rng.random()
        if way < 0.25:
            for _ in range(rng.randint(1, 40)):
                offset = model.next + rng.choice((0, 0, 0, 1, 7))
                assert timers.add(offset)
                model.add(offset, offset + 1)
        elif way < 0.3:
            again = rng.randrange(first, model.next + 1)
            if again < model.next:
                assert not timers.add(again)
        elif way < 0.4:
            begin = model.next - rng.choice((0, 3))
            end = model.next + rng.choice((1, 9, 100, CHUNK_OFFSETS, 2 * CHUNK_OFFSETS + 5))
            timers.add_range(begin, end)
            model.add(begin, end)
        elif way < 0.5:
            offset = model.next + rng.choice((-1, 0, 3))
            timers.skip(offset)
            model.next = max(model.next, offset + 1)
        elif way < 0.7:
            for _ in range(rng.randint(1, 60)):
                offset = rng.randrange(first, model.next + 3)
                assert timers.finish(offset) == (offset in model.known)
                model.known.discard(offset)
        elif way < 0.8:
            begin = rng.randrange(first, model.next + 3)
            together = [begin + n for n in range(rng.choice((3, 300, 2_000)))]
            together += [rng.choice(together) for _ in range(3)]
            left = set(model.known)
            expected = [offset in left and not left.discard(offset) for offset in together]
            assert timers.finish_many(together) == expected
            model.known = left
        elif way < 0.9:
            begin = rng.randrange(first, model.next + 1)
            end = begin + rng.choice((1, 5, 8, 300, CHUNK_OFFSETS, 3 * CHUNK_OFFSETS))
            timers.finish_range(begin, end)
            model.known -= set(range(begin, min(end, model.next)))
        else:
            timers = saved(timers)
        assert timers.count == len(model.known)
        assert timers.next_offset == model.next
        assert timers.first_pending == min(model.known, default=None)
        asked = [rng.randrange(first, model.next + 3) for _ in range(20)]
        answers = [offset in model.known for offset in asked]
        assert [timers.is_pending(offset) for offset in asked] == answers
        assert timers.are_pending(asked) == answers
    since = rng.randrange(first, model.next + 1)
    assert list(timers.offsets(since)) == sorted(offset for offset in model.known if offset >= since)
    assert list(saved(timers).offsets()) == sorted(model.known)
    flagged = list(timers.flags())
    assert [first + at for first, flags in flagged for at, flag in enumerate(flags) if flag] == sorted(model.known)
    assert all(flags[0] == flags[-1] == 1 for _, flags in flagged)


def many_lives() -> None:
    for seed in range(30):
        one_life(seed)


def test_the_bitmap_says_what_a_set_says() -> None:
    many_lives()


def test_the_model_catches_a_chunk_that_is_packed_too_early() -> None:
    def wrong(self: PendingTimers, chunk: int, *, complete: bool = False) -> None:
        if self._counts[chunk] <= pending.SPARSE_MAX:
            self._bits[chunk] = pending.array("H", list(pending._places(self._bits[chunk]))[1:])

    with mock.patch.object(PendingTimers, "_pack", wrong), pytest.raises((AssertionError, StopIteration)):
        many_lives()
