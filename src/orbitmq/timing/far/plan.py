"""When the far tier does what: promotion, landing, compaction.

Rules of this file
1. Pure: times, counts and files are arguments.
2. Promotion happens at instants of a grid, a seventy-second of the horizon apart: what becomes near in between goes together.
   With three days that is an hour, so a message is a near timer 71 hours before it is due at the latest, and the operator has that long.
3. Files whose rows are all close to their end are left to promotion; only the others are worth writing anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.limits.far import (
    FAR_COMPACT_BYTES_MAX,
    FAR_DAY_FILES_MAX,
    FAR_INDEX_ROWS_MAX,
    FAR_INDEXES_MAX,
    FAR_LANDING_AGE_MS,
    FAR_LANDING_BYTES_MAX,
    FAR_LANDING_FILES_MAX,
    FAR_LANDING_ROWS_MAX,
    FAR_TOMBSTONES_MAX,
)
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import FarFile

STEPS_PER_HORIZON: Final = 72
LANDING: Final = "landing"
DAYS: Final = "days"
KEYS: Final = "keys"


class Horizon(NamedTuple):
    """How long before it is due a message is promoted: what is due within that time is near."""

    length_ms: int

    @property
    def step_ms(self) -> int:
        return max(self.length_ms // STEPS_PER_HORIZON, 1_000)

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message is far enough that it is not promoted at the very next instant."""
        return deliver_ms - now_ms > self.length_ms + self.step_ms

    def promotion_ms(self, deliver_ms: int) -> int:
        """The instant of the grid at which a message due at `deliver_ms` is promoted."""
        step = self.step_ms
        return -(-(deliver_ms - self.length_ms) // step) * step

    def due_until_ms(self, now_ms: int) -> int:
        """The latest due time of messages that are to be promoted by now."""
        return now_ms // self.step_ms * self.step_ms + self.length_ms


def waited_ms(since_ms: int | None, now_ms: int) -> int:
    """Time that the oldest message has waited to be taken into a file; long enough for that where it came later than now, by a clock that
    was ahead."""
    if since_ms is None:
        return 0
    return now_ms - since_ms if since_ms - now_ms <= CLOCK_JUMP_MS else FAR_LANDING_AGE_MS


def landing_is_due(count: int, payload_bytes: int, age_ms: int) -> bool:
    """Whether messages in the log alone, the oldest stored `age_ms` ago, are worth a file."""
    return count > 0 and (
        count >= FAR_LANDING_ROWS_MAX or payload_bytes >= FAR_LANDING_BYTES_MAX or age_ms >= FAR_LANDING_AGE_MS
    )


def first_units(units: Iterable[FarUnit], rows_max: int, bytes_max: int) -> list[FarUnit]:
    """The first of them within these bounds, and one at least."""
    chosen: list[FarUnit] = []
    room = bytes_max
    for unit in units:
        room -= unit.size
        if chosen and (room < 0 or len(chosen) >= rows_max):
            break
        chosen.append(unit)
    return chosen


def landing_name(first: int, following: int, written_by: str = "") -> str:
    """Name of the file with far records from queue offset `first` to before `following`; see `writers.written_by`."""
    return f"{LANDING}/{first:020d}-{following:020d}{written_by}.parquet"


def day_directory(day: int) -> str:
    """Directory of a day, days since 1970 in UTC."""
    from datetime import date, timedelta

    return f"{DAYS}/dueDay={(date(1970, 1, 1) + timedelta(days=day)).isoformat()}"


def keys_name(name: str) -> str:
    """The index by key of the files that are written together with this one, the first of them."""
    return f"{KEYS}/{name.replace('/', '~')}"


def is_landing(name: str) -> bool:
    return name.startswith(LANDING + "/")


def next_promotion(files: Iterable[FarFile], until_ms: int) -> FarFile | None:
    """The file to promote from next: the oldest messages first, so that equal due times stay in the order of sending."""
    due = [file for file in files if file.left and file.next_ms <= until_ms]
    return min(due, key=lambda file: (file.first_source, file.name), default=None)


def without_index(files: Iterable[FarFile]) -> list[FarFile]:
    """Loaded files that get an index now, together: as many rows as are sorted in a second or two."""
    chosen: list[FarFile] = []
    room = FAR_INDEX_ROWS_MAX
    for file in files:
        if not file.index and (file.rows <= room or not chosen):
            chosen.append(file)
            room -= file.rows
    return chosen


def compaction(
    files: Iterable[FarFile],
    tombstones: Iterable[tuple[int, int]],
    *,
    asked: bool = False,
    lost_indexes: Container[str] = (),
) -> list[FarFile]:
    """Files to write anew now; empty when it is not worth it. With `asked` a single landing file is.

    Landing files go into the files of their days when there are many of them; the small files of a day into one when
    there are many of those; whatever holds finished rows when these have become many; and whatever has no index, or one of many
    small ones. Bounded by what a process may hold in memory; what is left over is for the next time, which finds less of it.
    """
    known = _by_age(files)
    landing = [file for file in known if is_landing(file.name)]
    groups = [landing] if len(landing) >= FAR_LANDING_FILES_MAX or (asked and landing) else []
    by_day: dict[str, list[FarFile]] = {}
    for file in known:
        if not is_landing(file.name) and file.payload_bytes <= FAR_COMPACT_BYTES_MAX // 4:  # others are large enough
            by_day.setdefault(file.name.rpartition("/")[0], []).append(file)
    groups += [
        group for _, group in sorted(by_day.items()) if len(group) >= FAR_DAY_FILES_MAX or (asked and len(group) > 1)
    ]
    groups += [[file] for file in known if file.index in lost_indexes]
    groups.append(_with_small_indexes(known))
    dead = list(tombstones)
    if len(dead) >= FAR_TOMBSTONES_MAX or (asked and dead):
        groups += [[file] for file in _with_dead(known, dead[: FAR_TOMBSTONES_MAX * 2])]
    return _within(groups)


def _with_small_indexes(known: list[FarFile]) -> list[FarFile]:
    """Where there are many indexes, the files of the small ones, smallest first: written anew together they have one. Where
    everything is due in exactly a year, each writing makes a file of one day, with an index of its own."""
    by_index: dict[str, list[FarFile]] = {}
    for file in known:
        if file.index and not is_landing(file.name):
            by_index.setdefault(file.index, []).append(file)
    sizes = sorted((sum(file.payload_bytes for file in files), index) for index, files in by_index.items())
    small = [index for size, index in sizes if size <= FAR_COMPACT_BYTES_MAX // 2]
    if len(by_index) <= FAR_INDEXES_MAX or len(small) < 2:
        return []
    return [file for index in small for file in by_index[index]]


def _with_dead(known: list[FarFile], dead: list[tuple[int, int]]) -> list[FarFile]:
    """Files that may hold one of these rows."""
    by_time = sorted((due_ms, source) for source, due_ms in dead)
    found = []
    for file in known:
        start, end = bisect_left(by_time, (file.next_ms, 0)), bisect_left(by_time, (file.max_ms + 1, 0))
        if any(file.first_source <= by_time[at][1] <= file.last_source for at in range(start, end)):
            found.append(file)
    return found


def _within(groups: list[list[FarFile]]) -> list[FarFile]:
    """The first of these files that are taken together, oldest first. Group by group: files become one only within a group."""
    taken: dict[str, FarFile] = {}
    room = FAR_COMPACT_BYTES_MAX
    for group in groups:
        for file in group:
            if file.name in taken:
                continue
            if file.payload_bytes > room and taken:
                return _by_age(taken.values())
            room -= file.payload_bytes
            taken[file.name] = file
    return _by_age(taken.values())


def _by_age(files: Iterable[FarFile]) -> list[FarFile]:
    return sorted(files, key=lambda file: (file.first_source, file.name))
