"""Metrics of a store and its delay levels: what it holds, what is behind, what is late, what failed.

Rules of this file
1. Everything is read from what the store and the levels keep anyway.
2. RocketMQ's metrics keep its units (milliseconds); ours are in seconds and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orbitmq.clock import Clock
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.store import MessageStore
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Sample, by_label, one
from orbitmq.telemetry.store_times import StoreTimes
from orbitmq.timing.levels.release import LevelRelease

LOCAL_DISK = ("local", "disk")
"""Labels that RocketMQ gives its storage metrics."""


class StoreMetrics:
    """The collector of one open store."""

    def __init__(
        self,
        store: MessageStore,
        release: LevelRelease,
        housekeeping: Housekeeping,
        times: StoreTimes,
        clock: Clock,
        *,
        root: Path,
        opened_in_ns: int,
    ) -> None:
        """`opened_in_ns`: how long opening the store took."""
        self._store = store
        self._release = release
        self._housekeeping = housekeeping
        self._times = times
        self._clock = clock
        self._root = root
        self._opened_in_ns = opened_in_ns

    def want(self) -> None:
        """Ask for the store times that the next collection shows."""
        if self._store.log.end > self._store.log.start:
            self._times.want(self._store.log.start)

    def __call__(self) -> Iterator[Family]:
        yield from self._log()
        yield from self._health()
        yield from self._delays()

    def _log(self) -> Iterator[Family]:
        store, log = self._store, self._store.log
        stored_ms = self._times.get(log.start)
        age = [Sample(LOCAL_DISK, max(self._clock.now_ms() - stored_ms, 0))] if stored_ms is not None else []
        yield Family(catalogue.STORAGE_SIZE, [Sample(LOCAL_DISK, log.written_end - log.start)])
        yield Family(catalogue.FLUSH_BEHIND, [Sample(LOCAL_DISK, store.unsynced_bytes)])
        yield Family(catalogue.DISPATCH_BEHIND, [Sample(LOCAL_DISK, log.written_end - store.confirm_offset)])
        yield Family(catalogue.RESERVE_TIME, age)
        yield one(catalogue.LOG_START, log.start)
        yield one(catalogue.LOG_END, log.written_end)

    def _health(self) -> Iterator[Family]:
        store, keeping = self._store, self._housekeeping
        yield one(catalogue.STORE_WRITABLE, int(not store.trouble))
        failed = (
            ("sync", store.failed_syncs),
            ("write", store.failed_writes),
            ("save", store.durable_saves.failed_count),
        )
        yield by_label(catalogue.WRITE_FAILURES, failed)
        yield one(catalogue.DAMAGED_READS, store.reads.damaged)
        yield by_label(catalogue.REMOVED_FILES, list(keeping.removed.items()))
        yield by_label(catalogue.REMOVED_UNREAD, list(keeping.unread.items()))
        yield one(catalogue.REWRITTEN, keeping.rewritten_count)
        yield by_label(catalogue.DISK_USED, list(keeping.disk_use.items()))
        free = keeping.disk_free_bytes
        yield by_label(catalogue.DISK_FREE, [(str(self._root), free)] if free is not None else [])
        yield one(catalogue.RECOVERY_SECONDS, self._opened_in_ns / 1e9)
        yield one(catalogue.RECOVERY_RECORDS, store.report.scanned_records)
        yield one(catalogue.RECOVERY_TORN, store.report.torn_bytes)

    def _delays(self) -> Iterator[Family]:
        release = self._release
        due = release.next_due_ms
        behind_ms = max(self._clock.now_ms() - due, 0) if due is not None else 0
        yield Family(catalogue.LATENESS, [Sample((), release.lateness_ms.buckets().scaled(1e-3))])
        pending = [(str(level), count) for level, count in release.pending_by_level().items()]
        yield by_label(catalogue.DELAY_PENDING, pending)
        yield one(catalogue.DELAY_BEHIND, behind_ms / 1_000)
        yield one(catalogue.DELAY_RELEASED, release.released_count)
        yield one(catalogue.DELAY_QUARANTINED, release.quarantined_count)
        yield one(catalogue.DELAY_OUT_OF_ORDER, release.squeezed_count)
