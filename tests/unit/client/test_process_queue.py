"""The process queue against a simple model, and its rules one by one."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.process_queue import ProcessQueue


class Piece(NamedTuple):
    queue_offset: int
    body: bytes = b"12345"


def filled(*offsets: int) -> ProcessQueue[Piece]:
    queue: ProcessQueue[Piece] = ProcessQueue(0)
    queue.put([Piece(offset) for offset in offsets])
    return queue


def test_the_commit_offset_is_the_smallest_unsettled_one() -> None:
    queue = filled(10, 11, 12)
    assert queue.settle(11, 0) == 10
    assert queue.settle(10, 0) == 12
    assert queue.settle(12, 0) == 13
    assert (len(queue), queue.bytes_total) == (0, 0)


def test_settling_twice_says_that_it_is_not_ours() -> None:
    queue = filled(1)
    assert queue.settle(1, 0) == 2
    assert queue.settle(1, 0) is None


def test_a_dropped_queue_takes_and_settles_nothing() -> None:
    queue = filled(1, 2)
    queue.drop()
    assert queue.settle(1, 0) is None
    assert queue.put([Piece(3)]) == []
    assert not queue.start(1, 0)
    assert len(queue) == 0
    assert queue.bytes_total == 0


def test_an_offset_that_is_here_is_not_entered_twice() -> None:
    queue = filled(1, 2)
    assert queue.put([Piece(2), Piece(3)]) == [Piece(3)]
    assert queue.bytes_total == 15


def test_offsets_that_step_back_keep_the_order() -> None:
    queue = filled(10, 11)
    queue.put([Piece(5)])
    assert queue.first_offset() == 5
    assert queue.settle(5, 0) == 10


def test_span_reaches_from_the_first_unsettled_to_the_last_entered() -> None:
    queue = filled(100, 101, 2100)
    assert queue.span() == 2000
    queue.settle(100, 0)
    assert queue.span() == 1999


def test_messages_started_too_long_ago_are_found_oldest_first() -> None:
    queue = filled(1, 2, 3)
    queue.start(2, 100)
    queue.start(1, 200)
    assert [piece.queue_offset for piece in queue.started_before(201, 10)] == [2, 1]
    assert [piece.queue_offset for piece in queue.started_before(200, 10)] == [2]
    assert [piece.queue_offset for piece in queue.started_before(999, 1)] == [2]
    queue.replace(Piece(2))
    assert [piece.queue_offset for piece in queue.started()] == [1]


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
    queue: ProcessQueue[Piece] = ProcessQueue(0)
    unsettled: set[int] = set()
    end = 0
    for action, number in steps:
        if action == "put":
            queue.put([Piece(offset) for offset in range(end, end + number)])
            unsettled |= set(range(end, end + number))
            end += number
        else:
            known = number in unsettled
            unsettled.discard(number)
            expected = min(unsettled, default=end) if known else None
            assert queue.settle(number, 0) == expected
        assert len(queue) == len(unsettled)
        assert queue.bytes_total == 5 * len(unsettled)
        assert queue.first_offset() == min(unsettled, default=None)
        assert queue.commit_offset() == min(unsettled, default=end)
