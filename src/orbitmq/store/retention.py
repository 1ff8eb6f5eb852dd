"""Retention: which files may go now, and whether the disk allows more sends (RocketMQ storage, cleaning).

Pure decisions over facts that the caller has gathered; the caller removes the files and refuses the sends.

Rules of this file
1. The log loses its oldest files only, one after the other; the file being written never goes.
2. A file that holds a byte at or behind `lowest_needed` (a reader, a replica) is pinned: it stays, and so does everything
   behind it, however full the disk is. When space is wanted and only pinned files could give it, sends are refused.
3. A file that holds a pending record is pinned too, but its pending records can be put again at the tail of the log
   (*rewriting*). That is asked for only when it frees at least as much as it writes.
4. While anything is pending, sends leave a reserve of free space alone: rewriting and deliveries must be possible on a
   disk that is full for everybody else.
5. A percentage that is set counts alone. RocketMQ's own, where none is set, count only while little is free as well: a large disk at
   91 % has room, and a laptop's. Percents are rounded up.
6. Age is that of the last change of the file, as RocketMQ counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.limits.store import PINNED_FILE_MS_MAX, REWRITE_RESERVE_BYTES_MAX
from orbitmq.store.files import DiskUsage
from orbitmq.store.settings import StoreSettings
from orbitmq.units import HOUR_MS


class RetainedFile(NamedTuple):
    """One commit log file: its first byte and the byte after its last, and when it was last changed."""

    base: int
    end: int
    modified_ms: int


class WaitingRecords(NamedTuple):
    """The records of the log that wait for their time and can be put again at its tail."""

    lowest: int
    """Log position of the oldest."""
    bytes_below: Callable[[int], int]
    """About how many bytes they take below a log position."""


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

    remove: list[RetainedFile]
    """Oldest first; to be removed in this order."""
    refuse_sends: bool
    reason: str
    """Why sends are refused; empty when they are not."""
    pinned: bool
    """A file that would have gone stays because it is still needed."""
    level: DiskLevel
    rewrite_below: int | None = None
    """The pending records below this log position are to be put again, so that files can go; None when none are."""
    early: int = 0
    """How many of the files to be removed, the last ones, go before their time, for the disk has too little room."""
    overdue_below: int = 0
    """Files below this log position should be gone for long, or at once: whoever needs them where they are comes to an end."""

    @property
    def is_stuck(self) -> bool:
        """Sends are refused for lack of room, and no file can go, whatever is put again."""
        return self.refuse_sends and self.pinned and not self.remove and self.rewrite_below is None


_SEVERITY: Final = {level: rank for rank, level in enumerate(DiskLevel)}


def used_percent(usage: DiskUsage) -> int:
    """Use of a disk in whole percents, rounded up; -1 when its size is unknown."""
    if usage.total_bytes <= 0:
        return -1
    return -(-usage.used_bytes * 100 // usage.total_bytes)


class DiskLimit(NamedTuple):
    """Above `percent` of disk use a level is reached, while less than `free_below` bytes are free where that is not None."""

    level: DiskLevel
    percent: int
    free_below: int | None

    @property
    def text(self) -> str:
        also = "" if self.free_below is None else f" while less than {self.free_below >> 20} MiB are free"
        return f"above {self.percent} % used{also}"

    def is_reached(self, usage: DiskUsage) -> bool:
        is_roomy = self.free_below is not None and usage.free_bytes >= self.free_below
        return used_percent(usage) > self.percent and not is_roomy


def disk_limits(settings: StoreSettings) -> list[DiskLimit]:
    """The limits that count with these settings, the most severe first; percentages are taken into RocketMQ's ranges."""
    rows = (
        (DiskLevel.FULL, settings.disk_space_warning_level_ratio, 90, 35, 90),
        (DiskLevel.FORCE, settings.disk_space_clean_forcibly_ratio, 85, 30, 85),
        (DiskLevel.CLEAN, settings.disk_max_used_space_ratio, 75, 10, 95),
    )
    return [
        DiskLimit(level, default, settings.disk_space_free_enough_bytes)
        if percent is None
        else DiskLimit(level, _within(percent, low, high), None)
        for level, percent, default, low, high in rows
    ]


def disk_level(usage: DiskUsage, settings: StoreSettings) -> DiskLevel:
    """What the limits say about a disk. One of unknown size is worth a look at expired files and nothing more."""
    if used_percent(usage) < 0:
        return DiskLevel.CLEAN
    return next((limit.level for limit in disk_limits(settings) if limit.is_reached(usage)), DiskLevel.FINE)


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def reserve_bytes(settings: StoreSettings) -> int:
    """Free space that sends leave alone while anything is pending: what rewriting one round of files can take."""
    return min(settings.mapped_file_size_commit_log, REWRITE_RESERVE_BYTES_MAX)


