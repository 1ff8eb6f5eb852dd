"""The account of a benchmark: nothing is lost in it that was not lost."""

from __future__ import annotations

import random

import pytest

from orbitmq.cli.benches.bench_account import (
    MARK_BYTES,
    WARM_UP_RUN,
    Numbers,
    Received,
    SendSchedule,
    marked_body,
    read_mark,
)
from orbitmq.cli.shared.latencies import percentiles


def test_a_body_says_which_message_it_is() -> None:
    body = marked_body(b"run-0001", 7, 1_700_000_000_000, 100)
    assert len(body) == 100
    assert read_mark(body) == (b"run-0001", 7, 1_700_000_000_000)
    assert read_mark(b"x" * (MARK_BYTES - 1)) is None


def test_numbers_are_a_set() -> None:
    chosen = random.Random(4).choices(range(100_000), k=5_000)
    numbers, model = Numbers(), set()
    for number in chosen:
        assert numbers.add(number) == (number not in model)
        model.add(number)
    assert numbers.count == len(model)
    assert all((number in numbers) == (number in model) for number in range(0, 100_000, 7))


def test_what_was_stored_and_did_not_arrive_is_missing() -> None:
    stored, arrived = Numbers(), Numbers()
    for number in range(100):
        stored.add(number)
        if number % 10:
            arrived.add(number)
    arrived.add(5_000)  # arrived, though its send failed
    assert stored.missing_from(arrived) == 10
    assert Numbers().missing_from(arrived) == 0


def test_repeats_and_strangers_are_told_apart() -> None:
    received = Received(b"run-0001")
    first = marked_body(b"run-0001", 1, 5, 40)
    assert received.take(first) is not None
    assert received.take(first) is None
    assert received.take(marked_body(b"run-0002", 1, 5, 40)) is None
    assert received.take(b"short") is None
    assert (received.count, received.distinct, received.duplicates, received.foreign) == (2, 1, 1, 2)


def test_messages_for_warming_up_are_nobodys() -> None:
    received = Received(None)
    for _ in range(3):
        assert received.take(marked_body(WARM_UP_RUN, 0, 0, 40)) is None
    assert (received.count, received.duplicates, received.foreign) == (0, 0, 3)


def test_a_number_nobody_sends_takes_no_memory() -> None:
    received = Received(None)
    assert received.take(marked_body(b"run-0001", 2**60, 5, 40)) is None
    assert received.foreign == 1


def test_with_a_rate_messages_are_due_whatever_the_sender_does() -> None:
    schedule = SendSchedule(10.0, 100.0)
    assert [schedule.due_s(number, 999.0) for number in (0, 1, 20)] == [100.0, 100.1, 102.0]
    assert SendSchedule(None, 100.0).due_s(5, 103.0) == 103.0


def test_percentiles_are_values_that_were_measured() -> None:
    told = percentiles([float(value) for value in range(1, 1001)])
    assert (told["p50_ms"], told["p99_ms"], told["p999_ms"], told["max_ms"]) == (500.0, 990.0, 999.0, 1000.0)
    assert percentiles([3.0])["p999_ms"] == 3.0
    assert set(percentiles([]).values()) == {None}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_median_of_few_is_one_of_them(count: int) -> None:
    assert percentiles([float(value) for value in range(count)])["p50_ms"] == (count - 1) // 2
