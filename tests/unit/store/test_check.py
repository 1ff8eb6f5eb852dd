"""The checker must find what is planted: damage in every kind of file of a store that was sound before."""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.store import check as check_module
from orbitmq.store import inspection
from orbitmq.store.check import CheckReport, check_store
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.dump import dump_records
from orbitmq.store.files import OsFile, OsFiles
from orbitmq.store.mark import Mark, MarkFile

Unpack = Callable[[str], Any]
FILES = OsFiles()
LOG0 = "commitlog/00000000000000000000"
LOG1 = "commitlog/00000000000000262144"


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def findings(report: CheckReport) -> list[str]:
    assert report.sound == (not report.findings)
    return [str(finding) for finding in report.findings]


@pytest.fixture
def store(golden_store: Unpack) -> Path:
    root: Path = golden_store("plain-clean").root
    return root


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (0, "not the magic|record"),  # most significant byte of the size
        (4, "magic"),
        (8, "body CRC"),
        (95, "body CRC|not fit|size"),
        (28, "belongs at physical offset"),
    ],
)
def test_a_flipped_bit_in_the_middle_of_the_log(store: Path, place: int, says: str) -> None:
    record = next(r for r in dump_records(FILES, store) if r["kind"] == "record" and r["physicalOffset"] > 100_000)
    flip(store / LOG0, record["physicalOffset"] + place, 3)
    report = check_store(store, FILES)
    damage = [text for text in findings(report) if "are damaged" in text]
    assert len(damage) == 1
    assert damage[0].startswith(f"{LOG0}: {record['size']} bytes at physical offset {record['physicalOffset']}")
    assert any(word in damage[0] for word in says.split("|")), damage[0]
    assert report.record_count == 756
    assert report.damaged_bytes == record["size"]
    assert report.log_end == 358_738
    assert len(report.findings) == 1, report.findings


def test_every_record_can_be_lost_and_is_missed(store: Path) -> None:
    """Every 50th record, a bit of its body."""
    places = [r for r in dump_records(FILES, store) if r["kind"] == "record" and r["body"]][::50]
    for record in places:
        flip(
            store / LOG0 if record["physicalOffset"] < 262_144 else store / LOG1,
            record["physicalOffset"] % 262_144 + 90,
        )
    report = check_store(store, FILES)
    assert len([text for text in findings(report) if "damaged" in text]) == len(places)
    assert report.record_count == 757 - len(places)


def test_zeros_in_the_middle_up_to_the_end_of_a_file(store: Path) -> None:
    record = next(r for r in dump_records(FILES, store) if r["kind"] == "record" and r["physicalOffset"] > 200_000)
    start = record["physicalOffset"]
    put(store / LOG0, start, bytes(262_144 - start))
    report = check_store(store, FILES)
    assert any(f"{262_144 - start} bytes at physical offset {start} are damaged" in text for text in findings(report))
    assert report.log_end == 358_738


def test_a_damaged_last_record_after_an_orderly_stop_is_a_finding_because_its_unit_is_there(store: Path) -> None:
    last = [r for r in dump_records(FILES, store) if r["kind"] == "record"][-1]
    flip(store / LOG1, last["physicalOffset"] - 262_144 + 90)
    report = check_store(store, FILES)
    assert any("point behind the end of the commit log" in text for text in findings(report))
    assert report.log_end == last["physicalOffset"]


def test_a_torn_end_after_a_crash_is_a_note_at_every_length(golden_store: Unpack) -> None:
    root = golden_store("plain-crash").root
    last = [r for r in dump_records(FILES, root) if r["kind"] == "record"][-1]
    path = root / LOG1
    # Properties carry no checksum: a record torn inside them cannot be told from one that was sent so.
    for cut in range(91 + len(last["body"]), 3, -29):
        put(path, last["physicalOffset"] - 262_144 + cut, bytes(last["size"] - cut))
        report = check_store(root, FILES)
        assert report.findings == []
        assert report.log_end == last["physicalOffset"]
        assert any("no record" in note.message for note in report.notes)


def test_records_left_over_from_before_a_truncation_are_no_damage(store: Path) -> None:
    """RocketMQ does not zero what it cuts: old records stand behind the end, older than the last one."""
    last = [r for r in dump_records(FILES, store) if r["kind"] == "record"][-1]
    raw = (store / LOG1).read_bytes()
    old = bytearray(raw[last["physicalOffset"] - 262_144 :][: last["size"]])
    end = last["physicalOffset"] + last["size"]
    at = end + 10
    old[28:36] = struct.pack(">q", at)
    old[56:64] = struct.pack(">q", last["storeTimestamp"] - 60_000)
    put(store / LOG1, end - 262_144, b"\x01" * 10 + bytes(old))
    report = check_store(store, FILES)
    assert report.findings == []
    assert report.log_end == end
    assert any("the log ends at" in note.message for note in report.notes)


