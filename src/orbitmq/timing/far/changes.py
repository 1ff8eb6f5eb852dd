"""Records about far messages: which one finishes a far message, and which say what moved where.

A far message is a record in topic `orbitmq_sys_far_timer`. Its *source* number, the record's log position + 1, is its name for
ever: in the files, in the log, after the log file has gone. A row of a loaded file never was such a record: its number is counted from
2^62 on. Whatever finishes it (a timer record in the topic of the near timers,
another far record, a recall) carries that number in `prepared_transaction_offset`, and says in the property ORBITMQ_FAR the
number again, the due time it had, and why: `4712,1790000000000,p`. Moves of many messages are records in topic
`orbitmq_sys_timer_changes` with a JSON body.

Rules of this file
1. Pure: records in, records out.
2. A finishing record counts only when both numbers agree, so that a copy of its properties means nothing.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import RecordError
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import TIMER_CHANGES_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import (
    Property,
    append_property,
    decode_properties,
    encode_properties,
    find_property,
    without_property,
)
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import NewMessage
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.restoring import message_again, quarantine_message, source_of
from orbitmq.timing.timers.changes import known_key

_FAR: Final = Property.FAR.encode()
_FAR_ENTRY: Final = _FAR + b"\x01"
_DUE: Final = Property.DUE_MS.encode()
_SLOT: Final = Property.TIMER_OUT_MS.encode()
_TOPIC: Final = Property.REAL_TOPIC.encode()
_REAL_UNIQ_KEY: Final = Property.REAL_UNIQ_KEY.encode()


class Why(enum.Enum):
    """Reasons why a message left the far tier."""

    PROMOTED = "p"
    """It came near, and is a near timer now."""
    RECALLED = "r"
    RESCHEDULED = "s"
    QUARANTINED = "q"


class Finish(NamedTuple):
    source: int
    deliver_ms: int
    """When it was due, as its row says."""
    topic: str
    why: Why


class FarFile(msgspec.Struct, kw_only=True):
    """One file of the tier."""

    name: str
    """Relative to the tier's root."""
    rows: int
    min_ms: int
    """Due time of the first row; rows are sorted by due time, then source."""
    max_ms: int
    first_source: int
    last_source: int
    """Lowest and highest source number in the file."""
    payload_bytes: int
    """Sum of the records' sizes: what the rows take in memory."""
    taken: int = 0
    """Rows from the start that have been promoted, or were finished before."""
    next_ms: int = 0
    """Due time of row `taken`; of the last row once all are taken."""
    index: str
    """Name of the index that has its keys, with those of other files maybe; empty while it has none."""
    index_number: int = 0
    """Which of them it is."""
    base: int = 0
    """Added to the `commitLogOffset` of its rows. A loaded file was written before its rows had numbers: they are counted from 0 there."""
    lost: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Rows of a damaged file that could not be read, as ranges (first, behind the last). No other row of it counts any more: they
    were written anew."""

    @property
    def left(self) -> int:
        return sum(end - first for first, end in self.lost) if self.lost else self.rows - self.taken


class Landed(msgspec.Struct, tag="landed", tag_field="change"):
    """Far records with queue offsets from `first` to before `next` lie in `file`, those left out that were finished below
    log position `seen`. Without a file all of them were finished."""

    first: int
    next: int
    seen: int
    file: FarFile | None
    landed_ms: int
    """When that was."""


class Promoted(msgspec.Struct, tag="promoted", tag_field="change"):
    """The first `taken` rows of a file have been promoted, or were finished before; the next is due at `next_ms`."""

    file: str
    taken: int
    next_ms: int


class Compacted(msgspec.Struct, tag="compacted", tag_field="change"):
    """Files were written anew, without the rows of `dropped`, which had been finished. Of those in `lost` the rest could not be read."""

    removed: list[str]
    added: list[FarFile]
    dropped: list[int]
    lost: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict)


class Loaded(msgspec.Struct, tag="loaded", tag_field="change"):
    """A job wrote these files into the tier: from this record on their rows are far messages. The first one of a job counts."""

    job: str
    attempt: str
    """Which of those who tried to do the job wrote the files."""
    split_ms: int
    """Rows of the job that are due before this are in no file: it sends them."""
    files: list[FarFile]
    by_topic: dict[str, int]
    by_day: dict[int, int]
    """How many of the rows are due on a day, days since 1970 in UTC."""
    loaded_ms: int


class Indexed(msgspec.Struct, tag="indexed", tag_field="change"):
    """These files, which had no index, have one together; they have the numbers in it in which they stand here."""

    index: str
    files: list[str]


class Recalled(msgspec.Struct, tag="recalled", tag_field="change"):
    """One message will not be delivered."""

    source: int
    deliver_ms: int
    topic: str
    message_id: str | None


Change = Landed | Promoted | Compacted | Loaded | Indexed | Recalled


def change_message(change: Change) -> NewMessage:
    """The record of a change, without a source."""
    return NewMessage(TIMER_CHANGES_TOPIC, 0, msgspec.json.encode(change), b"")


def decode_change(body: bytes) -> Change:
    """Raises RecordError for a body that is no change of ours."""
    try:
        change: Change = msgspec.json.decode(body, type=Change)
    except msgspec.MsgspecError as error:
        raise RecordError(f"the body of a record in {TIMER_CHANGES_TOPIC} is no change: {error}") from error
    return change


class FarFacts(NamedTuple):
    """Due time and place of a far message, as the properties of its record have them."""

    deliver_ms: int
    topic: str
    real_key: str | None
    """The unique key that the sender knows, where the message waits under another."""


def far_facts(properties: bytes) -> FarFacts | None:
    """None for a record in the far topic that no admission wrote."""
    due = find_property(properties, _DUE)
    topic = find_property(properties, _TOPIC)
    if due is None or not topic or not (due.isascii() and due.isdigit()) or len(due) > 18:
        return None
    real_key = find_property(properties, _REAL_UNIQ_KEY) if _REAL_UNIQ_KEY in properties else None
    return FarFacts(int(due), topic, real_key)


def finish_of(entry: Dispatched) -> Finish | None:
    """Which far message this record finishes, if its properties say so. Cost: 0.1 us for records that do not."""
    source = entry.prepared_transaction_offset
    # rfind, because `in` takes several times as long
    if source <= 0 or entry.properties.rfind(_FAR_ENTRY) < 0 or entry.sys_flag & TRANSACTION_MASK:
        return None
    note = find_property(entry.properties, _FAR)
    parts = note.split(",") if note is not None else []
    if len(parts) != 3 or parts[0] != str(source) or not (parts[1].isascii() and parts[1].isdigit()):
        return None
    try:
        why = Why(parts[2])
    except ValueError:
        return None
    return Finish(source, int(parts[1]), find_property(entry.properties, _TOPIC) or "", why)


def _noted(properties: bytes, source: int, deliver_ms: int, why: Why) -> bytes:
    return append_property(without_property(properties, _FAR), Property.FAR, f"{source},{deliver_ms},{why.value}")


def source_of_far(record: Record) -> int:
    return source_of(record.physical_offset)


def facts_of(record: Record) -> FarFacts:
    """Due time and place of a far message. Raises RecordError where its record lacks them."""
    facts = far_facts(record.properties)
    if facts is None:
        raise RecordError(f"the far record at {record.physical_offset} has no due time or no real topic")
    return facts


def deliver_ms_of(record: Record) -> int:
    """Due time of a far record. Raises RecordError where there is none."""
    return facts_of(record).deliver_ms


def near_message(record: Record, precision_ms: int) -> NewMessage:
    """The timer record that takes the place of a far one which came near. Raises RecordError where its record lacks a due time."""
    deliver_ms = deliver_ms_of(record)
    slot = str(slot_time(deliver_ms, precision_ms))
    properties = append_property(without_property(record.properties, _SLOT), Property.TIMER_OUT_MS, slot)
    properties = _noted(properties, source_of_far(record), deliver_ms, Why.PROMOTED)
    return message_again(
        record,
        TIMER_TOPIC,
        0,
        _due_at(properties, deliver_ms),
        tags_code(find_property(properties, Property.TAGS.encode())),
        find_property(properties, Property.UNIQ_KEY.encode()),
        find_property(properties, Property.KEYS.encode()),
    )


def _due_at(properties: bytes, deliver_ms: int) -> bytes:
    """Properties with another due time of ours. The sender's stays as it is; ours counts before it, and comes last, where it is found
    fastest."""
    return append_property(without_property(properties, _DUE), Property.DUE_MS, str(deliver_ms))


def noted_message(message: NewMessage, record: Record) -> NewMessage:
    """`message`, made by others to take the place of a far record, so that it finishes that record."""
    properties = _noted(message.properties, source_of_far(record), deliver_ms_of(record), Why.RESCHEDULED)
    if (due := find_property(properties, _DUE)) is not None:
        properties = _due_at(properties, int(due))
    return msgspec.structs.replace(message, properties=properties, prepared_transaction_offset=source_of_far(record))


def recall_message(record: Record) -> NewMessage:
    """The record that recalls a far message."""
    facts = facts_of(record)
    unique_key = known_key(decode_properties(record.properties)) or None
    source = source_of_far(record)
    message = change_message(Recalled(source, facts.deliver_ms, facts.topic, unique_key))
    names = {Property.REAL_TOPIC: facts.topic}
    if unique_key:  # in the record as well: an index that is made again from the log finds the recall by it
        names[Property.UNIQ_KEY] = unique_key
    message.properties = _noted(encode_properties(names), source, facts.deliver_ms, Why.RECALLED)
    message.prepared_transaction_offset = source
    message.unique_key = unique_key
    return message


def leaving_message(
    record: Record | None, source: int, due: tuple[int, str] | None, precision_ms: int
) -> tuple[NewMessage, str]:
    """The message that takes the place of a far one when it comes near: its timer record and "", or one for the quarantine and the reason.
    due: due time and topic, where they are known without the record."""
    problem = "its record is damaged or gone"
    if record is not None:
        try:
            return near_message(record, precision_ms), ""
        except RecordError as error:
            problem = str(error)
    if due is None:
        facts = None if record is None else far_facts(record.properties)
        due = (0, "") if facts is None else (facts.deliver_ms, facts.topic)
    return quarantined_message(record, source, *due, problem), problem


def quarantined_message(record: Record | None, source: int, deliver_ms: int, topic: str, reason: str) -> NewMessage:
    """The quarantine's record of a far message that cannot become a timer record; `record` is None when it cannot be read. The note of
    which message this finishes takes the room of its due time and slot, so that its other properties stay."""
    further = {Property.FAR: f"{source},{deliver_ms},{Why.QUARANTINED.value}"}
    if topic and (record is None or find_property(record.properties, _TOPIC) is None):
        further[Property.REAL_TOPIC] = topic
    without = (Property.DUE_MS, Property.TIMER_OUT_MS, Property.FAR)
    return quarantine_message(record, source - 1, reason, without=without, further=further)
