"""Which timer messages a request means, and what became of those that are pending no longer.

Rules of this file
1. The index is a hint: every candidate is read and compared before anybody acts on it. `Timers` decides whether it is pending.
2. What became of a message is read from the log: a record with its unique key in its topic means delivered, whatever was recalled
   of it; else RocketMQ's cancel record means recalled.
3. A unique key names one message, however often its sender stored it (a retry whose first answer was lost): all of its copies
   are meant, near and far, and a copy that was delivered already stands in the answer.
4. Bounded: at most `TIMER_MATCHES_READ_MAX` pending records and `TIMER_PAST_READ_MAX` others are read for one question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.timers.views import (
    Pending,
    delivered_view,
    has_moved,
    is_far_recall_of,
    is_recall_of,
    message_id_of,
    pending_view,
    was_timed,
)
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, ProtocolError, TimerIndexIncompleteError
from orbitmq.limits.timers import TIMER_COPIES_APART_MS_MAX, TIMER_MATCHES_READ_MAX, TIMER_PAST_READ_MAX
from orbitmq.protocol.names import REVIVE_TOPIC_PREFIX, TIMER_CHANGES_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.timer_bodies import TimerAnswer, TimerSelector, TimerViewBody, Verdict
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.durability import PutStatus
from orbitmq.store.reads import RecordsNotInMemory
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.far_timers import FarStatus, FarTimers
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import FarQuery
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.timers import Timers, TimerState

SEEN_BITS: Final = (TransactionType.NOT, TransactionType.COMMIT)
"""Transaction bits of messages that consumers see, or will."""

ANY_TIME_MS: Final = (1 << 63) - 1


class Wanted(NamedTuple):
    """Which messages are meant: by unique key or, with `message_id` None, by key."""

    topic: str
    message_id: str | None
    key: str | None

    def means(self, message_id: str, keys: str) -> bool:
        if self.message_id is not None:
            return message_id == self.message_id
        return self.key in keys.split(" ")


class Meant(NamedTuple):
    """Messages that are meant: those that wait, and those that are leaving or being changed right now."""

    pending: list[Pending]
    leaving: list[Pending]
    is_all: bool
    """False when there are more than were looked at."""

    @property
    def is_one(self) -> bool:
        """Whether they are one message: what its sender stored under one unique key, once or several times."""
        names = [message_id_of(timer) for timer in (*self.pending, *self.leaving)]
        return len(names) < 2 or (names[0] != "" and names.count(names[0]) == len(names))


def wanted_of_handle(handle: RecallHandle) -> Wanted:
    return Wanted(handle.topic, handle.message_id, None)


def wanted_of(selector: TimerSelector, broker_name: str) -> Wanted:
    """What a selector says. Raises `Refusal` when it says nothing, or too much."""
    by = [name for name in ("handle", "message_id", "key") if getattr(selector, name) is not None]
    if len(by) != 1:
        raise _wrong(
            f"a selector names timers by one of handle, messageId and key, not by {' and '.join(by) or 'none'}"
        )
    if selector.handle is not None:
        try:
            handle = decode_handle(selector.handle)
        except ProtocolError as error:
            raise _wrong(str(error)) from error
        if handle.broker_name != broker_name:
            raise _wrong(f"the recall handle is of broker {handle.broker_name!r}; this is {broker_name!r}")
        if selector.topic not in (None, handle.topic):
            raise _wrong(f"the recall handle is of topic {handle.topic!r}, not of {selector.topic!r}")
        return wanted_of_handle(handle)
    if not selector.topic:
        raise _wrong(
            f"a timer is found by {'message id' if selector.key is None else 'key'} in its topic: name the topic"
        )
    if not (selector.message_id or selector.key):
        raise _wrong("the message id or key is empty")
    if selector.key is not None and " " in selector.key:
        raise _wrong(f"{selector.key[:64]!r} is no key: keys are separated by blanks")
    return Wanted(selector.topic, selector.message_id, selector.key)


class TimerFinder:
    def __init__(
        self,
        broker_name: str,
        precision_ms: int,
        topics: TopicTable,
        timers: Timers,
        index: TimerIndex,
        far: FarTimers | None,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self.broker_name = broker_name
        self.precision_ms = precision_ms
        self._topics = topics
        self._timers = timers
        self._index = index
        self._far = far
        self._store = store
        self._clock = clock

    def wanted(self, selector: TimerSelector) -> Wanted:
        """What the selector of a request means. Raises `Refusal`."""
        return wanted_of(selector, self.broker_name)

    def meant(
        self, wanted: Wanted, limit: int, done: Callable[[Meant], None], failed: Callable[[Exception], None]
    ) -> None:
        """Find at most `limit` messages that wait, in both tiers, for `done`: at once when the far tier need not be asked, else
        in a later turn; `failed` hears then why that was not possible. For old records that `done` has to read in that later turn it is
        called once more when they have been fetched. Raises OrbitError when it cannot be said what waits."""
        near, far = self.near(wanted, limit), self._far
        query = self._far_query(wanted, near, limit)
        if query is None or far is None:
            done(near)
            return

        def found(page: FarPage | Exception) -> None:
            if isinstance(page, Exception):
                failed(page)
                return
            try:
                done(self._with_far(wanted, limit, page, far))
            except RecordsNotInMemory as missing:
                self._store.fetch(missing, lambda: found(page))
            except (OrbitError, OSError) as error:
                failed(error)

        far.find(query, found)

    def _with_far(self, wanted: Wanted, limit: int, page: FarPage, far: FarTimers) -> Meant:
        """What waits here and what the far tier has found. Here is asked once more: meanwhile a message may have come from the far tier."""
        meant = self.near(wanted, limit)
        for record in page.records:
            status = far.status(record.source)
            if status is FarStatus.PENDING:
                meant.pending.append(record)
            elif status is FarStatus.LEAVING:
                meant.leaving.append(record)
        is_all = meant.is_all and not page.more and len(meant.pending) <= limit
        return Meant(meant.pending[:limit], meant.leaving, is_all)

    def _far_query(self, wanted: Wanted, near: Meant, limit: int) -> FarQuery | None:
        """What to ask the far tier; None when nothing that is meant can be there."""
        far = self._far
        if far is None or not far.is_needed:
            return None
        if wanted.message_id is None:
            return FarQuery(topic=wanted.topic, key=wanted.key, limit=limit, bodies=True)
        times = [timer.deliver_ms for timer in (*near.pending, *near.leaving)]
        query = FarQuery(topic=wanted.topic, message_id=wanted.message_id, limit=limit, bodies=True)
        if not times:
            return query
        query.until_ms = max(times) + TIMER_COPIES_APART_MS_MAX
        query.from_ms = max(min(times) - TIMER_COPIES_APART_MS_MAX, 0)
        return query if far.may_hold(query.until_ms) else None

    def near(self, wanted: Wanted, limit: int) -> Meant:
        """At most `limit` messages that wait here. Cost: about 10 us each and a look into the index.

        Raises TimerIndexIncompleteError.
        """
        if wanted.topic.startswith(REVIVE_TOPIC_PREFIX):
            return Meant([], [], True)  # what POP keeps among the timers is nobody's message
        if wanted.message_id is None:
            candidates = self._index.find_key(wanted.topic, wanted.key or "", TIMER_MATCHES_READ_MAX)
        else:
            candidates = self._index.find_id(wanted.topic, wanted.message_id, TIMER_MATCHES_READ_MAX)
        found = Meant([], [], len(candidates) < TIMER_MATCHES_READ_MAX)
        if len(candidates) > 1:
            self._timers.will_read([candidate.queue_offset for candidate in candidates[:limit]])
        for queue_offset, _ in candidates:
            if len(found.pending) + len(found.leaving) >= limit:
                return found._replace(is_all=False)
            timer = self._timers.read(queue_offset)
            if (
                timer is None
                or timer.topic != wanted.topic
                or not wanted.means(timer.unique_key or "", timer.keys or "")
            ):
                continue
            is_leaving = self._timers.state_of(queue_offset) is TimerState.LEAVING
            (found.leaving if is_leaving else found.pending).append(timer)
        return found

    def view(self, timer: Pending) -> TimerViewBody:
        """A message that waits."""
        return pending_view(timer, self.broker_name, self.precision_ms)

    def wait_for_log(self, on_done: Callable[[PutStatus], None]) -> None:
        """Tell how safe everything is that the log says until now: what is told of it must not be taken back by whoever leads next."""
        self._store.wait_durable(self._store.log.end, True, on_done)

    def past(self, wanted: Wanted) -> TimerAnswer:
        """What became of a message that does not wait. Reads a few records through the key index.

        Raises `Refusal` when nothing is known of it: where it may wait in a file of the far tier that cannot be read, or in a part of
        the log that the indexes do not know yet, where there is no key index to ask, and for a topic that is not there.
        """
        delivered = self._delivered(wanted, 0)
        if delivered is not None:
            return delivered
        if wanted.message_id is not None and self._is_recalled(wanted.topic, wanted.message_id):
            return TimerAnswer(Verdict.ALREADY_RECALLED)
        if self._topics.get(wanted.topic) is None:  # what waits, and what became of it, outlives its topic
            raise topic_missing(wanted.topic)
        if self._store.is_behind:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                "nothing is known of this message yet: the newest messages of this broker could not be entered into its indexes "
                f"({self._store.unwritable_reason}); ask again later",
            )
        damaged = [] if self._far is None else self._far.damaged_files
        if damaged:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"nothing is known of this message, and it may wait in a damaged file of the far tier: {damaged[0]}"
                f"{f' and {len(damaged) - 1} others' if damaged[1:] else ''}; repair them: orbitmq timer far repair",
            )
        if self._store.index is None:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this message does not wait here; whether it was delivered or recalled cannot be looked up, because this broker "
                "writes no key index (messageIndexEnable=false)",
            )
        return TimerAnswer(Verdict.NOT_FOUND)

    def delivered_copy(self, wanted: Wanted, pending: Sequence[Pending]) -> TimerAnswer | None:
        """A copy of a message by its unique key that was delivered, while others of it are `pending`. Nothing is read for a message
        that was never moved and is due much later: its copies wait as well. Without a key index none is seen."""
        if wanted.message_id is None or not pending:
            return None
        since_ms = min(0 if has_moved(timer) else timer.deliver_ms for timer in pending) - TIMER_COPIES_APART_MS_MAX
        return None if since_ms > self._clock.now_ms() else self._delivered(wanted, max(since_ms, 0))

    def _delivered(self, wanted: Wanted, since_ms: int) -> TimerAnswer | None:
        """The newest delivered message that is meant, stored at `since_ms` or later."""
        newest: Record | None = None
        for record in self._with_key(wanted.topic, wanted.message_id or wanted.key or "", since_ms):
            values = decode_properties(record.properties)
            is_meant = wanted.means(values.get(Property.UNIQ_KEY, ""), values.get(Property.KEYS, ""))
            if (
                is_meant
                and (wanted.message_id is not None or was_timed(record))
                and (newest is None or record.physical_offset > newest.physical_offset)
            ):
                newest = record
        if newest is None:
            return None
        return TimerAnswer(Verdict.ALREADY_DELIVERED, delivered_view(newest, self.broker_name, self.precision_ms))

    def _is_recalled(self, topic: str, message_id: str) -> bool:
        return any(
            is_far_recall_of(record, topic, message_id) for record in self._with_key(TIMER_CHANGES_TOPIC, message_id)
        ) or any(is_recall_of(record, topic, message_id) for record in self._with_key(TIMER_TOPIC, message_id))

    def is_recalled(self, topic: str, message_id: str, deliver_ms: int, far_source: int | None) -> bool:
        """Whether the last that is known of a message, whose record was taken in, is that it was recalled. far_source: its number, when
        that record is one of the far tier. Cost: as `past`.

        Without a key index a message whose time has not come was recalled when it waits neither here nor at its place in the far
        tier. It may have been moved there: that is not seen."""
        try:
            if self._store.index is None:
                near = self.near(Wanted(topic, message_id, None), 1)
                if deliver_ms <= self._clock.now_ms() or near.pending or near.leaving:
                    return False
                far = self._far
                return far_source is None or far is None or far.status(far_source) is FarStatus.GONE
            return self.past(Wanted(topic, message_id, None)).verdict is Verdict.ALREADY_RECALLED
        except (Refusal, TimerIndexIncompleteError):  # nothing is known of it
            return False

    def _with_key(self, topic: str, key: str, since_ms: int = 0) -> list[Record]:
        """Records of a topic that may have this unique key or key, stored at `since_ms` or later."""
        records = []
        positions = self._store.query_by_key(topic, key, TIMER_PAST_READ_MAX, since_ms, ANY_TIME_MS)
        for data in self._store.records_at(positions):
            record = decode_record(data)
            if record.topic == topic and record.sys_flag & TRANSACTION_MASK in SEEN_BITS:
                records.append(record)
        return records


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
