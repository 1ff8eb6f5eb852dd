"""Whatever is damaged in the log of a broker and sound in another copy comes from there; what nobody has hides nothing else."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from tests.worlds.mending_pair import FILE, MendingPair

from orbitmq.limits.replication import MEND_PAUSE_MS, MEND_READ_BYTES, WALK_AGAIN_MS, WALKS_AGAIN_MAX
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication import damage as damage_module
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks, encode_marks
from orbitmq.store.files import OsFile
from orbitmq.store.walking import Walked, next_record


@pytest.fixture
def pair(tmp_path: Path) -> MendingPair:
    return MendingPair(tmp_path)


def first_of_second_file(pair: MendingPair) -> int:
    return next(number for number, one in enumerate(pair.entries) if one.physical_offset >= FILE)


# --- where it can be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["first of the log", "first of a file", "last of a file", "filler", "last of all", "all of a file", "cut"]
)
async def test_damage_is_mended_wherever_it_is(pair: MendingPair, where: str) -> None:
    second = first_of_second_file(pair)
    met = second - 1
    match where:
        case "first of the log":
            pair.damage(0, bytes(100))
        case "first of a file":
            pair.damage(FILE, b"\xff" * 700)
            met = second
        case "last of a file":
            pair.damage(pair.at(second - 1), bytes(FILE - pair.at(second - 1)))
        case "filler":
            pair.damage(pair.entries[second - 1].end_offset, b"\xff" * 8)
        case "last of all":
            met = len(pair.entries) - 1
            pair.flip(met)
        case "all of a file":
            pair.damage(FILE, bytes(FILE))
            met = second
        case "cut":
            pair.store.log.sequence.segments[1].file.truncate(5_000)
            met = second
    assert await pair.meet(met) == [True], "whoever met it is to ask again"
    assert pair.is_as_it_was()
    assert pair.store.log.sequence.segments[1].file.size() == FILE
    assert not pair.mending.damage.places
    assert pair.changes == 2, "that there was damage, and that there is none"


async def test_what_no_copy_has_does_not_keep_others_from_being_mended(pair: MendingPair) -> None:
    """Both lost one message, and this one another behind it in the same file."""
    pair.flip(5, 8)
    pair.flip(5, theirs=True)
    assert await pair.meet(8) == [True]
    assert list(pair.mending.damage.places) == [pair.at(5)]
    assert pair.walked(pair.at(6)) == Walked(pair.end)
    pair.flip(10)
    assert await pair.meet(5, 10) == [False, True], "there is no hope for the one, and for the other there is"
    assert pair.walked(pair.at(6)) == Walked(pair.end)
    pair.theirs[:] = pair.sound
    await pair.pass_time(MEND_PAUSE_MS)
    assert pair.is_as_it_was()
    assert pair.mending.damage.mended_count == 3


async def test_a_message_right_behind_one_that_nobody_has_is_mended(pair: MendingPair) -> None:
    pair.flip(5, 6, 7)
    pair.flip(5, theirs=True)
    await pair.meet(6)
    assert list(pair.mending.damage.places) == [pair.at(5)]
    assert pair.walked(pair.at(6)) == Walked(pair.end)


async def test_two_copies_that_are_damaged_in_different_places_give_each_other_what_is_missing(
    pair: MendingPair,
) -> None:
    pair.flip(5)
    pair.flip(8, theirs=True)
    await pair.meet(5)
    assert pair.is_as_it_was()


async def test_a_broker_that_is_asked_for_a_part_of_a_file_looks_at_that_file(pair: MendingPair) -> None:
    """Whatever was damaged there happened to both machines at times: each finds its own damage while the other one still has that place."""
    pair.flip(8)
    answers: list[object] = []
    text = encode_marks(pair.epochs).decode()
    for _ in range(3):
        wanted = LogRangeRequest("pair", "a-log", pair.end, text, pair.at(3), 500)
        pair.mending.answer(wanted, answers.append)
        await pair.settle()
    assert answers == [pair.sound[pair.at(3) : pair.at(3) + 500]] * 3
    assert pair.is_as_it_was()


async def test_what_becomes_bad_a_moment_after_its_file_was_mended_is_met_as_before(pair: MendingPair) -> None:
    pair.flip(5)
    await pair.meet(5)
    for number in (5, 7):
        pair.flip(number)
        assert await pair.meet(number) == [True]
    assert pair.is_as_it_was()


async def test_a_consume_queue_that_names_wrong_places_does_not_keep_the_disk_busy(
    pair: MendingPair,
) -> None:
    wrong = [pair.at(3) + step for step in range(1, WALKS_AGAIN_MAX + 5)]
    told = []
    for position in wrong:
        told.append(pair.mending.suspect(position))
        await pair.settle()
        assert not pair.mending.suspect(position), "it was looked at a moment ago"
    assert told.count(True) == WALKS_AGAIN_MAX
    await pair.pass_time(WALK_AGAIN_MS)
    assert pair.mending.suspect(wrong[-1])
    await pair.settle()
    assert not pair.asked


async def test_places_around_a_bad_sector_are_looked_at(pair: MendingPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading fails until the sector was written."""
    segment, pread, pwrite = pair.store.log.sequence.segments[0], OsFile.pread, OsFile.pwrite
    bad = {pair.at(5) + 60, pair.at(12) + 60}

    def reads(file: OsFile, size: int, offset: int) -> bytes:
        if file.path == segment.path and any(offset <= one < offset + size for one in bad):
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size, offset)

    def writes(file: OsFile, data: bytes, offset: int) -> None:
        if file.path == segment.path:
            bad.difference_update({one for one in bad if offset <= one < offset + len(data)})
        pwrite(file, data, offset)

    monkeypatch.setattr(OsFile, "pread", reads)
    monkeypatch.setattr(OsFile, "pwrite", writes)
    await pair.meet(5)
    assert not bad
    assert pair.is_as_it_was()
    assert pair.mending.damage.mended_count == 2


