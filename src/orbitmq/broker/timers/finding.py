"""Which timer messages a request means, and what has become of those that do not wait any more.

Rules of this file
1. The index is a hint: every candidate is read and compared before anybody acts on it. Whether it waits the timers say.
2. What became of a message is read from the log: a record with its unique key in its topic means delivered, RocketMQ's
   cancel record means recalled; of several the last one counts.
3. Bounded: at most `TIMER_MATCHES_READ_MAX` pending records and `TIMER_PAST_READ_MAX` others are read for one question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.timers.views import Pending, delivered_view, is_far_recall_of, is_recall_of, pending_view, was_timed
from orbitmq.broker.topics import TopicTable
from orbitmq.errors import ProtocolError, TimerIndexIncompleteError
from orbitmq.limits.timers import TIMER_MATCHES_READ_MAX, TIMER_PAST_READ_MAX
from orbitmq.protocol.names import TIMER_CHANGES_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.timer_bodies import TimerAnswer, TimerSelector, TimerView, Verdict
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.far_timers import FarStanding, FarTimers
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import FarQuery
from orbitmq.timing.index.counts import Counted
from orbitmq.timing.index.entries import Candidate
from orbitmq.timing.index.search import IndexPage, IndexQuery
from orbitmq.timing.timers.timers import Timers, TimerState

ANY_TIME_MS: Final = (1 << 63) - 1


class PendingIndex(Protocol):
    """The index of what is pending. What it names may be something that only looks alike."""

    def find_id(self, topic: str, message_id: str, limit: int) -> Sequence[Candidate]:
        """Timers of a topic whose unique key may be this, earliest due first."""
        ...

    def find_key(self, topic: str, key: str, limit: int) -> Sequence[Candidate]:
        """Timers of a topic one of whose keys may be this, earliest due first."""
        ...

    def page(self, query: IndexQuery) -> IndexPage:
        """Raises ValueError for a cursor of something else."""
        ...

    def counts(self, topic: str | None, from_ms: int | None, until_ms: int | None, bucket_ms: int) -> Counted:
        """Everything that is pending, and the due times of one topic or all in a range by buckets."""
        ...


class Wanted(NamedTuple):
    """Which messages are meant: by unique key or, with `message_id` None, by key."""

    topic: str
    message_id: str | None
    key: str | None
    slot_ms: int | None = None
    """The slot that a recall handle names: where the message was to wait when it was sent."""

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


def wanted_of_handle(handle: RecallHandle) -> Wanted:
    return Wanted(handle.topic, handle.message_id, None, handle.timestamp_ms - 1)


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
        index: PendingIndex,
        far: FarTimers | None,
        store: MessageStore,
    ) -> None:
        self.broker_name = broker_name
        self.precision_ms = precision_ms
        self._topics = topics
        self._timers = timers
        self._index = index
        self._far = far
        self._store = store

    def wanted(self, selector: TimerSelector) -> Wanted:
        """What the selector of a request means. Raises `Refusal`."""
        return wanted_of(selector, self.broker_name)

    def meant_at_once(self, wanted: Wanted, limit: int) -> Meant | None:
        """At most `limit` messages that wait, when the far tier need not be asked for that. Raises OrbitError."""
        near, far = self.near(wanted, limit), self._far
        is_known = wanted.message_id is not None and (near.pending or near.leaving)
        return near if far is None or not far.is_needed or is_known else None

    def meant(
        self, wanted: Wanted, limit: int, done: Callable[[Meant], None], failed: Callable[[Exception], None]
    ) -> None:
        """Find at most `limit` messages that wait, in both tiers, for `done`: at once when the far tier need not be asked, else
        in a later turn; `failed` hears then why that was not possible."""
        near, far = self.meant_at_once(wanted, limit), self._far
        if near is not None or far is None:
            assert near is not None  # nothing is far
            done(near)
            return

        def found(page: FarPage | Exception) -> None:
            if isinstance(page, Exception):
                failed(page)
                return
            # The wheel is asked once more: meanwhile a message may have come into it from the far tier.
            meant = self.near(wanted, limit)
            for record in page.records:
                standing = far.standing(record.source)
                if standing is FarStanding.PENDING:
                    meant.pending.append(record)
                elif standing is FarStanding.LEAVING:
                    meant.leaving.append(record)
            is_all = meant.is_all and not page.more and len(meant.pending) <= limit
            done(Meant(meant.pending[:limit], meant.leaving, is_all))

        key = wanted.key if wanted.message_id is None else None
        far.find(FarQuery(topic=wanted.topic, message_id=wanted.message_id, key=key, limit=limit, bodies=True), found)

    def near(self, wanted: Wanted, limit: int) -> Meant:
        """At most `limit` messages that wait in the wheel. Cost: about 10 us each and a look into the index.

        Raises TimerIndexIncompleteError; not where a recall handle says enough.
        """
        try:
            if wanted.message_id is None:
                candidates = self._index.find_key(wanted.topic, wanted.key or "", TIMER_MATCHES_READ_MAX)
            else:
                candidates = self._index.find_id(wanted.topic, wanted.message_id, TIMER_MATCHES_READ_MAX)
        except TimerIndexIncompleteError:
            found = self._in_its_slot(wanted)
            if found is None:
                raise
            return found
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

    def _in_its_slot(self, wanted: Wanted) -> Meant | None:
        """The message that a handle names, where it still waits in the slot that the handle names; None where that is not seen."""
        if wanted.slot_ms is None:
            return None
        for queue_offset in self._timers.in_slot(wanted.slot_ms, wanted.topic):
            timer = self._timers.read(queue_offset)
            if timer is not None and timer.topic == wanted.topic and timer.unique_key == wanted.message_id:
                is_leaving = self._timers.state_of(queue_offset) is TimerState.LEAVING
                return Meant([], [timer], True) if is_leaving else Meant([timer], [], True)
        return None

    def view(self, timer: Pending) -> TimerView:
        """A message that waits."""
        return pending_view(timer, self.broker_name, self.precision_ms)

    def past(self, wanted: Wanted) -> TimerAnswer:
        """What became of a message that does not wait. Reads a few records through the key index. Raises `Refusal` when it may
        wait in a file of the far tier that cannot be read, or in a part of the log that the indexes do not know yet, and for a
        topic that is not there: what waits outlives its topic."""
        if self._topics.get(wanted.topic) is None:
            raise topic_missing(wanted.topic)
        best: tuple[int, TimerAnswer] = (-1, TimerAnswer(Verdict.NOT_FOUND))
        for record in self._with_key(wanted.topic, wanted.message_id or wanted.key or ""):
            values = decode_properties(record.properties)
            is_meant = wanted.means(values.get(Property.UNIQ_KEY, ""), values.get(Property.KEYS, ""))
            if is_meant and (wanted.message_id is not None or was_timed(record)) and record.physical_offset > best[0]:
                view = delivered_view(record, self.broker_name, self.precision_ms)
                best = record.physical_offset, TimerAnswer(Verdict.ALREADY_DELIVERED, view)
        if wanted.message_id is not None:
            for record in self._with_key(TIMER_CHANGES_TOPIC, wanted.message_id):
                if record.physical_offset > best[0] and is_far_recall_of(record, wanted.topic, wanted.message_id):
                    best = record.physical_offset, TimerAnswer(Verdict.ALREADY_RECALLED)
            for record in self._with_key(TIMER_TOPIC, wanted.message_id):
                if record.physical_offset > best[0] and is_recall_of(record, wanted.topic, wanted.message_id):
                    best = record.physical_offset, TimerAnswer(Verdict.ALREADY_RECALLED)
        if self._store.is_behind and best[1].verdict is Verdict.NOT_FOUND:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                "nothing is known of this message yet: the newest messages of this broker could not be entered into its indexes "
                f"({self._store.unwritable_reason}); ask again later",
            )
        damaged = [] if self._far is None else self._far.damaged_files
        if damaged and best[1].verdict is Verdict.NOT_FOUND:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"nothing is known of this message, and it may wait in a damaged file of the far tier: {damaged[0]}"
                f"{f' and {len(damaged) - 1} others' if damaged[1:] else ''}; repair them and start the broker again",
            )
        return best[1]

    def _with_key(self, topic: str, key: str) -> list[Record]:
        """Records of a topic that may have this unique key or key."""
        records = []
        for position in self._store.query_by_key(topic, key, TIMER_PAST_READ_MAX, 0, ANY_TIME_MS):
            data = self._store.record_at(position)
            if data is not None:
                record = decode_record(data)
                if record.topic == topic and not record.sys_flag & TRANSACTION_MASK:
                    records.append(record)
        return records


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
