"""What was due when RocketMQ came upon it has no unit: it delivers that beside the linking of others, and may crash before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL, SMALL_TIMERS, LittleStore, SteppedWorker

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.timing.timer_files.checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint, TimerCheckpointFile
from orbitmq.timing.timer_files.link import Link, link, settle
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT
from orbitmq.timing.timer_files.wheel import WHEEL_FILE, TimerWheel

Reopen = Callable[..., LittleStore]
FILES = OsFiles()


def rocketmq_links(root: Path, write_ms: int, sent: Dispatched, slot_ms: int) -> int:
    """RocketMQ links a record; returns the end of its timer log."""
    wheel = TimerWheel.open(FILES, root / WHEEL_FILE, 1_000, SMALL_TIMERS.slot_count)
    log = TimerLog(FILES, root / "timerlog", SMALL_TIMERS.log_file_bytes)
    log.load()
    link(wheel, log, write_ms, [Link(slot_ms, DEFAULT, sent.physical_offset, sent.size, 0, 0)])
    settle(wheel, log)
    end = log.end
    wheel.close()
    log.close()
    return end


@pytest.mark.parametrize("was_delivered", [False, True])
@pytest.mark.parametrize("is_later_read", [False, True])
def test_it_is_not_taken_for_delivered_because_a_later_one_is_linked(
    little: LittleStore,
    open_again: Reopen,
    tmp_path: Path,
    clock: ManualClock,
    was_delivered: bool,
    is_later_read: bool,
) -> None:
    little.send(body=b"first", after_ms=60_000, UNIQ_KEY="u0")
    overdue: NewMessage = little.message(body=b"overdue", after_ms=500, UNIQ_KEY="u1")
    later: NewMessage = little.message(body=b"later", after_ms=4_500, UNIQ_KEY="u2")
    delivered = little.message(body=b"overdue", UNIQ_KEY="u1", TIMER_OUT_MS="1")
    little.close()
    clock.advance(3_000)
    store = open_store(tmp_path, SMALL, FILES, clock, notify=lambda call: call(), worker=SteppedWorker())
    store.append(overdue)
    placed = store.append(later)
    if was_delivered:
        store.append(delivered)
    store.commit()
    assert store.max_offset(TIMER_TOPIC, 0) == 3
    store.close()
    now_slot = clock.now_ms() // 1_000 * 1_000
    end = rocketmq_links(tmp_path, now_slot, placed, now_slot + 1_000)
    (tmp_path / "orbitmq.mark").unlink()
    file = TimerCheckpointFile.open(FILES, tmp_path / "config" / TIMER_CHECKPOINT_FILE)
    file.write(TimerCheckpoint(now_slot + 2_000 if is_later_read else now_slot, end, 1, 1))
    file.close()
    again = open_again()
    again.advance(2_000)
    bodies = again.bodies()
    assert bodies.count(b"overdue") == 1
    assert bodies.count(b"later") == (0 if is_later_read else 1)
    again.kill()
    again = open_again()
    again.advance(60_000)
    assert sorted(again.bodies()) == sorted([*bodies, b"first"])
    again.close()
