"""Timer files on a disk that is full, and with slots of no time: the store goes on, and no message is lost or late for it."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles
from tests.worlds.little_store import SMALL_TIMERS, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.wheel import SLOT, SLOT_BYTES


def pass_time(little: LittleStore, ms: int, step_ms: int = 500) -> None:
    for _ in range(0, ms, step_ms):
        little.advance(step_ms)


@pytest.mark.parametrize("name", ["timerwheel", "timercheck"])
@pytest.mark.parametrize("kind", ["write", "allocate"])
def test_a_full_disk_delays_what_a_save_says_and_stops_nothing_for_good(tmp_path: Path, name: str, kind: str) -> None:
    full = False

    def plan(call: Call) -> OSError | None:
        if full and call.path.name == name and call.kind == kind:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(call.path))
        return None

    little = LittleStore(tmp_path, files=RecordingFiles(OsFiles(), tmp_path, plan=plan))
    full = True
    little.send(body=b"first", after_ms=8_000)
    pass_time(little, 7_000)
    assert not little.store.is_over
    full = False
    pass_time(little, 2_000)
    assert little.store.writable
    assert little.bodies() == [b"first"]
    little.close()
    again = LittleStore(tmp_path, clock=little.clock)
    assert again.timers.pending_count == 0
    again.close()


def test_a_slot_of_another_age_is_not_believed(tmp_path: Path) -> None:
    """Its number fits its place in the wheel, so that only its time gives it away."""
    little = LittleStore(tmp_path)
    little.send(body=b"first", after_ms=20_000)
    pass_time(little, 6_000)
    little.kill()
    path = tmp_path / "timerwheel"
    data = bytearray(path.read_bytes())
    (at,) = (at for at in range(0, len(data) - SLOT_BYTES, SLOT_BYTES) if SLOT.unpack_from(data, at)[0])
    (number,) = struct.unpack_from(">q", data, at)
    struct.pack_into(">q", data, at, number + SMALL_TIMERS.slot_count * 1_000_003)
    path.write_bytes(data)
    again = LittleStore(tmp_path, clock=ManualClock(little.clock.now_ms()))
    pass_time(again, 15_000)
    assert again.bodies() == [b"first"]
    again.close()