def decide(
    files: Sequence[RetainedFile],
    *,
    now_ms: int,
    settings: StoreSettings,
    disks: Sequence[DiskUsage],
    lowest_needed: int | None = None,
    pending: WaitingRecords | None = None,
    manual: bool = False,
) -> Retention:
    """One round over the commit log files, oldest first in `files`.

    `disks` are those of the commit log and of the consume queues; the fuller one counts. `lowest_needed` is the lowest
    physical offset that something still needs where it is, None when nothing does; `pending` is None when nothing waits
    for its time. `manual` asks for expired files at any hour. At most `delete_file_batch_max` files go in one round.
    """
    level = max((disk_level(usage, settings) for usage in disks), key=_SEVERITY.__getitem__, default=DiskLevel.FINE)
    forced = level in (DiskLevel.FORCE, DiskLevel.FULL)
    at_once = forced and settings.clean_file_forcibly_enable
    remove: list[RetainedFile] = []
    rewrite_below: int | None = None
    pinned = False
    early = 0
    if manual or level is not DiskLevel.FINE or local_hour(now_ms) in settings.delete_when:
        unwanted = _unwanted(files[:-1], now_ms=now_ms, settings=settings, at_once=at_once)
        free = [file for file in unwanted if lowest_needed is None or file.end <= lowest_needed]
        remove = [file for file in free if pending is None or file.end <= pending.lowest]
        remove = remove[: settings.delete_file_batch_max]
        expired = _unwanted(remove, now_ms=now_ms, settings=settings, at_once=False)
        early = len(remove) - len(expired)
        pinned = len(remove) < min(len(unwanted), settings.delete_file_batch_max)
        if pinned and pending is not None:
            held = free[len(remove) : len(remove) + settings.delete_file_batch_max]
            rewrite_below = _worth_rewriting(held, pending, room_bytes=_free_bytes(disks))
    stuck = pinned and not remove and rewrite_below is None
    limits = {limit.level: limit.text for limit in disk_limits(settings)}
    refused = _refusal(level, at_once and stuck, disks, limits) or _reserved(pending, settings, disks)
    overdue = _unwanted(files[:-1], now_ms=now_ms - PINNED_FILE_MS_MAX, settings=settings, at_once=at_once)
    overdue_below = overdue[-1].end if overdue else 0
    return Retention(remove, refused is not None, refused or "", pinned, level, rewrite_below, early, overdue_below)


def _unwanted(
    files: Sequence[RetainedFile], *, now_ms: int, settings: StoreSettings, at_once: bool
) -> list[RetainedFile]:
    """The oldest files whose time is over, or all of them when space is wanted at once."""
    reserved_ms = settings.file_reserved_time_hours * HOUR_MS
    unwanted: list[RetainedFile] = []
    for file in files:
        if not (at_once or now_ms >= file.modified_ms + reserved_ms):
            break
        unwanted.append(file)
    return unwanted


def _worth_rewriting(held: Sequence[RetainedFile], pending: WaitingRecords, *, room_bytes: int | None) -> int | None:
    """The end of the shortest row of files, beginning with the oldest, whose rewriting frees at least as much as it
    writes and finds room. Disk use therefore stays below twice what is pending, however long that waits."""
    for file in held:
        moved = pending.bytes_below(file.end)
        if moved * 2 <= file.end - held[0].base and (room_bytes is None or moved <= room_bytes):
            return file.end
    return None


def _free_bytes(disks: Sequence[DiskUsage]) -> int | None:
    """Free bytes of the disk with the least; None when nothing is known."""
    return min((usage.free_bytes for usage in disks if usage.total_bytes > 0), default=None)


def use_text(disks: Sequence[DiskUsage]) -> str:
    """How full the disks are, for people; disks that are the same once."""
    return ", ".join(
        f"{used_percent(usage)} % used, {usage.free_bytes >> 20} MiB free" for usage in dict.fromkeys(disks)
    )


def _refusal(level: DiskLevel, stuck: bool, disks: Sequence[DiskUsage], limits: Mapping[DiskLevel, str]) -> str | None:
    if stuck:
        return f"the disk is nearly full ({use_text(disks)}) and the oldest commit log files hold messages still to be delivered"
    if level is not DiskLevel.FULL:
        return None
    return f"the disk is full ({use_text(disks)}): sends are refused {limits[level]}"


def _reserved(pending: WaitingRecords | None, settings: StoreSettings, disks: Sequence[DiskUsage]) -> str | None:
    free = _free_bytes(disks)
    reserve = reserve_bytes(settings)
    if pending is None or free is None or free >= reserve:
        return None
    return f"{free >> 20} MiB of the disk are free, and {reserve >> 20} MiB are kept for messages that are still to be delivered"


def local_hour(now_ms: int) -> int:
    """Hour of the day, 0 to 23, in the machine's time zone: `deleteWhen` is meant so."""
    return datetime.fromtimestamp(now_ms // 1000).hour