# --- what the others do -------------------------------------------------------------------------------------------------


async def test_another_copy_that_has_less_of_the_log_gives_what_it_has(pair: MendingPair) -> None:
    pair.flip(len(pair.entries) - 3, len(pair.entries) - 1)
    pair.their_end = pair.entries[-1].physical_offset
    await pair.meet(len(pair.entries) - 3)
    assert list(pair.mending.damage.places) == [pair.entries[-1].physical_offset]
    pair.their_end = pair.end
    await pair.pass_time(MEND_PAUSE_MS)
    assert pair.is_as_it_was()


async def test_a_copy_that_has_parted_from_ours_gives_nothing(pair: MendingPair) -> None:
    pair.flip(5)
    pair.their_epochs = EpochMarks([EpochMark(1, 0), EpochMark(3, pair.at(4))])
    pair.epochs = EpochMarks([EpochMark(1, 0), EpochMark(2, pair.at(4))])
    await pair.meet(5)
    assert "parted" not in pair.mending.damage.text
    assert list(pair.mending.damage.places) == [pair.at(5)]
    assert pair.walked().position == pair.at(5)


@pytest.mark.parametrize("answer", ["garbage", "the same again", "nothing", "an error of its own"])
async def test_an_answer_that_makes_no_sense_changes_nothing_and_the_next_copy_is_asked(
    pair: MendingPair, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair.flip(40)
    pair.addresses = ["bad:1", "other:1"]

    async def ask(address: str, wanted: LogRangeRequest) -> bytes:
        if address == "other:1":
            return await pair.answer(address, wanted)
        match answer:
            case "garbage":
                return b"\x5a" * wanted.size
            case "the same again":
                return bytes(pair.theirs[: wanted.size])
            case "nothing":
                return b""
        raise ValueError("no address")

    pair.ask = ask
    await pair.meet(40)
    assert pair.is_as_it_was()
    assert "other:1" in caplog.text


async def test_a_copy_that_does_not_answer_is_asked_once_however_many_places_there_are(pair: MendingPair) -> None:
    pair.is_reachable = False
    pair.flip(*range(3, 20, 2))
    await pair.meet(3)
    assert len(pair.asked) == 1
    assert list(pair.mending.damage.places) == [pair.at(number) for number in range(3, 20, 2)]
    assert pair.changes == 1, "that is no news any more"
    pair.is_reachable = True
    await pair.pass_time(MEND_PAUSE_MS)
    assert pair.is_as_it_was()
    assert pair.changes == 2


async def test_damage_without_end_is_remembered_to_an_end(pair: MendingPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_module, "MEND_PLACES_MAX", 4)
    pair.is_reachable = False
    pair.flip(*range(3, 20, 2))
    await pair.meet(3)
    assert len(pair.mending.damage.places) == 5
    assert await pair.meet(15) == [False]
    pair.is_reachable = True
    await pair.pass_time(MEND_PAUSE_MS)
    assert pair.is_as_it_was()


async def test_where_nobody_helps_the_log_says_so_once(pair: MendingPair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    pair.is_reachable = False
    pair.flip(3)
    await pair.meet(3)
    lines = len(caplog.records)
    for _ in range(50):
        await pair.pass_time(MEND_PAUSE_MS)
        assert await pair.meet(3) == [False]
    assert len(caplog.records) == lines
    assert len(pair.asked) == 51


# --- what happens meanwhile ---------------------------------------------------------------------------------------------


async def test_a_file_that_is_removed_while_its_damage_is_fetched_is_no_damage_any_more(pair: MendingPair) -> None:
    async def ask(address: str, wanted: LogRangeRequest) -> bytes:
        data = await pair.answer(address, wanted)
        pair.store.drop_first_segments(1)
        return data

    pair.flip(3)
    pair.ask = ask
    await pair.meet(3)
    assert not pair.mending.damage.places
    assert not pair.mending.damage.mended_bytes, "nothing was written"


async def test_a_damaged_place_that_retention_removes_is_forgotten(pair: MendingPair) -> None:
    pair.is_reachable = False
    pair.flip(3)
    await pair.meet(3)
    pair.store.drop_first_segments(1)
    await pair.pass_time(MEND_PAUSE_MS)
    assert not pair.mending.damage.places
    assert pair.mending.damage.due_ns is None


async def test_a_disk_that_takes_nothing_leaves_the_place_damaged_until_it_does(
    pair: MendingPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = OsFile.pwrite

    def half(file: OsFile, data: bytes, offset: int) -> None:
        pwrite(file, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    pair.damage(pair.at(5), bytes(1_000))
    with monkeypatch.context() as patched:
        patched.setattr(OsFile, "pwrite", half)
        await pair.meet(5)
    assert len(pair.mending.damage.places) == 1
    assert not pair.store.is_over
    await pair.pass_time(MEND_PAUSE_MS)
    assert pair.is_as_it_was()


async def test_a_look_that_finds_no_thread_is_done_again(pair: MendingPair) -> None:
    pair.flip(5)
    pair.little.worker.is_full = True
    await pair.meet(5)
    pair.little.worker.is_full = False
    assert pair.mending.damage.due_ns is not None
    await pair.pass_time(MEND_PAUSE_MS)
    assert pair.is_as_it_was()


async def test_a_look_up_names_the_damage_that_it_meets(pair: MendingPair) -> None:
    """By key and by position; a position that a client made up makes nobody look through a file."""
    pair.flip(5)
    with pytest.raises(OSError, match="asked for at another copy"):
        pair.little.asked(lambda: pair.store.record_at(pair.at(5)))
    await pair.settle()
    assert pair.little.asked(lambda: pair.store.record_at(pair.at(5))) is not None
    pair.damage(pair.at(6), bytes(700))
    with pytest.raises(OSError, match="asked for at another copy"):
        pair.little.asked(lambda: list(pair.store.records_at([pair.at(4), pair.at(6)])))
    await pair.settle()
    assert len(pair.little.asked(lambda: list(pair.store.records_at([pair.at(4), pair.at(6)])))) == 2
    assert pair.little.asked(lambda: pair.store.record_at(pair.at(6) + 9)) is None
    assert pair.mending.damage.next_file(0) is None


def test_the_next_record_is_found_by_its_bytes(pair: MendingPair) -> None:
    log = pair.store.log
    pair.damage(pair.at(5), bytes(pair.at(7) - pair.at(5)))
    assert next_record(log, pair.at(5), pair.end) == pair.at(7)
    second = first_of_second_file(pair)
    pair.flip(second - 1, second - 2)
    assert next_record(log, pair.at(second - 2), pair.end) == pair.at(second - 1), "sound or not"
    assert next_record(log, pair.at(second - 1), pair.end) == FILE
    assert MEND_READ_BYTES > FILE
