"""`orbitmq` with a planted bug: `planted.py BUG serve ...`. The campaign has to catch each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.memory import SentPlace
from orbitmq.broker.idempotence.owners import Owners
from orbitmq.broker.idempotence.repeats import FirstAnswer, Repeats
from orbitmq.broker.offsets import OffsetTable
from orbitmq.cli.main import main
from orbitmq.clock import WallTime
from orbitmq.errors import JobRefusedError
from orbitmq.protocol.recall_handles import decode_handle
from orbitmq.store import worker
from orbitmq.store.files import OsFile
from orbitmq.store.flushing import Flushing
from orbitmq.store.open_files import BoundedFiles
from orbitmq.store.reading import ColdRead
from orbitmq.store.reads import Reads
from orbitmq.store.reserve import Reserve
from orbitmq.store.shortage import Shortage
from orbitmq.store.worker import Lanes, ThreadWorker


def nothing_synced() -> None:
    """Files are not synced, and it is said that they were."""
    OsFile.datasync = lambda self: None  # type: ignore[method-assign]


def names_not_synced() -> None:
    """Directories are not synced: a new file is gone after a power failure."""
    os.fsync = lambda descriptor: None


def offset_not_cut() -> None:
    """Saved consumer offsets are believed, however short the log is."""
    OffsetTable.cut = lambda *_: []  # type: ignore[method-assign, assignment]


def read_error_taken_for_damage() -> None:
    """A record that could not be read is passed over, as one that failed its check is."""
    correct = Reads._settle

    def settle(self: Reads, result: Any, cold: Any, read: object, done: Any) -> None:
        correct(self, result, cold, ColdRead([], cold.ranges[0][0]) if isinstance(read, OSError) else read, done)

    Reads._settle = settle  # type: ignore[method-assign]


def scope_bound_shared() -> None:
    """What one owner has taken is not there for the others."""
    Owners.has_bytes = lambda self, owner, needed_bytes, limit_bytes: (  # type: ignore[method-assign]
        self.used_bytes + needed_bytes <= limit_bytes
    )
    Owners.has_scope = lambda self, owner, limit: self.scope_count < limit  # type: ignore[method-assign]


def repeat_answered_for_a_deleted_topic() -> None:
    """What was sent is remembered, whatever became of it."""
    Idempotence.end_topic = lambda *_: None  # type: ignore[method-assign]
    correct = Repeats.first_answer
    Repeats.first_answer = lambda self, place, unique_key, now_ms=0: (  # type: ignore[method-assign]
        correct(self, place, unique_key) or FirstAnswer(place, None)
    )


def handle_of_a_repeat_made_new() -> None:
    """A repeat is answered with the handle that its own message would have had."""
    correct = Repeats.first_answer

    def first_answer(self: Repeats, place: SentPlace, unique_key: str, now_ms: int = 0) -> FirstAnswer | None:
        first = correct(self, place, unique_key)
        if first is None or first.handle is None:
            return first
        known = decode_handle(first.handle)
        return first._replace(handle=self._handle_of(known.topic, known.timestamp_ms - 1, unique_key))

    Repeats.first_answer = first_answer  # type: ignore[method-assign]


SLOW_READ_S: Final = 0.05


def worker_flag_left_set() -> None:
    """One worker of few places does everything, reads are slow, and a sync that found none counts as running for good."""
    worker.WORKER_JOBS_MAX = 32
    read = Reads._read
    Reads._read = lambda self, cold: time.sleep(SLOW_READ_S) or read(self, cold)  # type: ignore[method-assign, func-returns-value]
    Lanes.threads = classmethod(  # type: ignore[method-assign, assignment]
        lambda cls, name, notify: cls.of(ThreadWorker(name, notify))
    )
    done = Flushing._done
    Flushing._done = lambda self, end, result: (  # type: ignore[method-assign]
        None if isinstance(result, JobRefusedError) else done(self, end, result)
    )


def descriptor_set_without_a_bound() -> None:
    """No open file is given back."""
    BoundedFiles._give_back = lambda self, remaining: None  # type: ignore[method-assign]


def jump_believed_at_once() -> None:
    """The wall clock is followed wherever it goes."""
    WallTime.judge = lambda self, wall_ns, boot_ns: wall_ns  # type: ignore[method-assign]


def nothing_set_aside() -> None:
    """What has to be written on a full disk finds no room either."""
    Reserve.spend = lambda self: None  # type: ignore[method-assign]


def unwritable_for_good() -> None:
    """A disk that was full once is never looked at again."""
    Shortage._look = lambda self: None  # type: ignore[method-assign]


class Plant(NamedTuple):
    edge: str
    """The edge that catches it."""

    put: Callable[[], None]


PLANTED: Final[dict[str, Plant]] = {
    plant.put.__name__: plant
    for plant in (
        Plant("full_worker", worker_flag_left_set),
        Plant("failing_reads", read_error_taken_for_damage),
        Plant("descriptors", descriptor_set_without_a_bound),
        Plant("clock_jumps", jump_believed_at_once),
        Plant("repeats", repeat_answered_for_a_deleted_topic),
        Plant("repeats", handle_of_a_repeat_made_new),
        Plant("full_scopes", scope_bound_shared),
        Plant("saved_offsets", offset_not_cut),
        Plant("synced_sends", nothing_synced),
        Plant("synced_sends", names_not_synced),
        Plant("full_disk", nothing_set_aside),
        Plant("full_disk", unwritable_for_good),
    )
}


if __name__ == "__main__":
    PLANTED[sys.argv.pop(1)].put()
    sys.exit(main())
