"""The file of idempotent sends: its bytes, what of it is believed, and what happens when it is damaged or gone."""

from __future__ import annotations

import errno
import logging
import shutil
import zlib
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.broker.idempotence.identity import SendIdentity, read_identity
from orbitmq.broker.idempotence.journal import (
    JOURNAL_FILE,
    EndedTopicBlock,
    KeyJournal,
    KeysBlock,
    PositionBlock,
    decode_block,
    decode_blocks,
    encode_ended_topic,
    encode_keys,
    encode_position,
    entry_of,
)
from orbitmq.broker.idempotence.memory import SentPlace, pack
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE


def values(key: str, epoch: int = 1, scope: str = "jobs") -> dict[str, str]:
    return {"UNIQ_KEY": key, "ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": str(epoch)}


def identity(key: str, epoch: int = 1, scope: str = "jobs") -> SendIdentity:
    once = read_identity("Topic", values(key, epoch, scope))
    assert once is not None
    return once


def send(little: LittleStore, key: str, epoch: int = 1, scope: str = "jobs") -> SentPlace:
    """One idempotent send, as the broker makes it."""
    once = identity(key, epoch, scope)
    assert little.idempotence.admit([once], "Topic", little.clock.now_ms()) == [None]
    placed = little.append(body=key.encode(), **values(key, epoch, scope))
    little.idempotence.sent(once, placed, 0)
    little.store.commit()
    return SentPlace(placed.physical_offset, placed.queue_offset, 0)


def known(little: LittleStore, key: str, epoch: int = 1, scope: str = "jobs") -> SentPlace | None:
    (place,) = little.idempotence.admit([identity(key, epoch, scope)], "Topic", little.clock.now_ms())
    return place


def journal(root: Path) -> bytes:
    return (root / JOURNAL_FILE).read_bytes()


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_a_block_of_keys_byte_by_byte() -> None:
    digest = int.from_bytes(blake2b(b"Topic\0key", digest_size=16).digest())
    assert read_identity("Topic", values("key")) == SendIdentity("jobs", 1, digest)
    block = encode_keys("jobs", 1, 99, [entry_of(digest, pack(7, 5, 3))])
    body = (
        b"\0\0\0\x48" + b"\0\0\0\1"  # length 72, kind 1
        + b"\0\0\0\0\0\0\0\1" + b"\0\0\0\0\0\0\0\x63" + b"\0\0\0\4jobs"
        + blake2b(b"Topic\0key", digest_size=16).digest()
        + b"\0\0\0\0\0\0\0\7" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\3"
    )  # fmt: skip
    assert block == zlib.crc32(body).to_bytes(4) + body
    ((decoded, end),) = decode_blocks(b"ORBONCE1" + block)
    assert isinstance(decoded, KeysBlock)
    assert (decoded.scope, decoded.epoch, decoded.used_ms, end) == ("jobs", 1, 99, 80)
    assert list(decoded.places()) == [(digest, pack(7, 5, 3))]


@pytest.mark.parametrize(("synced", "kind"), [(False, 2), (True, 3)])
def test_a_position_block_byte_by_byte(synced: bool, kind: int) -> None:
    block = PositionBlock(1000, 900, 77, synced)
    body = (36).to_bytes(4) + kind.to_bytes(4) + (1000).to_bytes(8) + (900).to_bytes(8) + (77).to_bytes(8)
    assert encode_position(block) == zlib.crc32(body).to_bytes(4) + body
    assert list(decode_blocks(b"ORBONCE1" + encode_position(block))) == [(block, 44)]


@pytest.mark.parametrize("at", range(44))
def test_any_changed_byte_ends_what_is_read(at: int) -> None:
    data = bytearray(b"ORBONCE1" + encode_position(PositionBlock(1000, 900, 77, False)))
    data[at] ^= 0x40
    assert list(decode_blocks(bytes(data))) == []


def test_a_torn_block_is_none() -> None:
    whole = b"ORBONCE1" + encode_keys("jobs", 1, 99, [1, 2, 3])
    for size in range(len(whole)):
        assert list(decode_blocks(whole[:size])) == []


