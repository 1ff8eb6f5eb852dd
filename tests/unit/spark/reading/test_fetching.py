"""What a pull may bring, and what becomes of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ClientError, DataLostError, RemoteError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.spark.options import read_options
from orbitmq.spark.reading.fetching import Fetch, fetch_ranges
from orbitmq.spark.reading.plan import QueueRange
from orbitmq.spark.reading.retrying import RetryClock

from .scripted_broker import QUEUE, ScriptedBroker, record


class Passing(RetryClock):
    """Time that only waiting moves."""

    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.at_ms += duration_ms


def fetching(broker: ScriptedBroker, **given: str) -> Fetch:
    options = {"nameserver": broker.address, "topic": QUEUE.topic, "pulltimeoutms": "5000", "retrytimeoutms": "2000"}
    read = read_options({**options, **given}, streaming=False)
    return Fetch(options=read, names=("queueOffset", "body"), properties=PropertiesForm.NONE)


def read(
    broker: ScriptedBroker, begin: int = 0, end: int | None = None, *, tags: str = "*", fail: bool = True
) -> list[int]:
    """Offsets of the rows, each checked against its body."""
    fetch = fetching(broker, subexpression=tags, failondataloss=str(fail).lower())
    rows: list[dict[str, Any]] = []
    for batch in fetch_ranges(fetch, (QueueRange(QUEUE, begin, broker.high if end is None else end),), Passing()):
        rows += batch.to_pylist()
    for row in rows:
        assert row["body"].startswith(b"%d" % row["queueOffset"])
    return [row["queueOffset"] for row in rows]


def test_a_range_is_read_in_waves() -> None:
    with ScriptedBroker(5_000) as broker:
        assert read(broker, 10) == list(range(10, 5_000))
        assert broker.pulls < 5_000 / 32 + 5, "no offset is asked for twice"


def test_answers_may_come_in_any_order() -> None:
    with ScriptedBroker(3_000) as broker:
        broker.backwards = True
        assert read(broker) == list(range(3_000))


def test_answers_may_be_short() -> None:
    def short(broker: ScriptedBroker, command: Command) -> Command:
        begin = command.integer("queueOffset")
        return broker.found(command, [begin], begin + 1)

    with ScriptedBroker(500, told={3: short, 5: short, 9: short}) as broker:
        assert read(broker) == list(range(500))


def test_a_filter_passes_the_end_of_an_ask() -> None:
    """The broker compares hash codes only: Aa and BB have the same."""

    def filtered(broker: ScriptedBroker, command: Command) -> Command:
        begin = command.integer("queueOffset")
        taken = [offset for offset in range(begin, min(begin + 100, 1_000)) if offset % 3]
        return broker.found(command, taken, min(begin + 100, 1_000))

    with ScriptedBroker(1_000, told=dict.fromkeys(range(99), filtered)) as broker:
        broker.tags = {offset: ("none", "Aa", "BB")[offset % 3] for offset in range(1_000)}
        assert read(broker, 7, 950, tags="BB") == [offset for offset in range(7, 950) if offset % 3 == 2]


def test_nothing_that_matches_is_no_row() -> None:
    def unmatched(broker: ScriptedBroker, command: Command) -> Command:
        return broker.answer(command, 20, min(command.integer("queueOffset") + 400, 900))

    with ScriptedBroker(900, told=dict.fromkeys(range(9), unmatched)) as broker:
        assert read(broker, tags="x") == []


def test_a_connection_that_breaks_in_a_wave_costs_no_row() -> None:
    with ScriptedBroker(2_000, told={0: lambda b, c: None, 7: lambda b, c: None, 40: lambda b, c: None}) as broker:
        assert read(broker) == list(range(2_000))


def test_a_busy_broker_is_asked_again() -> None:
    def busy(broker: ScriptedBroker, command: Command) -> Command:
        return response(command, 2, "busy", {})

    with ScriptedBroker(200, told={0: busy, 2: busy}) as broker:
        assert read(broker) == list(range(200))


def test_a_refusal_is_an_error_at_once() -> None:
    with (
        ScriptedBroker(200, told={0: lambda b, c: response(c, 16, "no permission", {})}) as broker,
        pytest.raises(RemoteError, match="reading topic 'orders', broker 'broker-a', queue 0 at offset 0"),
    ):
        read(broker)


def test_a_reset_of_the_group_is_no_concern() -> None:
    with ScriptedBroker(200, told={1: lambda b, c: b.answer(c, 21, 150)}) as broker:
        assert read(broker) == list(range(200))


def test_messages_that_come_a_little_later_are_waited_for() -> None:
    with ScriptedBroker(200, told={0: lambda b, c: b.answer(c, 19, 0, maxOffset="0")}) as broker:
        assert read(broker) == list(range(200))


@pytest.mark.parametrize(
    ("low", "told", "kept", "text"),
    [
        (60, {}, range(60, 200), "should have offsets 10 to 59; it has 60 to 199"),
        (0, {0: lambda b, c: b.answer(c, 20, 100)}, range(100, 200), "should have offsets 10 to 99; it has 0 to 199"),
        (
            0,
            {0: lambda b, c: b.found(c, [10, 11, 13, 14], 15)},
            [10, 11, 13, *range(14, 200)],
            "lacks 1 of the messages from offset 10 to 14",
        ),
    ],
)
def test_what_is_not_there_is_an_error_or_passed_over(
    low: int, told: dict[int, Any], kept: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedBroker(200, low=low, told=told) as broker:
        with pytest.raises(DataLostError, match=text) as caught:
            read(broker, 10)
        assert f"topic 'orders', broker 'broker-a' ({broker.address}), queue 0" in str(caught.value)
    with ScriptedBroker(200, low=low, told=told) as broker, caplog.at_level(logging.WARNING):
        assert read(broker, 10, fail=False) == list(kept)
    assert text in caplog.text


def test_a_queue_that_ends_early_is_waited_for_and_then_lost() -> None:
    with ScriptedBroker(100) as broker:
        with pytest.raises(DataLostError, match="should have offsets 100 to 149; it has 0 to 99"):
            read(broker, 0, 150)
        assert read(broker, 0, 150, fail=False) == list(range(100))


@pytest.mark.parametrize("where", [8, 4])
def test_a_damaged_record_is_named(where: int) -> None:
    """At 4 stands the magic code, at 8 nothing that is looked at."""
    broken = bytearray(record(1))
    broken[4] ^= 0xFF
    data = record(0) + bytes(broken) + record(2)
    with (
        ScriptedBroker(
            3, told={0: lambda b, c: b.answer(c, 0, 3, data if where == 4 else record(0) + b"\0" * 120)}
        ) as broker,
        pytest.raises(ClientError, match=r"orders broker-a/0: the message at offset \d cannot be read"),
    ):
        read(broker)


@pytest.mark.parametrize("how", ["magic", "body"])
@pytest.mark.parametrize("backwards", [False, True])
def test_damaged_records_are_told_and_the_others_follow(how: str, backwards: bool) -> None:
    """A magic code that is none, or a body that says it is compressed and is not."""
    broken = bytearray(record(33))
    broken[4 if how == "magic" else 39] ^= 0xFF if how == "magic" else 1
    told: list[tuple[MessageQueue, int, str, bytes]] = []

    def answer(broker: ScriptedBroker, command: Command) -> Command:
        begin = command.integer("queueOffset")
        data = b"".join(bytes(broken) if offset == 33 else record(offset) for offset in range(begin, 64))
        return broker.answer(command, 0, 64, data)

    with ScriptedBroker(96, told={1: answer}) as broker:
        broker.backwards = backwards
        fetch = fetching(broker)
        batches = list(
            fetch_ranges(fetch, (QueueRange(QUEUE, 0, 96),), Passing(), tell=lambda *damage: told.append(damage))
        )
    found = [offset for batch in batches for offset in batch.column(0).to_pylist()]
    assert found == [offset for offset in range(96) if offset != 33]
    [(queue, offset, why, content)] = told
    assert (queue, offset, content) == (QUEUE, 33, bytes(broken))
    assert why


def test_answers_without_sense_are_refused() -> None:
    for told, text in (
        (lambda b, c: b.answer(c, 0, 0, record(0)), "leads back to 0"),
        (lambda b, c: response(c, 0, None, {}, record(0)), "names no next offset"),
        (lambda b, c: b.answer(c, 0, 1, record(0), offsetDelta="7"), "static topic"),
    ):
        with ScriptedBroker(1, told={0: told}) as broker, pytest.raises(ClientError, match=text):
            read(broker)
