"""RocketMQ 5.3.3 delivers from a timer wheel and a timer log that orbitmq wrote, exact due times included."""

from __future__ import annotations

import shutil
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
from orbitmq.timing.due_time import roll_window, slot_to_link
from orbitmq.timing.timer_files.check import check_timers
from orbitmq.timing.timer_files.inspection import StoredTimers, slot_of
from orbitmq.timing.timer_files.link import Link, link, settle
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timer_files.stat import stat_timers
from orbitmq.timing.timer_files.unit import DEFAULT, ROLL
from orbitmq.timing.timer_files.wheel import TimerWheel

pytestmark = pytest.mark.java

FILES = OsFiles()
TOPIC = "TimerFiles"
COUNT = 200
FAR_COUNT = 3
"""Due in two and a half days: they roll."""

AHEAD_MS = 32_000
"""The Java broker takes 15 s to stop."""

TIMER_LOG_BYTES = 5200
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
    """Replace wheel and log by ours, made from the records; only the write clock is taken over."""
    timers = StoredTimers(FILES, data)
    links = []
    for waiting in timers.waiting():
        unit = timers.log.unit(waiting.position)
        properties = timers.properties(waiting)
        assert unit is not None
        assert properties is not None
        wanted = slot_of(properties)
        assert wanted is not None
        slot_ms, rolls = slot_to_link(wanted, unit.write_ms, roll_window(172_800), 1000)
        magic = DEFAULT | (ROLL if rolls else 0)
        topic_hash = java_hash(properties["REAL_TOPIC"])
        due_ms = int(properties["TIMER_DELIVER_MS"])
        links.append((unit.write_ms, Link(slot_ms, magic, unit.physical_offset, unit.size, topic_hash, due_ms)))
    timers.close()
    (data / "timerwheel").unlink()
    shutil.rmtree(data / "timerlog")
    wheel = TimerWheel.create(FILES, data / "timerwheel", 1000)
    log = TimerLog(FILES, data / "timerlog", TIMER_LOG_BYTES)
    log.load()
    for write_ms, item in links:
        link(wheel, log, write_ms, [item])
    settle(wheel, log)
    assert all(unit.due_ms(1000) is not None for unit in log.scan())
    wheel.close()
    log.close()
    return len(links)


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
