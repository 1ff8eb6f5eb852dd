"""How far each group has consumed each message queue.

Source: RocketMQ broker, consumer offsets; `config/consumerOffset.json`.

Rules of this file
1. An offset is the next queue offset to consume. Going backwards is accepted: it is how offsets are reset.
2. A pending reset wins over commits: until the next pull has taken it, commits for its queue are ignored.
3. Nothing here expires by itself; offsets go with their topic or their group.
4. Commits only mark the table dirty; it is saved every few seconds and at the end. A crash therefore repeats messages,
   it never skips any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import TableFile
from orbitmq.broker.versions import next_version
from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError
from orbitmq.limits.broker import OFFSET_QUEUES_MAX
from orbitmq.protocol.remoting.bodies import DataVersion

_Test = Callable[[str, str], bool]

SEPARATOR = "@"
"""Between topic and group in a key; neither name can contain it."""


class OffsetTable:
    def __init__(self, settings: BrokerSettings, file: TableFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._version_step = settings.consumer_offset_update_version_step
        self._commits_to_version = self._version_step
        self._offsets: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._queue_count = 0
        self.version = DataVersion(counter=0, state_version=0, timestamp=clock.now_ms())
        self.dirty = False
        self.refused_count = 0
        self.beyond_end_count = 0
        """Commits of offsets that their queues have not reached."""

    # --- life -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file; an absent one is an empty table. Raises `StoreDamagedError` for an unusable file."""
        document = self._file.load()
        if document is None:
            return
        try:
            saved = msgspec.convert(document, _OffsetsFile, strict=False)
        except msgspec.ValidationError as error:
            raise StoreDamagedError(
                f"consumerOffset.json is JSON but not an offset table: {error}", remedy="repair it, or restore its .bak"
            ) from error
        self._offsets = saved.offset_table
        self._queue_count = sum(map(len, self._offsets.values()))
        if saved.data_version is not None:
            self.version = saved.data_version

    def save(self) -> None:
        """Write the table if it changed since the last save. Raises `OSError`; the table then stays dirty."""
        if self.dirty:
            self._file.save(self.document())
            self.dirty = False

    def snapshot(self) -> Callable[[], None]:
        """A job that writes the table as it is now, for another thread. The table counts as saved at once: whoever runs
        the job sets `dirty` again when it fails. One job at a time."""
        document = self.document()
        self.dirty = False
        return lambda: self._file.save(document)

    def document(self) -> Mapping[str, object]:
        """The table as the file holds it; also the body of a slave's request for it."""
        return {
            "dataVersion": msgspec.to_builtins(self.version),
            "groupTopicMap": {group: sorted(topics) for group, topics in sorted(self._topics_by_group().items())},
            "offsetTable": {
                key: {str(queue): offset for queue, offset in sorted(queues.items())}
                for key, queues in sorted(self._offsets.items())
            },
        }

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

    def topics_of(self, group: str) -> list[str]:
        return sorted(topic for topic, owner in map(_split, self._offsets) if owner == group)

    def groups_of(self, topic: str) -> list[str]:
        return sorted(group for name, group in map(_split, self._offsets) if name == topic)

    def groups(self) -> list[str]:
        return sorted({group for _, group in map(_split, self._offsets)})

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give group `target` the offsets that `source` has on `topic`."""
        for queue_id, offset in dict(self.queues(source, topic)).items():
            self._store(f"{topic}@{target}", queue_id, offset)

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
            if queues is None:
                queues = self._offsets[key] = {}
        elif queues[queue_id] == offset:
            return True
        queues[queue_id] = offset
        self.dirty = True
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

    def _topics_by_group(self) -> dict[str, set[str]]:
        topics: dict[str, set[str]] = {}
        for topic, group in map(_split, self._offsets):
            topics.setdefault(group, set()).add(topic)
        return topics


class _OffsetsFile(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion | None = None


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
