"""Timer files written by the Java broker: read whole, taken over exactly, and left to it again with the same messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.store.check import check_store
from orbitmq.store.files import OsFiles
from orbitmq.timing.due_time import TimerKind, TimerRules, due_time_of, stored_due_time
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.rocketmq.inspection import StoredTimers, dump_timer_checkpoint, dump_timer_log, dump_timer_wheel
from orbitmq.timing.rocketmq.log import BLANK, BLANK_MAGIC, UNIT, UNIT_BYTES, TimerLog
from orbitmq.timing.rocketmq.stat import stat_timers
from orbitmq.timing.rocketmq.wheel import SLOT, SLOT_BYTES, TimerWheel

FILES = OsFiles()
STORES = ("timer-clean", "timer-crash", "timer-far")
FILE_BYTES = 5200

Unpack = Callable[[str], Any]


def open_log(root: Path) -> TimerLog:
    return TimerLog.open(FILES, root / "timerlog")


def all_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def timer_messages(expected: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Messages of the timer topic by physical offset."""
    return {m["physicalOffset"]: m for m in expected["messages"] if m["topic"] == "rmq_sys_wheel_timer"}


@pytest.mark.parametrize("name", STORES)
def test_every_unit_encodes_to_its_bytes(shared_store: Unpack, name: str) -> None:
    root, _ = shared_store(name)
    log = open_log(root)
    data = bytearray(len(all_bytes(root / "timerlog")))
    for unit in log.scan():
        UNIT.pack_into(data, unit.position, UNIT_BYTES, *unit[1:])
        if log.is_last_of_file(unit):
            room = FILE_BYTES - unit.position % FILE_BYTES - UNIT_BYTES
            BLANK.pack_into(data, unit.position + UNIT_BYTES, room, 0, BLANK_MAGIC)
    assert bytes(data) == all_bytes(root / "timerlog")


@pytest.mark.parametrize("name", STORES)
def test_every_slot_encodes_to_its_bytes(shared_store: Unpack, name: str) -> None:
    root, _ = shared_store(name)
    data = bytearray(38_707_200)
    wheel = TimerWheel.open(FILES, root / "timerwheel", 1000)
    for slot in wheel.slots():
        SLOT.pack_into(data, slot.number % wheel.slot_count * SLOT_BYTES, *slot)
    assert bytes(data) == (root / "timerwheel").read_bytes()
    assert wheel.misplaced() == []


@pytest.mark.parametrize("name", STORES)
def test_chains_are_those_that_java_walks(shared_store: Unpack, name: str) -> None:
    root, expected = shared_store(name)
    log, wheel = open_log(root), TimerWheel.open(FILES, root / "timerwheel", 1000)
    read_ms = expected["timerCheckpoint"]["lastReadTimeMs"]
    found = []
    for slot in sorted(wheel.slots(read_ms)):
        walked = list(log.walk(slot.last, slot.number * 1000))
        units = [
            {
                "pos": unit.position,
                "magic": unit.magic,
                "write_clock": unit.write_ms,
                "delay": unit.delay_ms,
                "physicalOffset": unit.physical_offset,
                "size": unit.size,
                "topic_hash": unit.topic_hash,
            }
            for unit in reversed(walked)
        ]
        found.append(
            {
                "slot_ms": slot.number * 1000,
                "first": slot.first,
                "last": slot.last,
                "num": slot.unit_count,
                "units": units,
            }
        )
    assert found == expected["wheelFromReadClock"]


@pytest.mark.parametrize("name", STORES)
def test_slot_times_are_those_that_java_gave(shared_store: Unpack, name: str) -> None:
    """The clock at which Java accepted a message lies between its birth and its store time."""
    _, expected = shared_store(name)
    count = 0
    for message in timer_messages(expected).values():
        properties = message["properties"]
        if "TIMER_ROLL_TIMES" in properties or "TIMER_DEL_UNIQKEY" in properties:
            continue
        slot_ms = int(properties["TIMER_OUT_MS"])
        asked = {key: value for key, value in properties.items() if key != "TIMER_OUT_MS"}
        first = due_time_of(asked, 0, message["bornTimestamp"], TimerRules())
        last = due_time_of(asked, 0, message["storeTimestamp"], TimerRules())
        assert first.kind is last.kind is TimerKind.LATER
        assert first.slot_ms <= slot_ms <= last.slot_ms
        due_ms = stored_due_time(properties, slot_ms, message["storeTimestamp"], 1000)
        assert slot_ms < due_ms <= slot_ms + 1000
        count += 1
    assert count > 100


