"""The process queue against a simple model, and its rules one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.consuming.process_queue import ProcessQueue


class Piece(NamedTuple):
    queue_offset: int
    body: bytes = b"12345"


class Filled(ProcessQueue[Piece]):
    """A process queue that is asked by offset."""

    def __init__(self, *offsets: int) -> None:
        super().__init__(0)
        self.pieces: dict[int, Piece] = {}
        self.fill(offsets)

    def fill(self, offsets: Iterable[int]) -> list[int]:
        pieces = {offset: Piece(offset) for offset in offsets}
        self.pieces = pieces | self.pieces
        return [piece.queue_offset for piece in self.put(pieces.values())]

    def done(self, offset: int) -> int | None:
        """Settle it; the offset to commit then, None when it was not ours."""
        settled = self.settle(self.pieces.get(offset, Piece(offset)), 0)
        return None if settled is None else self.commit_offset()


def filled(*offsets: int) -> Filled:
    return Filled(*offsets)


def test_the_commit_offset_is_the_smallest_unsettled_one() -> None:
    queue = filled(10, 11, 12)
    assert queue.done(11) == 10
    assert queue.done(10) == 12
    assert queue.done(12) == 13
    assert (len(queue), queue.bytes_total) == (0, 0)


def test_settling_twice_says_that_it_is_not_ours() -> None:
    queue = filled(1)
    assert queue.done(1) == 2
    assert queue.done(1) is None


def test_a_dropped_queue_takes_and_settles_nothing() -> None:
    queue = filled(1, 2)
    queue.drop()
    assert queue.done(1) is None
    assert queue.fill([3]) == []
    assert not queue.start(queue.pieces[1], 0)
    assert len(queue) == 0
    assert queue.bytes_total == 0


def test_an_offset_that_is_here_is_not_entered_twice() -> None:
    queue = filled(1, 2)
    assert queue.fill([2, 3]) == [3]
    assert queue.bytes_total == 15


def test_another_delivery_of_the_same_offset_is_another_message() -> None:
    queue = filled(1)
    again = Piece(1)
    assert queue.settle(again, 0) is None
    assert queue.replace(queue.pieces[1], again)
    assert queue.done(1) is None
    assert queue.settle(again, 0) is not None
    assert queue.commit_offset() == 2


def test_offsets_that_step_back_keep_the_order() -> None:
    queue = filled(10, 11)
    queue.fill([5])
    assert queue.first_offset() == 5
    assert queue.done(5) == 10


def test_span_reaches_from_the_first_unsettled_to_the_last_entered() -> None:
    queue = filled(100, 101, 2100)
    assert queue.span() == 2000
    queue.done(100)
    assert queue.span() == 1999


def test_messages_started_too_long_ago_are_found_oldest_first() -> None:
    queue = filled(1, 2, 3)
    queue.start(queue.pieces[2], 100)
    queue.start(queue.pieces[1], 200)
    assert [piece.queue_offset for piece in queue.started_before(201, 10)] == [2, 1]
    assert [piece.queue_offset for piece in queue.started_before(200, 10)] == [2]
    assert [piece.queue_offset for piece in queue.started_before(999, 1)] == [2]
    queue.replace(queue.pieces[2], Piece(2))
    assert [piece.queue_offset for piece in queue.started()] == [1]


def test_settling_says_how_long_a_message_was_in_hand() -> None:
    queue = filled(1, 2)
    queue.start(queue.pieces[1], 100)
    assert queue.settle(queue.pieces[1], 130) == 30
    assert queue.settle(queue.pieces[2], 130) == 0  # never started
    assert queue.last_consumed_ms == 130


def test_the_first_messages_are_the_unsettled_ones_with_the_smallest_offsets() -> None:
    queue = filled(1, 2, 3, 4)
    queue.done(2)
    assert [piece.queue_offset for piece in queue.first(2)] == [1, 3]
    assert [piece.queue_offset for piece in queue.first(9)] == [1, 3, 4]
    queue.done(1)
    assert [piece.queue_offset for piece in queue.first(1)] == [3]
    queue.drop()
    assert queue.first(1) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 5)),
            st.tuples(st.just("settle"), st.integers(0, 40)),
        ),
        max_size=60,
    )
)
def test_it_agrees_with_a_set_of_offsets(steps: list[tuple[str, int]]) -> None:
    queue = filled()
    unsettled: set[int] = set()
    end = 0
    for action, number in steps:
        if action == "put":
            queue.fill(range(end, end + number))
            unsettled |= set(range(end, end + number))
            end += number
        else:
            known = number in unsettled
            unsettled.discard(number)
            expected = min(unsettled, default=end) if known else None
            assert queue.done(number) == expected
        assert len(queue) == len(unsettled)
        assert queue.bytes_total == 5 * len(unsettled)
        assert queue.first_offset() == min(unsettled, default=None)
        assert queue.commit_offset() == min(unsettled, default=end)
