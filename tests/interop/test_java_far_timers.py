"""What waited in Parquet files is RocketMQ 5.3.3's to deliver after `timer far restore`: each once, recalled ones never."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind
from rig.ledger import SMALL_FILES
from rig.toolchain import BROKER_VERSION, java_build
from rig.wire import Wire, encode_properties, send_fields

from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.inspection import StoredTimers
from orbitmq.timing.rocketmq.stat import stat_timers

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

TOPIC = "FarTimers"
SEND_V2, RECALL_MESSAGE, FAR_TIER = 310, 370, 20030
COUNT, DAYS_COUNT = 30, 6
HORIZON_S = 120
"""The shortest there is."""

AHEAD_MS = HORIZON_S * 1_000 + 10_000
"""Far enough for the far tier, and time to land, recall, restore and change brokers."""

DAYS_MS = 4 * 86_400_000
"""Later than RocketMQ takes a message in, and later than it rolls one."""

JAVA_SETTINGS = SMALL_FILES | {"mappedFileSizeTimerLog": str(52 * 100)}
OUR_SETTINGS = JAVA_SETTINGS | {"timerFarHorizonSec": str(HORIZON_S)}


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")
    available(lambda: java_build(BROKER_VERSION))


def send(wire: Wire, body: bytes, due_ms: int) -> str:
    """The recall handle."""
    values = {"UNIQ_KEY": body.hex().upper().zfill(32), "TIMER_DELIVER_MS": str(due_ms)}
    fields, _ = wire.call(SEND_V2, send_fields(TOPIC, 0, 0, encode_properties(values)), body)
    return str(fields["recallHandle"])


def far_tier(wire: Wire, action: str) -> dict[str, Any]:
    _, answer = wire.call(FAR_TIER, {}, json.dumps({"action": action}).encode())
    state: dict[str, Any] = json.loads(answer)
    return state


def until(wire: Wire, reached: Callable[[dict[str, Any]], bool]) -> None:
    ends = time.monotonic() + 120
    while not reached(state := far_tier(wire, "status")):
        assert time.monotonic() < ends, state
        time.sleep(0.2)


def test_orbitmq_to_java(brokers: Callable[..., BrokerUnderTest], tmp_path: Path) -> None:
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=OUR_SETTINGS).start()
    due: dict[bytes, int] = {}
    handles: dict[bytes, str] = {}
    with ours.wire() as wire:
        wire.create_topic(TOPIC, 1)
        first = time.time_ns() // 1_000_000 + AHEAD_MS
        for number in range(COUNT):
            due[b"soon %d" % number] = first + 300 * number
        for number in range(DAYS_COUNT):
            due[b"days %d" % number] = first + DAYS_MS + number
        for body, due_ms in due.items():
            handles[body] = send(wire, body, due_ms)
        assert far_tier(wire, "compact").get("pending") == COUNT + DAYS_COUNT
        until(wire, lambda state: state.get("fileRows", state.get("file_rows", 0)) == COUNT + DAYS_COUNT)
        recalled = {body for number, body in enumerate(due) if number % 3 == 0}
        for body in recalled:
            wire.call(RECALL_MESSAGE, {"producerGroup": "judge", "topic": TOPIC, "recallHandle": handles[body]})
        far_tier(wire, "restore")
        until(wire, lambda state: not state.get("pending"))
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=JAVA_SETTINGS).start()
    assert time.time_ns() // 1_000_000 < first, "the change of brokers took longer than planned"
    wanted = {body for body in due if body.startswith(b"soon")} - recalled
    with java.wire() as wire:
        last = max(due[body] for body in wanted) / 1000
        while True:
            found = wire.read_queue(TOPIC, 0)
            if time.time() > last + 20 or (time.time() > last + 3 and wanted <= {stored.body for stored in found}):
                break
            time.sleep(0.5)
    assert Counter(stored.body for stored in found) == Counter(wanted)
    assert [stored.body for stored in found if stored.store_at < due[stored.body]] == [], "came early"
    java.stop()
    stat = stat_timers(data, OsFiles(), 0)
    assert stat is not None
    days_left = {body for body in due if body.startswith(b"days")} - recalled
    timers = StoredTimers(OsFiles(), data)
    keys = {(timers.properties(waiting) or {}).get("UNIQ_KEY") for waiting in timers.waiting()}
    timers.close()
    assert {body.hex().upper().zfill(32) for body in days_left} <= keys
    assert stat.rolling_count >= len(days_left), "they wait for the end of the roll window"
