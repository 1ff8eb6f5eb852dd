"""The comparison with the plain decoders catches mistakes that a bulk decoder is likely to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings

from orbitmq.columns import bodies, due_times, hosts, layout, properties, records, soundness
from orbitmq.columns.layout import RecordLayout
from orbitmq.columns.message_columns import COLUMN_TYPES, PropertiesForm
from orbitmq.columns.properties import Entries
from orbitmq.columns.records import examine
from orbitmq.protocol.records import CheckStatus, check_record

from .plain_rows import batch_rows, plain_rows, record_batch
from .random_records import record_data

NAMES = list(COLUMN_TYPES)
REPEATABLE = settings(max_examples=80, deadline=None, derandomize=True, database=None, phases=[Phase.generate])


@REPEATABLE
@given(record_data())
def rows_agree(drawn: tuple[bytes, list[int]]) -> None:
    data, starts = drawn
    batch = record_batch(data, np.array(starts, np.int64), NAMES, "b", PropertiesForm.MAP)
    assert batch_rows(batch) == plain_rows(data, starts, NAMES, "b", PropertiesForm.MAP)


def changed_bytes_agree() -> None:
    chance = np.random.default_rng(3)

    @REPEATABLE
    @given(record_data(base=1000, plain=True))
    def agree(drawn: tuple[bytes, list[int]]) -> None:
        data, starts = bytearray(drawn[0]), drawn[1]
        for _ in range(2 if data else 0):
            data[chance.integers(len(data))] = chance.choice([0, 1, chance.integers(256)])
        damaged = {found.position for found in examine(data, np.array(starts, np.int64), base=1000, sums=True).damaged}
        for start in starts:
            check = check_record(bytes(data), start, len(data), expect_physical_offset=1000 + start)
            assert (start in damaged) == (check.status is not CheckStatus.VALID)

    agree()


def sums_with_top_bit(data: bytes, begins: Any, ends: Any, said: Any, crc32: Callable[[bytes], int]) -> list[int]:
    return [
        row for row in range(len(said)) if begins[row] < ends[row] and crc32(data[begins[row] : ends[row]]) != said[row]
    ]


def first_of_equal_names(entries: Entries, name: str) -> Any:
    texts = [
        dict(reversed([tuple(e.split("\x01", 1)) for e in t.split("\x02") if "\x01" in e]))
        for t in entries.texts.to_pylist()
    ]
    return pa.array([text.get(name) or None for text in texts], pa.string())


def keeps_repeats(entries: Entries) -> Entries:
    return entries


def always_regular(texts: Any, buffer: pa.Buffer, data: Any, offsets: Any) -> Entries:
    marks, ends = np.flatnonzero(data == 1), np.flatnonzero(data == 2)
    count = min(len(marks), len(ends))
    marks, ends = marks[:count], ends[:count]
    starts = np.concatenate(([0], ends[:-1] + 1))[:count]
    good = (starts <= marks) & (marks < ends)
    offsets = np.searchsorted(ends[good], offsets)
    return Entries(texts, buffer, data, starts[good], marks[good], ends[good], offsets, True)


def ids_of_born_hosts(layout: RecordLayout) -> Any:
    groups = tuple(
        group._replace(heads=group.heads[np.argsort(group.heads["size"], kind="stable")]) for group in layout.groups
    )
    return hosts.offset_ids(RecordLayout(layout.starts, groups, *layout._places()))


ROW_BUGS: list[tuple[str, Any, str, Any]] = [
    ("the first of equal names", Entries, "values", first_of_equal_names),
    ("a map with a name twice", Entries, "without_repeats", keeps_repeats),
    ("only regular properties", properties, "_split_regular", always_regular),
    ("bodies stay compressed", bodies, "_COMPRESSED", 0),
    ("a long topic has one byte of length", layout, "_V2", 0),
    ("IPv6 hosts are read as IPv4", layout, "_HEAD_BYTES", np.array([88, 88, 88, 88])),
    ("ids of other records", records, "offset_ids", ids_of_born_hosts),
    ("times of senders only", due_times, "_NUMBER", r"^$"),
    ("no time is too far for a timestamp", records, "_TIMESTAMP_MS_MAX", 2**63 - 1),
]
CHECK_BUGS: list[tuple[str, Any, str, Any]] = [
    ("checksums unseen", records, "wrong_sums", lambda data, layout: np.zeros(layout.count, bool)),
    ("checksums with their top bit", soundness, "rows_with_wrong_sums", sums_with_top_bit),
    ("texts unseen", records, "wrong_texts", lambda buffer, data, layout, written: np.zeros(layout.count, bool)),
]


def caught(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:
        return True
    return False


def test_the_comparisons_find_nothing_wrong_as_it_is() -> None:
    rows_agree()
    changed_bytes_agree()


@pytest.mark.parametrize(("module", "name", "bug"), [case[1:] for case in ROW_BUGS], ids=[case[0] for case in ROW_BUGS])
def test_rows_tell(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, bug: Any) -> None:
    monkeypatch.setattr(module, name, bug)
    assert caught(rows_agree)


@pytest.mark.parametrize(
    ("module", "name", "bug"), [case[1:] for case in CHECK_BUGS], ids=[case[0] for case in CHECK_BUGS]
)
def test_checks_tell(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, bug: Any) -> None:
    monkeypatch.setattr(module, name, bug)
    assert caught(changed_bytes_agree)