@pytest.mark.parametrize(("at", "says"), [(7, "points to"), (11, "points to"), (19, "tags code")])
def test_a_flipped_bit_in_a_consume_queue(store: Path, at: int, says: str) -> None:
    flip(store / "consumequeue/VecB/0/00000000000000002000", 20 * 7 + at)
    report = check_store(store, FILES)
    assert len(findings(report)) == 1
    assert findings(report)[0].startswith("consumequeue/VecB/0: unit 107 ")
    assert says in findings(report)[0]


def test_missing_and_surplus_units(store: Path) -> None:
    path = store / "consumequeue/VecC/0/00000000000000000000"
    put(path, 20 * 5, bytes(20))
    assert findings(check_store(store, FILES)) == [
        "consumequeue/VecC/0: 1 messages have no unit, the first of them has queue offset 5"
    ]
    put(path, 20 * 21, struct.pack(">qiq", 500, 100, 0))
    assert any("unit 21 points to 500: no such record" in text for text in findings(check_store(store, FILES)))


def test_a_shifted_queue_is_reported_briefly(store: Path) -> None:
    path = store / "consumequeue/VecC/1/00000000000000000000"
    data = path.read_bytes()
    path.write_bytes(data[:40] + data[60:] + bytes(20))
    found = findings(check_store(store, FILES))
    assert len(found) == 5
    assert any("more units disagree" in text for text in found)
    assert any("1 messages have no unit" in text for text in found)


def test_wrong_files_in_the_directories(store: Path) -> None:
    (store / "commitlog/notes.txt").write_text("x")
    (store / "consumequeue/VecC/2/00000000000000004000").write_bytes(bytes(2000))
    (store / "consumequeue/VecC/3/00000000000000002000").write_bytes(bytes(1980))
    found = findings(check_store(store, FILES))
    assert any(text.startswith("commitlog/notes.txt: does not belong here") for text in found)
    assert any("00000000000000004000: does not follow 00000000000000000000" in text for text in found)
    assert any("00000000000000002000: its name is no multiple" in text for text in found)


def test_a_missing_log_file_in_the_middle(golden_store: Unpack) -> None:
    root = golden_store("plain-crash").root
    (root / LOG1).unlink()
    assert any("files are missing between them" in text for text in findings(check_store(root, FILES)))


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (40 + 400 + 20 * 50, "no key with hash"),  # hash of entry 50
        (40 + 400 + 20 * 50 + 8, "out of order"),  # its physical offset
        (40 + 400 + 20 * 50 + 15, "its time"),
        (40 + 400 + 20 * 50 + 19, "another chain"),
        (31, "header does not agree"),
    ],
)
def test_a_flipped_bit_in_an_index_file(store: Path, at: int, says: str) -> None:
    path = sorted((store / "index").iterdir())[1]
    flip(path, at + (3 if says == "no key with hash" else 0))
    found = findings(check_store(store, FILES))
    assert any(says in text for text in found), found


def test_a_lost_slot(store: Path) -> None:
    path = sorted((store / "index").iterdir())[0]
    data = path.read_bytes()
    slot = next(n for n in range(100) if struct.unpack_from(">i", data, 40 + 4 * n)[0] > 0)
    put(path, 40 + 4 * slot, bytes(4))
    assert any("1 slots do not name their newest entry" in text for text in findings(check_store(store, FILES)))


def test_index_files_that_tell_no_shape_are_unchecked(store: Path) -> None:
    for path in (store / "index").iterdir():
        put(path, 24, bytes(8))
    report = check_store(store, FILES)
    assert report.sound
    assert any("unchecked" in note.message for note in report.notes)
    assert report.index_entry_count == 0


def test_an_index_file_of_another_size_is_a_finding(store: Path) -> None:
    sorted((store / "index").iterdir())[0].write_bytes(bytes(8460))
    assert any("maxIndexNum" in text for text in findings(check_store(store, FILES)))


def test_dropped_index_file_is_a_note(store: Path) -> None:
    sorted((store / "index").iterdir())[-1].unlink()
    report = check_store(store, FILES)
    assert report.sound
    assert any("are not indexed" in note.message for note in report.notes)


def test_checkpoint_ahead_of_the_log(store: Path) -> None:
    put(store / "checkpoint", 0, struct.pack(">q", 1_795_265_797_960))
    assert findings(check_store(store, FILES)) == [
        "checkpoint: physic_msg_timestamp: later than the store time 1795265797959 of the last record"
    ]
    (store / "checkpoint").unlink()
    assert check_store(store, FILES).sound


def test_unreadable_tables(store: Path) -> None:
    (store / "config/topics.json").write_text("{half")
    report = check_store(store, FILES)
    assert report.sound
    assert any(note.path == "config/topics.json" and "backup is used" in note.message for note in report.notes)
    (store / "config/topics.json.bak").write_text("{half")
    assert findings(check_store(store, FILES))[0].startswith("config/topics.json: cannot be read, nor can its backup")


def test_delay_offsets_beyond_their_queue(golden_store: Unpack) -> None:
    root = golden_store("delay-clean").root
    (root / "config/delayOffset.json").write_text('{"offsetTable":{1:9999,18:0}}')
    assert any("level 1 has been delivered up to 9999" in text for text in findings(check_store(root, FILES)))
    (root / "config/delayOffset.json").write_text('{"offsetTable":{"one":1}}')
    assert any("something else than numbers" in text for text in findings(check_store(root, FILES)))