def test_cancellations_share_the_slot_time_of_their_messages(shared_store: Unpack) -> None:
    _, expected = shared_store("timer-far")
    messages = timer_messages(expected)
    asked = [m["properties"] for m in messages.values() if "TIMER_DEL_UNIQKEY" in m["properties"]]
    for properties in asked:
        time = due_time_of(
            {key: value for key, value in properties.items() if key != "TIMER_OUT_MS"},
            0,
            int(properties["BORN_TIMESTAMP"]),
            TimerRules(),
        )
        assert time.is_cancel
        assert time.slot_ms == int(properties["TIMER_OUT_MS"])
    assert len(asked) == 18


# --- inspection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["timer-clean", "timer-far"])
def test_pending_messages_are_counted_exactly(shared_store: Unpack, name: str) -> None:
    root, expected = shared_store(name)
    now_ms = expected["timerCheckpoint"]["lastReadTimeMs"]
    stat = stat_timers(root, FILES, now_ms)
    assert stat is not None
    assert stat.pending_count == len(expected["pendingTimers"])
    assert stat.cancelled_count == len(expected["cancelledTimers"])
    assert (stat.overdue_count, stat.unlinked_count, stat.precision_ms) == (0, 0, 1000)
    before = now_ms
    for bucket in stat.due:
        end = now_ms + bucket.within_s * 1000 if bucket.within_s is not None else 1 << 62
        wanted = [m for m in expected["pendingTimers"] if before < m["slotMs"] + 1000 <= end]
        assert bucket.count == len(wanted), bucket.within_s
        before = end
    late = stat_timers(root, FILES, now_ms + 10**10)
    assert late is not None
    assert late.overdue_count == late.pending_count == stat.pending_count


def test_after_a_kill_what_was_delivered_since_the_checkpoint_still_counts(shared_store: Unpack) -> None:
    root, expected = shared_store("timer-crash")
    stat = stat_timers(root, FILES, 0)
    assert stat is not None
    assert stat.unlinked_count == 1
    delivered = 39
    assert stat.pending_count + stat.cancelled_count == delivered + len(expected["pendingTimers"]) + len(
        expected["cancelledTimers"]
    )


def test_a_store_without_timers_has_no_figures(shared_store: Unpack) -> None:
    root, _ = shared_store("plain-clean")
    assert stat_timers(root, FILES, 0) is None


@pytest.mark.parametrize("name", STORES)
def test_a_store_of_rocketmq_is_sound(shared_store: Unpack, name: str) -> None:
    root, _ = shared_store(name)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    report = check_store(root, FILES, timers=check_timers)
    assert report.findings == []
    notes = [str(note) for note in report.notes if "timer" in note.path]
    assert notes == (
        [
            "config/timercheck: 1 records of the timer topic have no unit yet",
            "timerwheel: 21 units are not in the wheel yet; recovery links them",
        ]
        if name == "timer-crash"
        else []
    )
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_dumps_say_what_stands_there(shared_store: Unpack) -> None:
    root, expected = shared_store("timer-clean")
    assert dump_timer_checkpoint(FILES, root) == expected["timerCheckpoint"]
    items = list(dump_timer_log(FILES, root))
    assert [item["kind"] for item in items].count("unit") == 744
    assert [item["position"] for item in items if item["kind"] == "blank"] == [5148 + 5200 * n for n in range(7)]
    assert items[-1] == {"kind": "end", "position": 39_052}
    assert next(iter(dump_timer_log(FILES, root, start=39_000)))["position"] == 39_000
    slots = list(dump_timer_wheel(FILES, root, since_ms=expected["timerCheckpoint"]["lastReadTimeMs"]))
    assert [(slot["slotMs"], slot["firstPos"], slot["lastPos"], slot["num"]) for slot in slots] == [
        (slot["slot_ms"], slot["first"], slot["last"], slot["num"]) for slot in expected["wheelFromReadClock"]
    ]


def test_dumps_of_a_store_without_timer_files_are_empty(tmp_path: Path) -> None:
    assert dump_timer_checkpoint(FILES, tmp_path) == {}
    assert list(dump_timer_wheel(FILES, tmp_path)) == []
    assert list(dump_timer_log(FILES, tmp_path)) == [{"kind": "end", "position": 0}]


def test_files_of_a_wrong_size_are_damage(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(100))
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / "odd").write_bytes(b"x")
    timers = StoredTimers(FILES, tmp_path)
    assert len(timers.problems) == 2
    timers.close()
    assert [item["kind"] for item in dump_timer_wheel(FILES, tmp_path)] == ["damage"]
    assert [item["kind"] for item in dump_timer_log(FILES, tmp_path)] == ["damage", "end"]
