"""What was recalled or moved here stays so after a RocketMQ broker has let its records hop: its copies name no source.

RocketMQ does not know that a change has taken effect. In the slot from which they hop it copies the message that was changed, and
its cancel record behind it, and may be stopped between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL, LittleStore, SteppedWorker

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.records import decode_record
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import open_store
from orbitmq.timing.timer_files.checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint, TimerCheckpointFile
from orbitmq.timing.timers.changes import recall, reschedule
from orbitmq.timing.timers.delivered_records import roll

Reopen = Callable[..., LittleStore]

FILES = OsFiles()
HOUR_MS = 3_600_000
DUE_MS = 3 * HOUR_MS + 500
"""Beyond the window of two hours."""


def change(little: LittleStore, queue_offset: int, to_ms: int | None) -> None:
    record, now_ms = little.timers.read(queue_offset), little.clock.now_ms()
    assert record is not None
    messages = recall(record.record, now_ms)
    if to_ms is not None:
        messages = reschedule(record.record, now_ms + to_ms, now_ms, 1_000, fresh_key=f"fresh{queue_offset}")
    little.timers.change(record, messages, wait=False, on_done=lambda status: None)
    little.store.commit()


def rocketmq_copies(root: Path, clock: ManualClock, numbers: list[int], read_ms: int, linked: int) -> None:
    """RocketMQ runs, copies those records of the timer topic, and stops with its read clock there, and so many linked."""
    store = open_store(root, SMALL, FILES, clock, notify=lambda call: call(), worker=SteppedWorker())
    queue = store.queues.get(TIMER_TOPIC, 0)
    assert queue is not None
    for number in numbers:
        unit = queue.unit(number)
        assert unit is not None
        data = store.record_at(unit[0])
        assert data is not None
        copy = roll(decode_record(bytes(data)))
        copy.prepared_transaction_offset = 0
        store.append(copy)
    store.commit()
    store.close()
    (root / "orbitmq.mark").unlink()
    file = TimerCheckpointFile.open(FILES, root / "config" / TIMER_CHECKPOINT_FILE)
    file.write(TimerCheckpoint(read_ms, file.value.last_timer_log_flush_pos, linked, linked))
    file.close()


def settle(little: LittleStore) -> None:
    for _ in range(6):
        little.advance(1_000)


# In the timer topic: the message, its successor where there is one, the cancel record.
RECALLED, MOVED = None, DUE_MS + 300
COPIED_OF_RECALLED = [[], [0], [0, 1]]
COPIED_OF_MOVED = [[], [0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    ("to_ms", "copied"),
    [(RECALLED, copied) for copied in COPIED_OF_RECALLED] + [(MOVED, copied) for copied in COPIED_OF_MOVED],
)
@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
def test_a_change_holds_after_rocketmq_has_copied(
    little: LittleStore,
    open_again: Reopen,
    tmp_path: Path,
    clock: ManualClock,
    to_ms: int | None,
    copied: list[int],
    end: Callable[[LittleStore], None],
) -> None:
    start_ms = clock.now_ms() // 1_000 * 1_000
    little.send(body=b"one", after_ms=DUE_MS, UNIQ_KEY="u1")
    change(little, 0, to_ms)
    little.send(body=b"another", after_ms=DUE_MS, UNIQ_KEY="u2")
    linked = little.store.max_offset(TIMER_TOPIC, 0)
    little.close()
    clock.advance(2 * HOUR_MS + 1_000)
    rocketmq_copies(tmp_path, clock, copied, start_ms + 2 * HOUR_MS, linked)
    again = open_again()
    assert again.timers.pending_count == (1 if to_ms is None else 2), "nor does a list show what was changed"
    settle(again)
    end(again)
    again = open_again()
    clock.advance(2 * HOUR_MS)
    settle(again)
    assert sorted(again.bodies()) == sorted([b"another"] if to_ms is None else [b"another", b"one"])
    assert again.timers.pending_count == 0
    again.close()


def test_a_hop_of_ours_keeps_what_a_copied_cancellation_says(
    little: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    """It hops once more here, behind a slot that RocketMQ has read."""
    start_ms = clock.now_ms() // 1_000 * 1_000
    little.send(body=b"one", after_ms=2 * DUE_MS, UNIQ_KEY="u1")
    change(little, 0, 2 * DUE_MS + 300)
    little.close()
    clock.advance(2 * HOUR_MS + 1_000)
    rocketmq_copies(tmp_path, clock, [0, 1, 2], start_ms + 2 * HOUR_MS + 1_000, 3)
    again = open_again()
    for _ in range(3):
        clock.advance(2 * HOUR_MS)
        settle(again)
    assert again.bodies() == [b"one"]
    assert again.timers.pending_count == 0
    again.close()