def test_a_log_shorter_than_what_orbitmq_had_synced(golden_store: Unpack) -> None:
    root = golden_store("plain-torn").root
    checkpoint = read_checkpoint(FILES, root / "checkpoint")
    assert checkpoint is not None
    mark = MarkFile(FILES, root)
    values = {"boot": "b", "positions": {}, "checkpoints": [checkpoint.digest()]}
    mark.save_synced(Mark(serial=1, end=488_389, **values))
    mark.close()
    assert check_store(root, FILES).sound
    mark = MarkFile(FILES, root)
    mark.save_synced(Mark(serial=2, end=488_820, **values))
    mark.close()
    assert any("was on disk up to 488820" in text for text in findings(check_store(root, FILES)))


def test_findings_are_bounded(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "CHECK_FINDINGS_MAX", 4)
    for path in (store / "consumequeue").glob("*/*/*"):
        put(path, 0, bytes(2000))
    report = check_store(store, FILES)
    assert len(report.findings) == 4
    assert report.findings_left_out > 0


def test_no_store_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_store(tmp_path / "absent", FILES)
    report = check_store(tmp_path, FILES)
    assert report.sound
    assert report.record_count == 0


def test_a_store_without_queues_is_rebuilt_by_its_next_start(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    report = check_store(store, FILES)
    assert report.sound
    assert any("built again" in note.message for note in report.notes)


def test_messages_of_a_deleted_topic_are_a_note_and_of_a_known_one_a_finding(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "VecB")
    assert any("VecB" in finding and "no unit" in finding for finding in findings(check_store(store, FILES)))
    table = store / "config" / "topics.json"
    table.write_bytes(table.read_bytes().replace(b'"VecB"', b'"Gone"'))
    report = check_store(store, FILES)
    assert findings(report) == []
    assert any("topic that was deleted" in str(note) for note in report.notes)


def test_messages_of_an_earlier_topic_of_the_same_name_are_a_note(tmp_path: Path) -> None:
    rig = LittleStore(tmp_path)
    for _ in range(5):
        rig.send()
    rig.store.delete_topic("Topic")
    for _ in range(3):
        rig.send()
    rig.close()
    report = check_store(tmp_path, FILES)
    assert findings(report) == []
    assert any("5 messages of a topic of that name that was deleted" in str(note) for note in report.notes)


def test_a_first_unit_that_points_too_far_is_found_all_the_same(tmp_path: Path) -> None:
    rig = LittleStore(tmp_path)
    for _ in range(5):
        rig.send()
    rig.close()
    queue = tmp_path / "consumequeue" / "Topic" / "0" / f"{0:020d}"
    third = queue.read_bytes()[40:60]
    put(queue, 0, third)
    assert any("Topic/0" in finding for finding in findings(check_store(tmp_path, FILES)))


def test_a_store_whose_beginning_has_expired_is_sound(store: Path) -> None:
    (store / LOG0).unlink()
    report = check_store(store, FILES)
    assert report.findings == []
    assert report.log_start == 262_144
    assert report.record_count == sum(
        1 for item in dump_records(FILES, store, start=262_144) if item["kind"] == "record"
    )


def test_damage_longer_than_a_chunk_is_skipped(golden_store: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Magic codes on, before and behind the border of two chunks are all found."""
    root = golden_store("plain-clean").root
    target = next(r for r in dump_records(FILES, root) if r["kind"] == "record" and r["physicalOffset"] > 150_000)
    start = 101_000
    first = next(r for r in dump_records(FILES, root) if r["kind"] == "record" and r["physicalOffset"] > start)
    at = first["physicalOffset"]
    put(root / LOG0, at, b"\xda" * (target["physicalOffset"] - at))
    for chunk in (target["physicalOffset"] - at + shift for shift in range(-9, 10)):
        monkeypatch.setattr(inspection, "_CHUNK_BYTES", chunk)
        report = check_store(root, FILES)
        damage = [text for text in findings(report) if "are damaged" in text]
        assert len(damage) == 1
        assert f"{target['physicalOffset'] - at} bytes at physical offset {at}" in damage[0]


def test_the_log_is_never_mapped(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad sector under a mapping, or a hole on a full tmpfs, would end the process."""
    mapped: list[Path] = []
    real = OsFile.map_read

    def map_read(file: OsFile) -> mmap.mmap:
        mapped.append(file._path)
        return real(file)

    monkeypatch.setattr(OsFile, "map_read", map_read)
    assert findings(check_store(store, FILES)) == []
    assert [path for path in mapped if path.parent.name == "commitlog"] == []
    monkeypatch.setattr(OsFile, "pread", lambda file, size, offset: _refuse())
    with pytest.raises(OSError, match="bad sector"):
        list(dump_records(FILES, store))


def _refuse() -> bytes:
    raise OSError(errno.EIO, "bad sector")
