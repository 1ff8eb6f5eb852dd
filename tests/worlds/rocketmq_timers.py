"""Timer files as RocketMQ walks and writes them, by nothing but their documented layout; and a store that is taken over.

Rules of this file
1. Nothing of `orbitmq.timing.rocketmq` reads or writes the files here: this is its judge.
2. A reader walks slots as RocketMQ does: from the read clock on, from the last unit back, without a look at anything else.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.worlds.little_store import SMALL, SteppedWorker

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import level_due_time, open_store
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.exchange import TakenOver
from orbitmq.timing.timers.known_cancels import KnownCancels
from orbitmq.timing.timers.pending import PendingTimers

MESSAGE, ROLLS, CANCEL, NOTHING = 1, 3, 5, 13
"""Magic of units; a cancellation that rolls is 7."""


class PlainUnit(NamedTuple):
    position: int
    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical: int
    size: int
    topic_hash: int
    due_ms: int


class Refused(Exception):
    """RocketMQ does not start."""


class SeenByRocketMQ(NamedTuple):
    """What a start of RocketMQ finds."""

    chains: dict[int, list[PlainUnit]]
    """Slot time -> its units, oldest first, from the read clock on."""
    counts: dict[int, int]
    read_ms: int
    flushed: int
    next_offset: int
    """Queue offset of the next record it links: behind the record of the last unit, and no later than the checkpoint says."""
    last_physical: int
    """Log position of the record of the last unit, -1 for none."""
    log_end: int

    @property
    def messages(self) -> list[tuple[int, int, int, int]]:
        """Due time, position, size and hash of the messages in all chains, in the order in which slots are read."""
        units = [unit for slot_ms in sorted(self.chains) for unit in self.chains[slot_ms] if not unit.magic & 4]
        return [(unit.due_ms, unit.physical, unit.size, unit.topic_hash) for unit in units]


def seen_by_rocketmq(root: Path, precision_ms: int, slot_count: int, log_file_bytes: int) -> SeenByRocketMQ:
    """Raises Refused for a wheel of another length, and AssertionError for whatever RocketMQ would stumble over."""
    wheel = (root / "timerwheel").read_bytes() if (root / "timerwheel").exists() else b""
    if wheel and len(wheel) != slot_count * 32:
        raise Refused(f"a wheel of {len(wheel)} bytes")
    page = (root / "config" / "timercheck").read_bytes() if (root / "config" / "timercheck").exists() else bytes(56)
    read_ms, flushed, next_offset, master_offset = struct.unpack(">4q", page[:32])
    assert next_offset <= master_offset
    units, end = _units(root, log_file_bytes)
    assert flushed <= end, "the checkpoint is ahead of the timer log"
    chains: dict[int, list[PlainUnit]] = {}
    counts: dict[int, int] = {}
    for place in range(len(wheel) // 32):
        number, first, last, count, _ = struct.unpack_from(">qqqii", wheel, place * 32)
        if number * precision_ms >= read_ms and number and last >= 0:
            assert number % slot_count == place
            chain: list[PlainUnit] = []
            while last != -1:
                unit = units[last]
                assert unit.write_ms + unit.delay_ms == number * precision_ms, "a unit of another slot"
                chain.append(unit)
                assert unit.previous < last
                last = unit.previous
            assert chain[-1].position == first
            chains[number * precision_ms], counts[number * precision_ms] = chain[::-1], count
    last_physical = units[max(units)].physical if units else -1
    return SeenByRocketMQ(chains, counts, read_ms, flushed, master_offset, last_physical, end)


def _units(root: Path, file_bytes: int) -> tuple[dict[int, PlainUnit], int]:
    """Units by position, and where they end; behind it there is nothing but zeros."""
    units: dict[int, PlainUnit] = {}
    directory = root / "timerlog"
    paths = sorted(directory.iterdir()) if directory.exists() else []
    position = int(paths[0].name) if paths else 0
    for path in paths:
        data = path.read_bytes()
        assert len(data) == file_bytes
        assert int(path.name) // file_bytes * file_bytes == int(path.name)
        for at in range(0, file_bytes, 52):
            size, previous, magic = struct.unpack_from(">iqi", data, at)
            position = int(path.name) + at
            if magic == struct.unpack(">i", b"\xcb\xd4\x31\x94")[0]:
                assert size == file_bytes - at < 52 + 16
                position += size
                break
            if size == 0:
                assert not any(data[at:])
                return units, position
            assert size == 52
            assert file_bytes - at >= 52 + 16
            units[position] = PlainUnit(position, previous, magic, *struct.unpack_from(">qiqiiq", data, at + 16))
    return units, position


def write_as_rocketmq(
    root: Path, units: list[tuple[int, int, int, int]], file_bytes: int, *, read_ms: int, linked: int, flushed: int = -1
) -> None:
    """A timer log and a checkpoint. `units`: (slot time, magic, log position, size); `linked`: queue offset of the first record that
    is not linked."""
    (root / "timerlog").mkdir(exist_ok=True)
    (root / "config").mkdir(exist_ok=True)
    (root / "timerwheel").touch()
    data = bytearray()
    last: dict[int, int] = {}
    for slot_ms, magic, physical, size in units:
        room = file_bytes - len(data) % file_bytes
        if room < 52 + 16:
            data += struct.pack(">iqI", room, 0, 0xCBD43194).ljust(room, b"\0")
        previous, last[slot_ms] = last.get(slot_ms, -1), len(data)
        write_ms = slot_ms - 7_000
        data += struct.pack(">iqiqiqiiq", 52, previous, magic, write_ms, 7_000, physical, size, 0, 0)
    for base in range(0, len(data), file_bytes):
        part = bytes(data[base : base + file_bytes])
        (root / "timerlog" / f"{base:020d}").write_bytes(part.ljust(file_bytes, b"\0"))
    end = len(data) if flushed < 0 else flushed
    page = struct.pack(">7q", read_ms, end, linked, linked, 0, 0, 0).ljust(4096, b"\0")
    (root / "config" / "timercheck").write_bytes(page)


class ForeignStore:
    """A store whose timer topic holds what a test appends; RocketMQ wrote it last, and it is taken over."""

    def __init__(self, root: Path, clock: ManualClock, **changes: Any) -> None:
        self.root = root
        self.clock = clock
        self.due_time = level_due_time(DelayLevels.parse())
        self.store = open_store(
            root,
            msgspec.structs.replace(SMALL, **changes),
            OsFiles(),
            clock,
            notify=lambda call: call(),
            derived=[],
            worker=SteppedWorker(),
        )
        self.cancels = KnownCancels(clock)

    def put(self, key: str, due_ms: int, *, topic: str = TIMER_TOPIC, source: int = 0, **more: str) -> Dispatched:
        """A record of the timer topic, or with another topic its delivery."""
        values = {
            Property.UNIQ_KEY: key,
            Property.TIMER_DELIVER_MS: str(due_ms),
            Property.TIMER_OUT_MS: str(slot_time(due_ms, 1_000)),
            Property.REAL_TOPIC: "Topic",
            Property.REAL_QID: "0",
            **more,
        }
        message = NewMessage(topic, 0, b"body", encode_properties(values), unique_key=key)
        message.prepared_transaction_offset = source
        placed = self.store.append(message)
        self.store.commit()
        return placed

    def cancel(self, key: str, due_ms: int, **more: str) -> Dispatched:
        """As a client of RocketMQ cancels the message of that key and due time."""
        return self.put(key, due_ms, TIMER_DEL_UNIQKEY=f"Topic+{key}", **more)

    def taken_over(
        self, exchange: TimerExchange, pending: PendingTimers | None = None, foreign_from: int = 0
    ) -> list[int]:
        """Queue offsets of what is pending then; `pending`: what is by the log, everything unless told otherwise."""
        queue = self.store.queues.get(TIMER_TOPIC, 0)
        if pending is None:
            pending = PendingTimers()
            pending.add_range(0, 0 if queue is None else queue.max_offset)
        now_ms = self.clock.now_ms()
        exchange.take_over(TakenOver(self.store.log, queue, pending, self.cancels, foreign_from, now_ms, 1_000))
        return list(pending.offsets())
