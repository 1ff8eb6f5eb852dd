"""How far each group has consumed each message queue.

Source: RocketMQ broker, consumer offsets; `config/consumerOffset.json`.

Rules of this file
1. An offset is the next queue offset to consume. Going backwards is accepted: it is how offsets are reset.
2. A pending reset wins over commits: until the next pull has taken it, commits for its queue are ignored.
3. Nothing here expires by itself; offsets go with their topic or their group.
4. Commits only mark the table dirty; it is saved every few seconds and at the end. The file is synced when the log may
   not be: a start cuts what lies beyond the recovered queues, and a consumer that lives on with such an offset is taken back
   (`survivors.py`). A crash therefore repeats messages, it never skips any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, NamedTuple

import msgspec

from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_records.changes import RecordedSavedTable
from orbitmq.broker.table_saving import TableFile, read_table
from orbitmq.broker.versions import next_version
from orbitmq.clock import Clock
from orbitmq.limits.broker import CUT_OFFSETS_LOGGED_MAX, OFFSET_QUEUES_MAX
from orbitmq.protocol.remoting.bodies import DataVersion

logger = logging.getLogger("orbitmq.broker")

_Test = Callable[[str, str], bool]

QueueEnd = Callable[[str, int], int | None]
"""(topic, queue id) -> the offset that its next message gets; None for a queue that nobody knows."""

SEPARATOR = "@"
"""Between topic and group in a key; neither name can contain it."""


class CutOffset(NamedTuple):
    """A saved offset that lay beyond the end of its queue."""

    group: str
    topic: str
    queue_id: int
    saved: int
    end: int


class OffsetTable(RecordedSavedTable):
    record_name: ClassVar[str] = "offsets"
    is_gathered: ClassVar[bool] = True

    def __init__(self, settings: BrokerSettings, file: TableFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self._version_step = settings.consumer_offset_update_version_step
        self._commits_to_version = self._version_step
        self._offsets: dict[str, dict[int, int]] = {}
        self._unrecorded: dict[str, dict[int, int]] = {}
        """What the file had that was newer than the log up to `_unrecorded_at`, until both are compared."""
        self._unrecorded_at = 0
        self._learnt_to: Callable[[], int] = lambda: 0
        """The log position up to which this table has learnt what the log says."""
        self._unshared: set[str] = set()
        """Keys of `_offsets` whose queues no snapshot has; the others are copied before they change."""
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._queue_count = 0
        self.refused_count = 0
        self.when_dropped: Callable[[str, str, Iterable[int]], None] = _nobody
        """Told of each topic and group whose offsets went, with the queues that had one."""
        self.beyond_end_count = 0
        """Commits of offsets that their queues have not reached."""

    # --- life -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file; an absent one is an empty table. Raises `StoreDamagedError` for an unusable file."""
        document = self._file.load()
        if document is None:
            return
        saved = read_table(document, _OffsetsFile, "consumerOffset.json", "an offset table")
        self._offsets = saved.offset_table
        self._queue_count = sum(map(len, self._offsets.values()))
        self._unrecorded = {key: dict(self._offsets.get(key, {})) for key in saved.orbitmq_unrecorded}
        self._unrecorded_at = saved.orbitmq_learnt_to
        if saved.data_version is not None:
            self.version = saved.data_version

    def cut(self, queue_end: QueueEnd, only_topic: str | None = None) -> list[CutOffset]:
        """Cut every offset beyond the end of its queue to that end, and say so; those of unknown queues stay.

        Such an offset speaks of messages that a crash took, or that went with an earlier topic of that name: without the
        cut the group would skip as many of those that come.
        """
        cut: list[CutOffset] = []
        for key, queues in self._offsets.items():
            topic, group = _split(key)
            if only_topic is not None and topic != only_topic:
                continue
            for queue_id, saved in queues.items():
                end = queue_end(topic, queue_id)
                if end is not None and saved > end:
                    cut.append(CutOffset(group, topic, queue_id, saved, end))
        for group, topic, queue_id, _, end in cut:
            self._store(f"{topic}@{group}", queue_id, end)
        for group, topic, queue_id, saved, end in cut[:CUT_OFFSETS_LOGGED_MAX]:
            logger.warning(
                "the offset of group %s on queue %d of %s was saved as %d, beyond the queue's end: cut to %d",
                group, queue_id, topic, saved, end, extra={"event": "offset_cut"},
            )  # fmt: skip
        if len(cut) > CUT_OFFSETS_LOGGED_MAX:
            logger.warning(
                "%d saved offsets lay beyond the ends of their queues and were cut; %d of them are named above",
                len(cut), CUT_OFFSETS_LOGGED_MAX, extra={"event": "offset_cut"},
            )  # fmt: skip
        return cut

    def take_up_unrecorded(self, recorded_at: Callable[[str], int], learnt_to: Callable[[], int]) -> None:
        """After the log has had its word at a start: what the file had of keys that no record named since counts where it is farther.
        `recorded_at(key)`: where the last record of a key lies, -1 for none; `learnt_to()`: up to where the log has had
        its word, then and later."""
        self._learnt_to = learnt_to
        unrecorded, self._unrecorded = self._unrecorded, {}
        for key, queues in unrecorded.items():
            if recorded_at(key) < self._unrecorded_at:
                for queue_id, offset in queues.items():
                    if offset > self._offsets.get(key, {}).get(queue_id, -1):
                        self._store(key, queue_id, offset)

    def topics_beyond(self, queue_end: QueueEnd) -> set[str]:
        """Topics with an offset on a queue that nobody knows."""
        return {
            topic
            for (topic, _), queues in ((_split(key), queues) for key, queues in self._offsets.items())
            if any(queue_end(topic, queue_id) is None for queue_id in queues)
        }

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        """As of `SavedTable`. 0.02 us for each pair of topic and group; its queues are copied when one of them changes, 0.2 us."""
        version, offsets, unrecorded = self.version, self._offsets.copy(), self.changes.noted()
        self._unshared = set()
        own = {"orbitmqUnrecorded": sorted(unrecorded), "orbitmqLearntTo": self._learnt_to()} if unrecorded else {}
        return lambda: {**_document(version, offsets), **own}

    def document(self) -> Mapping[str, object]:
        """The table as the file holds it; also the body of a slave's request for it."""
        return _document(self.version, self._offsets)

    # --- records ----------------------------------------------------------------------------------------------------

    def recorded_keys(self) -> list[str]:
        return list(self._offsets)

    def recorded_value(self, key: str) -> bytes | None:
        queues = self._offsets.get(key)
        return None if queues is None else msgspec.json.encode(queues)

    def _take_one(self, key: str, value: bytes | None) -> None:
        queues = None if value is None else msgspec.json.decode(value, type=dict[int, int])
        known = self._offsets.pop(key, {})
        self._queue_count += (0 if queues is None else len(queues)) - len(known)
        if queues is not None:
            self._offsets[key] = queues
            self._unshared.add(key)
        elif known:
            self.when_dropped(*_split(key), known)

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """Never: the version grows with every few hundred commits only, and the file is saved less often than offsets are recorded."""
        return False

    # --- offsets ----------------------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store `offset`; False when a pending reset made it void, or the table is full."""
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        return self._store(key, queue_id, offset)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset, or the target of a pending reset; None when there is neither (a negative one counts as none)."""
        key = f"{topic}@{group}"
        if self._resets:
            target = self._resets.get(key, {}).get(queue_id)
            if target is not None:
                return target
        offset = self._offsets.get(key, {}).get(queue_id)
        return None if offset is None or offset < 0 else offset

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note where the group's last pull ended; for display only, never saved."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is not None:
            queues[queue_id] = offset
        elif len(self._pulled) < OFFSET_QUEUES_MAX:
            self._pulled[key] = {queue_id: offset}

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        return self._pulled.get(f"{topic}@{group}", {}).get(queue_id, -1)

    # --- resets -----------------------------------------------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, target: int) -> None:
        """Make `target` the offset: stored now, and handed to the next pull whatever that pull asks for."""
        key = f"{topic}@{group}"
        if self._store(key, queue_id, target):
            self._resets.setdefault(key, {})[queue_id] = target

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset of this queue, which is then done with."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        target = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return target

    # --- views and removal ------------------------------------------------------------------------------------------

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        return self._offsets.get(f"{topic}@{group}", {})

    def pairs(self) -> list[tuple[str, str]]:
        """Every group with each of its topics."""
        return sorted((group, topic) for topic, group in map(_split, self._offsets))

    def topics_of(self, group: str) -> list[str]:
        return sorted(topic for topic, owner in map(_split, self._offsets) if owner == group)

    def groups_of(self, topic: str) -> list[str]:
        return sorted(group for name, group in map(_split, self._offsets) if name == topic)

    def drop_topic(self, topic: str) -> None:
        self._drop(lambda name, _group: name == topic)

    def drop_group(self, group: str) -> None:
        self._drop(lambda _topic, owner: owner == group)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _store(self, key: str, queue_id: int, offset: int) -> bool:
        queues = self._offsets.get(key)
        if queues is None or queue_id not in queues:
            if self._queue_count >= OFFSET_QUEUES_MAX:
                self.refused_count += 1
                return False
            self._queue_count += 1
        elif queues[queue_id] == offset:
            return True
        if queues is None or key not in self._unshared:
            queues = self._offsets[key] = {} if queues is None else queues.copy()
            self._unshared.add(key)
        queues[queue_id] = offset
        self.dirty = True
        if self.changes.is_on:
            self.changes.note(key)
        self._commits_to_version -= 1
        if self._commits_to_version <= 0:
            self._commits_to_version = self._version_step
            self.version = next_version(self.version, self._clock.now_ms())
        return True

    def _drop(self, gone: _Test) -> None:
        for table in (self._offsets, self._pulled, self._resets):
            for key in [key for key in table if gone(*_split(key))]:
                queues = table.pop(key)
                if table is self._offsets:
                    self._queue_count -= len(queues)
                    self.dirty = True
                    self.changes.note(key, at_once=True)
                    self.when_dropped(*_split(key), queues)


def _document(version: DataVersion, offsets: Mapping[str, dict[int, int]]) -> Mapping[str, object]:
    topics: dict[str, list[str]] = {}
    for topic, group in map(_split, offsets):
        topics.setdefault(group, []).append(topic)
    return {
        "dataVersion": msgspec.to_builtins(version),
        "groupTopicMap": {group: sorted(names) for group, names in sorted(topics.items())},
        "offsetTable": {
            key: {str(queue): offset for queue, offset in sorted(queues.items())}
            for key, queues in sorted(offsets.items())
        },
    }


def _nobody(topic: str, group: str, queue_ids: Iterable[int]) -> None:
    """Until somebody wants to hear of it."""


class _OffsetsFile(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, int]] = {}
    orbitmq_unrecorded: list[str] = []
    """Keys with commits that no record has: of the last second, or of a slave whose master was away."""
    orbitmq_learnt_to: int = 0
    """The log position up to which that was so."""
    data_version: DataVersion | None = None


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
