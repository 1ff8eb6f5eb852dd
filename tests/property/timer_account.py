"""What the log says of every message, read record by record by rules of its own, and the promises that it must keep.

The account is the model: for each message where it waits, when it is due, what became of it. It knows nothing of wheels, slots, indexes
or files; it reads the log as it grows and compares each record with what senders asked for.

Rules of this file
1. Every record is either a message that somebody sent, or names the record that it takes the place of; that one must be the
   place where the message waits. So nothing is delivered twice, after a recall, or from a record that it has left.
2. A delivery is what was sent, where it was sent, not before its time, and behind whatever was due earlier.
3. What the log said below the last safe position stands there after every crash; all that is known of the rest is forgotten.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitmq.protocol.names import FAR_TIMER_TOPIC, SCHEDULE_TOPIC, TIMER_CHANGES_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.store import MessageStore

WAITING_TOPICS = frozenset({TIMER_TOPIC, FAR_TIMER_TOPIC, SCHEDULE_TOPIC})
GRACE_MS = 10_000
"""How late something is that was found again in the log."""

OURS = frozenset({Property.DUE_MS, Property.LEFT_MS, Property.REAL_UNIQ_KEY, Property.FAR})


def due_text(values: Mapping[str, str]) -> str:
    """When a record that waits says that it is due; `None` where it does not say."""
    return str(values.get(Property.DUE_MS, values.get(Property.TIMER_DELIVER_MS)))


class Broken(AssertionError):
    """A promise was not kept."""


class State(enum.Enum):
    UNKNOWN = "unknown"
    """Not in the log."""
    NEAR = "near"
    FAR = "far"
    LEVEL = "level"
    DELIVERED = "delivered"
    RECALLED = "recalled"


WAITING = frozenset({State.NEAR, State.FAR, State.LEVEL})
TIERS = {TIMER_TOPIC: State.NEAR, FAR_TIMER_TOPIC: State.FAR, SCHEDULE_TOPIC: State.LEVEL}


@dataclass(slots=True)
class Sent:
    """What somebody sent. `dues` are the times that were ever asked for it; of relative ones, a time too early to be right."""

    key: str
    topic: str
    queue_id: int
    body: bytes
    values: dict[str, str]
    dues: set[int]
    is_relative: bool = False
    first_ms: int = 0
    """The time it was sent with; 0 for none."""
    delay_ms: int = 0
    """The same from when it was sent."""
    is_recall_asked: bool = False
    is_move_asked: bool = False
    is_sent_again: bool = False
    """Its sender may have stored it more than once."""

    def words(self) -> list[str]:
        return self.values.get(Property.KEYS, "").split()


@dataclass(slots=True)
class Standing:
    """What became of a message, or of one copy of it."""

    sent: Sent
    name: str
    """The unique key, of a further copy with its number."""
    state: State = State.UNKNOWN
    place: int = -1
    """Log position of the record in which it waits, or waited last."""
    place_end: int = -1
    due_ms: int = 0
    root: int = -1
    """Log position of its first record."""
    has_moved: bool = False
    stored_ms: int = 0
    """When it came to its place."""
    seen_ms: int = 0
    """When that was in the log for sure."""

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    def words(self) -> list[str]:
        return self.sent.words()


@dataclass(slots=True, frozen=True)
class Entry:
    """A record as it was read."""

    position: int
    end: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int
    source: int | None
    values: dict[str, str]
    body: bytes
    seen_ms: int


@dataclass(slots=True)
class Delivery:
    standing: Standing
    due_ms: int
    root: int
    position: int
    is_first_place: bool


@dataclass
class Account:
    """Of one store."""

    sent: dict[str, Sent] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
    """(log end, confirmed end) at the start of each turn."""
    safe_end: int = 0
    """What the log says below it can be lost no more."""
    high_ms: int = 0
    """What the wall clock showed before it was set back: a delivery of a level may be under way since."""
    is_damaged: bool = False
    """Timer files were damaged: a message whose entry was lost comes when it is found again, after others."""
    disturbed: set[str] = field(default_factory=set)
    """Keys of messages whose delivery had to be tried again, so that their order is not asked for."""

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.messages: dict[str, Standing] = {}
        """By name."""
        self.copies: dict[str, list[Standing]] = {}
        """By unique key: what its sender stored under it, in the order of the log."""
        self.owners: dict[int, Standing | None] = {}
        """Log position of a record that can be a source -> whose it is; None for a cancellation that waits."""
        self.deliveries: dict[str, list[Delivery]] = {}
        """By topic, in the order of the log."""
        self.visible: dict[tuple[str, int], list[Entry]] = {}
        self.cancels: dict[str, list[tuple[int, int]]] = {}
        """Key of a message -> (slot, log position) of RocketMQ's cancellations of it."""
        self.end = 0

    # --- reading the log --------------------------------------------------------------------------------------------

    def watch(self, store: MessageStore, now_ms: int) -> None:
        """Take in what the log says since the last look."""
        if store.confirm_offset <= self.end:
            return
        start = max(self.end, store.log.start)
        if start > self.end and self.entries:
            raise Broken(f"the log begins at {start}, and {self.end} was never seen")
        for found in store.scan(start):
            view = store.log.record(found.physical_offset)  # from the disk, if need be
            if view is None:
                raise Broken(f"the record at {found.physical_offset} cannot be read")
            record = decode_record(bytes(view))
            entry = Entry(
                found.physical_offset,
                found.end_offset,
                found.topic,
                found.queue_id,
                found.queue_offset,
                found.store_timestamp,
                found.prepared_transaction_offset - 1 if found.prepared_transaction_offset else None,
                decode_properties(record.properties),
                bytes(record.body),
                now_ms,
            )
            self.entries.append(entry)
            self._take(entry)

    def crashed(self, store: MessageStore, now_ms: int) -> None:
        """A start after a crash: compare what the log still has, forget the rest."""
        end = store.confirm_offset
        if end < self.safe_end:
            raise Broken(f"the log ends at {end}, and {self.safe_end} was safe")
        kept = [entry for entry in self.entries if entry.end <= end]
        there = {entry.physical_offset: entry for entry in store.scan(store.log.start)}
        known = {entry.position for entry in kept}
        for entry in kept:
            found = there.get(entry.position)
            if entry.position >= store.log.start and (found is None or found.topic != entry.topic):
                raise Broken(f"the record at {entry.position} has gone or changed")
        if any(position not in known for position in there if position < max((e.end for e in kept), default=0)):
            raise Broken("the log has records between those that were there")
        if len(kept) < len(self.entries):
            self.entries = []
            self._begin()
            self.turns = [turn for turn in self.turns if turn[0] <= end]
            for entry in kept:
                self.entries.append(entry)
                self._take(entry)
        self.safe_end = min(self.safe_end, end)
        self.watch(store, now_ms)

    def _take(self, entry: Entry) -> None:
        self.end = entry.end
        if entry.source is not None:
            self._replace(entry, entry.source)
        elif entry.topic == TIMER_TOPIC and Property.TIMER_DEL_UNIQKEY in entry.values:
            self._cancel(entry)
        elif entry.topic != TIMER_CHANGES_TOPIC:
            self._arrive(entry)
        if entry.topic not in WAITING_TOPICS and entry.topic != TIMER_CHANGES_TOPIC:
            self.visible.setdefault((entry.topic, entry.queue_id), []).append(entry)

    def _cancel(self, entry: Entry) -> None:
        self.owners[entry.position] = None  # one that is far away hops, too
        if Property.LEFT_MS in entry.values:
            return
        key = entry.values[Property.TIMER_DEL_UNIQKEY].partition("+")[2]
        self.cancels.setdefault(key, []).append((int(entry.values[Property.TIMER_OUT_MS]), entry.position))

    def _arrive(self, entry: Entry) -> None:
        key = entry.values.get(Property.UNIQ_KEY, "")
        sent = self.sent.get(key)
        if sent is None:
            raise Broken(f"{entry.topic} holds a message {key!r} that nobody sent, at {entry.position}")
        copies = self.copies.setdefault(key, [])
        if copies and not sent.is_sent_again:
            raise Broken(f"the message {key} was stored twice, at {copies[0].root} and {entry.position}")
        name = f"{key}~{len(copies)}" if copies else key
        standing = self.messages[name] = Standing(sent, name, root=entry.position)
        copies.append(standing)
        if entry.topic in WAITING_TOPICS:
            self._wait(standing, entry)
        else:
            self._deliver(standing, entry, sent.first_ms)

    def _wait(self, standing: Standing, entry: Entry) -> None:
        due_ms, sent = int(due_text(entry.values)), standing.sent
        if due_ms not in sent.dues and due_ms != standing.due_ms:
            # A time that had passed means the moment of the change.
            is_now = min(sent.dues) <= due_ms <= entry.stored_ms
            if not is_now and (not sent.is_relative or due_ms < min(sent.dues)):
                raise Broken(f"the message {sent.key} waits for {due_ms}, asked for was {sorted(sent.dues)}")
            sent.dues.add(due_ms)
        self.owners[entry.position] = standing
        standing.state, standing.due_ms = TIERS[entry.topic], due_ms
        standing.place, standing.place_end, standing.stored_ms = entry.position, entry.end, entry.stored_ms
        standing.seen_ms = entry.seen_ms

    def _replace(self, entry: Entry, source: int) -> None:
        if source not in self.owners:
            raise Broken(f"the record at {entry.position} in {entry.topic} names {source}, where nothing waits")
        standing = self.owners[source]
        if standing is None:
            self._cancel(entry)
            return
        key = standing.sent.key
        if not standing.is_waiting or standing.place != source:
            raise Broken(
                f"the record at {entry.position} in {entry.topic} takes {key} from {source}, "
                f"which is {standing.state.value} by the record at {standing.place}"
            )
        if entry.topic == TIMER_CHANGES_TOPIC or Property.TIMER_DEL_UNIQKEY in entry.values:
            slot_ms = (standing.due_ms - 1) // 1_000 * 1_000
            sent = standing.sent
            # Of a copy that came when another had moved: the cancel record of the move, once it has hopped, counts for the slot.
            is_asked = sent.is_recall_asked or (sent.is_sent_again and sent.is_move_asked)
            if not is_asked and all(slot != slot_ms for slot, _ in self.cancels.get(key, [])):
                raise Broken(f"the message {key} is recalled, which nobody asked for")
            standing.state, standing.place, standing.place_end = State.RECALLED, entry.position, entry.end
            self.owners[entry.position] = None
        elif entry.topic in WAITING_TOPICS:
            standing.has_moved = True
            self._wait(standing, entry)
        else:
            self._deliver(standing, entry, standing.due_ms)

    def _deliver(self, standing: Standing, entry: Entry, due_ms: int) -> None:
        sent, was = standing.sent, standing.state
        if (entry.topic, entry.queue_id) != (sent.topic, sent.queue_id):
            raise Broken(
                f"the message {sent.key} for {sent.topic}/{sent.queue_id} is in {entry.topic}/{entry.queue_id}"
            )
        if entry.stored_ms < due_ms and not (was is State.LEVEL and due_ms <= self.high_ms):
            raise Broken(f"the message {sent.key} came {due_ms - entry.stored_ms} ms early")
        if entry.body != sent.body:
            raise Broken(f"the message {sent.key} has another body than was sent")
        if any(entry.values.get(name) != value for name, value in sent.values.items()):
            raise Broken(f"the message {sent.key} has the properties {entry.values}, sent were {sent.values}")
        if was is not State.UNKNOWN and not OURS.isdisjoint(entry.values):
            raise Broken(f"the message {sent.key} shows {OURS & entry.values.keys()}")
        if was is State.NEAR:
            self._cancelled_in_time(standing, entry)
            delivery = Delivery(standing, due_ms, standing.root, entry.position, not standing.has_moved)
            was_missed = self.is_damaged and entry.stored_ms >= due_ms + GRACE_MS
            in_order = due_ms > standing.seen_ms and entry.stored_ms >= standing.stored_ms
            if in_order and not was_missed:
                self._in_order(delivery, standing.place_end)
                self.deliveries.setdefault(sent.topic, []).append(delivery)
        standing.state, standing.place, standing.place_end = State.DELIVERED, entry.position, entry.end

    def _cancelled_in_time(self, standing: Standing, entry: Entry) -> None:
        """RocketMQ's cancellation, in the slot where the message is, stops it whatever came first. The key in
        its record may be another one after a reschedule: then it is out of reach for RocketMQ, and for us."""
        slot_ms = (standing.due_ms - 1) // 1_000 * 1_000
        if standing.has_moved or standing.sent.key in self.disturbed:
            return
        began = self._confirmed_before(entry.position)
        for slot, position in self.cancels.get(standing.sent.key, []):
            if slot == slot_ms and position < began and standing.place < position:
                raise Broken(
                    f"the message {standing.sent.key} was cancelled at {position} and delivered at {entry.position}"
                )

    def _confirmed_before(self, position: int) -> int:
        """How far the log was confirmed when the turn began that wrote this position."""
        confirmed = 0
        for end, confirmed_end in reversed(self.turns):
            if end <= position:
                confirmed = confirmed_end
                break
        return confirmed

    def _in_order(self, delivery: Delivery, place_end: int) -> None:
        """Nothing that was due later left before it, while it was there."""
        if delivery.standing.sent.key in self.disturbed:
            return
        for other in reversed(self.deliveries.get(delivery.standing.sent.topic, [])[-30:]):
            if other.standing.sent.key in self.disturbed or self._confirmed_before(other.position) < place_end:
                continue
            is_later = other.due_ms > delivery.due_ms or (
                other.due_ms == delivery.due_ms
                and other.root > delivery.root
                and other.is_first_place
                and delivery.is_first_place
            )
            if is_later:
                raise Broken(
                    f"{delivery.standing.sent.key}, due {delivery.due_ms}, first stored at {delivery.root}, left at "
                    f"{delivery.position}, after {other.standing.sent.key}, due {other.due_ms}, {other.root}, at "
                    f"{other.position}"
                )

    def told(self) -> list[str]:
        """The log in lines."""
        lines = []
        for entry in self.entries:
            values = entry.values
            lines.append(
                f"{entry.position} {entry.topic[-12:]}/{entry.queue_id} {values.get(Property.UNIQ_KEY)} stored {entry.stored_ms} "
                f"due {due_text(values)} source {entry.source} {values.get(Property.TIMER_DEL_UNIQKEY, '')} "
                f"{entry.body[:60]!r}"
                if entry.topic == TIMER_CHANGES_TOPIC
                else f"{entry.position} {entry.topic[-12:]}/{entry.queue_id} {values.get(Property.UNIQ_KEY)} stored {entry.stored_ms} "
                f"due {due_text(values)} source {entry.source} {values.get(Property.TIMER_DEL_UNIQKEY, '')}"
            )
        return lines

    # --- what waits -------------------------------------------------------------------------------------------------

    def waiting(self, *states: State) -> list[Standing]:
        wanted = states or tuple(WAITING)
        return [standing for standing in self.messages.values() if standing.state in wanted]

    def matching(self, topic: str, key: str) -> list[Standing]:
        """Timer messages that wait for the topic and have the key."""
        return [
            standing
            for standing in self.waiting(State.NEAR, State.FAR)
            if standing.sent.topic == topic and key in standing.words()
        ]

    def by_topic(self) -> Counter[str]:
        return Counter(standing.sent.topic for standing in self.waiting(State.NEAR, State.FAR))
