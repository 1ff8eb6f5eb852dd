"""RocketMQ 5.3.3 delivers from a timer wheel and a timer log that orbitmq wrote, exact due times included."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.ledger import SMALL_FILES
from rig.toolchain import BROKER_VERSION, java_build

from orbitmq.protocol.javahash import java_hash
from orbitmq.store.check import check_store
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.inspection import StoredTimers
from orbitmq.timing.rocketmq.stat import stat_timers
from orbitmq.timing.timers.exchange import DueUnits, HandOver

pytestmark = pytest.mark.java

FILES = OsFiles()
TOPIC = "TimerFiles"
COUNT = 200
FAR_COUNT = 3
"""Due in two and a half days: they roll."""

AHEAD_MS = 32_000
"""The Java broker takes 15 s to stop."""

TIMER_LOG_BYTES = 5200
PRECISION_MS, ROLL_WINDOW_SLOTS = 1_000, 172_800
"""RocketMQ's own."""

SETTINGS = SMALL_FILES | {"mappedFileSizeTimerLog": str(TIMER_LOG_BYTES)}


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    available(lambda: java_build(BROKER_VERSION))


def fill(broker: BrokerUnderTest) -> dict[bytes, int]:
    """Due time by body."""
    due = {}
    with broker.wire() as wire:
        wire.create_topic(TOPIC, 4)
        first = time.time_ns() // 1_000_000 + AHEAD_MS
        for number in range(COUNT):
            due[b"%d" % number] = at = first + number * 20
            wire.send(TOPIC, number % 4, b"%d" % number, {"TIMER_DELIVER_MS": str(at)})
        for number in range(FAR_COUNT):
            at = first + 216_000_000
            wire.send(TOPIC, 0, b"far %d" % number, {"TIMER_DELIVER_MS": str(at)})
    time.sleep(2.5)  # the timer log and its checkpoint are flushed once a second
    return due


def write_again(data: Path) -> int:
    """Replace the timer files by ours, made from the records. Returns how many messages wait."""
    timers = StoredTimers(FILES, data)
    units = []
    by_topic: Counter[str] = Counter()
    for waiting in timers.waiting():
        properties = timers.properties(waiting)
        assert properties is not None
        topic = properties["REAL_TOPIC"]
        due_ms = int(properties["TIMER_DELIVER_MS"])
        units.append((due_ms, waiting.physical_offset, waiting.size, java_hash(topic)))
        by_topic[topic] += 1
    next_offset = timers.queue.max_offset()
    newest = timers.queue.unit(next_offset - 1)
    assert newest is not None
    timers.close()
    (data / "timerwheel").unlink()
    exchange = TimerExchange(FILES, data, PRECISION_MS, ROLL_WINDOW_SLOTS, log_file_bytes=TIMER_LOG_BYTES)
    place = newest.physical_offset, newest.size
    now_ms = time.time_ns() // 1_000_000
    exchange.hand_over(HandOver([DueUnits.of(sorted(units))], by_topic, [], place, next_offset, now_ms))
    exchange.lower_fence()
    return len(units)


def test_java_delivers_from_our_timer_files(brokers: Callable[..., BrokerUnderTest], tmp_path: Path) -> None:
    data = tmp_path / "data"
    writer = brokers(Kind.JAVA, "writer", data=data, settings=SETTINGS).start()
    due = fill(writer)
    writer.stop()
    assert write_again(data) == COUNT + FAR_COUNT
    assert check_store(data, FILES, timers=check_timers).findings == []
    stat = stat_timers(data, FILES, 0)
    assert stat is not None
    assert (stat.pending_count, stat.rolling_count) == (COUNT + FAR_COUNT, FAR_COUNT)
    reader = brokers(Kind.JAVA, "reader", data=data, settings=SETTINGS).start()
    near = {body: at for body, at in due.items() if not body.startswith(b"far")}
    last = max(near.values()) / 1000
    with reader.wire() as wire:
        while True:
            found = [stored for queue in range(4) for stored in wire.read_queue(TOPIC, queue)]
            if time.time() > last + 20 or (len(found) >= COUNT and time.time() > last + 3):
                break
            time.sleep(0.5)
    assert Counter(stored.body for stored in found) == Counter(near.keys())
    early = [stored.body for stored in found if stored.store_at < near[stored.body]]
    assert early == []
