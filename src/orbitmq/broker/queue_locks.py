"""Which client of a group owns which message queue, for consumers that process in order.

Source: RocketMQ queue locks (requests 41 and 42).

Rules of this file
1. A lock lives `QUEUE_LOCK_LIFE_NS` after its last renewal; an expired lock is free for anybody.
2. Locks have no file, and are advisory: they do not stop a pull. They decide whether an exhausted retry is a dead
   letter (see admission).
3. Where a copy follows, it knows the owners: a change of one is recorded at once and told when that is confirmed, renewals are recorded
   within a second. A lock lives on there for as long as it would from the moment its record is read.
4. What is recorded for one queue is a part of its topic, so a group of any size costs a record of a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, NamedTuple

import msgspec

from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.clock import Clock
from orbitmq.limits.broker import BROKER_NAME_CHARS_MAX, QUEUE_LOCK_LIFE_NS, QUEUE_LOCKS_MAX, QUEUES_PER_LOCK_RECORD
from orbitmq.limits.wire import RETRY_TOPIC_BYTES_MAX
from orbitmq.protocol.remoting.bodies import DataVersion, MessageQueue


class _Owner(NamedTuple):
    client_id: str
    expires_ns: int
    is_told: bool = False
    """It has heard that it owns the queue, since which everybody knows."""


class _Part(NamedTuple):
    """Queues of one topic at one broker with neighbouring numbers, which are recorded together."""

    topic: str
    broker: str
    number: int

    def key(self, group: str) -> str:
        return msgspec.json.encode((group, *self)).decode()


_KEY: Final = msgspec.json.Decoder(tuple[str, str, str, int])
_OWNED: Final = msgspec.json.Decoder(dict[str, list[int]])


def _part_of(queue: MessageQueue) -> _Part:
    return _Part(queue.topic, queue.broker_name, queue.queue_id // QUEUES_PER_LOCK_RECORD)


def _read_key(key: str) -> tuple[str, _Part] | None:
    """Group and part; None for what is no key of this table."""
    try:
        group, topic, broker, number = _KEY.decode(key)
    except ValueError:
        return None
    return group, _Part(topic, broker, number)


class Granted(NamedTuple):
    queues: list[MessageQueue]
    """What the client holds afterwards."""
    is_news: bool
    """Of one of them it has not been told so since it owns it: that waits until everybody knows."""


class QueueLocks:
    record_name: ClassVar[str] = "queueLocks"
    is_gathered: ClassVar[bool] = True

    def __init__(self, clock: Clock) -> None:
        """`clock`: when a lock that the log tells of begins to live here."""
        self._clock = clock
        self.version = DataVersion()
        self.changes = KeyChanges()
        self._groups: dict[str, dict[_Part, dict[int, _Owner]]] = {}
        self._count = 0
        self._sweep_from_ns = 0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ns: int) -> Granted:
        """The queues that `client_id` holds afterwards: those free, expired, or already its own, as far as there is room."""
        granted: list[MessageQueue] = []
        changed: dict[_Part, bool] = {}
        is_news = False
        parts, expires_ns = self._groups.get(group, {}), now_ns + QUEUE_LOCK_LIFE_NS
        for queue in queues:
            part = _part_of(queue)
            owners = parts.get(part)
            owner = None if owners is None else owners.get(queue.queue_id)
            if owner is None:
                has_room = self._has_room(queue, now_ns)
                parts = self._groups.get(group, {})  # that may have made them anew
                if not has_room:
                    continue
                parts = self._groups.setdefault(group, parts)
                owners = parts.setdefault(part, {})
                self._count += 1
                is_change, is_told = True, False
            elif owner.expires_ns <= now_ns:
                is_change, is_told = True, False
            elif owner.client_id == client_id:
                is_change, is_told = False, owner.is_told
            else:
                continue
            assert owners is not None, "it has an owner, or was just made"
            owners[queue.queue_id] = _Owner(client_id, expires_ns, is_told)
            granted.append(queue)
            is_news = is_news or not is_told
            changed[part] = is_change or changed.get(part, False)
        if self.changes.is_on:
            for part, is_change in changed.items():
                self.changes.note(part.key(group), at_once=is_change)
        return Granted(granted, is_news)

    def told(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """The client hears that it owns these queues: everybody knows by now."""
        for queue in queues:
            owner = self._owner(group, queue)
            if owner is not None and owner.client_id == client_id:
                self._groups[group][_part_of(queue)][queue.queue_id] = owner._replace(is_told=True)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free those of `queues` that `client_id` owns; the others are left alone."""
        for queue in queues:
            owner = self._owner(group, queue)
            if owner is not None and owner.client_id == client_id:
                parts, part = self._groups[group], _part_of(queue)
                del parts[part][queue.queue_id]
                if not parts[part]:
                    del parts[part]
                if not parts:
                    del self._groups[group]
                self._count -= 1
                self.changes.note(part.key(group), at_once=True)

    def holds_any(self, group: str, now_ns: int) -> bool:
        """Whether any lock of the group is alive: its consumers then process in order."""
        return any(
            owner.expires_ns > now_ns for owners in self._groups.get(group, {}).values() for owner in owners.values()
        )

    def drop_group(self, group: str) -> None:
        for part, owners in self._groups.pop(group, {}).items():
            self._count -= len(owners)
            self.changes.note(part.key(group), at_once=True)

    # --- records ----------------------------------------------------------------------------------------------------

    def recorded_keys(self) -> Iterable[str]:
        return [part.key(group) for group, parts in self._groups.items() for part in parts]

    def recorded_value(self, key: str) -> bytes | None:
        """Client -> the numbers of its queues."""
        if (found := _read_key(key)) is None:
            return None
        group, part = found
        now_ns = self._clock.monotonic_ns()
        owned: dict[str, list[int]] = {}
        for queue_id, owner in self._groups.get(group, {}).get(part, {}).items():
            if owner.expires_ns > now_ns:
                owned.setdefault(owner.client_id, []).append(queue_id)
        return msgspec.json.encode(owned) if owned else None

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        expires_ns = self._clock.monotonic_ns() + QUEUE_LOCK_LIFE_NS
        for key, value in values.items():
            if (found := _read_key(key)) is None:
                continue
            group, part = found
            owned = {} if value is None else _OWNED.decode(value)
            owners = {
                queue_id: _Owner(client_id, expires_ns) for client_id, queues in owned.items() for queue_id in queues
            }
            parts = self._groups.setdefault(group, {})
            self._count += len(owners) - len(parts.pop(part, ()))
            if owners:
                parts[part] = owners
            elif not parts:
                del self._groups[group]

    def differs(self, key: str, value: bytes | None) -> bool:
        return self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """Never: there is no file."""
        return False

    # --- inside -----------------------------------------------------------------------------------------------------

    def _owner(self, group: str, queue: MessageQueue) -> _Owner | None:
        return self._groups.get(group, {}).get(_part_of(queue), {}).get(queue.queue_id)

    def _has_room(self, queue: MessageQueue, now_ns: int) -> bool:
        if len(queue.topic) > RETRY_TOPIC_BYTES_MAX or len(queue.broker_name) > BROKER_NAME_CHARS_MAX:
            return False
        if self._count >= QUEUE_LOCKS_MAX and now_ns >= self._sweep_from_ns:
            self._drop_expired(now_ns)
        return self._count < QUEUE_LOCKS_MAX

    def _drop_expired(self, now_ns: int) -> None:
        """Forget what has expired, in the log as well; not before the next lock expires is it worth looking again."""
        groups, self._groups, self._count = self._groups, {}, 0
        self._sweep_from_ns = 0
        for group, parts in groups.items():
            for part, owners in parts.items():
                alive = {queue_id: owner for queue_id, owner in owners.items() if owner.expires_ns > now_ns}
                if alive:
                    self._groups.setdefault(group, {})[part] = alive
                    first_ns = min(owner.expires_ns for owner in alive.values())
                    self._sweep_from_ns = min(self._sweep_from_ns or first_ns, first_ns)
                    self._count += len(alive)
                else:
                    self.changes.note(part.key(group))
