"""Which client of a group owns which message queue, for consumers that process in order.

Source: RocketMQ queue locks (requests 41 and 42).

Rules of this file
1. A lock lives `QUEUE_LOCK_LIFE_NS` after its last renewal; an expired lock is free for anybody.
2. Locks have no file, and are advisory: they do not stop a pull. They decide whether an exhausted retry is a dead
   letter (see admission).
3. Where a copy follows, it knows the owners: a change of one is recorded at once and told when that is confirmed, renewals are recorded
   within a second. A lock lives on there for as long as it would from the moment its record is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, NamedTuple

import msgspec

from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.clock import Clock
from orbitmq.limits.broker import BROKER_NAME_CHARS_MAX, QUEUE_LOCK_LIFE_NS, QUEUE_LOCKS_MAX
from orbitmq.limits.wire import RETRY_TOPIC_BYTES_MAX
from orbitmq.protocol.remoting.bodies import DataVersion, MessageQueue


class _Owner(NamedTuple):
    client_id: str
    expires_ns: int


_OWNED: Final = msgspec.json.Decoder(dict[str, list[tuple[str, str, int]]])


class QueueLocks:
    record_name: ClassVar[str] = "queueLocks"
    is_gathered: ClassVar[bool] = True

    def __init__(self, clock: Clock) -> None:
        """`clock`: when a lock that the log tells of begins to live here."""
        self._clock = clock
        self.version = DataVersion()
        self.changes = KeyChanges()
        self._groups: dict[str, dict[MessageQueue, _Owner]] = {}
        self._count = 0
        self._sweep_from_ns = 0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ns: int) -> list[MessageQueue]:
        """The queues that `client_id` holds afterwards: those free, expired, or already its own, as far as there is room."""
        granted: list[MessageQueue] = []
        is_new = False
        for queue in queues:
            table = self._groups.get(group, {})
            owner = table.get(queue)
            if owner is not None and owner.client_id != client_id and owner.expires_ns > now_ns:
                continue
            if owner is None and not self._has_room(queue, now_ns):
                continue
            self._count += owner is None
            is_new = is_new or owner is None or owner.client_id != client_id
            self._groups.setdefault(group, {})[queue] = _Owner(client_id, now_ns + QUEUE_LOCK_LIFE_NS)
            granted.append(queue)
        if granted:
            self.changes.note(group, at_once=is_new)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free those of `queues` that `client_id` owns; the others are left alone."""
        table = self._groups.get(group)
        if table is None:
            return
        for queue in queues:
            owner = table.get(queue)
            if owner is not None and owner.client_id == client_id:
                del table[queue]
                self._count -= 1
                self.changes.note(group, at_once=True)
        if not table:
            del self._groups[group]

    def holds_any(self, group: str, now_ns: int) -> bool:
        """Whether any lock of the group is alive: its consumers then process in order."""
        table = self._groups.get(group)
        return table is not None and any(owner.expires_ns > now_ns for owner in table.values())

    def drop_group(self, group: str) -> None:
        table = self._groups.pop(group, None)
        if table is not None:
            self._count -= len(table)
            self.changes.note(group, at_once=True)

    # --- records ----------------------------------------------------------------------------------------------------

    def recorded_keys(self) -> Iterable[str]:
        return list(self._groups)

    def recorded_value(self, key: str) -> bytes | None:
        """Client -> its queues: topic, broker, number."""
        now_ns = self._clock.monotonic_ns()
        owned: dict[str, list[tuple[str, str, int]]] = {}
        for queue, owner in self._groups.get(key, {}).items():
            if owner.expires_ns > now_ns:
                owned.setdefault(owner.client_id, []).append((queue.topic, queue.broker_name, queue.queue_id))
        return msgspec.json.encode(owned) if owned else None

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        expires_ns = self._clock.monotonic_ns() + QUEUE_LOCK_LIFE_NS
        for group, value in values.items():
            owned = {} if value is None else _OWNED.decode(value)
            table = {
                MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id): _Owner(client_id, expires_ns)
                for client_id, queues in owned.items()
                for topic, broker, queue_id in queues
            }
            self._count += len(table) - len(self._groups.pop(group, ()))
            if table:
                self._groups[group] = table

    def differs(self, key: str, value: bytes | None) -> bool:
        return self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """Never: there is no file."""
        return False

    # --- inside -----------------------------------------------------------------------------------------------------

    def _has_room(self, queue: MessageQueue, now_ns: int) -> bool:
        if len(queue.topic) > RETRY_TOPIC_BYTES_MAX or len(queue.broker_name) > BROKER_NAME_CHARS_MAX:
            return False
        if self._count >= QUEUE_LOCKS_MAX and now_ns >= self._sweep_from_ns:
            self._drop_expired(now_ns)
        return self._count < QUEUE_LOCKS_MAX

    def _drop_expired(self, now_ns: int) -> None:
        """Forget what has expired; not before the next lock expires is it worth looking again."""
        for group, table in list(self._groups.items()):
            alive = {queue: owner for queue, owner in table.items() if owner.expires_ns > now_ns}
            if alive:
                self._groups[group] = alive
            else:
                del self._groups[group]
        self._count = sum(map(len, self._groups.values()))
        owners = (owner for table in self._groups.values() for owner in table.values())
        self._sweep_from_ns = min((owner.expires_ns for owner in owners), default=0)