# --- a life ---------------------------------------------------------------------------------------------------------


def test_without_idempotent_sends_there_is_no_file(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"plain")
    little.advance(10_000)
    little.close()
    assert not (tmp_path / JOURNAL_FILE).exists()


def test_a_killed_broker_scans_what_came_since_its_last_save(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    places = {f"k{number}": send(little, f"k{number}") for number in range(5)}
    little.advance(300)
    places["late"] = send(little, "late")
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    assert again.store.report.scanned_records == 1
    assert {key: known(again, key) for key in places} == places
    again.close()


def test_a_file_younger_than_the_mark_costs_no_scan_of_the_log(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    for _ in range(30):
        little.send(body=b"plain")
    little.advance(300)
    place = send(little, "first")
    little.idempotence.write()
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    assert again.store.report.scanned_records == 1
    assert known(again, "first") == place
    again.close()


def test_a_missing_file_is_collected_from_the_whole_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    little = LittleStore(tmp_path)
    place = send(little, "k")
    little.send(body=b"plain")
    little.close()
    (tmp_path / JOURNAL_FILE).unlink()
    again = LittleStore(tmp_path, clock=little.clock)
    assert "orbitmq.once is missing" in caplog.text
    assert known(again, "k") == place
    again.close()
    assert (tmp_path / JOURNAL_FILE).exists()


@pytest.mark.parametrize("at", [3, 20, 60, -20])
def test_damage_is_reported_and_the_log_says_what_it_said(
    tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    little = LittleStore(tmp_path)
    places = {}
    for number in range(4):
        places[f"k{number}"] = send(little, f"k{number}")
        little.advance(300)
    little.close()
    data = bytearray(journal(tmp_path))
    data[at] ^= 1
    (tmp_path / JOURNAL_FILE).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        again = LittleStore(tmp_path, clock=little.clock)
    assert "orbitmq.once" in caplog.text
    assert {key: known(again, key) for key in places} == places
    again.close()


@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
def test_the_file_of_another_store_is_not_believed(
    tmp_path: Path, end: Callable[[LittleStore], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Records are as long in one store as in the other."""
    for name, keys in (("other", "abcd"), ("own", "wxyz")):
        little = LittleStore(tmp_path / name)
        little.clock.advance(len(name))
        for key in keys:
            send(little, key)
        little.advance(6_000)
        end(little)
    shutil.copy(tmp_path / "other" / JOURNAL_FILE, tmp_path / "own" / JOURNAL_FILE)
    again = LittleStore(tmp_path / "own", clock=little.clock)
    assert f"{JOURNAL_FILE} cannot be believed" in caplog.text
    assert [known(again, key) is not None for key in "abcdwxyz"] == 4 * [False] + 4 * [True]
    again.close()


def test_keys_outlive_the_log_files_they_came_from(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    place = send(little, "k")
    while len(little.store.log.sequence.segments) < 4:
        little.send(body=b"x" * 1000)
    little.advance(6_000)
    little.store.remove_paths(little.store.drop_first_segments(2))
    little.advance(6_000)
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    assert again.store.log.start > place.physical_offset
    assert known(again, "k") == place
    again.close()


def test_plain_traffic_moves_the_position_so_that_no_deleted_file_is_needed(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, mapped_file_size_commit_log=1 << 20, max_message_size=200_000)
    send(little, "k")
    little.advance(300)
    for _ in range(24):
        little.send(body=b"x" * 100_000)
        little.advance(250)
    little.kill()
    positions = [block.position for block, _ in decode_blocks(journal(tmp_path)) if isinstance(block, PositionBlock)]
    assert little.store.log.written_end - positions[-1] < 2 << 20
    again = LittleStore(tmp_path, clock=little.clock, settings=little.store.settings)
    assert again.store.report.scanned_records < 24
    again.close()


def test_what_other_epochs_left_behind_goes_when_the_file_is_made_shorter(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.idempotence._shorten_from_bytes = 4_000
    places = {}
    for epoch in range(60):
        for number in range(5):
            key = f"{epoch}-{number}"
            places[key] = send(little, key, epoch)
        little.advance(5_100)
    assert len(journal(tmp_path)) < 6_000
    for key in ("58-0", "59-4"):
        assert known(little, key, int(key[:2])) == places[key]
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    for key in ("58-0", "59-4"):
        assert known(again, key, int(key[:2])) == places[key]
    again.close()


def test_keys_that_come_while_the_file_is_made_shorter_wait(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.idempotence._shorten_from_bytes = 1
    send(little, "a")
    little.clock.advance(5_100)
    little.turn()  # the durable save is on the worker's list and has not run
    assert little.worker.jobs
    place = send(little, "b")
    before = journal(tmp_path)
    little.clock.advance(250)
    little.turn()
    assert journal(tmp_path) == before
    little.advance(300)
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    assert known(again, "b") == place
    again.close()


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename"])
def test_a_full_disk_leaves_the_longer_file_in_use(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def plan(call: Call) -> OSError | None:
        if call.path.name == JOURNAL_FILE + ".tmp" and call.kind == kind:
            return OSError(errno.ENOSPC, "no space")
        return None

    files = RecordingFiles(OsFiles(), tmp_path, plan=plan)
    little = LittleStore(tmp_path, files=files)
    little.idempotence._shorten_from_bytes = 1
    first = send(little, "a")
    little.advance(5_100)
    assert "orbitmq.once was not made shorter" in caplog.text
    assert little.store.writable
    second = send(little, "b")
    little.advance(5_100)
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    assert (known(again, "a"), known(again, "b")) == (first, second)
    again.close()


# --- after another broker -------------------------------------------------------------------------------------------


def as_if_rocketmq_ran(root: Path) -> None:
    """RocketMQ leaves another checkpoint behind, which makes our mark worthless."""
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "abort").unlink(missing_ok=True)


def test_what_rocketmq_appended_meanwhile_is_read(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    ours = send(little, "ours")
    little.close()
    saved, marks = journal(tmp_path), (tmp_path / MARK_FILE).read_bytes()
    other = LittleStore(tmp_path, clock=little.clock)
    theirs = send(other, "theirs")
    other.close()
    (tmp_path / JOURNAL_FILE).write_bytes(saved)  # RocketMQ does not know the file
    (tmp_path / MARK_FILE).write_bytes(marks)
    as_if_rocketmq_ran(tmp_path)
    again = LittleStore(tmp_path, clock=little.clock)
    assert known(again, "ours") == ours
    assert known(again, "theirs") == theirs
    again.close()


def test_what_rocketmq_cut_off_is_forgotten(tmp_path: Path) -> None:
    """After a crash RocketMQ may cut records off and write others in their place."""
    little = LittleStore(tmp_path)
    kept = send(little, "kept")
    little.close()
    saved = journal(tmp_path)
    branch = LittleStore(tmp_path, clock=little.clock)
    lost = send(branch, "lost")
    branch.close()
    longer = journal(tmp_path)
    assert longer.startswith(saved)
    log = tmp_path / "commitlog" / ("0" * 20)
    content = bytearray(log.read_bytes())
    content[lost.physical_offset :] = bytes(len(content) - lost.physical_offset)
    log.write_bytes(content)
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            units = bytearray(path.read_bytes())
            units[20:] = bytes(len(units) - 20)
            path.write_bytes(units)
    as_if_rocketmq_ran(tmp_path)
    again = LittleStore(tmp_path, clock=little.clock)
    assert known(again, "kept") == kept
    assert known(again, "lost") is None
    again.close()


def test_without_mark_and_file_what_recovery_reads_is_taken_in(tmp_path: Path) -> None:
    """We were killed before the first save, then RocketMQ ran."""
    little = LittleStore(tmp_path)
    place = send(little, "k")
    little.kill()
    (tmp_path / MARK_FILE).unlink()
    as_if_rocketmq_ran(tmp_path)
    again = LittleStore(tmp_path, clock=little.clock)
    assert known(again, "k") == place
    again.close()


def test_in_a_store_of_rocketmq_the_memory_begins_at_the_end_of_the_log(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    for _ in range(40):
        little.send(body=b"x" * 1000)
    little.close()
    (tmp_path / MARK_FILE).unlink()
    as_if_rocketmq_ran(tmp_path)
    again = LittleStore(tmp_path, clock=little.clock)
    place = send(again, "k")
    again.kill()
    third = LittleStore(tmp_path, clock=little.clock)
    assert known(third, "k") == place, "its position is the end of the log, not of the file"
    third.close()


# --- deleted topics -------------------------------------------------------------------------------------------------


def test_the_block_of_a_deleted_topic_byte_by_byte() -> None:
    block = encode_ended_topic("T\u00e4", 0x0102030405060708)
    assert block[4:] == bytes.fromhex("00000017 00000005 0102030405060708") + "T\u00e4".encode()
    assert decode_block(block, 0) == (EndedTopicBlock("T\u00e4", 0x0102030405060708), len(block))


@pytest.mark.parametrize("saved", [False, True])
def test_the_end_of_a_topic_counts_although_the_broker_is_killed_before_anything_else_is_written(
    tmp_path: Path, saved: bool
) -> None:
    little = LittleStore(tmp_path)
    send(little, "a")
    if saved:
        little.advance(300)
    little.idempotence.end_topic("Topic", little.store.log.end)
    little.kill()
    for _ in range(3):
        little = LittleStore(tmp_path)
        assert known(little, "a") is None
        little.advance(300)
        little.kill()


def test_after_a_power_failure_the_end_of_a_topic_is_not_behind_the_log(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    send(little, "a")
    end = little.store.log.end
    little.idempotence.end_topic("Topic", end + 10_000)
    little.kill()
    little = LittleStore(tmp_path)
    assert little.store.log.end == end
    assert known(little, "a") is None
    send(little, "b")
    assert known(little, "b") is not None


def test_ends_of_topics_go_with_the_keys_before_them_when_the_file_is_made_shorter(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.idempotence._shorten_from_bytes = 0
    for epoch in range(4):
        send(little, "a", epoch)
        little.store.delete_topic("Topic")
    for _ in range(3):
        little.advance(5_000)
    ends = [block for block, _ in decode_blocks(journal(tmp_path)) if isinstance(block, EndedTopicBlock)]
    assert len(ends) == 1
    assert known(little, "a", 3) is None
    send(little, "a", 4)
    send(little, "a", 5)
    for _ in range(3):
        little.advance(5_000)
    little.kill()
    assert known(LittleStore(tmp_path), "a", 5) is not None


def test_an_end_that_finds_no_room_is_written_with_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path)
    send(little, "a")
    little.advance(300)

    def full(self: KeyJournal, blocks: object) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as broken:
        broken.setattr(KeyJournal, "append", full)
        little.idempotence.end_topic("Topic", little.store.log.end)
    little.send(body=b"plain")
    little.advance(300)
    little.kill()
    assert known(LittleStore(tmp_path), "a") is None


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, 1_000, [300, 100, 200]), (0, 100, []), (301, 1_000, []), (100, 300, [100, 200]), (200, 201, [200])],
)
def test_the_keys_between_two_positions_are_found_in_any_order(tmp_path, begin, end, expected):
    journal = KeyJournal(OsFiles(), tmp_path / JOURNAL_FILE)
    entries = [entry_of(position, pack(position, 7, 1)) for position in (300, 100, 200)]
    journal.append([encode_keys("gone", 1, 5, entries), encode_keys("^T", 1, 5, entries), encode_keys("^T", 2, 5, [])])
    found = journal.keys_between(begin, end, {("^T", 1), ("^T", 2)})
    assert [place >> 96 for block in found for _, place in block.places()] == expected
    assert {(block.scope, block.epoch) for block in found} <= {("^T", 1)}
    journal.close()
