"""What a pull wants of a queue, and asking messages whether they are that: those that are stored, and one that has just arrived.

Rules of this file
1. The tags code of a unit is asked before a record is touched; properties are asked of the record itself.
2. Of a message that arrives the properties are decoded once, and each expression is evaluated once, however many pulls wait.
3. A read whose records are asked takes a bounded part of the queue and a bounded number of operations, whatever it finds there.

Source: RocketMQ broker, filtering in two phases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from orbitmq.limits.broker import PULL_SCAN_BYTES_MAX, PULL_SCAN_STEPS_MAX
from orbitmq.limits.store import SCAN_UNITS_MIN
from orbitmq.protocol.filtering.expression import PropertyFilter
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record, plain_properties
from orbitmq.store.reading import GetResult, GetStatus, Records
from orbitmq.store.store import MessageStore


class RetriedFilter:
    """Which messages of a retry topic pass: each by the expression that its group has for the topic it came from, if it has one."""

    __slots__ = ("_filter_of", "steps")

    def __init__(self, filter_of: Callable[[str], PropertyFilter | None]) -> None:
        self._filter_of = filter_of
        self.steps = 1
        """Operations for the message that was asked last, at most."""

    def accepts(self, properties: Mapping[str, str]) -> bool:
        wanted = self._filter_of(properties.get(Property.RETRY_TOPIC, ""))
        self.steps = 1 if wanted is None else wanted.steps
        return wanted is None or wanted.accepts(properties)


class WantedMessages(msgspec.Struct, frozen=True):
    """Both tests have to pass; None lets everything pass."""

    codes: Callable[[int], bool] | None = None
    """Of the tags code of a consume queue unit."""
    properties: PropertyFilter | RetriedFilter | None = None
    """Of the stored properties."""


class ArrivedMessage:
    """A message that has just become visible, asked by the pulls that wait."""

    def __init__(self, tags_code: int, properties: bytes) -> None:
        self._tags_code = tags_code
        self._stored = properties
        self._properties: dict[str, str] | None = None
        self._answers: dict[PropertyFilter | RetriedFilter, bool] = {}

    def is_one_of(self, wanted: WantedMessages) -> bool:
        if wanted.codes is not None and not wanted.codes(self._tags_code):
            return False
        return wanted.properties is None or self._passes(wanted.properties)

    def _passes(self, wanted: PropertyFilter | RetriedFilter) -> bool:
        answer = self._answers.get(wanted)
        if answer is None:
            if self._properties is None:
                self._properties = decode_properties(self._stored)
            answer = self._answers[wanted] = wanted.accepts(self._properties)
        return answer


def get_wanted(
    store: MessageStore, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, wanted: WantedMessages
) -> GetResult:
    """As `MessageStore.get`, of wanted messages only. A cold result goes through `MessageStore.read_cold` and then `choose`."""
    if wanted.properties is None:
        return store.get(topic, queue_id, offset, max_count, max_bytes, wanted.codes)
    scan_count = max(SCAN_UNITS_MIN, max_count)
    result = store.get(topic, queue_id, offset, scan_count, max(PULL_SCAN_BYTES_MAX, max_bytes), wanted.codes)
    return result if result.cold is not None else choose(result, max_count, max_bytes, wanted)


def choose(result: GetResult, max_count: int, max_bytes: int, wanted: WantedMessages) -> GetResult:
    """The wanted ones of the records of a finished read: at most `max_count` and about `max_bytes`, but one of those
    that were asked, if there is any.

    NO_MATCHED_MESSAGE where there is none; either way the next read begins behind the last record that was asked.
    """
    if wanted.properties is None or result.status is not GetStatus.FOUND:
        return result
    properties = wanted.properties
    chosen: Records = []
    count = total = steps = 0
    for part in result.records:
        view = memoryview(part)
        at, begin = 0, -1
        while at < len(view):
            size, queue_offset, values, properties_size = _asked(view, at)
            is_full = count >= max_count or (total > 0 and total + size > max_bytes) or steps >= PULL_SCAN_STEPS_MAX
            is_wanted = not is_full and properties.accepts(values)
            steps += properties.steps * (1 + properties_size // 1_024)
            if begin >= 0 and not is_wanted:
                chosen.append(view[begin:at])
                begin = -1
            if is_full:
                return _chosen(result, queue_offset, chosen, total, count)
            if is_wanted:
                begin = at if begin < 0 else begin
                count += 1
                total += size
            at += size
        if begin >= 0:
            chosen.append(view[begin:])
    return _chosen(result, result.next_offset, chosen, total, count)


def _asked(view: memoryview, at: int) -> tuple[int, int, dict[str, str], int]:
    """Size, queue offset, properties and bytes of properties of a stored record."""
    plain = plain_properties(view, at)
    if plain is not None:
        return plain
    record = decode_record(view, at, body=False)
    return record.total_size, record.queue_offset, decode_properties(record.properties), len(record.properties)


def _chosen(result: GetResult, next_offset: int, records: Records, total: int, count: int) -> GetResult:
    status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
    return GetResult(status, next_offset, result.min_offset, result.max_offset, records, total, count)
