"""Retention: which files may go now, and whether the disk allows more sends (RocketMQ storage, cleaning).

Pure decisions over facts that the caller has gathered; the caller removes the files and refuses the sends.

Rules of this file
1. The log loses its oldest files only, one after the other; the file being written never goes.
2. A file that holds a byte at or behind `lowest_needed` (a pending delayed message, a reader, a replica) is pinned: it
   stays, and so does everything behind it, however full the disk is. When space is wanted and only pinned files could
   give it, sends are refused instead.
3. The percent rules about disk use apply only while less than 2 GiB are free as well. Percents are rounded up.
4. Age is that of the last change of the file, as RocketMQ counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.limits import DISK_FREE_ENOUGH_BYTES
from orbitmq.store.files import DiskUsage
from orbitmq.store.settings import StoreSettings

HOUR_MS: Final = 3_600_000


class LogFile(NamedTuple):
    """One commit log file: its first byte and the byte after its last, and when it was last changed."""

    base: int
    end: int
    modified_ms: int


class DiskLevel(Enum):
    """What the use of a disk asks for."""

    FINE = "fine"
    CLEAN = "clean"
    """Remove expired files at any hour."""
    FORCE = "force"
    """Remove the oldest files whatever their age."""
    FULL = "full"
    """As FORCE, and accept no more messages."""


class Retention(NamedTuple):
    """The decision of one round."""

    remove: list[LogFile]
    """Oldest first; to be removed in this order."""
    refuse_sends: bool
    reason: str
    """Why sends are refused; empty when they are not."""
    pinned: bool
    """A file that would have gone stays because it is still needed."""
    level: DiskLevel


_SEVERITY: Final = {level: rank for rank, level in enumerate(DiskLevel)}


def used_percent(usage: DiskUsage) -> int:
    """Use of a disk in whole percents, rounded up; -1 when its size is unknown."""
    if usage.total_bytes <= 0:
        return -1
    return -(-usage.used_bytes * 100 // usage.total_bytes)


def disk_level(usage: DiskUsage, settings: StoreSettings) -> DiskLevel:
    """What RocketMQ's thresholds, within the ranges it allows for them, say about a disk.

    A disk of unknown size is worth a look at expired files and nothing more.
    """
    percent = used_percent(usage)
    if percent < 0:
        return DiskLevel.CLEAN
    if usage.free_bytes >= DISK_FREE_ENOUGH_BYTES:
        return DiskLevel.FINE
    if percent > _within(settings.disk_space_warning_level_ratio, 35, 90):
        return DiskLevel.FULL
    if percent > _within(settings.disk_space_clean_forcibly_ratio, 30, 85):
        return DiskLevel.FORCE
    if percent > _within(settings.disk_max_used_space_ratio, 10, 95):
        return DiskLevel.CLEAN
    return DiskLevel.FINE


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def decide(
    files: Sequence[LogFile],
    *,
    now_ms: int,
    settings: StoreSettings,
    disks: Sequence[DiskUsage],
    lowest_needed: int | None = None,
    manual: bool = False,
) -> Retention:
    """One round over the commit log files, oldest first in `files`.

    `disks` are those of the commit log and of the consume queues; the fuller one counts. `lowest_needed` is the lowest
    physical offset that something still needs, None when nothing does. `manual` asks for expired files at any hour.
    At most `delete_file_batch_max` files go in one round.
    """
    level = max((disk_level(usage, settings) for usage in disks), key=_SEVERITY.__getitem__, default=DiskLevel.FINE)
    forced = level in (DiskLevel.FORCE, DiskLevel.FULL)
    at_once = forced and settings.clean_file_forcibly_enable
    round_due = manual or level is not DiskLevel.FINE or local_hour(now_ms) in settings.delete_when
    remove: list[LogFile] = []
    pinned = False
    if round_due:
        reserved_ms = settings.file_reserved_time_hours * HOUR_MS
        for file in files[:-1]:
            if len(remove) >= settings.delete_file_batch_max:
                break
            if not (at_once or now_ms >= file.modified_ms + reserved_ms):
                break
            if lowest_needed is not None and file.end > lowest_needed:
                pinned = True
                break
            remove.append(file)
    return Retention(remove, *_refusal(level, at_once, pinned and not remove, disks), pinned, level)


def _refusal(level: DiskLevel, at_once: bool, only_pinned: bool, disks: Sequence[DiskUsage]) -> tuple[bool, str]:
    use = ", ".join(f"{used_percent(usage)} % used, {usage.free_bytes >> 20} MiB free" for usage in disks)
    if at_once and only_pinned:
        return (
            True,
            f"the disk is nearly full ({use}) and the oldest commit log files hold messages still to be delivered",
        )
    if level is DiskLevel.FULL:
        return True, f"the disk is full ({use})"
    return False, ""


def local_hour(now_ms: int) -> int:
    """Hour of the day, 0 to 23, in the machine's time zone: `deleteWhen` is meant so."""
    return datetime.fromtimestamp(now_ms // 1000).hour
