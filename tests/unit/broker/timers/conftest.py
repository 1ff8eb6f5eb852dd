"""A broker whose pending timer messages are a list: what waits and what does not is plain to see.

`ListedTimers` obeys the rules of the real ones with the simplest means: a record in the timer topic waits until a later record
names it as its source. `deliver_due` delivers what is due when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import SMALL_STORE, Rig

from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, without_property
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.timer_bodies import (
    ChangeTimers,
    TimerAnswers,
    TimerMessageBody,
    TimerSelector,
)
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.store.settings import StoreSettings
from orbitmq.timing.index.counting import Counted
from orbitmq.timing.index.entries import Candidate, split_keys
from orbitmq.timing.index.search import IndexPage, IndexQuery
from orbitmq.timing.restoring import restore_message, source_offset
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts, timer_facts
from orbitmq.timing.timers.timers import TimerRecord, TimerState

PRECISION_MS = 1000


class ListedTimers:
    """Pending timer messages, by queue offset."""

    name = "listed timers"

    def __init__(self) -> None:
        self.taken_in: list[Any] = []
        self.finished: list[Any] = []
        self.next_offset = 0
        self.facts: dict[int, TimerFacts] = {}
        """Of those that wait."""
        self.leaving: set[int] = set()
        self.store: Any = None
        self.refuse: Exception | None = None
        """What the next change raises."""
        self.index = ListedIndex(self)
        self.announced: set[int] = set()
        """Queue offsets that somebody said to be going to read."""

    # --- Derived ----------------------------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        linked, finished = [], []
        for entry in entries:
            source = source_offset(entry) if entry.prepared_transaction_offset else None
            if source is not None:
                for queue_offset, facts in list(self.facts.items()):
                    if facts.physical_offset == source:
                        del self.facts[queue_offset]
                        self.leaving.discard(queue_offset)
                        finished.append(FinishedTimer(queue_offset, source, entry.topic, facts.deliver_ms))
            if entry.topic == TIMER_TOPIC:
                facts = timer_facts(entry, PRECISION_MS)
                assert facts is not None
                linked.append(facts)
                self.next_offset = entry.queue_offset + 1
                if not facts.is_cancel:
                    self.facts[entry.queue_offset] = facts
        for observer in self.taken_in:
            observer(linked)
        for observer in self.finished:
            observer(finished)

    def write(self) -> None: ...
    def begin_sync(self) -> None: ...
    def datasync(self) -> None: ...
    def state(self) -> object:
        return None

    def restore(self, log: CommitLog, queues: object, state: object, position: int | None) -> int:
        return log.start

    def finish_restore(self) -> None: ...

    # --- the interface ----------------------------------------------------------------------------------------------

    def state_of(self, queue_offset: int) -> TimerState:
        if queue_offset in self.leaving:
            return TimerState.LEAVING
        return TimerState.PENDING if queue_offset in self.facts else TimerState.GONE

    def will_read(self, queue_offsets: Iterable[int]) -> None:
        self.announced |= set(queue_offsets)

    def read(self, queue_offset: int) -> TimerRecord | None:
        facts = self.facts.get(queue_offset)
        if facts is None:
            return None
        record = self.record(facts)
        queue_id = int(decode_properties(record.properties)[Property.REAL_QID])
        return TimerRecord(
            queue_offset, facts.physical_offset, facts.size, facts.deliver_ms, facts.topic, queue_id, facts.unique_key,
            facts.keys, record, decode_properties(record.properties),
        )  # fmt: skip

    def record(self, facts: TimerFacts) -> Record:
        data = self.store.record_at(facts.physical_offset)
        assert data is not None
        return decode_record(data)

    def change(
        self, source: TimerRecord, messages: Sequence[NewMessage], *, wait: bool, on_done: Callable[[PutStatus], None]
    ) -> None:
        assert self.state_of(source.queue_offset) is TimerState.PENDING
        if self.refuse is not None:
            raise self.refuse
        entries = self.store.append_batch(list(messages))
        self.leaving.add(source.queue_offset)

        def known(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self.leaving.discard(source.queue_offset)
            on_done(status)

        self.store.wait_durable(entries[-1].end_offset, wait, known)

    @property
    def synced_offset(self) -> int:
        return self.next_offset

    delivered_until_ms = 5_000

    has_cancel_room = True

    def slot_count(self, slot_ms: int) -> int:
        return sum(facts.slot_ms == slot_ms for facts in self.facts.values())

    @property
    def pending_count(self) -> int:
        return len(self.facts)

    @property
    def next_due_ms(self) -> int | None:
        return min((facts.deliver_ms for facts in self.facts.values()), default=None)

    # --- for tests --------------------------------------------------------------------------------------------------

    def deliver_due(self, now_ms: int) -> None:
        for facts in sorted(self.facts.values(), key=lambda facts: facts.deliver_ms):
            if facts.deliver_ms <= now_ms:
                message = restore_message(self.record(facts))
                values = decode_properties(message.properties)
                if (key := values.get(Property.REAL_UNIQ_KEY)) is not None:
                    for name in (Property.UNIQ_KEY, Property.REAL_UNIQ_KEY):
                        message.properties = without_property(message.properties, name.encode())
                    message.properties += f"UNIQ_KEY\x01{key}\x02".encode()
                    message.unique_key = key
                self.store.append(message, accepted=True)
        self.store.commit()


class ListedIndex:
    """The index of that list. It names too much: whatever begins with the same letter may be meant."""

    is_ready = is_counted = True

    def __init__(self, timers: ListedTimers) -> None:
        self._timers = timers

    def _all(self) -> list[TimerFacts]:
        return sorted(self._timers.facts.values(), key=lambda facts: (facts.deliver_ms, facts.queue_offset))

    def find(self, topic: str, key_or_id: str, limit: int) -> list[Candidate]:
        found = [
            Candidate(facts.queue_offset, facts.deliver_ms)
            for facts in self._all()
            if any(word.startswith(key_or_id[:1]) for word in [facts.unique_key or "", *(facts.keys or "").split(" ")])
        ]
        return found[:limit]

    find_id = find_key = find  # it may name too much

    def page(self, query: IndexQuery) -> IndexPage:
        begin = 0
        if query.cursor is not None:
            if not query.cursor.isdigit():
                raise ValueError("the cursor is not one of a page of timers")
            begin = int(query.cursor)
        low, high = query.from_ms or 0, query.until_ms or 1 << 62
        fitting = [
            Candidate(facts.queue_offset, facts.deliver_ms)
            for facts in self._all()
            if low <= facts.deliver_ms < high and query.topic in (None, facts.topic)
        ]
        words = [b""] * len(fitting)
        if query.key_prefix is not None:  # once for each key, whatever it is
            several = [(word, one) for one in fitting for word in split_keys(self._timers.facts[one.queue_offset].keys)]
            words, fitting = [word for word, _ in several], [one for _, one in several]
        end = begin + query.limit
        return IndexPage(fitting[begin:end], str(end) if end < len(fitting) else None, words[begin:end])

    def counts(self, topic: str | None, from_ms: int | None, until_ms: int | None, bucket_ms: int) -> Counted:
        by_topic: dict[str, int] = {}
        buckets: dict[int, int] = {}
        for facts in self._all():
            by_topic[facts.topic] = by_topic.get(facts.topic, 0) + 1
            if bucket_ms and topic in (None, facts.topic):
                bucket = facts.deliver_ms // bucket_ms * bucket_ms
                buckets[bucket] = buckets.get(bucket, 0) + 1
        return Counted(len(self._timers.facts), by_topic, sorted(buckets.items()), bucket_ms)


class TimerRig(Rig):
    """A `Rig` with timers."""

    far: Any = None

    def more_derived(self) -> list[Any]:
        self.timers = ListedTimers()
        return [self.timers]

    def more_parts(self) -> dict[str, Any]:
        self.timers.store = self.store
        return {"timers": self.timers, "far": self.far}

    def admission_far(self, far: Any) -> None:
        """Give the broker a far tier."""
        self.far = far
        self.reopen()

    # --- requests ---------------------------------------------------------------------------------------------------

    def send_at(self, key: str, deliver_ms: int, topic: str = "T", **properties: str) -> Command:
        """Send a timer message with this unique key."""
        return self.sent_ok(topic, b"timed", {"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(deliver_ms), **properties})

    def ask(self, code: int, body: bytes) -> Command:
        return self.call(code, None, body)

    def change(
        self, code: int, *, deliver_ms: int | None = None, delay_ms: int | None = None, **selector: Any
    ) -> TimerAnswers:
        """A change or question that is answered with verdicts."""
        body = ChangeTimers(TimerSelector(**selector), deliver_ms, delay_ms).encode()
        answer = self.ask(code, body)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return TimerAnswers.decode(answer.body)

    def verdicts(self, code: int, **selector: Any) -> list[str]:
        return [str(answer.verdict) for answer in self.change(code, **selector).answers]

    def status(self, **selector: Any) -> list[str]:
        return self.verdicts(RequestCode.TIMER_STATUS, **selector)

    def show(self, **selector: Any) -> TimerMessageBody:
        return TimerMessageBody.decode(
            self.ask(RequestCode.GET_TIMER, ChangeTimers(TimerSelector(**selector)).encode()).body
        )

    def deliver(self) -> None:
        self.timers.deliver_due(self.clock.now_ms())


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., TimerRig]]:
    """Builds a rig with timers and the broker settings given by keyword."""
    made: list[TimerRig] = []

    def make(*, store: StoreSettings = SMALL_STORE, **settings: Any) -> TimerRig:
        rig = TimerRig(tmp_path / f"store{len(made)}", BrokerSettings(**settings), store)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()
