"""What a store of RocketMQ may hold that this version cannot carry on: pending timers and undecided transactions.

Rules of this file
1. Such a store is refused before anything listens, with what was found and what to do; it is never served as if those
   messages did not exist.
2. The store was recovered as at any start, and is left as after an orderly stop: RocketMQ carries on from there. Reading
   tools (`orbitmq store ...`) work on any store.

Source: RocketMQ store format, timer wheel, timer checkpoint; transaction check progress.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import HALF_TOPIC, TIMER_TOPIC
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.timing.timer_files.checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint, read_timer_checkpoint
from orbitmq.timing.timer_files.wheel import SLOT, WHEEL_FILE

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

SLOTS_PER_READ: Final = 32_768


def refuse_unfinished(root: Path, files: Files, queues: ConsumeQueues, precision_ms: int) -> None:
    """Raises ConfigurationError when the store holds messages that only a feature not yet built can deliver."""
    found = []
    waiting = unlinked_timers(root, files, queues)
    linked = linked_timers(root, files, precision_ms)
    if waiting or linked:
        found.append(f"{waiting + linked} or more pending timer messages")
    undecided = undecided_halves(root, files, queues)
    if undecided:
        found.append(f"up to {undecided} undecided transactions")
    if found:
        raise ConfigurationError(
            f"the store {root} holds {' and '.join(found)}, which this version cannot deliver yet",
            remedy="let RocketMQ finish them first, then stop it and start orbitmq; nothing was lost",
        )


def unlinked_timers(root: Path, files: Files, queues: ConsumeQueues) -> int:
    """Records of the timer topic that RocketMQ has not yet put into its wheel."""
    queue = queues.get(TIMER_TOPIC, 0)
    if queue is None:
        return 0
    linked = _checkpoint(root, files).last_timer_queue_offset
    return max(queue.max_offset - max(linked, queue.min_offset), 0)


def linked_timers(root: Path, files: Files, precision_ms: int) -> int:
    """Units in slots of the wheel that have not been read."""
    path = root / WHEEL_FILE
    if not files.exists(path):
        return 0
    first_unread = _checkpoint(root, files).last_read_time_ms // precision_ms
    count = 0
    wheel = files.open(path, writable=False)
    try:
        for begin, end in wheel.data_ranges(0):
            at = begin // SLOT.size * SLOT.size
            while at < end:
                content = wheel.pread(SLOTS_PER_READ * SLOT.size, at)
                whole = len(content) // SLOT.size * SLOT.size
                if not whole:
                    break
                if any(content):
                    slots = SLOT.iter_unpack(content[:whole])
                    count += sum(
                        max(units, 1)
                        for number, _, last, units, _ in slots
                        if number >= first_unread and number and last >= 0
                    )
                at += whole
    finally:
        wheel.close()
    return count


def _checkpoint(root: Path, files: Files) -> TimerCheckpoint:
    return read_timer_checkpoint(files, root / "config" / TIMER_CHECKPOINT_FILE) or TimerCheckpoint()


def undecided_halves(root: Path, files: Files, queues: ConsumeQueues) -> int:
    """Half messages beyond the point up to which RocketMQ's check has seen every transaction decided."""
    queue = queues.get(HALF_TOPIC, 0)
    if queue is None:
        return 0
    table: dict[str, Any] = ConfigFile(files, root / "config" / "consumerOffset.json").load() or {}
    offsets = table.get("offsetTable", {}).get(f"{HALF_TOPIC}@{TRANSACTION_GROUP}", {})
    return max(queue.max_offset - max(int(offsets.get("0", 0)), queue.min_offset), 0)
