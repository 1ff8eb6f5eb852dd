"""What the answers of a RocketMQ master change in the tables of a broker that copies its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import Rig
from tests.worlds.little_store import LittleStore

from orbitmq.broker.copied_tables import CopiedTables, MastersTable, is_ours, log_end_of
from orbitmq.errors import ProtocolError
from orbitmq.protocol.properties import Property
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.checkpoint import TimerCheckpoint
from orbitmq.timing.rocketmq.led import LED_FILE, LedByRocketMQ

Table = MastersTable


@pytest.fixture
def little(tmp_path: Path) -> Iterator[LittleStore]:
    made = LittleStore(tmp_path / "little")
    yield made
    made.kill()


@pytest.fixture
def copied(rig: Rig, little: LittleStore) -> CopiedTables:
    """Tables of one broker, delay levels and timers of another store that nobody delivers from."""
    little.release.detach()
    little.timers.detach()
    broker, led = rig.broker, LedByRocketMQ(OsFiles(), little.root)
    modes = broker.rooms.assignment.modes
    return CopiedTables(
        broker.topics, broker.groups, broker.offsets, modes, little.release, little.timers, led, little.clock,
        little.precision_ms,
    )  # fmt: skip


def topics(counter: int, **queues: int) -> bytes:
    table = {
        name: {"topicName": name, "readQueueNums": count, "writeQueueNums": count} for name, count in queues.items()
    }
    return json.dumps({"topicConfigTable": table, "dataVersion": {"counter": counter, "timestamp": 7}}).encode()


def offsets(**queues: dict[int, int]) -> bytes:
    """As RocketMQ writes them: keys that are numbers without quotes."""
    inside = ",".join(
        f'"{name.replace("_at_", "@")}":{{{",".join(f"{queue}:{at}" for queue, at in table.items())}}}'
        for name, table in queues.items()
    )
    return f'{{"offsetTable":{{{inside}}}}}'.encode()


def bring_in(copied: CopiedTables, table: MastersTable, body: bytes) -> bool:
    copied.take(table, body)
    copied.progress_said_at(100)
    return copied.log_is_at(100)


def test_topics_come_change_and_go_and_the_brokers_own_stay(rig: Rig, copied: CopiedTables) -> None:
    table = rig.broker.topics
    own = set(table.names())
    copied.take(Table.TOPICS, topics(1, orders=2, bills=1))
    assert set(table.names()) == own | {"orders", "bills"}
    kept = table.get("bills")
    copied.take(Table.TOPICS, topics(2, orders=4, bills=1))
    orders = table.get("orders")
    assert orders is not None
    assert orders.read_queue_nums == 4
    assert table.get("bills") is kept, "what is the same is not touched"
    copied.take(Table.TOPICS, topics(3, bills=1))
    assert set(table.names()) == own | {"bills"}
    assert (table.version.counter, table.version.timestamp) == (3, 7)
    rig.reopen()
    assert rig.broker.topics.get("bills") == kept
    assert rig.broker.topics.version == table.version


def test_a_table_of_the_same_version_is_not_looked_at(rig: Rig, copied: CopiedTables) -> None:
    copied.take(Table.TOPICS, topics(1, orders=2))
    copied.take(Table.TOPICS, topics(1, bills=2))
    assert rig.broker.topics.get("bills") is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"topicConfigTable":{"a/b":{}}}', b'{"topicConfigTable":{"":{}}}',
        b'{"topicConfigTable":{"a":{"readQueueNums":-1}}}', b'{"topicConfigTable":{"a":{"readQueueNums":99999999}}}',
        b'{"topicConfigTable":{"a":{"topicName":"b"}}}', b'{"topicConfigTable":{"%s":{}}}' % (b"x" * 300),
    ],
)  # fmt: skip
def test_topics_that_make_no_sense_change_nothing(rig: Rig, copied: CopiedTables, body: bytes) -> None:
    copied.take(Table.TOPICS, topics(1, orders=2))
    with pytest.raises(ProtocolError):
        copied.take(Table.TOPICS, body)
    assert rig.broker.topics.get("orders") is not None


def test_groups_come_with_what_they_may_not_read_and_go(rig: Rig, copied: CopiedTables) -> None:
    table = rig.broker.groups
    own = set(table.names())
    group = {"groupName": "readers", "retryMaxTimes": 3}
    body: dict[str, Any] = {"subscriptionGroupTable": {"readers": group}, "forbiddenTable": {"readers": {"orders": 4}}}
    copied.take(Table.GROUPS, json.dumps({**body, "dataVersion": {"counter": 5}}).encode())
    known = table.known("readers")
    assert known is not None
    assert known.retry_max_times == 3
    assert table.reading_forbidden("readers", "orders")
    assert table.version.counter == 5
    with pytest.raises(ProtocolError):
        copied.take(Table.GROUPS, b'{"subscriptionGroupTable":{"a/b":{}},"dataVersion":{"counter":6}}')
    copied.take(Table.GROUPS, b'{"subscriptionGroupTable":{},"dataVersion":{"counter":7}}')
    assert set(table.names()) == own
    assert not table.reading_forbidden("readers", "orders")


def test_request_modes_are_those_of_the_master(rig: Rig, copied: CopiedTables) -> None:
    modes = rig.broker.rooms.assignment.modes
    mode = {"topic": "orders", "consumerGroup": "readers", "mode": "POP", "popShareQueueNum": 3}
    copied.take(Table.REQUEST_MODES, json.dumps({"messageRequestModeMap": {"orders": {"readers": mode}}}).encode())
    assert modes.of("orders", "readers")[1] == 3
    count = modes.change_count
    copied.take(Table.REQUEST_MODES, json.dumps({"messageRequestModeMap": {"orders": {"readers": mode}}}).encode())
    assert modes.change_count == count
    copied.take(Table.REQUEST_MODES, b"{}")
    assert list(modes.recorded_keys()) == []


def test_progress_counts_when_the_log_has_come_as_far_as_the_masters(rig: Rig, copied: CopiedTables) -> None:
    copied.take(Table.OFFSETS, offsets(orders_at_readers={0: 5, 1: 7}))
    assert not copied.log_is_at(1 << 60), "nobody knows yet how far that is"
    copied.progress_said_at(100)
    copied.log_is_at(99)
    assert copied.waits_for_log
    assert rig.broker.offsets.queues("readers", "orders") == {}
    copied.log_is_at(100)
    assert not copied.waits_for_log
    assert rig.broker.offsets.queues("readers", "orders") == {0: 5, 1: 7}


def test_an_offset_goes_back_where_the_group_was_reset_and_not_where_it_read_here(
    rig: Rig, copied: CopiedTables
) -> None:
    table = rig.broker.offsets

    def told(**queues: dict[int, int]) -> dict[int, int]:
        bring_in(copied, Table.OFFSETS, offsets(**queues))
        return dict(table.queues("readers", "orders"))

    table.commit("readers", "orders", 0, 9)
    assert told(orders_at_readers={0: 5}) == {0: 9}, "read here while the master was away"
    assert told(orders_at_readers={0: 5}) == {0: 9}
    assert told(orders_at_readers={0: 12}) == {0: 12}
    assert told(orders_at_readers={0: 3}) == {0: 3}, "reset"
    table.commit("readers", "orders", 0, 4)
    assert told(orders_at_readers={0: 3, 1: 1}) == {0: 4, 1: 1}
    assert told(orders_at_readers={1: 1}) == {1: 1}, "dropped there"
    table.commit("others", "orders", 0, 2)
    assert told() == {}, "gone with its group"
    assert table.queues("others", "orders") == {0: 2}, "the master never knew it"


@pytest.mark.parametrize(
    "body",
    [
        b"{", b'{"offsetTable":{"nobody":{0:1}}}', b'{"offsetTable":{"@":{0:1}}}', b'{"offsetTable":{"a@b":{-1:1}}}',
        b'{"offsetTable":{"a@b":{"x":1}}}', b'{"offsetTable":{"a@b":{0:99999999999999999999}}}',
    ],
)  # fmt: skip
def test_offsets_that_make_no_sense_change_nothing(rig: Rig, copied: CopiedTables, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        copied.take(Table.OFFSETS, body)
    copied.progress_said_at(0)
    copied.log_is_at(0)
    assert rig.broker.offsets.pairs() == []


def test_what_the_master_delivered_of_a_level_is_pending_no_longer(copied: CopiedTables, little: LittleStore) -> None:
    for number in range(4):
        little.send(level=1, **{Property.UNIQ_KEY: f"k{number}"})
    assert bring_in(copied, Table.DELAY_LEVELS, b'{"offsetTable":{1:3,7:99}}')
    assert little.release.first_pending_by_level()[1] == 3
    assert not bring_in(copied, Table.DELAY_LEVELS, b'{"offsetTable":{1:1}}'), "it has happened"
    assert bring_in(copied, Table.DELAY_LEVELS, b'{"offsetTable":{1:1000000}}'), "no more than there is"
    little.send(level=1)
    assert little.release.pending_count == 1
    assert (little.root / LED_FILE).exists()


def test_what_the_master_delivered_of_the_timers_is_pending_no_longer(
    copied: CopiedTables, little: LittleStore
) -> None:
    start_ms = little.clock.now_ms()
    for after_ms in (1_000, 5_000, 60_000, 1_000):
        little.send(after_ms=after_ms)
    little.clock.advance(30_000)

    def told(read_ms: int, unlinked_from: int) -> list[int]:
        checkpoint = TimerCheckpoint(read_ms, 0, unlinked_from, unlinked_from)
        bring_in(copied, Table.TIMERS, checkpoint.encode())
        return list(little.timers.pending.offsets())

    assert told(start_ms, 4) == [0, 1, 2, 3]
    assert told(start_ms + 2_000, 3) == [1, 2, 3], "the last one was not linked"
    assert told(1 << 62, 4) == [2], "what is not due yet was not delivered"
    with pytest.raises(ProtocolError):
        copied.take(Table.TIMERS, b"x" * 55)


def test_where_a_log_ends_and_whose_it_is() -> None:
    assert log_end_of({"commitLogMaxOffset": "17"}) == 17
    for text in ("", "x", "-1", "9" * 30):
        with pytest.raises(ProtocolError):
            log_end_of({"commitLogMaxOffset": text})
    assert is_ours({"orbitmqDeadLetters": "0"})
    assert not is_ours({"putTps": "0"})
