"""What the far tier holds, as a function of the log: files, what of them still counts, and what no file holds yet.

The state is saved in `orbitmq.far`, one line of JSON and a line with its CRC-32. It speaks of a log position: what the log says
from there on is applied again. Because log files go and files of the tier stay, this file is more than a cache: a copy of it
lies in the tier, as `manifest.json`.

Rules of this file
1. Pure: no file is touched, no clock is read. `Buffered` is filled from the log by the owner.
2. Every message is counted once when it comes and once when it is finished; a second finish changes nothing.
3. Whoever read a row may ask for a while whether its message still waits: what was finished lately is remembered whatever became of
   its file (`recent`).
4. What promotion hands over is remembered by source number only until the mark behind it, everything else until a file without
   the row has taken the place of the one that has it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from orbitmq.errors import StoreDamagedError
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
from orbitmq.timing.far.loads import LOADED_BASE, LoadedJob, forgotten, loaded_job

STATE_FILE: Final = "orbitmq.far"
MANIFEST_FILE: Final = "manifest.json"
DAY_MS: Final = 86_400_000
_VERSION: Final = 1


class SavedState(msgspec.Struct, kw_only=True):
    """The content of the state file."""

    version: int = _VERSION
    serial: int
    store: str
    """Tells the files of this store from those of another."""
    position: int
    """Everything the log says below is contained."""
    landed_to: int
    """Queue offset in the far topic below which every message is in a file or finished."""
    next_offset: int
    """Queue offset of the first far record that is not counted here."""
    done: dict[int, int]
    files: list[FarFile]
    tombstones: list[tuple[int, int]]
    handed: list[int]
    pending: int
    by_topic: dict[str, int]
    by_day: dict[int, int]
    loaded_rows: int = 0
    jobs: list[LoadedJob] = msgspec.field(default_factory=list)


def encode_state(saved: SavedState) -> bytes:
    line = msgspec.json.encode(saved)
    return b"%s\n%08x\n" % (line, zlib.crc32(line))


def decode_state(content: bytes) -> SavedState:
    """Raises StoreDamagedError."""
    line, _, rest = content.partition(b"\n")
    if rest.strip() != b"%08x" % zlib.crc32(line):
        raise StoreDamagedError(f"{STATE_FILE} fails its check")
    try:
        saved = msgspec.json.decode(line, type=SavedState)
    except msgspec.MsgspecError as error:
        raise StoreDamagedError(f"{STATE_FILE} cannot be read: {error}") from error
    if saved.version != _VERSION:
        raise StoreDamagedError(f"{STATE_FILE} has version {saved.version}, this program knows {_VERSION}")
    return saved


K = TypeVar("K")


def _add(counts: dict[K, int], key: K, by: int) -> None:
    count = counts.get(key, 0) + by
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)


class FarState:
    """The far messages of one store."""

    def __init__(self) -> None:
        self.buffered = Buffered()
        self.files: dict[str, FarFile] = {}
        self.index_uses: Counter[str] = Counter()
        """Indexes, and how many of the files each one has."""
        self.tombstones: dict[int, int] = {}
        """Source number -> due time of messages that have a row and were finished by something else than promotion."""
        self.handed: set[int] = set()
        """Source numbers that promotion handed over since its last mark."""
        self.recent: set[int] = set()
        """Source numbers of messages finished since the last but one `rotate`."""
        self._finished: set[int] = set()
        """Those of them finished since the last one."""
        self.garbage: list[str] = []
        """Files and indexes that nothing speaks of any more; to be removed once that is durable."""
        self.pending_count = 0
        self.by_topic: dict[str, int] = {}
        self.by_day: dict[int, int] = {}
        """Days since 1970, UTC -> pending messages that are due on it."""
        self.loaded_rows = 0
        """Rows that were ever loaded: the numbers that are taken."""
        self.jobs: dict[str, LoadedJob] = {}
        """What became of jobs that load files, by name; see `loads`."""
        self.waiting_since_ms: int | None = None
        """Store time of the first message after the last landing."""
        self.promoted_count = 0
        self.is_changed = False
        """Whether something happened that the log alone says, since `save` was last called."""

    # --- what happened ----------------------------------------------------------------------------------------------

    def stored(self, queue_offset: int, physical_offset: int, size: int, facts: FarFacts, stored_ms: int) -> None:
        """A far record. Those that are known already are ignored."""
        if queue_offset < self.buffered.next_offset:
            return
        if self.waiting_since_ms is None:
            self.waiting_since_ms = stored_ms
        self.buffered.add(queue_offset, physical_offset, size, *facts)
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
        if self.finished_in_log(finish.source, position):
            return
        if not self.is_pending(finish.source):
            return
        if finish.why is Why.PROMOTED:
            self.handed.add(finish.source)
            self.promoted_count += 1
        else:
            self.tombstones[finish.source] = finish.deliver_ms
        self._count(finish.topic, finish.deliver_ms, -1)
        self._remember(finish.source)

    def _remember(self, *sources: int) -> None:
        """Finished, or not kept in mind any more for another reason: who reads old rows at this moment has to hear of it."""
        self.recent.update(sources)
        self._finished.update(sources)
        self.is_changed = True

    def rotate(self) -> None:
        """Nobody asks any more about what was read before the last call."""
        self.recent = self._finished
        self._finished = set()

    def _count(self, topic: str, deliver_ms: int, by: int) -> None:
        self.pending_count += by
        _add(self.by_topic, topic, by)
        _add(self.by_day, deliver_ms // DAY_MS, by)

    def changed(self, change: Change) -> None:
        """A record of the changes topic. A repeated one changes nothing."""
        if isinstance(change, Landed):
            self._landed(change)
        elif isinstance(change, Promoted):
            self._promoted(change)
        elif isinstance(change, Compacted):
            self._compacted(change)
        elif isinstance(change, Loaded):
            self._loaded(change)
        elif isinstance(change, Indexed):
            self._indexed(change)
        else:
            assert isinstance(change, Recalled)  # finished by its source already; its body is for readers
            return
        self.is_changed = True

    def _landed(self, change: Landed) -> None:
        buffered = self.buffered
        if change.next <= buffered.first:
            return
        if change.file is not None:
            self._hold(change.file)
            for offset in range(change.first, change.next):
                if buffered.done.get(offset, -1) >= change.seen:
                    unit = buffered.unit(offset)
                    self.tombstones[unit.source] = unit.deliver_ms
        buffered.drop(change.next)
        self.waiting_since_ms = change.landed_ms if buffered.pending_count else None

    def _promoted(self, change: Promoted) -> None:
        file = self.files.get(change.file)
        self._remember(*self.handed)
        self.handed.clear()
        if file is None or change.taken <= file.taken:
            return
        file.taken, file.next_ms = change.taken, change.next_ms
        if file.taken >= file.rows:
            self._forget(file.name)

    def _compacted(self, change: Compacted) -> None:
        for file in change.added:  # first: what was finished meanwhile has its row in one of these
            self._hold(file)
        for name in change.removed:
            if name in self.files:
                self._forget(name)
        for name, ranges in change.lost.items():
            if name in self.files:
                self.files[name].lost = ranges
        for source in change.dropped:
            self.tombstones.pop(source, None)
            self.handed.discard(source)
        self._remember(*change.dropped)

    def _loaded(self, change: Loaded) -> None:
        for job in forgotten(self.jobs.values(), change.loaded_ms, self.next_deliver_ms):
            del self.jobs[job]
        if change.job in self.jobs:
            return
        self.jobs[change.job] = loaded_job(change)
        for file in change.files:
            file.base = LOADED_BASE + self.loaded_rows
            self.loaded_rows += file.rows
            file.first_source, file.last_source = file.base + 1, file.base + file.rows
            self._hold(file)
        for topic, count in change.by_topic.items():
            _add(self.by_topic, topic, count)
        for day, count in change.by_day.items():
            _add(self.by_day, day, count)
        self.pending_count += sum(file.rows for file in change.files)

    def _indexed(self, change: Indexed) -> None:
        for number, name in enumerate(change.files):
            file = self.files.get(name)
            if file is not None and not file.index:
                file.index, file.index_number = change.index, number
                self.index_uses[file.index] += 1
        if not self.index_uses[change.index]:
            del self.index_uses[change.index]
            self.garbage.append(change.index)

    def _hold(self, file: FarFile) -> None:
        if file.index and file.name not in self.files:
            self.index_uses[file.index] += 1
        self.files[file.name] = file

    def _forget(self, name: str) -> None:
        file = self.files.pop(name)
        self.garbage.append(name)
        if file.index:
            self.index_uses[file.index] -= 1
            if not self.index_uses[file.index]:
                del self.index_uses[file.index]
                self.garbage.append(file.index)
        if file.rows <= file.taken and self.tombstones:
            lowest = min((other.next_ms for other in self.files.values()), default=None)
            passed = [source for source, due_ms in self.tombstones.items() if lowest is None or due_ms < lowest]
            for source in passed:
                del self.tombstones[source]
            self._remember(*passed)

    # --- questions --------------------------------------------------------------------------------------------------

    def is_pending(self, source: int) -> bool:
        """Of a message whose row or record was read lately: whether it still waits in the tier."""
        offset = self.buffered.offset_of(source)
        if offset is not None:
            return self.buffered.is_pending(offset)
        return source not in self.tombstones and source not in self.handed and source not in self.recent

    @property
    def next_deliver_ms(self) -> int | None:
        """A time before which nothing in the tier is due; None when it is empty."""
        times = [file.next_ms for file in self.files.values() if file.left]
        if (earliest := self.buffered.earliest_ms) is not None:
            times.append(earliest)
        return min(times, default=None)

    def next_sound_ms(self, is_sound: Callable[[FarFile], bool]) -> int | None:
        """The same without the files that cannot be read: nothing is to be done for them when their time comes."""
        times = [file.next_ms for file in self.files.values() if file.left and is_sound(file)]
        if (earliest := self.buffered.earliest_ms) is not None:
            times.append(earliest)
        return min(times, default=None)

    # --- saving -----------------------------------------------------------------------------------------------------

    def saved(self, serial: int, position: int, store: str) -> SavedState:
        self.is_changed = False
        return SavedState(
            serial=serial,
            store=store,
            position=position,
            landed_to=self.buffered.first,
            next_offset=self.buffered.next_offset,
            done=self.buffered.done,
            files=list(self.files.values()),
            tombstones=list(self.tombstones.items()),
            handed=sorted(self.handed),
            pending=self.pending_count,
            by_topic=self.by_topic,
            by_day=self.by_day,
            loaded_rows=self.loaded_rows,
            jobs=list(self.jobs.values()),
        )

    def restore(self, saved: SavedState) -> None:
        """Everything but the messages that no file holds; those are read from the log."""
        self.buffered = Buffered(saved.landed_to)
        self.files = {file.name: file for file in saved.files}
        self.index_uses = Counter(file.index for file in saved.files if file.index)
        self.tombstones = dict(saved.tombstones)
        self.handed = set(saved.handed)
        self.pending_count = saved.pending
        self.by_topic = dict(saved.by_topic)
        self.by_day = dict(saved.by_day)
        self.loaded_rows = saved.loaded_rows
        self.jobs = {job.job: job for job in saved.jobs}
        self.is_changed = False


class Owner(Protocol):
    """What the keeper asks of the structure that the log is applied to."""

    held: FarState

    @property
    def position(self) -> int: ...

    @property
    def serial(self) -> int: ...

    @property
    def store_id(self) -> str: ...

    def manifest(self) -> bytes | None: ...

    def removable(self) -> list[str]: ...

    def removed(self, names: Sequence[str]) -> None: ...

    @property
    def has_garbage(self) -> bool: ...

    @property
    def is_saved(self) -> bool: ...
