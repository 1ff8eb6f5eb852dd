"""A log cut into ranges of any size gives every record once; damage is told, and nothing else is missing."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.limits import columns as limits
from orbitmq.protocol.records import encode_blank
from orbitmq.spark.log_files import chain, reading
from orbitmq.spark.log_files.directory import look_at
from orbitmq.spark.log_files.log_options import log_options
from orbitmq.spark.log_files.ranges import cut
from orbitmq.spark.log_files.reading import RowRules, range_batches

from .little_log import LittleLog

NAMES = ("commitLogOffset", "topic", "body")


def rules(root: Path, quarantine: Path | None = None, **changes: Any) -> RowRules:
    names = changes.pop("names", NAMES)
    changes.setdefault("quarantine_path", None if quarantine is None else str(quarantine))
    options = msgspec.structs.replace(log_options({"path": str(root)}), **changes)
    return RowRules(options=options, names=names, properties=PropertiesForm.MAP)


def rows(
    root: Path, partition_bytes: int = 1 << 30, quarantine: Path | None = None, **changes: Any
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    limits_of_range = {name: changes.pop(name, None) for name in ("starting", "ending")}
    for part in cut(look_at(str(root)), *limits_of_range.values(), partition_bytes):
        for batch in range_batches(part, rules(root, quarantine, **changes)):
            found += batch.to_pylist()
    return found


def positions(root: Path, partition_bytes: int = 1 << 30, quarantine: Path | None = None, **changes: Any) -> list[int]:
    return [row["commitLogOffset"] for row in rows(root, partition_bytes, quarantine, **changes)]


def quarantined(directory: Path) -> list[tuple[int, int, str]]:
    lines = [line for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [(found["position"], found["size"], found["reason"]) for found in map(json.loads, lines)]


def filled(root: Path, count: int = 300, seed: int = 1, base: int = 0) -> LittleLog:
    log, chance = LittleLog(root, base=base), random.Random(seed)
    for _ in range(count):
        log.add(chance.randbytes(chance.randrange(900)))
    return log


@pytest.mark.parametrize("partition_bytes", [200, 1000, 4096, 65_536, 1 << 30])
def test_every_record_comes_once_whatever_the_ranges_are(tmp_path: Path, partition_bytes: int) -> None:
    log = filled(tmp_path, base=3 * 65_536)
    log.write(empty_files=2)
    assert positions(tmp_path, partition_bytes) == log.starts


@pytest.mark.parametrize("window_bytes", [100, 500, 5000])
def test_the_size_of_windows_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    log = filled(tmp_path)
    log.write()
    monkeypatch.setattr(chain, "LOG_WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(chain, "LOG_SEARCH_BYTES", 100)
    assert positions(tmp_path, 3000) == log.starts


def test_between_two_positions(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    for first, last in ((0, 7), (3, 200), (150, 151), (9, 9)):
        found = positions(tmp_path, 5000, starting=log.starts[first], ending=log.starts[last])
        assert found == log.starts[first:last]
    assert positions(tmp_path, starting=log.end) == []


def test_a_beginning_where_no_record_begins_is_told(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    with pytest.raises(StoreDamagedError, match=f"position {log.starts[5] + 1} .* is not the magic code"):
        positions(tmp_path, starting=log.starts[5] + 1)


@pytest.mark.parametrize("partition_bytes", [300, 2000, 1 << 30])
def test_a_flipped_bit_fails_the_read_or_goes_to_quarantine(tmp_path: Path, partition_bytes: int) -> None:
    log = filled(tmp_path / "store")
    hurt = log.starts[100:110]
    for start in hurt:
        log.data[start + 88 + 3] ^= 1 if log.data[start + 87] > 4 or log.data[start + 86] else 0
    bodies = [start for start in hurt if zlib.crc32(body_of(log, start)) & 0x7FFFFFFF != said_sum(log, start)]
    assert len(bodies) >= 8
    log.write()
    with pytest.raises(StoreDamagedError, match=f"damaged at position {bodies[0]} .*the body CRC is"):
        positions(tmp_path / "store", partition_bytes)
    found = positions(tmp_path / "store", partition_bytes, tmp_path / "bad")
    assert found == [start for start in log.starts if start not in bodies]
    assert [position for position, _, _ in quarantined(tmp_path / "bad")] == bodies
    assert positions(tmp_path / "store", partition_bytes, verify_checksums=False) == log.starts


def body_of(log: LittleLog, start: int) -> bytes:
    size = int.from_bytes(log.data[start + 84 : start + 88], "big")
    return bytes(log.data[start + 88 : start + 88 + size])


def said_sum(log: LittleLog, start: int) -> int:
    return int.from_bytes(log.data[start + 8 : start + 12], "big")


@pytest.mark.parametrize("partition_bytes", [300, 2000, 10_000, 1 << 30])
def test_a_destroyed_stretch_is_told_once_with_its_size(tmp_path: Path, partition_bytes: int) -> None:
    log = filled(tmp_path / "store")
    begin, end = log.starts[100], log.starts[120]
    log.data[begin:end] = bytes(end - begin)
    log.write()
    with pytest.raises(StoreDamagedError, match=rf"damaged at position {begin} .*{end - begin} bytes cannot be read"):
        positions(tmp_path / "store", partition_bytes)
    found = positions(tmp_path / "store", partition_bytes, tmp_path / "bad")
    assert found == log.starts[:100] + log.starts[120:]
    assert quarantined(tmp_path / "bad") == [(begin, end - begin, "0x00000000 is not the magic code of a record")]


def test_random_damage_loses_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(7)
    for round_number in range(12):
        store = tmp_path / str(round_number)
        log = filled(store / "store", 120, seed=round_number)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(log.data))
            size = min(chance.choice([1, 1, 4, 500]), len(log.data) - at)
            log.data[at : at + size] = chance.randbytes(size)
        del log.data[log.file_bytes * 2 :]
        log.write()
        starts = [start for start in log.starts if start < look_at(str(store / "store")).end]
        results = {
            partition_bytes: positions(store / "store", partition_bytes, store / str(partition_bytes))
            for partition_bytes in (300, 5000, 1 << 30)
        }
        assert len({tuple(found) for found in results.values()}) == 1
        found = results[300]
        told = quarantined(store / "300")
        covered = [range(position, position + size) for position, size, _ in told]
        for start in starts:
            assert start in found or any(start in stretch for stretch in covered), (round_number, start)
        assert sum(size for _, size, _ in told) == sum(size for _, size, _ in quarantined(store / str(1 << 30)))


def test_a_record_hidden_in_a_body_is_no_row(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    begin = log.end + 88 + 400
    log.add(b"x" * 400 + log.record_at(begin) + b"x" * 400)
    log.add()
    log.write()
    assert positions(tmp_path) == log.starts
    with pytest.raises(
        StoreDamagedError, match=f"look like a record of its own, at position {begin} .*maxPartitionBytes"
    ):
        positions(tmp_path, begin - 100)


def test_a_record_of_another_place_deceives_no_search(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    log.add(b"x" * 400 + log.record_at(4711) + b"x" * 400)
    log.add()
    log.write()
    assert positions(tmp_path, 100) == log.starts


def test_a_record_larger_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path, 3)
    log.add(b"y" * 20_000)
    log.add()
    log.write()
    monkeypatch.setattr(chain, "LOG_WINDOW_BYTES", 4096)
    assert positions(tmp_path, 1000) == log.starts
    monkeypatch.setattr(chain, "LOG_RECORD_BYTES_MAX", 10_000)
    with pytest.raises(StoreDamagedError, match="more than any broker takes"):
        positions(tmp_path)


def test_a_filler_that_does_not_reach_the_end_is_damage(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    at = log.end
    log.data += encode_blank(50).ljust(50, b"\0")
    log.add()
    log.write()
    with pytest.raises(StoreDamagedError, match=f"position {at} .*a filler of 50 bytes stands"):
        positions(tmp_path)


def test_compressed_bodies_are_restored_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    log = LittleLog(tmp_path / "store")
    for number in range(5):
        log.add(zlib.compress(b"a" * 5000) if number != 2 else b"not compressed", sys_flag=1)
    log.write()
    found = rows(tmp_path / "store", quarantine=tmp_path / "bad")
    assert [row["body"] for row in found] == [b"a" * 5000] * 4
    [(position, _, reason)] = quarantined(tmp_path / "bad")
    assert position == log.starts[2]
    assert "its body cannot be restored" in reason
    assert len(positions(tmp_path / "store", names=("commitLogOffset",))) == 5


def test_a_repeated_task_replaces_its_quarantine_and_a_failed_one_leaves_none(tmp_path: Path) -> None:
    log = filled(tmp_path / "store", 20)
    log.data[log.starts[5] + 100] ^= 1
    log.write()
    [part] = cut(look_at(str(tmp_path / "store")), None, None, 1 << 30)
    wanted = rules(tmp_path / "store", tmp_path / "bad")
    for _ in range(2):
        list(range_batches(part, wanted))
        assert len(quarantined(tmp_path / "bad")) == 1
        assert [path.name for path in (tmp_path / "bad").iterdir()] == ["damage-00000000000000000000.jsonl"]
    unfinished = range_batches(part, rules(tmp_path / "store", tmp_path / "other"))
    next(unfinished)
    unfinished.close()
    assert list((tmp_path / "other").iterdir()) == []


def test_small_batches_are_joined_and_large_ones_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path)
    log.write()
    [part, *_] = cut(look_at(str(tmp_path)), None, None, 1 << 30)
    monkeypatch.setattr(chain, "LOG_WINDOW_BYTES", 2000)
    monkeypatch.setattr(reading, "LOG_ROWS_KEPT_BYTES", 10_000)
    sizes = [batch.nbytes for batch in range_batches(part, rules(tmp_path))]
    assert all(10_000 <= size <= 14_000 for size in sizes[:-1])
    assert limits.LOG_ROWS_KEPT_BYTES < limits.BATCH_BYTES


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    ranges = cut(look_at(str(tmp_path)), None, None, 1 << 30)
    log.paths()[0].unlink()
    with pytest.raises(StoreError, match="00000000000000000000 cannot be read"):
        list(range_batches(ranges[0], rules(tmp_path)))


def test_a_place_may_be_a_url(tmp_path: Path) -> None:
    log = filled(tmp_path / "store", 20)
    log.data[log.starts[5] + 100] ^= 1
    log.write()
    url = (tmp_path / "store").as_uri()
    wanted = rules(tmp_path, path=url, quarantine_path=(tmp_path / "bad").as_uri())
    [part] = cut(look_at(url), None, None, 1 << 30)
    found = [row["commitLogOffset"] for batch in range_batches(part, wanted) for row in batch.to_pylist()]
    assert found == log.starts[:5] + log.starts[6:]
    assert [position for position, _, _ in quarantined(tmp_path / "bad")] == [log.starts[5]]


def test_without_the_proof_a_forged_record_and_lost_damage_go_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the proof of beginnings is for: the tests above would notice that it is gone."""
    monkeypatch.setattr(reading._LogRangeReader, "_prove", lambda *_: None)
    forged = filled(tmp_path / "forged", 10)
    begin = forged.end + 88 + 400
    forged.add(b"x" * 400 + forged.record_at(begin) + b"x" * 400)
    forged.add()
    forged.write()
    assert begin in positions(tmp_path / "forged", begin - 100, tmp_path / "worse")
    hurt = filled(tmp_path / "hurt", 50)
    boundary = hurt.starts[20]
    hurt.data[boundary + 4] ^= 1
    hurt.write()
    assert len(positions(tmp_path / "hurt", boundary, tmp_path / "bad")) == 49
    assert quarantined(tmp_path / "bad") == []
