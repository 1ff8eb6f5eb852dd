"""The innermost loops agree with their references on anything: values, and bytes that were mutated."""

from __future__ import annotations

import mmap
from array import array
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import leaf
from orbitmq.columns import records as bulk_records
from orbitmq.columns import soundness
from orbitmq.errors import RecordError
from orbitmq.leaf import inner, record_checks, timer_rows, word_sums
from orbitmq.protocol import batches, javahash, properties, records
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.properties import Property
from orbitmq.store import index_batch, queue_runs, raw_records, reading
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.due_time import stored_due_time
from orbitmq.timing.restoring import UNDELIVERABLE_TOPICS, Undeliverable, restore_message
from orbitmq.timing.rocketmq import handing_over
from orbitmq.timing.rocketmq.wheel import SLOT_BYTES
from orbitmq.timing.timers.exchange import DueUnits
from orbitmq.timing.timers.facts import TimerFacts, timer_facts

REFERENCE_MODULES = (
    javahash, properties, records, batches, index_batch, queue_runs, reading, raw_records, handing_over, bulk_records,
    soundness,
)  # fmt: skip
REFERENCES = leaf.REFERENCES


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def twin(request: pytest.FixtureRequest) -> Any:
    if request.param == "interpreted":
        return SimpleNamespace(**vars(inner) | vars(timer_rows) | vars(word_sums) | vars(record_checks))
    module, reason = leaf.load_extension()
    if module is None:
        pytest.skip(f"the extension was {reason}: run `make leaf`")
    return module


def outcome(function: Any, *arguments: Any) -> Any:
    """What a call gives: its value, or the kind of its error."""
    try:
        return function(*arguments)
    except (RecordError, ValueError) as error:
        return type(error)


TEXTS = st.text(max_size=40) | st.text(st.characters(codec="utf-8", min_codepoint=0x1_0000), max_size=5)
ENTRY = st.tuples(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", Property.DUE_MS, "a", "", "ü"]),
    st.sampled_from(["", "1", "00", "4294967296", "SCHEDULE", "x\x01y", "€", "t"]) | st.text(max_size=5),
)
PROPERTIES = st.lists(ENTRY, max_size=7).map(lambda rows: "".join(f"{name}\x01{value}\x02" for name, value in rows))


@given(TEXTS, TEXTS)
def test_hashes(twin: Any, topic: str, key: str) -> None:
    assert twin.java_hash(key) == REFERENCES["java_hash"](key)
    assert twin.index_key_hash(topic, key) == REFERENCES["index_key_hash"](topic, key)


ENTRIES = st.builds(
    Dispatched,
    st.integers(0, 2**62), st.just(1), st.sampled_from(["a", "TopicTest", "😀"]), st.just(0), st.just(0), st.just(0),
    st.integers(0, 2**45), st.none() | TEXTS, st.none() | TEXTS, st.sampled_from([0, 4, 8, 0xC]), st.just(0), st.just(b""),
)  # fmt: skip


@given(st.lists(ENTRIES, max_size=12), st.integers(1, 50), st.binary(min_size=20, max_size=20), st.integers(0, 2**44))
def test_index_entries(twin: Any, entries: list[Dispatched], number: int, table: bytes, begin: int) -> None:
    found: list[Any] = []
    for module in (twin, None):
        columns: tuple[list[int], list[int], list[int]] = ([], [], [])
        hash_entries = index_batch.KeyHasher().hash_entries if module is None else module.hash_entries
        link_entries = REFERENCES["link_entries"] if module is None else module.link_entries
        hash_entries(entries, *columns)
        slots = mmap.mmap(-1, 60)
        slots[40:60] = table
        heads: dict[int, int] = {}
        out = bytearray()
        new = link_entries(*columns, number, begin, slots, 5, heads, out)
        found.append((columns, new, heads, bytes(out)))
    assert found[0] == found[1]


INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**65), 2**65)
INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**65), 2**65)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20) | st.binary(max_size=21)


FIELDS = st.tuples(
    st.binary(max_size=10) | st.text(max_size=200).map(str.encode), INT32, INT32, INT64, INT64,
    st.sampled_from([0, 0x10, 0x20, 0x30]) | INT32, INT64, HOSTS, INT64, HOSTS, INT32, INT64, st.binary(max_size=40),
    st.binary(max_size=20) | st.just(b"x" * 32_767) | st.just(b"x" * 32_768), INT32,
)  # fmt: skip


