"""The timer files of one store: wheel, timer log and timer checkpoint, kept in step with each other and with the commit log.

Rules of this file
1. Files are made when the first unit is linked: a store that never saw a timer has none.
2. Towards the disk: units are written and synced, then the slots that name them, then the checkpoint. So nothing on the disk ever
   names what is not there. What a crash leaves behind in the other direction, units without a slot, is linked again.
3. A record is linked once. Records come in log order, so `linked_until`, a log position, says which have been.
4. The read clock is the first slot that may hold something pending. No slot is ever overwritten before it is over, whatever the
   wall clock does; see `lap`. A message that is due later than the last slot that can be linked waits there with the roll bit.
5. What is pending is decided elsewhere. Here a slot is a chain of units.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_CHAIN_UNITS_MAX
from orbitmq.store.files import Files
from orbitmq.store.saving import room_wanted
from orbitmq.store.segments import Segment
from orbitmq.timing.timer_files import link as linking
from orbitmq.timing.timer_files.checkpoint import (
    TIMER_CHECKPOINT_FILE,
    TimerCheckpoint,
    TimerCheckpointFile,
    read_timer_checkpoint,
)
from orbitmq.timing.timer_files.fence import lower_fence, raise_fence
from orbitmq.timing.timer_files.link import Link, relink
from orbitmq.timing.timer_files.log import FILE_BYTES, LOG_DIRECTORY, ChainEnd, ChainWalk, TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL, VOID, TimerUnit
from orbitmq.timing.timer_files.wheel import EMPTY, NO_POSITION, SLOT_COUNT, WHEEL_FILE, Changes, Slot, TimerWheel
from orbitmq.timing.timers.handing_over import kept_slots, unfinished_copy
from orbitmq.timing.timers.lap import Lap
from orbitmq.timing.timers.pending_journal import FilesAt
from orbitmq.timing.timers.soundness import doubt_of_wheel, has_other_precision, load_whole, on_grid

logger = logging.getLogger("orbitmq.timing")

_STEP_SLOTS_MAX: Final = 8_192
"""Slots that the read clock passes one by one; beyond it the wheel is summed up anew."""


class _Sync(NamedTuple):
    """What one `datasync` makes durable."""

    log_end: int
    changes: Changes
    checkpoint: TimerCheckpoint
    expired: list[Segment]
    is_exact: bool
    """Whether RocketMQ can go on with what is on the disk then."""


class TimerFiles:
    """Wheel, timer log and timer checkpoint of one store. Times are wall-clock ms."""

    def __init__(
        self,
        files: Files,
        root: Path,
        precision_ms: int,
        log_file_bytes: int = FILE_BYTES,
        slot_count: int = SLOT_COUNT,
    ) -> None:
        self._files = files
        self._root = root
        self._log_file_bytes = log_file_bytes
        self._slot_count = slot_count
        self._lap = Lap(slot_count, precision_ms)
        self._wheel: TimerWheel | None = None
        self._log: TimerLog | None = None
        self._checkpoint: TimerCheckpointFile | None = None
        self._sync: _Sync | None = None
        self._stored: Changes | None = None
        """What the last finished sync stored into the wheel, until the wheel is told."""
        self._wheel_end = 0
        self._sum = 0
        self._trusted_end = 0
        """Behind it in the timer log stand units that came after the position the journal believes in."""
        self._names_synced = False
        self._is_fenced = self.is_handed_over = False
        """Whether RocketMQ may go on from here: `hand_over` was the last to link anything."""
        self._is_exact = False
        """Whether that is on the disk."""
        self.precision_ms = precision_ms
        self.linked_until = 0
        """Commit log position: records of the timer topic below it have their unit."""
        self.read_ms = 0
        """Time of the first slot that may hold something pending."""
        self.made_again = ""
        """Why the wheel was made again at the last start; empty when it could be used."""
        self.closed_files: dict[int, int] = {}
        """Timer log file, by its base -> commit log position above all its units, of those this broker filled."""

    # --- where things are ---------------------------------------------------------------------------------------------

    @property
    def checkpoint_path(self) -> Path:
        return self._root / "config" / TIMER_CHECKPOINT_FILE

    @property
    def on_disk(self) -> bool:
        """Whether the store has timer files."""
        return self._files.exists(self._root / WHEEL_FILE) or bool(self._files.list_dir(self._root / LOG_DIRECTORY))

    @property
    def is_open(self) -> bool:
        return self._log is not None

    def at(self) -> FilesAt:
        return FilesAt(self.read_ms, 0 if self._log is None else self._log.end, self._wheel_end, self._sum)

    def floor(self, time_ms: int) -> int:
        return time_ms - time_ms % self.precision_ms

    # --- linking ------------------------------------------------------------------------------------------------------

    def place(self, slot_ms: int, write_ms: int) -> tuple[int, bool]:
        """(slot that a message for `slot_ms` is linked in at write clock `write_ms`, whether it has to be nearer).

        An overdue one is linked in the slot in progress; in a later one when the clock was set back further than the wheel reaches.
        """
        slot_ms, write_ms = self.floor(slot_ms), self._lap.write_clock(write_ms, self.read_ms)
        if slot_ms < write_ms:
            return write_ms, False
        last_ms = self._lap.last_linked(write_ms)
        return min(slot_ms, last_ms), slot_ms > last_ms

    def link(self, now_ms: int, links: Sequence[Link | tuple[int, ...]], *, again: bool = False) -> list[int]:
        """Give every record that has none its unit; returns the slot of each, in order, `NO_POSITION` for one that was
        linked before, unless it is linked `again`. In log order. Memory only, but for new files; raises OSError. 0.5 us each."""
        wheel, log = self._opened()
        if not self.read_ms:
            self.read_ms = self.floor(now_ms)
        write_ms = self._lap.write_clock(now_ms, self.read_ms)
        until = 0 if again else self.linked_until
        precision_ms, latest_ms = self.precision_ms, self._lap.last_linked(write_ms)
        slots = [link[0] for link in links]
        if (
            slots
            and links[0][2] >= until
            and write_ms <= min(slots)
            and max(slots) <= latest_ms
            and not sum([slot_ms % precision_ms for slot_ms in slots])
        ):  # nearly always
            self._append(wheel, log, write_ms, links)
            return slots
        slots = []
        new: list[tuple[int, ...]] = []
        for slot_ms, magic, physical, size, topic_hash, deliver_ms in links:
            if physical < until:
                slots.append(NO_POSITION)
                continue
            until = physical + 1
            slot_ms -= slot_ms % precision_ms
            if not write_ms <= slot_ms <= latest_ms:
                slot_ms, nearer = self.place(slot_ms, write_ms)
                magic |= ROLL * nearer
            slots.append(slot_ms)
            new.append((slot_ms, magic, physical, size, topic_hash, deliver_ms))
        self._append(wheel, log, write_ms, new)
        self.linked_until = max(until, self.linked_until)
        return slots

    def link_again(self, now_ms: int, records: Sequence[tuple[int, int, int]], newest: tuple[int, int]) -> int:
        """Give records another unit, in the slot in progress, which is returned, because their own are damaged.

        Each as (log position, size, topic hash). `newest`: see `hand_over`. Memory only; raises OSError.
        """
        wheel, log = self._opened()
        write_ms = self._lap.write_clock(now_ms, self.read_ms)
        links: list[tuple[int, ...]] = [(write_ms, DEFAULT, *record, 0) for record in records]
        links.append((write_ms, DEFAULT | DELETE | VOID, *newest, 0, 0))
        self._append(wheel, log, write_ms, links)
        return write_ms

    def _append(self, wheel: TimerWheel, log: TimerLog, write_ms: int, links: Sequence[tuple[int, ...]]) -> None:
        if not self._is_fenced:
            self.raise_fence()
        self.is_handed_over = False
        base = log.end - log.end % log.file_bytes
        linking.link(wheel, log, write_ms, links)
        if links:
            self._sum += len(links) - 2 * sum([1 for link in links if link[1] & DELETE])
            self.linked_until = max(self.linked_until, max([link[2] for link in links]) + 1)
            self._lap.latest_ms = max(self._lap.latest_ms, max([link[0] for link in links]))
        while base + log.file_bytes <= log.end:
            self.closed_files[base] = self.linked_until
            base += log.file_bytes

    def _opened(self) -> tuple[TimerWheel, TimerLog]:
        if self._wheel is None or self._log is None:
            self._create()
        assert self._wheel is not None
        assert self._log is not None
        return self._wheel, self._log

    def _create(self) -> None:
        self._wheel = self._create_wheel()
        self._log = TimerLog(self._files, self._root / LOG_DIRECTORY, self._log_file_bytes)
        self._open_checkpoint()

    def _create_wheel(self) -> TimerWheel:
        wheel = TimerWheel.create(self._files, self._root / WHEEL_FILE, self.precision_ms, self._slot_count)
        self.raise_fence()
        return wheel

    def _open_checkpoint(self) -> TimerCheckpointFile:
        if self._checkpoint is None:
            self._files.make_dirs(self.checkpoint_path.parent)
            self._checkpoint = TimerCheckpointFile.open(self._files, self.checkpoint_path)
        return self._checkpoint

    # --- reading ------------------------------------------------------------------------------------------------------

    def slot(self, slot_ms: int) -> Slot:
        return EMPTY if self._wheel is None else self._wheel.get(slot_ms)

    def slots(self) -> Iterator[tuple[int, Slot]]:
        """(time, slot) of every slot in use from the read clock on, in no order. 0.3 us each."""
        if self._wheel is not None:
            for slot in self._wheel.slots(self.read_ms):
                yield slot.number * self.precision_ms, slot

    def heads(self) -> list[tuple[int, int]]:
        """(time, position of the last unit) of every slot in use from the read clock on, by time. 0.3 us each, for a start."""
        if self._wheel is None:
            return []
        precision = self.precision_ms
        return [(number * precision, last) for number, last in sorted(self._wheel.survey(self.read_ms).heads.items())]

    def walk(self, last: int, slot_ms: int, limit: int = TIMER_CHAIN_UNITS_MAX) -> ChainWalk:
        """See `TimerLog.walk`; units with `is_void` stand for nothing."""
        return ChainWalk([], ChainEnd.COMPLETE) if self._log is None else self._log.walk(last, slot_ms, limit)

    def units_of(self, slot_ms: int) -> list[TimerUnit]:
        """Every unit of a slot in the timer log, oldest first, for a chain that is broken. Reads the whole log, 0.7 us a unit."""
        return [] if self._log is None else [unit for unit in self._log.scan_all() if unit.slot_ms == slot_ms]

    # --- the read clock -----------------------------------------------------------------------------------------------

    def read_until(self, slot_ms: int) -> None:
        """Nothing before `slot_ms`, a slot's time, is pending any more; or, below the read clock, a clock that was set back is to
        link there again: as far back as the wheel reaches from what it holds."""
        slot_ms = self.floor(slot_ms)
        wheel, precision, earliest_ms = self._wheel, self.precision_ms, self._lap.earliest_ms
        if slot_ms < earliest_ms and slot_ms < self.read_ms and wheel is not None:
            if self.read_ms > earliest_ms:  # what was linked last may be over
                self._look_ahead(wheel)
            slot_ms = min(max(slot_ms, self._lap.earliest_ms), self.read_ms)
        steps = (slot_ms - self.read_ms) // precision
        before, self.read_ms = self.read_ms, slot_ms
        if wheel is None or steps == 0:
            return
        if steps < 0:
            # What was delivered there must not be delivered again by RocketMQ.
            for time_ms in range(max(slot_ms, before - self._slot_count * precision), before, precision):
                if not wheel.get(time_ms).is_empty:
                    wheel.put(time_ms, NO_POSITION, NO_POSITION, 0)
        elif steps <= _STEP_SLOTS_MAX:
            for time_ms in range(before, slot_ms, precision):
                self._sum -= wheel.get(time_ms).unit_count
        else:
            self._sum = wheel.survey(self.read_ms).unit_count

    def _look_ahead(self, wheel: TimerWheel) -> None:
        self._lap.latest_ms = max(wheel.survey(self.read_ms).heads, default=0) * self.precision_ms

    # --- towards the disk ---------------------------------------------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        """So many slots wait for a sync that it should not wait for its time."""
        return self._wheel is not None and self._wheel.is_crowded

    def write(self) -> None:
        """Units reach the page cache."""
        if self._log is not None:
            self._log.write()

    def begin_sync(self, next_offset: int, now_ms: int, log_start: int) -> None:
        """Note what the next `datasync` covers. `next_offset`: records of the timer topic before it are linked."""
        if self._wheel is None or self._log is None:
            return
        self._take_stored()
        self._log.write()
        checkpoint = self._open_checkpoint().value
        if self._is_news(checkpoint, next_offset):
            checkpoint = TimerCheckpoint(
                self.read_ms, self._log.end, next_offset, next_offset, 0, now_ms, checkpoint.counter + 1
            )
        self._sync = _Sync(
            self._log.end, self._wheel.changes(), checkpoint, self._expired(log_start), self.is_handed_over
        )

    def _is_news(self, known: TimerCheckpoint, next_offset: int) -> bool:
        assert self._log is not None
        now = (self.read_ms, self._log.end, next_offset, next_offset)
        return now != (
            known.last_read_time_ms,
            known.last_timer_log_flush_pos,
            known.last_timer_queue_offset,
            known.master_timer_queue_offset,
        )

    def _expired(self, log_start: int) -> list[Segment]:
        """Forget the files all of whose records are gone. RocketMQ lets the last unit of a file speak for it; where an older
        record was linked again, that is not enough."""
        assert self._log is not None
        expired = self._log.expired_segments(log_start, self.closed_files)
        for segment in expired:
            self.closed_files.pop(segment.base, None)
        return expired

    def datasync(self) -> None:
        """The commit log was synced before, up to everything that is named here. Blocks; runs on the worker, beside linking.

        Raises OSError; NotWrittenError when there was no room for it."""
        sync, wheel, log = self._sync, self._wheel, self._log
        if sync is None or wheel is None or log is None:
            return
        log.datasync()
        with room_wanted():
            wheel.store(sync.changes)
        wheel.datasync()
        if not self._names_synced:
            self._files.sync_dir(self._root)
            self._files.sync_dir(self.checkpoint_path.parent)
            self._names_synced = True
        checkpoint = self._open_checkpoint()
        if checkpoint.value != sync.checkpoint:
            with room_wanted():
                checkpoint.write(sync.checkpoint)
            checkpoint.sync()
        for segment in sync.expired:
            segment.release()
            if self._files.exists(segment.path):
                self._files.remove(segment.path)
        self._stored = sync.changes
        self._wheel_end = sync.log_end
        self._is_exact = sync.is_exact
        self._sync = None

    def _take_stored(self) -> None:
        if self._stored is not None and self._wheel is not None:
            self._wheel.stored(self._stored)
        self._stored = None

    # --- for a RocketMQ broker that takes over ------------------------------------------------------------------------

    def raise_fence(self) -> None:
        """See `fence`."""
        raise_fence(self._files, self._root)
        self._is_fenced = True

    def hand_over(self, now_ms: int, is_pending: Callable[[TimerUnit], bool], newest: tuple[int, int] | None) -> None:
        """Leave slots that RocketMQ may walk; see `handing_over`.

        `newest`: log position and size of the newest record of the timer topic; the last unit names it, because RocketMQ goes on
        linking behind the record of the last unit; None where no record is kept. Syncs; the caller does so again when it is noted,
        and with `close` RocketMQ may start. 2 us for each unit of the slots that are over.
        """
        self.is_handed_over = True
        if newest is None:
            self._is_exact = True
            return
        wheel, log = self._opened()
        to_ms = max(self.floor(now_ms), self.read_ms)
        over = sorted(time_ms for time_ms, _ in self.slots() if time_ms <= to_ms)
        chains = ((slot_ms, self._chain(slot_ms)) for slot_ms in over)
        kept = kept_slots(chains, is_pending, to_ms, to_ms - self._slot_count // 4 * self.precision_ms)
        self.read_until(min(kept, default=to_ms))
        last, over = log.last_unit(), [time_ms for time_ms in over if time_ms >= self.read_ms]
        if not over and not kept and last is not None and last.physical_offset == newest[0]:
            return
        for slot_ms in over:
            self._sum -= wheel.get(slot_ms).unit_count
            wheel.put(slot_ms, NO_POSITION, NO_POSITION, 0)
        for slot_ms, links in kept.items():
            self._append(wheel, log, slot_ms, links)
        self._append(wheel, log, to_ms, [(to_ms, DEFAULT | DELETE | VOID, *newest, 0, 0)])
        self._settle_hand_over(wheel, log)
        self.is_handed_over = True

    def _settle_hand_over(self, wheel: TimerWheel, log: TimerLog) -> None:
        """Have the slots on disk before their sum is noted: the timer log does not say which were emptied. Blocks; raises OSError."""
        log.write()
        changes, end = wheel.changes(), log.end
        log.datasync()
        with room_wanted():
            wheel.store(changes)
        wheel.datasync()
        self._wheel_end = end

    def _chain(self, slot_ms: int) -> list[TimerUnit]:
        """The units of a slot without those that stand for nothing, oldest first; from the whole log when its chain is broken."""
        units: list[TimerUnit] = []
        position = self.slot(slot_ms).last
        while position != NO_POSITION:
            walk = self.walk(position, slot_ms)
            if walk.end is ChainEnd.BROKEN:
                logger.error("the slot of %d is read from the whole timer log: %s", slot_ms, walk.problem)
                units = list(reversed(self.units_of(slot_ms)))
                break
            units += walk.units
            position = walk.next
        return [unit for unit in reversed(units) if not unit.is_void]

    # --- after a start ------------------------------------------------------------------------------------------------

    def read_checkpoint(self) -> TimerCheckpoint:
        return read_timer_checkpoint(self._files, self.checkpoint_path) or TimerCheckpoint()

    def restore(self, at: FilesAt, position: int) -> None:
        """Take up files of ours that stood at `at` or further, with a unit for every record below `position` in the commit log.

        Raises StoreDamagedError when they cannot have: then nothing has changed, and they are to be made again (`forget`). A wheel
        that cannot be believed is made again here.
        """
        log = self._load_log(at.log_end)
        self._log = log
        try:
            self._restore(log, at, position)
        except StoreDamagedError:
            self.abandon()
            raise

    def _restore(self, log: TimerLog, at: FilesAt, position: int) -> None:
        self.read_ms = at.read_ms
        self.linked_until = position
        self._trusted_end = at.log_end
        if (begin := unfinished_copy(self._behind(log, at), position)) is not None:
            log.cut(begin)
        behind, earliest = 0, 0
        for unit in self._behind(log, at):
            behind += -1 if unit.is_delete else 1
            earliest = min(earliest or unit.slot_ms, unit.slot_ms)
            self.linked_until = max(self.linked_until, unit.physical_offset + 1)
        if 0 < earliest < at.read_ms:  # the clock was set back: slots from there on hold what was delivered, too
            text = f"{log.directory} goes on before {at.read_ms}, the first slot that was not read"
            raise StoreDamagedError(text, remedy="it is made again from the commit log")
        self._restore_wheel(at, at.waiting_sum + behind)
        self.read_ms = self.read_ms or earliest
        log.distrust_disk(0)

    def _behind(self, log: TimerLog, at: FilesAt) -> Iterator[TimerUnit]:
        return (unit for unit in log.scan(at.log_end) if unit.position >= at.log_end)

    def _load_log(self, end: int) -> TimerLog:
        log = TimerLog(self._files, self._root / LOG_DIRECTORY, self._log_file_bytes)
        load_whole(log, end)
        return log

    def _restore_wheel(self, at: FilesAt, expected_sum: int) -> None:
        assert self._log is not None
        log, path = self._log, self._root / WHEEL_FILE
        problem = ""
        try:
            wheel = TimerWheel.open(self._files, path, self.precision_ms, self._slot_count)
        except (StoreDamagedError, FileNotFoundError) as error:
            problem = str(error)
        else:
            self._wheel, self._wheel_end = wheel, at.wheel_end
            relink(wheel, on_grid(log.scan(at.wheel_end), self.precision_ms))
            found = wheel.survey(at.read_ms)
            self._sum = found.unit_count
            self._lap.latest_ms = max(found.heads, default=0) * self.precision_ms
            problem = doubt_of_wheel(found, log, self._lap, self.read_ms, expected_sum)
        if problem:
            self.made_again = problem
            logger.error("%s is made again from the timer log: %s", path.name, problem)
            self._make_wheel_again()
            numbers = [slot_ms // self.precision_ms for slot_ms, _ in self.heads()]
            if self._sum != expected_sum or self._lap.is_beyond(numbers, self.read_ms):
                raise StoreDamagedError(
                    f"the units of {log.directory} make {self._sum} messages, there were {expected_sum}, or are of no time",
                    remedy="it is made again from the commit log",
                )

    def _make_wheel_again(self) -> None:
        assert self._log is not None
        if self._wheel is not None:
            self._wheel.close()
        self._wheel = self._create_wheel()
        self._names_synced = False
        self._wheel_end = 0
        relink(self._wheel, on_grid(self._log.scan(self._log.first_position), self.precision_ms))
        self._sum = self._wheel.survey(self.read_ms).unit_count
        self._look_ahead(self._wheel)

    def take_over(self, checkpoint: TimerCheckpoint) -> Iterator[TimerUnit]:
        """Take up files that RocketMQ wrote last, and yield the units of its log in the order of linking.

        Raises StoreDamagedError when they cannot be used; then nothing has changed. Nothing may be linked before the end of
        the iteration. 3 us a unit.
        """
        log = self._load_log(0)
        self._log = log
        path = self._root / WHEEL_FILE
        self.read_ms = checkpoint.last_read_time_ms
        problem = ""
        try:
            self._wheel = TimerWheel.open(self._files, path, self.precision_ms, self._slot_count)
        except (StoreDamagedError, FileNotFoundError) as error:
            problem = str(error)
        else:
            self._check_precision(self._wheel, log)
            problem = linking.doubt(self._wheel, log, self.read_ms)
        if problem:
            logger.warning("%s is made again from the timer log: %s", path.name, problem)
            self._forget_flushed(checkpoint)
            self._make_wheel_again()
        else:
            assert self._wheel is not None
            relink(self._wheel, log.scan(log.first_position))
        assert self._wheel is not None
        self._sum = self._wheel.survey(self.read_ms).unit_count
        self._look_ahead(self._wheel)
        log.distrust_disk(0)
        for unit in log.scan(log.first_position):
            self.linked_until = max(self.linked_until, unit.physical_offset + 1)
            yield unit

    def _check_precision(self, wheel: TimerWheel, log: TimerLog) -> None:
        if has_other_precision(wheel, log, self.read_ms, self.precision_ms):
            log.close()
            wheel.close()
            self._log = self._wheel = None
            raise StoreDamagedError(
                f"{wheel.path} was written with another precision than {self.precision_ms} ms",
                remedy="set timerPrecisionMs to the one it was written with, or let it be made again",
            )

    def _forget_flushed(self, checkpoint: TimerCheckpoint) -> None:
        """No unit counts as known to the wheel: another crash must not miss them in an empty one."""
        file = self._open_checkpoint()
        file.write(msgspec.structs.replace(checkpoint, last_timer_log_flush_pos=0))
        file.sync()

    def forget(self) -> None:
        """Throw the files away, to link again what is pending. After a crash before that is done RocketMQ would link the whole
        timer topic: repeats, but no loss."""
        if self._log is not None:
            self._log.close()
        if self._wheel is not None:
            self._wheel.close()
        self._log = self._wheel = None
        self._stored = self._sync = None
        if self._files.exists(self.checkpoint_path):
            file = self._open_checkpoint()
            file.write(TimerCheckpoint(timestamp=file.value.timestamp, counter=file.value.counter))
            file.sync()
        directory = self._root / LOG_DIRECTORY
        if self._files.exists(directory):
            self._files.remove_tree(directory)
        self._wheel_end = self._sum = self.linked_until = self.read_ms = self._lap.latest_ms = 0
        self.closed_files.clear()

    def unlink_beyond(self, log_end: int) -> int:
        """Unlink the units whose records the commit log lost: all from the first one on. Returns their number."""
        wheel, log = self._wheel, self._log
        if wheel is None or log is None or self.linked_until <= log_end:
            return 0
        lost: list[TimerUnit] = []
        for unit in log.scan(max(self._trusted_end, log.first_position)):
            if lost or (unit.physical_offset >= log_end and unit.position >= self._trusted_end):
                lost.append(unit)
        for unit in reversed(lost):
            slot = wheel.get(unit.slot_ms)
            if slot.last == unit.position:
                count = slot.unit_count + (1 if unit.is_delete else -1)
                first = slot.first if unit.previous != NO_POSITION else NO_POSITION
                wheel.put(unit.slot_ms, first, unit.previous, count)
                if unit.slot_ms >= self.read_ms:
                    self._sum -= -1 if unit.is_delete else 1
        if lost:
            log.cut(lost[0].position)
            self._wheel_end = min(self._wheel_end, log.end)
        self.linked_until = log_end
        return len(lost)

    def close(self) -> None:
        self.abandon()
        if self._is_exact and self.is_handed_over:
            lower_fence(self._files, self._root)

    def abandon(self) -> None:
        for file in (self._log, self._wheel, self._checkpoint):
            if file is not None:
                file.close()
        self._log = self._wheel = self._checkpoint = None
