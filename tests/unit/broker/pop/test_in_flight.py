"""Messages in flight: whose they are, when they are due, what may be committed."""

from __future__ import annotations

import tracemalloc

from orbitmq.broker.pop.in_flight import InFlight, PopBounds, Popped, PopQueue, PopRun

KEY = PopQueue("T", "g", 0)


def test_nothing_before_an_unsettled_message_is_more_than_committable() -> None:
    queue = InFlight().open(KEY, 100)
    queue.take([100, 101, 102], 103, 5, 50)
    assert queue.committable == 100
    assert queue.settle(101, 5)
    assert queue.committable == 100
    assert queue.settle(100, 5)
    assert queue.committable == 102
    assert queue.settle(102, 5)
    assert (queue.committable, queue.count) == (103, 0)


def test_messages_that_the_group_does_not_want_are_passed() -> None:
    queue = InFlight().open(KEY, 0)
    queue.take([], 40, 5, 50)
    assert (queue.committable, queue.next_offset) == (40, 40)
    queue.take([70, 300], 301, 5, 50)
    assert queue.committable == 70
    queue.settle(70, 5)
    assert queue.committable == 300


def test_a_message_is_settled_once_and_by_its_own_pop_only() -> None:
    queue = InFlight().open(KEY, 0)
    queue.take([0], 1, 5, 50)
    assert not queue.settle(0, 4)
    assert queue.renew(0, 5, 9, 90)
    assert not queue.settle(0, 5), "the receipt of the earlier pop"
    assert queue.settle(0, 9)
    assert not queue.settle(0, 9)
    assert not queue.renew(0, 9, 10, 100)


def test_messages_are_due_at_their_millisecond_each_once() -> None:
    flight = InFlight()
    queue = flight.open(KEY, 0)
    queue.take([0, 1], 2, 5, 50)
    queue.take([2], 3, 6, 60)
    assert flight.next_due_ms == 50
    assert flight.take_due(49, 10) == []
    assert flight.take_due(50, 10) == [(KEY, 0, 5), (KEY, 1, 5)]
    assert flight.take_due(50, 10) == []
    assert flight.next_due_ms == 60
    assert (queue.committable, queue.has(0, 5)) == (0, True), "in flight until it is settled"
    assert queue.renew(0, 5, 5, 70)
    assert flight.take_due(70, 10) == [(KEY, 2, 6), (KEY, 0, 5)] or flight.next_due_ms is None


def test_a_renewed_message_is_due_at_its_new_time_earlier_or_later() -> None:
    flight = InFlight()
    queue = flight.open(KEY, 0)
    queue.take([0, 1], 2, 5, 50)
    queue.renew(0, 5, 7, 20)
    queue.renew(1, 5, 7, 80)
    assert flight.take_due(20, 10) == [(KEY, 0, 7)]
    assert flight.take_due(79, 10) == []
    assert flight.take_due(80, 10) == [(KEY, 1, 7)]


def test_what_is_gone_from_the_store_is_settled() -> None:
    flight = InFlight()
    queue = flight.open(KEY, 0)
    queue.take(range(100), 100, 5, 50)
    queue.settle_before(90)
    assert (queue.committable, queue.count, flight.message_count) == (90, 10, 10)


def test_runs_are_what_was_taken_together() -> None:
    flight = InFlight()
    queue = flight.open(KEY, 0)
    queue.take(range(60, 70), 70, 5, 50)
    queue.take([70, 71, 90], 91, 6, 50)
    queue.settle(65, 5)
    runs = [PopRun(60, 5, 5, 50), PopRun(66, 4, 5, 50), PopRun(70, 2, 6, 50), PopRun(90, 1, 6, 50)]
    assert list(queue.runs()) == runs


def test_bounds_leave_no_room() -> None:
    flight = InFlight(PopBounds(per_queue=5, messages=8, chunks=3))
    one, other = flight.open(KEY, 0), flight.open(PopQueue("T", "g", 1), 0)
    one.take(range(5), 5, 5, 50)
    assert (one.room, other.room) == (0, 3)
    other.take([0, 200], 201, 5, 50)
    assert other.room == 0, "three chunks"
    one.settle(0, 5)
    other.settle(200, 5)
    assert (one.room, other.room) == (1, 3)
    flight.drop(KEY)
    assert (flight.message_count, flight.chunk_count) == (1, 1)


def test_alarms_of_acknowledged_messages_do_not_pile_up() -> None:
    flight = InFlight()
    queue = flight.open(KEY, 0)
    for offset in range(0, 64 * 1_000, 64):
        queue.take([offset], offset + 64, 5, 10**9)
        queue.settle(offset, 5)
    assert len(flight._alarms) < 200


def test_a_million_messages_in_flight_take_less_than_250_mb() -> None:
    """In pops of one message, with pop times of their own; the extreme. Neighbours take a tenth."""
    flight = InFlight(PopBounds(per_queue=10**6, messages=10**6))
    queue = flight.open(KEY, 0)
    tracemalloc.start()
    for offset in range(100_000):
        queue.take([offset], offset + 1, 10**12 + offset, 10**12 + 60_000 + offset)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 25_000_000


def test_of_two_pops_from_before_a_start_the_later_says_whether_an_attempt_counts() -> None:
    for order in (1, -1):
        queue = InFlight().open(KEY, 0)
        for popped_ms in (5, 9)[::order]:
            queue.take_up([0, 1], popped_ms, 0, 10 * popped_ms, suspended=popped_ms == 5)
            queue.take_up([1, 2], 7, 1, 70)
        assert [queue.find(offset) for offset in range(3)] == [
            Popped(0, 9, 0, 90),
            Popped(1, 9, 0, 90),
            Popped(2, 7, 1, 70),
        ]
        assert (queue.count, queue.committable) == (3, 3)


def test_pieces_of_a_pop_end_where_chunks_do() -> None:
    flight = InFlight()
    queue = flight.open(KEY, 60)
    offsets = [60, 61, 63, 64, 65, *range(70, 200), 256]
    queue.take(offsets, 300, 5, 50)
    assert [popped.offset for popped in queue.not_covered(0, 300, 5, 60)] == offsets
    assert (queue.count, flight.message_count, flight.chunk_count) == (len(offsets), len(offsets), 5)
    queue.take_up([400, 447, 448], 6, 400, 60)
    assert [run.first for run in queue.runs()] == [60, 63, 70, 256, 400, 447]
    for offset in offsets:
        assert queue.settle(offset, 5)
    assert [queue.find(offset) for offset in (400, 447, 448)] == [
        Popped(offset, 6, 400, 60) for offset in (400, 447, 448)
    ]
