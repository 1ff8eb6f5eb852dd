"""Extended consume queue units of RocketMQ: a store that has them is taken over whole, whatever ends the process in between."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.properties import decode_properties
from orbitmq.store.check import check_store
from orbitmq.store.extended_units import EXTENSION_ADDRESS_MAX, ExtendedUnits, make_units_ordinary
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import StoreSettings

SETTINGS = StoreSettings(
    mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=2_000, max_hash_slot_num=100, max_index_num=400
)
"""As the `broker.conf` of the recorded store had them."""

HOUR_MS = 3_600_000
RECORDED_MS = 1_795_449_820_000


STORE = Path(__file__).resolve().parents[2] / "vectors" / "stores" / "extended" / "clean.tar.xz"


def unpacked(into: Path) -> Path:
    with tarfile.open(STORE) as archive:
        archive.extractall(into, filter="data")
    return into / "extended" / "clean"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """204 messages of RocketMQ 5.3.3 with enableConsumeQueueExt, stopped in order: two queues with tags, one of a delay level."""
    return unpacked(tmp_path)


def opened(root: Path, files: Any = None) -> LittleStore:
    little = LittleStore(root, clock=ManualClock(RECORDED_MS), settings=SETTINGS, files=files, levels="1s 1h")
    little.release.paused = True
    return little


def codes(little: LittleStore) -> dict[str, list[int]]:
    return {
        f"{queue.topic}/{queue.queue_id}": [code for _, _, code in queue.scan(queue.min_offset, queue.max_offset)]
        for queue in little.store.queues
    }


def expected_codes(little: LittleStore) -> dict[str, list[int]]:
    """What the records ask for."""
    wanted: dict[str, list[int]] = {}
    for queue in little.store.queues:
        records = little.records(queue.topic, queue.queue_id)
        wanted[f"{queue.topic}/{queue.queue_id}"] = [
            record.store_timestamp + HOUR_MS
            if queue.topic == SCHEDULE_TOPIC
            else tags_code(decode_properties(record.properties).get("TAGS"))
            for record in records
        ]
    return wanted


def all_are_ordinary(root: Path, little: LittleStore) -> None:
    found = codes(little)
    assert found == expected_codes(little)
    assert {name: len(units) for name, units in found.items()} == {"Ext/0": 100, "Ext/1": 100, f"{SCHEDULE_TOPIC}/1": 4}
    assert not (root / "consumequeue_ext").exists()
    assert not (root / "consumequeue_ext.new").exists()


def test_extended_units_become_ordinary_ones(root: Path) -> None:
    assert check_store(root, OsFiles()).findings == []
    little = opened(root)
    all_are_ordinary(root, little)
    assert little.release.pending_count == 4
    little.close()
    assert check_store(root, OsFiles()).findings == []
    again = opened(root)
    all_are_ordinary(root, again)
    again.close()


def test_codes_whose_extended_units_are_lost_come_from_the_records(root: Path) -> None:
    (root / "consumequeue_ext" / "Ext" / "0" / "00000000000000002048").unlink()
    first = root / "consumequeue_ext" / "Ext" / "1" / "00000000000000000000"
    first.write_bytes(bytes(len(first.read_bytes())))
    little = opened(root)
    all_are_ordinary(root, little)
    little.close()


def test_it_may_be_killed_in_between(root: Path, tmp_path: Path) -> None:
    """The same bytes are there in the end, whatever was killed."""
    counting = RecordingFiles(OsFiles(), root)
    little = opened(root, counting)
    wanted = codes(little)
    places = [call.number for call in counting.calls if "consumequeue_ext" in str(call.path)]
    little.kill()
    for at in places[::4]:
        other = unpacked(tmp_path / str(at))

        def die(call: Call, at: int = at) -> Killed | None:
            return Killed() if call.number >= at else None

        with pytest.raises(Killed):
            opened(other, RecordingFiles(OsFiles(), other, plan=die))
        after = opened(other)
        assert codes(after) == wanted
        all_are_ordinary(other, after)
        after.close()


def extended(folder: Path, size: int = 34, code: int = 7, at: int = 0) -> ExtendedUnits:
    folder.mkdir()
    (folder / "00000000000000000000").write_bytes(bytes(at) + struct.pack(">hqqh", size, code, 1, 14) + bytes(14))
    return ExtendedUnits(OsFiles(), folder)


@pytest.mark.parametrize(
    ("size", "code", "position"), [(19, 7, 0), (0, 7, 0), (-1, 7, 0), (34, -(2**63), 0), (34, 7, 16), (34, 7, 10**9)]
)
def test_what_is_no_extended_unit_has_no_code(tmp_path: Path, size: int, code: int, position: int) -> None:
    units = extended(tmp_path / "0", size, code)
    assert units.tags_code(-(2**63) + position) is None
    assert ExtendedUnits(OsFiles(), tmp_path / "none").tags_code(-(2**63)) is None


def test_the_codes_of_hashes_are_no_addresses(tmp_path: Path) -> None:
    assert extended(tmp_path / "0", code=-(2**31)).tags_code(-(2**63)) == -(2**31) > EXTENSION_ADDRESS_MAX


def test_a_store_without_them_is_not_touched(tmp_path: Path) -> None:
    def never(position: int) -> int:
        raise AssertionError

    files = RecordingFiles(OsFiles(), tmp_path)
    assert make_units_ordinary(files, tmp_path, never) == 0
    assert files.calls == []
