"""The far messages of one store as a function of the log: in which files they are, which rows still count, and what no file holds yet.

Rules of this file
1. Pure: no file is touched, no clock is read. `Buffered` is filled from the log by the owner.
2. Every message is counted once when it comes and once when it is finished; a second finish changes nothing.
3. Whoever read a row may ask for a while whether its message still waits: what was finished lately is remembered whatever became of
   its file.
4. A message that was promoted is remembered by source number only until the mark behind it, every other finished one until a file
   without its row has taken the place of the one that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from orbitmq.timing.far.buffered import Buffered
from orbitmq.timing.far.changes import (
    Change,
    Compacted,
    FarFacts,
    FarFile,
    Finish,
    Indexed,
    Landed,
    Loaded,
    Promoted,
    Recalled,
    Why,
)
from orbitmq.timing.far.files import TierFiles
from orbitmq.timing.far.loads import LOADED_BASE, LoadedJob, forgotten, loaded_job
from orbitmq.timing.far.state_file import SavedState
from orbitmq.units import DAY_MS

K = TypeVar("K")


def _add(counts: dict[K, int], key: K, by: int) -> None:
    """Count a key; one that comes to nothing is left out."""
    counts[key] = counts.get(key, 0) + by
    if counts[key] <= 0:
        del counts[key]


class FarState:
    """The far messages of one store."""

    def __init__(self) -> None:
        self.position = 0
        """Log position up to which everything was applied."""
        self.first_stored = 0
        """Log position of the first far message there ever was."""
        self.buffered = Buffered()
        self.files = TierFiles()
        self.tombstones: dict[int, int] = {}
        """Source number -> due time of messages that have a row and were finished by something else than promotion."""
        self.unmarked: set[int] = set()
        """Source numbers of messages that were promoted after the last mark."""
        self._recent: set[int] = set()
        """Source numbers of messages finished since the last but one `rotate`."""
        self._finished: set[int] = set()
        """Source numbers of messages finished since the last `rotate`."""
        self.by_topic: dict[str, int] = {}
        self.by_day: dict[int, int] = {}
        """Days since 1970, UTC -> pending messages that are due on it."""
        self._loaded_rows = 0
        """Rows that were ever loaded: the numbers that are taken."""
        self.jobs: dict[str, LoadedJob] = {}
        """Jobs whose files were loaded, by name; see `loads`."""
        self.waiting_since_ms: int | None = None
        """Store time of the first message after the last landing."""
        self.pending_count = 0
        self.promoted_count = 0
        self.is_changed = False
        """Whether something happened that the log alone says, since `saved` was last called."""

    # --- what happened ----------------------------------------------------------------------------------------------

    def stored(
        self,
        queue_offset: int,
        physical_offset: int,
        size: int,
        facts: FarFacts,
        stored_ms: int,
        *,
        is_counted: bool = False,
    ) -> None:
        """A far record; with `is_counted` the saved state has counted it. Those that are known already are ignored."""
        if queue_offset < self.buffered.next_offset:
            return
        if not self.buffered.next_offset:
            self.first_stored = physical_offset
        self.waiting_since_ms = self.waiting_since_ms or stored_ms
        self.buffered.add(queue_offset, physical_offset, size, *facts)
        if not is_counted:
            self._count(facts.topic, facts.deliver_ms, 1)

    def ignored(self, queue_offset: int, physical_offset: int) -> None:
        """A record in the far topic that is no timer message: it has its place and is finished."""
        if queue_offset >= self.buffered.next_offset:
            self.buffered.add(queue_offset, physical_offset, 1, 0, "")
            self.buffered.finish(queue_offset, -1)

    def finished_in_log(self, source: int, position: int) -> bool:
        """A record at `position` names a source: whether that was a far message which no file holds yet."""
        offset = self.buffered.offset_of(source)
        if offset is None:
            return False
        unit = self.buffered.unit(offset)
        if self.buffered.finish(offset, position):
            self._count(unit.topic, unit.deliver_ms, -1)
            self._remember(source)
        return True

    def finished(self, finish: Finish, position: int) -> None:
        """A record at `position` says that it finishes a far message."""
        if self.finished_in_log(finish.source, position) or not self.is_pending(finish.source):
            return
        if finish.why is Why.PROMOTED:
            self.unmarked.add(finish.source)
            self.promoted_count += 1
        else:
            self.tombstones[finish.source] = finish.deliver_ms
        self._count(finish.topic, finish.deliver_ms, -1)
        self._remember(finish.source)

    def _remember(self, *sources: int) -> None:
        """Messages are finished, or not kept in mind any more for another reason: who reads old rows at this moment has to hear of it."""
        self._recent.update(sources)
        self._finished.update(sources)
        self.is_changed = True

    def rotate(self) -> None:
        """Nobody asks any more about what was read before the last call."""
        self._recent = self._finished
        self._finished = set()

    def _count(self, topic: str, deliver_ms: int, by: int) -> None:
        self.pending_count += by
        _add(self.by_topic, topic, by)
        _add(self.by_day, deliver_ms // DAY_MS, by)

    def changed(self, change: Change) -> None:
        """A record of the changes topic. A repeated one changes nothing."""
        match change:
            case Landed():
                self._landed(change)
            case Promoted():
                self._promoted(change)
            case Compacted():
                self._compacted(change)
            case Loaded():
                self._loaded(change)
            case Indexed():
                self.files.indexed(change)
            case Recalled():  # its source finished it already; the body is for readers
                return
        self.is_changed = True

    def _landed(self, change: Landed) -> None:
        buffered = self.buffered
        if change.next <= buffered.first:
            return
        if change.file is not None:
            self.files.add(change.file)
            for offset in range(change.first, change.next):
                if buffered.done.get(offset, -1) >= change.seen:
                    unit = buffered.unit(offset)
                    self.tombstones[unit.source] = unit.deliver_ms
        buffered.drop(change.next)
        self.waiting_since_ms = change.landed_ms if buffered.pending_count else None

    def _promoted(self, change: Promoted) -> None:
        file = self.files.by_name.get(change.file)
        self._remember(*self.unmarked)
        self.unmarked.clear()
        if file is None or change.taken <= file.taken:
            return
        file.taken, file.next_ms = change.taken, change.next_ms
        if file.taken >= file.rows:
            self._forget(file.name)

    def _compacted(self, change: Compacted) -> None:
        for file in change.added:  # first: what was finished meanwhile has its row in one of these
            self.files.add(file)
        for name in change.removed:
            if name in self.files.by_name:
                self._forget(name)
        for name, ranges in change.lost.items():
            if name in self.files.by_name:
                self.files.by_name[name].lost = ranges
        for source in change.dropped:
            self.tombstones.pop(source, None)
            self.unmarked.discard(source)
        self._remember(*change.dropped)

    def _loaded(self, change: Loaded) -> None:
        for job in forgotten(self.jobs.values(), change.loaded_ms, self.next_deliver_ms):
            del self.jobs[job]
        if change.job in self.jobs:
            return
        self.jobs[change.job] = loaded_job(change)
        for file in change.files:
            file.base = LOADED_BASE + self._loaded_rows
            self._loaded_rows += file.rows
            file.first_source, file.last_source = file.base + 1, file.base + file.rows
            self.files.add(file)
        for topic, count in change.by_topic.items():
            _add(self.by_topic, topic, count)
        for day, count in change.by_day.items():
            _add(self.by_day, day, count)
        self.pending_count += sum(file.rows for file in change.files)

    def _forget(self, name: str) -> None:
        file = self.files.drop(name)
        if file.rows <= file.taken and self.tombstones:
            lowest = min((other.next_ms for other in self.files.by_name.values()), default=None)
            passed = [source for source, due_ms in self.tombstones.items() if lowest is None or due_ms < lowest]
            for source in passed:
                del self.tombstones[source]
            self._remember(*passed)

    # --- questions --------------------------------------------------------------------------------------------------

    def is_pending(self, source: int) -> bool:
        """Whether a message whose row or record was read lately still waits in the tier."""
        offset = self.buffered.offset_of(source)
        if offset is not None:
            return self.buffered.is_pending(offset)
        return source not in self.tombstones and source not in self.unmarked and source not in self._recent

    @property
    def finished_rows(self) -> list[int]:
        """Source numbers of finished messages whose rows may lie in files."""
        return [*self.tombstones, *self.unmarked]

    @property
    def next_deliver_ms(self) -> int | None:
        """A time before which nothing in the tier is due; None when it is empty."""
        return self.next_ms(self.files.by_name.values())

    def next_ms(self, files: Iterable[FarFile]) -> int | None:
        """A time before which nothing in these files is due, nor what no file holds; None when there is nothing."""
        times = [file.next_ms for file in files if file.left]
        if (earliest := self.buffered.earliest_ms) is not None:
            times.append(earliest)
        return min(times, default=None)

    # --- saving -----------------------------------------------------------------------------------------------------

    def saved(self, serial: int, store: str) -> SavedState:
        self.is_changed = False
        self.files.saved(serial)
        return SavedState(
            serial=serial,
            store=store,
            position=self.position,
            landed_to=self.buffered.first,
            next_offset=self.buffered.next_offset,
            done=self.buffered.done,
            files=list(self.files.by_name.values()),
            tombstones=list(self.tombstones.items()),
            unmarked=sorted(self.unmarked),
            pending=self.pending_count,
            by_topic=self.by_topic,
            by_day=self.by_day,
            loaded_rows=self._loaded_rows,
            jobs=list(self.jobs.values()),
        )

    def restore(self, saved: SavedState) -> None:
        """Take over a saved state. The messages that no file holds are not in it; those are read from the log."""
        self.position = saved.position
        self.buffered = Buffered(saved.landed_to)
        self.files = TierFiles(saved.files)
        self.tombstones = dict(saved.tombstones)
        self.unmarked = set(saved.unmarked)
        self.pending_count = saved.pending
        self.by_topic = dict(saved.by_topic)
        self.by_day = dict(saved.by_day)
        self._loaded_rows = saved.loaded_rows
        self.jobs = {job.job: job for job in saved.jobs}
        self.is_changed = False
