"""Files that jobs write into the tier, and have count."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.far_loads import ATTEMPT, table_of, write_file
from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.limits.far import FAR_LOAD_AGE_MS, FAR_LOAD_FILE_AGE_MS, FAR_LOAD_MEMORY_MS
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.changes import far_facts
from orbitmq.timing.far.columns import records_of
from orbitmq.timing.far.columns import table_of as table_of_records
from orbitmq.timing.far.loads import TOO_OLD, Load, WrittenFile, is_too_old, names_problem, stem_of

OpenFar = Callable[..., LittleFar]
OTHER = "fedcba9876543210"


def rows(far: LittleFar, count: int, *, first_day: int = 10, name: str = "U") -> list[tuple[int, str]]:
    return [(far.clock.now_ms() + (first_day + number) * DAY_MS, f"{name}{number}") for number in range(count)]


def load(far: LittleFar, *files: WrittenFile, job: str = "job", attempt: str = ATTEMPT) -> Load:
    begun = far.far.load(Load(job, attempt, far.clock.now_ms(), far.far.split_ms(), files))
    assert begun is not None
    far.work()
    return begun


def test_loaded_rows_are_messages_like_any_other(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    load(far, write_file(tmp_path / "far", rows(far, 4)), write_file(tmp_path / "far", rows(far, 3, name="V"), part=1))
    counts = far.far.counts()
    assert (counts.pending, counts.by_topic) == (7, {"Topic": 7})
    assert sorted(counts.by_day.values()) == [1, 2, 2, 2]
    assert [found.message_id for found in far.find(topic="Topic", limit=3)] == ["U0", "V0", "U1"]
    (found,) = far.find(key="kV1", bodies=True)
    assert (found.message_id, found.record.body, found.queue_id) == ("V1", b"V1", 1)
    far.recall(found)
    far.reschedule(far.find(message_id="U3", bodies=True)[0], far.clock.now_ms() + 30 * DAY_MS)
    assert far.find(message_id="V1") == []
    far.kill()
    far = open_far(clock=far.clock)
    assert far.far.counts().pending == 6
    far.advance(14 * DAY_MS)
    assert sorted(body for _, body in far.wheel()) == [b"U0", b"U1", b"U2", b"V0", b"V2"]
    far.advance(17 * DAY_MS)
    assert sorted(body for _, body in far.wheel())[3] == b"U3"
    assert far.far.counts().pending == 0
    far.advance(HOUR_MS)
    assert list((tmp_path / "far").rglob("*.parquet")) == []
    far.close()


def test_loaded_files_get_an_index_together(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    files = [write_file(tmp_path / "far", rows(far, 3, name=f"F{part}-"), part=part) for part in range(3)]
    load(far, *files)
    (index,) = far.far.held.files.index_uses
    assert sorted(file.index_number for file in far.far.held.files.by_name.values()) == [0, 1, 2]
    assert (tmp_path / "far" / index).exists()
    far.kill()
    far = open_far(clock=far.clock)
    assert isinstance(far.tier, ArrowTier)
    for number in range(3):
        (found,) = far.find(key=f"kF{number}-1", bodies=True)
        assert found.record.body == b"F%d-1" % number
        assert far.find(message_id=found.message_id)[0].source == found.source
    (tmp_path / "far" / index).unlink()
    far.tier.stop()
    assert far.find(key="kF2-1")[0].message_id == "F2-1"
    far.advance(30 * DAY_MS)
    assert len(far.wheel()) == 9
    assert list((tmp_path / "far").rglob("*.parquet")) == []
    far.close()


def test_rows_that_are_near_by_now_leave_at_once(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    now_ms = far.clock.now_ms()
    load(far, write_file(tmp_path / "far", [(now_ms - DAY_MS, "past"), (now_ms + DAY_MS, "near"), *rows(far, 1)]))
    assert far.wheel() == [(now_ms - DAY_MS, b"past"), (now_ms + DAY_MS, b"near")]
    assert far.far.counts().pending == 1
    far.close()


def test_the_first_attempt_counts_and_is_the_answer_for_a_month(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    first = write_file(tmp_path / "far", rows(far, 2))
    second = write_file(tmp_path / "far", rows(far, 2), attempt=OTHER)
    split_ms = far.far.split_ms()
    begun = far.far.load(Load("job", ATTEMPT, far.clock.now_ms(), split_ms, [first]))
    other = far.far.load(Load("job", OTHER, far.clock.now_ms(), split_ms + 1, [second]))
    assert other is begun, "a job has one load at a time"
    far.work()
    for _ in range(2):
        load(far, second, attempt=OTHER)
        load(far, first)
        job = far.far.held.jobs["job"]
        assert (job.attempt, job.split_ms, job.rows, far.far.counts().pending) == (ATTEMPT, split_ms, 2, 2)
        far.kill()
        far = open_far(clock=far.clock)
    far.advance(FAR_LOAD_MEMORY_MS + DAY_MS)
    load(far, job="later")
    assert list(far.far.held.jobs) == ["later"]
    far.close()


def test_a_job_is_remembered_while_a_row_of_it_waits(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    load(far, write_file(tmp_path / "far", rows(far, 1, first_day=50)))
    far.clock.advance(FAR_LOAD_MEMORY_MS + DAY_MS)
    load(far, job="second")
    assert set(far.far.held.jobs) == {"job", "second"}
    far.advance(25 * DAY_MS)
    load(far, job="third")
    assert set(far.far.held.jobs) == {"second", "third"}
    far.close()


def test_a_late_request_does_not_count(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    now_ms = far.clock.now_ms()
    file = write_file(tmp_path / "far", rows(far, 1))
    begun = far.far.load(Load("job", ATTEMPT, now_ms, 0, [file]))
    assert begun is not None
    far.clock.advance(FAR_LOAD_AGE_MS + 1)  # before anything was looked at
    far.work()
    assert begun.problem == TOO_OLD
    assert far.far.held.jobs == {}
    assert is_too_old(now_ms, far.clock.now_ms())
    far.close()


def test_without_files_a_load_only_says_what_becomes_of_the_job(open_far: OpenFar) -> None:
    far = open_far(tier=None)
    load(far)
    assert far.far.held.jobs["job"].rows == 0
    far.kill()
    far = open_far(tier=None, clock=far.clock)
    assert far.far.held.jobs["job"].rows == 0
    far.close()
    far = open_far(clock=far.clock)
    assert list(far.far.held.jobs) == ["job"]
    far.close()


def test_what_was_loaded_before_any_far_message_came_is_found_in_the_log(open_far: OpenFar, tmp_path: Path) -> None:
    """There is no saved state, and no queue of far messages that would lead to it."""
    far = open_far()
    load(far, write_file(tmp_path / "far", rows(far, 2)))
    far.kill()
    (tmp_path / "store" / "orbitmq.far").unlink(missing_ok=True)
    far = open_far(clock=far.clock)
    assert far.far.counts().pending == 2
    far.close()


@pytest.mark.parametrize(
    "kind", ["bytes", "size", "gone", "rows", "order", "numbers", "columns", "torn", "footer", "year"]
)
def test_a_file_that_is_not_what_it_should_be_does_not_count(open_far: OpenFar, tmp_path: Path, kind: str) -> None:
    far = open_far()
    written = write_file(tmp_path / "far", rows(far, 3))
    path = tmp_path / "far" / written.name
    table = pq.read_table(path)
    if kind == "bytes":
        content = bytearray(path.read_bytes())
        content[60] ^= 1
        path.write_bytes(content)
    elif kind == "size":
        written = written._replace(size_bytes=written.size_bytes - 1)
    elif kind == "gone":
        path.unlink()
    elif kind == "rows":
        written = written._replace(rows=4)
    else:
        if kind == "order":
            table = table.take(pa.array([1, 0, 2])).set_column(1, table.schema.field(1), table.column(1))
        elif kind == "numbers":
            table = table.set_column(1, table.schema.field(1), pa.array([0, 1, 3], pa.int64()))
        elif kind == "year":
            late = pa.array([1, 2, 253_402_300_800_000], table.schema.field("deliverTimestamp").type)
            table = table.set_column(table.schema.get_field_index("deliverTimestamp"), "deliverTimestamp", late)
        elif kind == "columns":
            table = table.drop_columns(["size"])
        pq.write_table(table, path)
        content = path.read_bytes()[: -20 if kind == "torn" else None]
        if kind == "footer":
            content = content[:-40] + b"\xff" * 32 + content[-8:]
        path.write_bytes(content)
        written = written._replace(size_bytes=len(content), crc=crc32(content))
    begun = load(far, written)
    assert written.name in begun.problem
    assert far.far.held.jobs == {}
    assert far.far.counts().pending == 0
    again = far.far.load(Load("job", ATTEMPT, far.clock.now_ms(), 0, [written]))
    assert again is begun, "whoever asks again hears why"
    far.close()


def test_only_files_of_the_attempt_may_be_named(tmp_path: Path) -> None:
    good = WrittenFile(f"loads/{stem_of('job', ATTEMPT)}-00001-0a-1.parquet", 1, 1, 1)
    assert names_problem("job", ATTEMPT, [good]) == ""
    assert "named twice" in names_problem("job", ATTEMPT, [good, good])
    assert "no attempt" in names_problem("job", "../../../etc", [])
    for name in (
        f"loads/{stem_of('job', OTHER)}-1.parquet",
        f"loads/{stem_of('job', ATTEMPT)}-/../../x.parquet",
        f"loads/{stem_of('job', ATTEMPT)}-1.parquet/..",
        f"/loads/{stem_of('job', ATTEMPT)}-1.parquet",
        f"landing/{stem_of('job', ATTEMPT)}-1.parquet",
        f"loads/{stem_of('job', ATTEMPT)}-probe",
    ):
        assert "is no file of attempt" in names_problem("job", ATTEMPT, [good._replace(name=name)]), name


def test_files_that_nothing_speaks_of_go_after_a_week_and_not_before(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    counted = write_file(tmp_path / "far", rows(far, 1, first_day=300))
    load(far, counted)
    lost = write_file(tmp_path / "far", rows(far, 1), job="lost")
    written_s = far.clock.now_ms() // 1_000
    for file in (counted, lost):
        os.utime(tmp_path / "far" / file.name, (written_s, written_s))
    far.advance(FAR_LOAD_FILE_AGE_MS - DAY_MS)
    far.kill()
    far = open_far(clock=far.clock)
    far.far.compact()
    far.advance(HOUR_MS)
    assert (tmp_path / "far" / lost.name).exists()
    far.advance(DAY_MS)
    far.kill()
    far = open_far(clock=far.clock)
    far.far.compact()
    far.send(far.clock.now_ms() + 20 * DAY_MS)
    far.advance(HOUR_MS)
    assert not (tmp_path / "far" / lost.name).exists()
    assert far.find(message_id="U0", bodies=True)[0].record.body == b"U0"
    far.close()


def test_a_loaded_row_is_the_record_that_a_broker_would_have_stored() -> None:
    table = table_of([(1_800_000_000_500, "b"), (1_800_000_000_000, "a")])
    first, second = (decode_record(data) for data in records_of(table))
    assert (first.body, second.body) == (b"a", b"b")
    assert first.total_size == table.column("size")[0].as_py()
    properties = decode_properties(second.properties)
    assert list(properties) == [
        "WAIT", "UNIQ_KEY", "TIMER_DELIVER_MS", "KEYS", "MSG_REGION", "TRACE_ON", "TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID",
        "ORBITMQ_DUE_MS",
    ]  # fmt: skip
    assert properties[Property.TIMER_OUT_MS] == "1800000000000"
    facts = far_facts(second.properties)
    assert facts is not None
    assert (facts.deliver_ms, facts.topic) == (1_800_000_000_500, "Topic")
    again = table_of_records([first, second])
    for name in ("deliverTimestamp", "topic", "queueId", "body", "keys", "msgId", "bodyCrc", "size", "commitLogOffset"):
        assert again.column(name).to_pylist() == table.column(name).to_pylist(), name


def test_rows_of_a_damaged_loaded_file_are_saved_as_far_as_they_can_be_read(
    open_far: OpenFar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.scheduling.tier_rows.FAR_ROW_GROUP_ROWS", 4)
    far = open_far()
    written = write_file(tmp_path / "far", rows(far, 12))
    load(far, written)
    path = tmp_path / "far" / written.name
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
    path.write_bytes(content)
    assert isinstance(far.tier, ArrowTier)
    far.tier.stop()
    far.advance(30 * DAY_MS)
    reached = {body for _, body in far.wheel()}
    assert reached == {b"U%d" % number for number in (0, 1, 2, 3, 8, 9, 10, 11)}
    assert far.far.counts().pending == 4
    far.close()
