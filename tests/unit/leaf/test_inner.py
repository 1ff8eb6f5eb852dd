"""The innermost loops, each run in all three ways: known answers, and what must be refused alike."""

from __future__ import annotations

import mmap

import pytest

from orbitmq.errors import RecordError
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.records import MagicCode, decode_record, encode_record
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.restoring import restore_message

HOST, HOST_V6 = bytes(range(8)), bytes(range(20))
RECORD = {
    "topic": b"TopicTest",
    "queue_id": 3,
    "flag": -7,
    "queue_offset": 12,
    "physical_offset": 1 << 40,
    "sys_flag": 0,
    "born_timestamp": 1_700_000_000_000,
    "born_host": HOST,
    "store_timestamp": 1_700_000_000_001,
    "store_host": HOST,
    "reconsume_times": 2,
    "prepared_transaction_offset": 0,
    "body": b"body",
    "properties": b"a\x01b\x02",
    "body_crc": 99,
}


def encode(way, **changes):
    return way.encode_stored(*(RECORD | changes).values())


def test_java_hash(way) -> None:
    assert way.java_hash("") == 0
    assert way.java_hash("TagA") == 2_598_919
    assert way.java_hash("polygenelubricants") == -(2**31)
    assert way.java_hash("😀") == 0xD83D * 31 + 0xDE00
    assert way.java_hash("\ud800x") == 0xD800 * 31 + ord("x")


def test_index_key_hash(way) -> None:
    assert way.index_key_hash("TopicTest", "k1") == 2_746_024
    # a#b whose hash is -2^31 would be 0; absolute values elsewhere
    assert all(0 <= way.index_key_hash("t", str(n)) < 2**31 for n in range(500))