@settings(max_examples=150)
@given(FIELDS)
def test_records(twin: Any, fields: tuple[Any, ...]) -> None:
    assert outcome(twin.encode_stored, *fields) == outcome(REFERENCES["encode_stored"], *fields)


def encoded_or_nothing(fields: tuple[Any, ...]) -> bytes:
    found = outcome(REFERENCES["encode_stored"], *fields)
    return found if isinstance(found, bytes) else b""


SEVERAL_RECORDS = st.lists(FIELDS.map(encoded_or_nothing), max_size=5).map(b"".join)


BITS = {"a": 1, "b": 2, "UNIQ_KEY": 4}


@given(PROPERTIES | st.text(alphabet="ab\x01\x02ü", max_size=12))
def test_properties(twin: Any, text: str) -> None:
    for shape in (text, text[:-1]):
        assert twin.exact_properties(shape) == REFERENCES["exact_properties"](shape)
        assert twin.marked_properties(shape, BITS) == REFERENCES["marked_properties"](shape, BITS)


@st.composite
def mutated(draw: Any, intact: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with up to three of them changed, or the end cut off."""
    data = bytearray(draw(intact))
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def read_alone(data: bytes, at: int) -> Any:
    """What a reader of whole records finds."""
    try:
        record = records.decode_record(data, at)
    except RecordError:
        return None
    return (
        record.total_size,
        record.queue_offset,
        properties.decode_properties(record.properties),
        len(record.properties),
    )


@settings(max_examples=150)
@given(mutated(SEVERAL_RECORDS), st.integers(-2, 3))
def test_properties_of_records(twin: Any, data: bytes, at: int) -> None:
    found = REFERENCES["plain_properties"](memoryview(data), at)
    assert twin.plain_properties(memoryview(data), at) in (None, found)
    assert found is None or read_alone(data, at) in (None, found)


@pytest.mark.parametrize("flags", [0, 0x10, 0x20, 0x30])
def test_the_properties_of_usual_records_are_not_left_to_the_general_way(twin: Any, flags: int) -> None:
    values = {"KEYS": "k ü", "colour": "red"}
    born, store = (bytes(20 if flags & bit else 8) for bit in (0x10, 0x20))
    data = records.encode_stored(
        b"T", 1, 2, -(1 << 40), 4, flags, 5, born, 6, store, 7, 0, b"body", properties.encode_properties(values), 9
    )
    for found in (twin.plain_properties, REFERENCES["plain_properties"]):
        assert found(memoryview(b"xy" + data + b"z"), 2) == (
            len(data),
            -(1 << 40),
            values,
            len(properties.encode_properties(values)),
        )


ITEMS = st.builds(
    BatchItem, st.integers(-9, 9), st.binary(max_size=9), PROPERTIES.map(str.encode) | st.binary(max_size=9)
)


@settings(max_examples=150)
@given(mutated(st.lists(ITEMS, max_size=4).map(encode_batch)))
def test_batches(twin: Any, body: bytes) -> None:
    assert outcome(twin.batch_rows, body, BITS) == outcome(REFERENCES["batch_rows"], body, BITS)


UNITS = st.lists(
    st.tuples(st.integers(0, 20).map(lambda n: n * 10), st.sampled_from([10, 20, 0x7FFF_FFFF]), st.integers(-2, 2)),
    max_size=12,
).map(lambda rows: b"".join(reading.UNIT.pack(*row) for row in rows))


@settings(max_examples=150)
@given(
    mutated(UNITS), st.integers(1, 8), st.integers(1, 90), st.integers(0, 60), st.none() | st.sets(st.integers(-2, 2))
)
def test_spans(twin: Any, units: bytes, count: int, size: int, start: int, codes: set[int] | None) -> None:
    whole = units[: len(units) // 20 * 20]
    accepts = None if codes is None else codes.__contains__
    arguments = (whole, count, size, start, 100, accepts)
    assert twin.choose_spans(*arguments) == REFERENCES["choose_spans"](*arguments)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.binary(max_size=40), st.text(max_size=6), st.sampled_from([0, 0x10, 0x20, 0x30])), max_size=4
    ),
    st.data(),
)
def test_sound_records(twin: Any, rows: list[tuple[bytes, str, int]], data: st.DataObject) -> None:
    position, log, ends = 70, b"", [70]
    for body, text, flags in rows:
        born, store = (bytes(20 if flags & bit else 8) for bit in (0x10, 0x20))
        log += records.encode_stored(
            f"T{text}".encode(), 1, 2, 3, position + len(log), flags, 5, born, 6, store, 7, 0,
            body, text.encode(), crc32(body) & 0x7FFFFFFF,
        )  # fmt: skip
        ends.append(position + len(log))
    sound = REFERENCES["sound_prefix"](memoryview(log), position, crc32)
    assert twin.sound_prefix(memoryview(log), position, crc32) == sound
    changed = bytearray(log)
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    for form in (changed, changed[: data.draw(st.integers(0, len(changed)))]):
        view = memoryview(form)
        assert twin.sound_prefix(view, position, crc32) == REFERENCES["sound_prefix"](view, position, crc32)
    spans = list(pairwise(ends))
    for base, chosen in product((position, position + 1, position - 1), (spans, spans[1:], [(ends[0], ends[-1])])):
        for form, check in product((log, bytes(changed), log[:-1]), (None, crc32)):
            view = memoryview(form)
            assert twin.log_slices(view, base, chosen, check) == REFERENCES["log_slices"](view, base, chosen, check)


COPIED = st.tuples(
    st.sampled_from(["T", "T", "SCHEDULE_TOPIC_XXXX", ".T", "a/b", "", "ü", "t" * 127, "t" * 128, "t" * 256]),
    st.sampled_from([0, 0, 7, 0x7FFF_FFFF, -1]),
    st.sampled_from([0, 0x10, 0x20, 0x30, 0xC, -0x8000_0000]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.binary(max_size=40),
    PROPERTIES.map(str.encode)
    | st.binary(max_size=60).map(lambda data: b"TAGS\x01a\x02" + data + b"\x02UNIQ_KEY\x01b"),
)


@settings(max_examples=250)
@given(st.lists(COPIED, max_size=5), st.integers(0, 3), st.data())
def test_usual_entries(
    twin: Any, rows: list[tuple[str, int, int, int, bytes, bytes]], begin: int, data: st.DataObject
) -> None:
    position, log = 70, b"x" * begin
    for topic, queue_id, flags, number, body, text in rows:
        born, store = (bytes(20 if flags & bit else 8) for bit in (0x10, 0x20))
        log += records.encode_stored(
            topic.encode(), queue_id, 2, number, position + len(log) - begin, flags, 5, born, number, store, 7, number,
            body, text, crc32(body) & 0x7FFFFFFF,
        )  # fmt: skip
    changed = bytearray(log)
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(0, 255))
    for form in (log, bytes(changed)):
        end = data.draw(st.integers(0, len(form))) if data.draw(st.booleans()) else len(form)
        arguments = (form, begin, end, position, crc32, Dispatched)
        found, whole = twin.usual_entries(*arguments), REFERENCES["usual_entries"](*arguments)
        assert found == whole[: len(found)]
        if len(found) < len(whole):
            left = whole[len(found)]
            assert left.topic.startswith(".") or "\ufffd" in f"{left.unique_key}{left.keys}{decoded(left)}", (
                "it is a rare one"
            )


def decoded(entry: Dispatched) -> str:
    return entry.properties.decode(errors="replace")


QUEUED = st.tuples(
    st.sampled_from(["T", "T", "U", "ü"]),
    st.sampled_from([0, 0, 7, 0x7FFF_FFFF]),
    st.sampled_from([0, 0, 0x4, 0x8, 0xC, -0x8000_0000]),
    st.sampled_from([0] * 15 + [1, -2]),  # what is added to the number that would follow
    st.sampled_from([0] * 15 + [-300]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


@settings(max_examples=300)
@given(st.lists(QUEUED, max_size=12), st.integers(0, (1 << 63) - 20_000), st.sampled_from([0, 5, (1 << 63) - 20]))
def test_queue_runs(twin: Any, rows: list[tuple[str, int, int, int, int, int]], position: int, first: int) -> None:
    entries, numbers = [], dict[tuple[str, int], int]()
    for topic, queue_id, flags, skipped, moved, tags_code in rows:
        number = numbers.get((topic, queue_id), first) + skipped
        numbers[topic, queue_id] = number + 1
        entries.append(
            Dispatched(position + moved, 200, topic, queue_id, number, tags_code, 3, None, None, flags, 0, b"")
        )
        position += 200
    for alone in ("ü", "none"):
        assert twin.queue_runs(entries, alone) == REFERENCES["queue_runs"](entries, alone)


def stored(text: str, due: str, body: bytes, hosts: bytes) -> bytes:
    """The record of a delayed message, more or less."""
    return records.encode_stored(
        b"SCHEDULE_TOPIC_XXXX", 1, 2, 3, 4, 0x30 if len(hosts) == 20 else 0, 5, hosts, 6, hosts, 7, 0,
        body, f"{text}{due}".encode(), 9,
    )  # fmt: skip


SPAN_MS = 10
DUES = st.sampled_from(
    [f"{Property.DUE_MS}\x0117\x02"] * 3
    + ["", f"{Property.DUE_MS}\x0117", f"{Property.DUE_MS}\x011x\x02"]
    + [
        f"TIMER_DELIVER_MS\x01{due}\x02TIMER_OUT_MS\x01{slot}\x02"
        for due, slot in ((17, 10), (20, 10), (21, 10), (10, 10))
    ]
    + [
        "TIMER_OUT_MS\x0110\x02TIMER_DELIVER_MS\x0117",
        "TIMER_DELAY_MS\x011\x02TIMER_DELIVER_MS\x0117\x02TIMER_OUT_MS\x0110\x02",
    ]
)
PLACED = st.sampled_from(["", "REAL_TOPIC\x01SCHEDULE\x02REAL_QID\x0112\x02"])
STORED = st.builds(
    lambda text, placed, *rest: stored(text + placed, *rest),
    PROPERTIES, PLACED, DUES, st.binary(max_size=9), st.sampled_from([bytes(8), bytes(8), bytes(20)]),
)  # fmt: skip


def stated(values: dict[str, str]) -> int:
    """The time that the sender of a timer message stated, which its slot does not contradict."""
    slot_ms = int(values[Property.TIMER_OUT_MS])
    due_ms = stored_due_time(values, slot_ms, 6, SPAN_MS)
    assert str(due_ms) == values.get(Property.TIMER_DELIVER_MS)
    return due_ms


def layered(data: bytes) -> Any:
    """The message, encoded with the place and the time of the record, queue offset and due time, as plain code reads them."""
    try:
        record = records.decode_record(data)
        message = restore_message(record)
        values = properties.decode_properties(record.properties)
        due_ms = int(values[Property.DUE_MS]) if Property.DUE_MS in values else stated(values)
    except (RecordError, Undeliverable, ValueError, KeyError) as error:
        return error
    encoded = records.encode_stored(
        message.topic.encode(), message.queue_id, message.flag, record.queue_offset, record.physical_offset,
        message.sys_flag, message.born_timestamp, message.born_host, record.store_timestamp, message.store_host,
        message.reconsume_times, message.prepared_transaction_offset, message.body, message.properties, message.body_crc,
    )  # fmt: skip
    values = (
        encoded, message.topic, message.queue_id, message.tags_code, message.unique_key, message.keys, message.sys_flag,
        message.prepared_transaction_offset, message.properties,
    )  # fmt: skip
    return values, record.queue_offset, due_ms


SHY = ("TAGS",)


@settings(max_examples=300)
@given(st.lists(mutated(STORED) | STORED, max_size=3), st.sampled_from(["", "a"]), st.sampled_from([(), SHY]))
def test_restored_rows(twin: Any, stored_records: list[bytes], needed: str, shy: tuple[str, ...]) -> None:
    """What the twin understands it reads and encodes as the layers do; the rest it leaves alone."""
    rows = twin.restored_rows(stored_records, [4] * len(stored_records), Property.DUE_MS, needed, shy, SPAN_MS)
    assert len(rows) == len(stored_records)
    for row, data in zip(rows, stored_records, strict=True):
        if row is None or row[0][1] in UNDELIVERABLE_TOPICS:
            continue
        assert row == layered(data)
        values = properties.decode_properties(row[0][8])
        assert not needed or needed in values
        assert not any(name in values for name in shy)
        assert type(row[0][0]) is bytearray, "who appends it fills in its place"


def test_the_usual_timer_record_is_not_left_to_the_layers(twin: Any) -> None:
    data = stored("a\x01b\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02", f"{Property.DUE_MS}\x0117\x02", b"body", bytes(8))
    (row,) = twin.restored_rows([data], [4], Property.DUE_MS, "", (), 0)
    assert row is not None
    assert row == layered(data)


PLACES = st.permutations(
    [
        "TIMER_OUT_MS\x015000",
        "REAL_TOPIC\x01T",
        "REAL_QID\x013",
        "TIMER_DELIVER_MS\x015250",
        f"{Property.DUE_MS}\x015300",
    ]
)
ODD = st.sampled_from(
    [
        *("", "", "", "REAL_TOPIC\x01U", "REAL_TOPIC\x01€", "REAL_QID\x019999999999", "REAL_QID\x01x", "a\x01"),
        *("TIMER_DELIVER_MS\x0199999999999999999", "TIMER_DELIVER_MS\x01x\x01y", "TIMER_OUT_MS\x014000"),
        *("TIMER_DELAY_MS\x011", "TIMER_DELAY_SEC\x01x", "TIMER_DEL_UNIQKEY\x01T+k", "TIMER_ROLL_TIMES\x011"),
        *(f"TIMER_DEL_UNIQKEY\x01T+k\x02{Property.LEFT_MS}\x014000", "TIMER_DEL_UNIQKEY\x01k\x02TIMER_ROLL_TIMES\x011"),
        *("TIMER_OUT_MS\x01999999999999999", "TAGS\x01TIMER_OUT_MS", f"{Property.REAL_UNIQ_KEY}\x01k"),
    ]
)


@st.composite
def timer_entries(draw: st.DrawFn) -> Dispatched:
    """A record of the timer topic, more or less."""
    rows = draw(PLACES)[: draw(st.integers(2, 5))]
    rows.insert(draw(st.integers(0, len(rows))), draw(ODD))
    text = draw(PROPERTIES) + "".join(f"{row}\x02" for row in rows if row)
    data = text.encode()[: draw(st.sampled_from([None, None, None, -1, -3]))]
    return Dispatched(
        7,
        300,
        "rmq_sys_wheel_timer",
        0,
        12,
        0,
        4_000,
        "k",
        "a b",
        draw(st.sampled_from([0, 0, 4])),
        draw(st.sampled_from([0, 0, 9, -9])),
        data,
    )


@settings(max_examples=300)
@given(st.lists(timer_entries(), max_size=3))
def test_usual_timers(twin: Any, entries: list[Dispatched]) -> None:
    """What the twin understands it reads as the general way does; the rest it leaves alone."""
    found = twin.usual_timers(entries, 1_000, TimerFacts)
    assert len(found) == len(entries)
    for facts, entry in zip(found, entries, strict=True):
        assert facts is None or facts == timer_facts(entry, 1_000)


@pytest.mark.parametrize(
    "due", ["TIMER_DELIVER_MS\x015250\x02", f"TIMER_DELAY_MS\x019\x02{Property.DUE_MS}\x015250\x02"]
)
def test_the_usual_timer_is_not_left_to_the_general_way(twin: Any, due: str) -> None:
    text = f"UNIQ_KEY\x01k\x02TAGS\x01t\x02WAIT\x01true\x02{due}TIMER_OUT_MS\x015000\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02"
    entry = Dispatched(7, 300, "rmq_sys_wheel_timer", 0, 12, 0, 4_000, "k", "a b", 0, 0, text.encode())
    (facts,) = twin.usual_timers([entry], 1_000, TimerFacts)
    assert facts is not None
    assert facts == timer_facts(entry, 1_000)


FIELDS = st.sampled_from([-1, 0, 5, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1])
LINKS = st.tuples(
    st.sampled_from([100_000, 101_000, 104_500, 105_000, 100_000 + 2**31]),
    st.sampled_from([1, 3, 5, 13]) | FIELDS, st.integers(0, 2**40) | FIELDS, st.integers(1, 500) | FIELDS,
    st.integers(-(2**31), 2**31 - 1) | FIELDS, st.integers(0, 2**45) | FIELDS,
)  # fmt: skip
STORED_SLOTS = st.tuples(
    st.integers(98, 108), st.integers(-1, 900), st.integers(-1, 900), st.integers(-9, 9), st.integers(0, 3)
)


WORDS = FIELDS.filter(lambda value: -(2**63) <= value < 2**63)
DUE_UNITS = st.tuples(
    st.integers(100_000 - 12_000, 100_000 + 30_000) | st.integers(-(2**62), 2**62),
    st.integers(0, 2**40) | WORDS, st.integers(1, 500) | WORDS, st.integers(-(2**31), 2**31 - 1) | WORDS,
)  # fmt: skip


@settings(max_examples=200)
@given(
    st.lists(DUE_UNITS, max_size=12), st.integers(0, 12), st.sampled_from([1, 5, 13]), st.integers(0, 300),
    st.integers(-60, 700), st.sampled_from([1, 100, 1_000]),
)  # fmt: skip
def test_units_in_their_slots(
    twin: Any, units: list[Any], at: int, magic: int, position: int, room: int, precision_ms: int
) -> None:
    slots = (precision_ms, 100_000, 100_000 - 5 * precision_ms, 8)
    columns = DueUnits.of(units)[:4]
    places = sorted(range(len(units)), key=columns[1].__getitem__)
    found = []
    for pack_slots in (twin.pack_slots, REFERENCES["pack_slots"]):
        wheel, tail = memoryview(bytearray(20 * SLOT_BYTES)).cast("q"), bytearray(b"before")
        count = outcome(
            pack_slots, columns, places, min(at, len(units)), magic, position, position + room, slots, wheel, tail
        )
        found.append((count, wheel.tolist(), tail) if isinstance(count, int) else count)
    assert found[0] == found[1]


QUEUE_OFFSETS = st.integers(0, 60) | st.integers(0, 2**63 - 1)


@given(st.lists(QUEUE_OFFSETS, max_size=12), st.sets(QUEUE_OFFSETS, max_size=40))
def test_where_records_of_queue_offsets_lie(twin: Any, wanted: list[int], known: set[int]) -> None:
    offsets = array("q", sorted(known))
    positions, sizes = array("q", [offset ^ 77 for offset in offsets]), array("q", range(1, len(offsets) + 1))
    found = []
    for find_units in (twin.find_units, REFERENCES["find_units"]):
        columns = array("q", bytes(8 * len(wanted))), array("q", bytes(8 * len(wanted)))
        found.append((find_units(array("q", wanted), offsets, positions, sizes, *columns), columns))
    assert found[0] == found[1]
    assert found[0][0] == sum(offset in known for offset in wanted)


WORD = st.integers(0, 2**64 - 1)


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(WORD, max_size=40), WORD, st.integers(-2, 30))
def test_words_of_rows(twin: Any, sizes: list[int], words: list[int], odd: int, start: int) -> None:
    """A first bound that is negative is refused by both."""
    np = pytest.importorskip("numpy", reason="the extra 'spark' is not installed")
    row_hashes = pytest.importorskip("orbitmq.spark.writing.row_hashes", reason="the extra 'spark' is not installed")
    bounds = np.cumsum([start, *sizes])
    data = np.resize(np.array([*words, 7], np.uint64), max(1, int(bounds[-1])))
    found = []
    for function in (twin.add_words, REFERENCES["add_words"]):
        sums = np.full(len(sizes), 5, np.uint64)
        tables = row_hashes._powers(row_hashes.BLOCK_WORDS)
        arguments = [data, bounds, *tables, odd, sums]
        if function is word_sums.add_words:  # interpreted, numbers of numpy would wrap with a warning
            arguments = [memoryview(value) if isinstance(value, np.ndarray) else value for value in arguments]
        found.append((outcome(function, *arguments), sums.tolist()))
    assert found[0] == found[1]
    assert (found[0][0] is ValueError) == (start < 0)


@given(
    mutated(SEVERAL_RECORDS),
    st.integers(0, 3),
    st.integers(0, 300),
)
def test_where_records_begin(twin: Any, data: bytes, start: int, cut: int) -> None:
    end = max(len(data) - cut, start)
    for view in (data, memoryview(data)):
        assert twin.record_starts(view, start, end) == REFERENCES["record_starts"](view, start, end)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8), st.data())
def test_wrong_sums(twin: Any, data: bytes, cuts: list[int], drawn: st.DataObject) -> None:
    places = np.array(sorted(cuts), np.int64)
    begins, ends = places[:-1], places[1:]
    right = np.array([crc32(data[begin:end]) & 0x7FFFFFFF for begin, end in pairwise(sorted(cuts))], np.uint32)
    wrong = drawn.draw(st.lists(st.booleans(), min_size=len(right), max_size=len(right)))
    said = right ^ np.array(wrong, np.uint32)
    found = twin.rows_with_wrong_sums(data, begins, ends, said, crc32)
    assert found == REFERENCES["rows_with_wrong_sums"](data, begins, ends, said, crc32)
    assert found == [row for row in range(len(right)) if wrong[row] and begins[row] < ends[row]]