def test_a_record_reads_back(way) -> None:
    for changes in (
        {},
        {"sys_flag": 0x10, "born_host": HOST_V6},
        {"sys_flag": 0x20, "store_host": HOST_V6},
        {"sys_flag": 0x30, "born_host": HOST_V6, "store_host": HOST_V6},
        {"topic": b"t" * 127},
        {"topic": b"t" * 128},
        {"body": b"", "properties": b"", "topic": b""},
    ):
        data = encode(way, **changes)
        record = decode_record(data)
        assert encode_record(record) == data
        wanted = RECORD | changes
        assert record.topic.encode() == wanted.pop("topic")
        assert record.magic is (MagicCode.V2 if len(record.topic) > 127 else MagicCode.V1)
        assert {name: getattr(record, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "changes",
    [
        {"born_host": HOST_V6},
        {"sys_flag": 0x20},
        {"properties": b"x" * 32_768},
        {"queue_id": 2**31},
        {"flag": -(2**31) - 1},
        {"sys_flag": 2**32},
        {"reconsume_times": 2**63},
        {"body_crc": 2**31},
        {"born_timestamp": 2**63},
        {"store_timestamp": -(2**63) - 1},
        {"queue_offset": 2**80},
        {"topic": "é".encode() * 64},
        {"topic": b"\xff" * 200},
        {"topic": b"t" * 32_768},
    ],
)
def test_what_fits_no_record_is_refused(way, changes) -> None:
    with pytest.raises(RecordError):
        encode(way, **changes)


def entry(unique_key, keys, *, topic="TopicTest", sys_flag=0) -> Dispatched:
    return Dispatched(7, 100, topic, 0, 0, 0, 5, unique_key, keys, sys_flag, 0, b"")


def test_keys_become_hashes_offsets_and_times(way) -> None:
    hashes, offsets, times = [], [], []
    way.hash_entries(
        [
            entry("U", "a  b "),
            entry(None, None),
            entry("", ""),
            entry("x", "y", sys_flag=0xC),
            entry(None, "ü😀", topic="群"),
        ],
        hashes,
        offsets,
        times,
    )
    assert hashes == [
        *(way.index_key_hash("TopicTest", key) for key in ("U", "a", "b")),
        way.index_key_hash("群", "ü😀"),
    ]
    assert offsets == [7] * 4
    assert times == [5] * 4


def test_entries_are_linked_to_what_the_slot_held(way) -> None:
    slots = mmap.mmap(-1, 40 + 4 * 4)
    slots[40:44] = (5).to_bytes(4, "big")
    slots[44:48] = (-3).to_bytes(4, "big", signed=True)
    slots[48:52] = (50).to_bytes(4, "big")  # beyond what is written: not believed
    heads: dict[int, int] = {3: 9}
    out = bytearray(b"before")
    new = way.link_entries(
        [4, 8, 5, 6, 7], [1, 2, 3, 4, -5], [0, 999, 5_000, 2**60, 1_000], 10, 1_000, slots, 4, heads, out
    )
    assert new == 2
    assert heads == {0: 11, 1: 12, 2: 13, 3: 14}
    assert out.startswith(b"before")
    rows = [out[at : at + 20] for at in range(6, len(out), 20)]
    assert [int.from_bytes(row[:4], "big") for row in rows] == [4, 8, 5, 6, 7]
    assert [int.from_bytes(row[4:12], "big", signed=True) for row in rows] == [1, 2, 3, 4, -5]
    assert [int.from_bytes(row[12:16], "big") for row in rows] == [0, 0, 4, 2**31 - 1, 0]
    assert [int.from_bytes(row[16:], "big") for row in rows] == [5, 10, 0, 0, 9]


def test_lists_of_different_length_are_refused(way) -> None:
    with pytest.raises(ValueError, match=r"length|longer|shorter"):
        way.link_entries([1, 2], [1], [1], 1, 0, mmap.mmap(-1, 64), 4, {}, bytearray())


def test_exact_properties(way) -> None:
    assert way.exact_properties("") == {}
    assert way.exact_properties("a\x01b\x02") == {"a": "b"}
    assert way.exact_properties("a\x01b\x02c\x01d\x01e") == {"a": "b", "c": "d\x01e"}
    for text in ("a", "a\x01", "a\x01\x02", "\x01b\x02", "\x02", "a\x01b\x02\x02", "a\x01b\x02a\x01c\x02"):
        assert way.exact_properties(text) is None, text


def test_marked_properties(way) -> None:
    marks = {"a": 1, "b": 2, "c": 4}
    assert way.marked_properties("", marks) == ({}, 0)
    assert way.marked_properties("a\x01b\x02d\x01c\x02", marks) == ({"a": "b", "d": "c"}, 1)
    assert way.marked_properties("c\x01x\x02a\x01b", marks) == ({"c": "x", "a": "b"}, 5)
    for text in ("a", "a\x01\x02", "a\x01b\x02a\x01c\x02"):
        assert way.marked_properties(text, marks) is None, text


def test_batch_rows(way) -> None:
    items = [BatchItem(1, b"one", b"a\x01b\x02"), BatchItem(-2, b"", b""), BatchItem(3, b"x", b"\xff\x01b\x02")]
    body = encode_batch(items)
    assert way.batch_rows(body, {"a": 2}) == [
        (1, b"one", b"a\x01b\x02", {"a": "b"}, 2),
        (-2, b"", b"", {}, 0),
        (3, b"x", b"\xff\x01b\x02", None, 0),
    ]
    assert way.batch_rows(b"", {}) == []
    for cut in range(1, len(body)):
        if cut not in (28 + 1, 28 + 1 + 22):  # ends of items
            with pytest.raises(RecordError):
                way.batch_rows(body[:cut], {})


def units(*rows):
    return b"".join(UNIT.pack(*row) for row in rows)


def test_choose_spans(way) -> None:
    row = units((0, 9, 1), (10, 10, -1), (20, 10, 2), (40, 10, 3), (50, 50, 4), (100, 10, 5))
    every = way.choose_spans(row, 9, 1_000, 10, 100, None)
    assert every == ([(10, 30), (40, 100), (100, 110)], 6, 5, 90, True)
    assert way.choose_spans(row, 2, 1_000, 0, 100, None) == ([(0, 9), (10, 20)], 2, 2, 19, False)
    assert way.choose_spans(row, 9, 1, 10, 100, None) == ([(10, 20)], 2, 1, 10, True)
    assert way.choose_spans(row, 9, 1_000, 0, 100, {-1, 3}.__contains__) == ([(10, 20), (40, 50)], 6, 2, 20, False)
    assert way.choose_spans(units((0, FILLER_SIZE, 0)), 9, 9, 0, 100, None) == ([], 1, 0, 0, True)
    assert way.choose_spans(b"", 9, 9, 0, 100, None) == ([], 0, 0, 0, False)
    for form in (memoryview(row), bytearray(row)):
        assert way.choose_spans(form, 9, 1_000, 10, 100, None) == every


def rows(way, *records: bytes | None, position: int = RECORD["physical_offset"], due: str = "ORBITMQ_DUE_MS") -> list:
    return way.restored_rows(list(records), [position] * len(records), due, "TIMER_OUT_MS", ("SHY",), 1_000)


def test_a_restored_row_is_the_record_of_the_restored_message_or_none(way) -> None:
    text = b"UNIQ_KEY\x01k\x02KEYS\x01a b\x02TAGS\x01t\x02TIMER_OUT_MS\x0116\x02REAL_TOPIC\x01Real\x02REAL_QID\x017\x02"
    due = b"ORBITMQ_DUE_MS\x0117\x02"
    data = encode(way, topic=b"rmq_sys_wheel_timer", properties=text + due)
    if way.name == "reference":
        assert rows(way, data, None) == [None, None]
        return
    ((message, queue_offset, due_ms),) = rows(way, memoryview(data))
    assert (queue_offset, due_ms) == (12, 17)
    restored = restore_message(decode_record(data))
    assert bytes(message[0]) == encode(
        way, topic=b"Real", queue_id=7, properties=text, prepared_transaction_offset=(1 << 40) + 1
    )
    assert message[1:] == (
        "Real", 7, restored.tags_code, "k", "a b", 0, restored.prepared_transaction_offset, restored.properties
    )  # fmt: skip
    stated = text.replace(b"TIMER_OUT_MS", b"TIMER_DELIVER_MS\x0117\x02TIMER_OUT_MS")
    ((message, queue_offset, due_ms),) = rows(way, encode(way, topic=b"rmq_sys_wheel_timer", properties=stated))
    assert (queue_offset, due_ms, message[8]) == (12, 17, stated)
    ((message, _, due_ms),) = rows(way, encode(way, properties=stated.replace(b"\x0117", b"\x0120") + due))
    assert (due_ms, message[8]) == (17, stated.replace(b"\x0117", b"\x0120"))
    unusual = [
        stated.replace(b"\x0117", b"\x0116"),
        stated.replace(b"\x0117", b"\x011017"),
        stated.replace(b"\x0117", b"\x011x"),
        stated.replace(b"\x0116", b"\x01x"),
        stated + b"TIMER_DELAY_SEC\x011\x02",
        stated + b"TIMER_DELAY_MS\x011\x02",
        text + due + b"A\x01b\x02",
        text + b"TAGS\x01twice\x02" + due,
        text + b"SHY\x011\x02" + due,
        text + due[:-1],
        text + b"ORBITMQ_DUE_MS\x01x\x02",
        text + b"ORBITMQ_DUE_MS\x01" + b"9" * 16 + b"\x02",
        text.replace(b"REAL_QID\x017", b"REAL_QID\x01-7") + due,
        text.replace(b"REAL_QID\x017", "REAL_QID\x01٣".encode()) + due,
        text.replace(b"REAL_QID\x017", b"REAL_QID\x01" + b"9" * 10) + due,
        text.replace(b"REAL_TOPIC", b"REEL_TOPIC") + due,
        text.replace(b"Real", b"Re\0al") + due,
        text.replace(b"Real", b"R" * 128) + due,
        text.replace(b"TIMER_OUT_MS", b"TIMER_OWT_MS") + due,
        text + b"a\x01\xff\x02" + due,
        text,
        b"",
    ]
    for properties in unusual:
        assert rows(way, encode(way, properties=properties)) == [None], properties
    good = encode(way, properties=text + due)
    assert rows(way, encode(way, sys_flag=0x10, born_host=HOST_V6, properties=text + due)) == [None]
    assert rows(way, encode(way, topic=b"t" * 128, properties=text + due)) == [None]
    assert rows(way, good[:-1], good + b"x", b"", None) == [None] * 4
    assert rows(way, good, position=5) == [None], "a record that says it lies elsewhere"
    assert rows(way, good)[0] is not None


@pytest.mark.parametrize("bounds", [[0, 2], [0, 2, 1, 3], [-1, 1, 2, 3]], ids=["too few", "going back", "negative"])
def test_rows_of_words_lie_one_behind_the_other(way, bounds) -> None:
    np = pytest.importorskip("numpy", reason="the extra 'spark' is not installed")
    pytest.importorskip("orbitmq.spark.writing.row_hashes", reason="the extra 'spark' is not installed")
    words, sums = np.arange(8, dtype=np.uint64), np.zeros(3, np.uint64)
    with pytest.raises(ValueError, match="bound"):
        way.add_words(words, np.array(bounds), words, words, 3, sums)


def test_records_are_followed_until_one_is_not_whole_or_too_short(way) -> None:
    one, other = encode(way), encode(way, body=b"longer")
    data = b"xy" + one + other + bytes(90)
    begins = [2, 2 + len(one)]
    assert list(way.record_starts(data, 2, len(data) - 90)) == begins
    assert list(way.record_starts(data, 2, len(data))) == begins
    assert list(way.record_starts(memoryview(data), 2, len(data) - 91)) == begins[:1]
    assert list(way.record_starts(data, 2, 2 + len(one) - 1)) == []
    assert list(way.record_starts(b"\xff" * 200, 0, 200)) == []
