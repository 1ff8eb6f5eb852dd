"""Storage that brokers with one log share: who writes there, what a file is called, when one is removed, what a follower begins with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.sharing import Sharing
from orbitmq.timing.far.state_file import decode_state
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarUnreachableError
from orbitmq.timing.far.writers import latest_writer, next_writer, writer_of, written_by

MARK = "ab" * 16
FIRST, SECOND = "1" * 32, "2" * 32
OpenFar = Callable[..., LittleFar]


def sharing(
    directory: str, *, takes_over: bool = False, copies_have: Callable[[int], bool] = lambda _: True
) -> Sharing:
    return Sharing(MARK, directory, takes_over, copies_have)


@pytest.fixture
def tier(tmp_path: Path) -> ArrowTier:
    made = ArrowTier(str(tmp_path / "far"))
    assert made.mark(MARK) == MARK
    return made


@pytest.fixture
def leader(open_far: OpenFar, tier: ArrowTier) -> LittleFar:
    far = open_far()
    far.far.share(sharing(FIRST), takes=True)
    return far


def follower(leader: LittleFar, root: Path) -> LittleFar:
    return LittleFar(root / "second", ArrowTier(str(root / "far")), clock=leader.clock, leads=False)


def landed(far: LittleFar, count: int = 3, days: int = 10) -> None:
    for number in range(count):
        far.send(far.clock.now_ms() + days * DAY_MS, b"%d" % number, UNIQ_KEY=f"U{number}")
    far.advance(11 * 60_000)
    assert far.far.held.buffered.pending_count == 0


def taken_state(leader: LittleFar, slave: LittleFar, root: Path) -> None:
    """As a slave without a log begins."""
    leader.save()
    assert leader.far.saving.content is not None
    told: list[BaseException | None] = []
    slave.far.take_state(decode_state(leader.far.saving.content), slave.worker, told.append)
    slave.worker.close()
    assert told == [None]


# --- names ------------------------------------------------------------------------------------------------------------


def test_each_writer_comes_behind_all_earlier_ones() -> None:
    first = next_writer([], FIRST, "aaaaaaaa", takes_over=False)
    assert first is not None
    second = next_writer([first, "notes.txt"], SECOND, "00000000", takes_over=True)
    assert second is not None
    assert latest_writer([second, first, "notes.txt"]) == second


def test_who_led_before_goes_on_only_while_nobody_else_wrote() -> None:
    own = str(next_writer([], FIRST, "aaaaaaaa", takes_over=False))
    again = str(next_writer([own], FIRST, "bbbbbbbb", takes_over=False))
    other = str(next_writer([own, again], SECOND, "cccccccc", takes_over=True))
    assert next_writer([own, again, other], FIRST, "dddddddd", takes_over=False) is None


def test_of_a_group_an_earlier_epoch_never_comes_behind_a_later_one() -> None:
    pair = str(next_writer([], FIRST, "ffffffff", takes_over=False))
    fourth = str(next_writer([pair], FIRST, "aaaaaaaa", takes_over=True, epoch=4))
    assert latest_writer([pair, fourth]) == fourth, "behind all writers of a pair"
    assert next_writer([fourth], FIRST, "00000000", takes_over=True, epoch=4) == fourth, "an epoch has one name"
    assert next_writer([fourth], SECOND, "bbbbbbbb", takes_over=True, epoch=4) is None, "and one process"
    sixth = str(next_writer([fourth], SECOND, "cccccccc", takes_over=True, epoch=6))
    assert next_writer([fourth, sixth], FIRST, "dddddddd", takes_over=True, epoch=5) is None
    alone = str(next_writer([fourth, sixth], FIRST, "eeeeeeee", takes_over=True))
    assert latest_writer([sixth, alone]) == alone, "a broker that is in no group any more goes on"


def test_a_file_says_who_wrote_it_and_no_two_have_one_name(leader: LittleFar) -> None:
    landed(leader)
    landed(leader)
    writer = leader.far.keeper.storage.writer if leader.far.keeper is not None else ""
    names = leader.far.held.files.names
    assert writer
    assert {writer_of(name) for name in names} == {writer}
    assert len({name.rpartition("-")[2] for name in leader.far.held.files.by_name}) == 2
    assert (writer_of("landing/1-2.parquet"), written_by("", "aaaaaaaa")) == ("", "")


# --- the mark ---------------------------------------------------------------------------------------------------------


def test_a_mark_is_written_once(tmp_path: Path) -> None:
    assert ArrowTier(str(tmp_path / "far")).mark("") == ""
    assert not (tmp_path / "far").exists(), "looking makes nothing"
    assert ArrowTier(str(tmp_path / "far")).mark("one") == "one"
    assert ArrowTier(str(tmp_path / "far")).mark("two") == "one"


def test_a_place_that_is_not_mounted_is_trouble_and_stays_empty(leader: LittleFar, tmp_path: Path) -> None:
    (tmp_path / "far").rename(tmp_path / "away")
    leader.send(leader.clock.now_ms() + 10 * DAY_MS)
    leader.advance(11 * 60_000)
    assert leader.far.keeper is not None
    assert "bears no mark" in (leader.far.keeper.trouble or "")
    assert not (tmp_path / "far").exists()
    (tmp_path / "away").rename(tmp_path / "far")
    leader.advance(HOUR_MS)
    assert (leader.far.keeper.trouble, len(leader.far.held.files.by_name)) == (None, 1)


def test_new_directories_are_synced_up_to_the_first_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    storage = Storage.at(str(tmp_path / "a" / "b"))
    storage.make_directory("landing")
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(synced)
    synced.clear()
    storage.write("days/today/1.parquet", b"rows")
    assert str(tmp_path / "a" / "b" / "days") in synced
    assert str(tmp_path / "a" / "b" / "days" / "today") in synced
    assert synced[0].startswith(str(tmp_path / "a" / "b" / "days" / "today" / "1.parquet")), "the bytes before the name"


def test_two_writers_of_one_name_leave_one_of_both_contents(tmp_path: Path) -> None:
    first, second = Storage.at(str(tmp_path)), Storage.at(str(tmp_path))
    first.write("manifest.json", b"one")
    second.write("manifest.json", b"two")
    assert first.read("manifest.json") == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


# --- who writes -------------------------------------------------------------------------------------------------------


def test_who_follows_takes_over_and_the_other_one_changes_nothing_any_more(leader: LittleFar, tmp_path: Path) -> None:
    landed(leader)
    slave = follower(leader, tmp_path)
    slave.copy(leader)
    slave.far.share(sharing(SECOND, takes_over=True), takes=True)
    slave.lead()
    landed(slave, days=20)
    before = sorted(path for path in (tmp_path / "far").rglob("*") if path.is_file())
    leader.send(leader.clock.now_ms() + 10 * DAY_MS)
    leader.far.compact()
    leader.advance(HOUR_MS)
    assert leader.far.keeper is not None
    assert "another broker took over" in (leader.far.keeper.trouble or "")
    assert sorted(path for path in (tmp_path / "far").rglob("*") if path.is_file()) == before
    slave.advance(21 * DAY_MS)
    assert len(slave.wheel()) == 6


def test_one_that_comes_back_does_not_take_over(open_far: OpenFar, leader: LittleFar, tmp_path: Path) -> None:
    landed(leader)
    slave = follower(leader, tmp_path)
    slave.copy(leader)
    leader.kill()
    slave.far.share(sharing(SECOND, takes_over=True), takes=True)
    slave.lead()
    slave.far.compact()
    slave.work()
    files = set(slave.far.held.files.names)
    for _ in range(3):
        back = open_far(clock=slave.clock)
        back.far.share(sharing(FIRST), takes=True)
        back.far.compact()
        back.advance(60_000)
        assert back.far.keeper is not None
        assert "another broker took over" in (back.far.keeper.trouble or "")
        back.kill()
    assert all((tmp_path / "far" / name).exists() for name in files)


def test_two_processes_with_one_directory_do_not_take_turns(leader: LittleFar, tmp_path: Path) -> None:
    landed(leader)
    shutil.copytree(tmp_path / "store", tmp_path / "twin")
    twin = LittleFar(tmp_path / "twin", ArrowTier(str(tmp_path / "far")), clock=leader.clock)
    twin.far.share(sharing(FIRST), takes=True)
    twin.far.compact()
    twin.advance(60_000)
    for far in (leader, twin, leader, twin):
        far.send(far.clock.now_ms() + 10 * DAY_MS)
        far.far.compact()
        far.advance(HOUR_MS)
    assert leader.far.keeper is not None
    assert twin.far.keeper is not None
    assert ("took over" in str(leader.far.keeper.trouble), twin.far.keeper.trouble) == (True, None)


# --- removal ----------------------------------------------------------------------------------------------------------


def test_a_file_stays_until_every_copy_has_the_record_that_lets_go_of_it(
    open_far: OpenFar, tier: ArrowTier, tmp_path: Path
) -> None:
    leader, has_all = open_far(), False
    leader.far.share(sharing(FIRST, copies_have=lambda position: has_all), takes=True)
    landed(leader)
    slave = follower(leader, tmp_path)
    slave.copy(leader)
    (name,) = leader.far.held.files.by_name
    leader.far.compact()
    leader.advance(HOUR_MS)
    assert name not in leader.far.held.files.by_name
    assert (tmp_path / "far" / name).exists()
    leader.kill()
    leader = open_far(clock=slave.clock)
    leader.far.share(sharing(FIRST, copies_have=lambda position: has_all), takes=True)
    leader.advance(DAY_MS)
    assert (tmp_path / "far" / name).exists(), "a sweep after a start does not take it either"
    assert len(slave.find(topic="Topic")) == 3, "the copy that lags reads it"
    has_all = True
    leader.advance(DAY_MS)
    assert not (tmp_path / "far" / name).exists()


def test_a_follower_does_not_keep_names_of_files_that_others_remove(leader: LittleFar, tmp_path: Path) -> None:
    slave = follower(leader, tmp_path)
    for _ in range(3):
        landed(leader)
        leader.far.compact()
        leader.advance(HOUR_MS)
    slave.copy(leader)
    slave.save()
    assert not slave.far.held.files.has_garbage


# --- a follower that begins with nothing ------------------------------------------------------------------------------


def recalled(far: LittleFar, key: str) -> None:
    found = far.find_again(key)
    assert found is not None
    far.recall(found)


@pytest.mark.parametrize("ends", [0, 1, 3])
def test_it_knows_what_the_log_does_not_say_any_more_also_when_it_ends_half_way(
    leader: LittleFar, tmp_path: Path, ends: int
) -> None:
    landed(leader, 5)
    recalled(leader, "U1")
    for number in range(80):  # so that the first files of the log may go
        leader.send(leader.clock.now_ms() + 30 * DAY_MS, b"%d" % number * 500, UNIQ_KEY=f"L{number}")
    leader.advance(11 * 60_000)
    leader.remove_log(3)
    assert leader.store.log.start > 0
    for number in range(30):
        leader.send(leader.clock.now_ms() + 12 * DAY_MS, b"x" * 900, UNIQ_KEY=f"N{number}")
    recalled(leader, "N3")
    slave = follower(leader, tmp_path)
    taken_state(leader, slave, tmp_path)
    recalled(leader, "N4")
    expected = leader.far.counts()
    for end in range(ends):
        log = leader.store.log
        size = (log.written_end - log.start) * (end + 1) // (ends + 1)
        data = log.read_written(log.start, size) if end == 0 else None
        if data is not None:
            at = log.start
            for segment in log.sequence.segments[: end + 2]:
                piece = log.read_written(at, segment.end - at)
                assert piece is not None
                slave.store.append_raw(at, piece)
                at = segment.end
            slave.store.commit()
        slave.close() if end % 2 else slave.kill()
        slave = follower(leader, tmp_path)
    slave.copy(leader)
    assert slave.far.counts() == expected
    leader.kill()
    slave.far.share(sharing(SECOND, takes_over=True), takes=True)
    slave.lead()
    assert slave.find(message_id="U1") == [] == slave.find(message_id="N3") == slave.find(message_id="N4")
    slave.advance(13 * DAY_MS)
    bodies = [body for _, body in slave.wheel()]
    assert sorted(body for body in bodies if len(body) == 1) == [b"0", b"2", b"3", b"4"]
    assert len([body for body in bodies if len(body) == 900]) == 28


def test_storage_that_is_away_only_costs_time(leader: LittleFar, tmp_path: Path) -> None:
    landed(leader)
    (tmp_path / "far").rename(tmp_path / "away")
    leader.send(leader.clock.now_ms() + 10 * DAY_MS, b"while away")
    leader.advance(DAY_MS)
    assert leader.far.keeper is not None
    assert leader.far.keeper.trouble is not None
    (tmp_path / "away").rename(tmp_path / "far")
    leader.advance(11 * DAY_MS)
    assert len(leader.wheel()) == 4


@pytest.mark.parametrize("held_at", ["land", "compact"])
def test_a_file_written_while_the_storage_went_away_is_not_believed(
    held_at: str, leader: LittleFar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount that is lost leaves an empty directory, which takes the file: what it took stays where it was."""
    landed(leader, days=5)
    landed(leader, days=20)
    real = getattr(leader.tier, held_at)
    held: list[str] = []

    def losing(*arguments: object) -> object:
        if held:
            return real(*arguments)
        held.append(held_at)
        result = real(*arguments)
        (tmp_path / "far").rename(tmp_path / "away")
        (tmp_path / "far").mkdir()
        return result

    monkeypatch.setattr(leader.tier, held_at, losing)
    leader.send(leader.clock.now_ms() + 10 * DAY_MS)
    leader.far.compact()
    leader.advance(HOUR_MS)
    assert held, "it was in that step"
    assert leader.far.keeper is not None
    assert "bears no mark" in (leader.far.keeper.trouble or "")
    shutil.rmtree(tmp_path / "far")
    (tmp_path / "away").rename(tmp_path / "far")
    for name in set(tmp_path.glob("far/*/*.parquet")) - {tmp_path / "far" / one for one in leader.far.held.files.names}:
        name.unlink()  # as if it had been written into the directory below the mount
    leader.advance(21 * DAY_MS)
    assert leader.far.held.files.reasons() == {}
    assert len(leader.wheel()) == 7, "each once"


def test_a_question_while_the_storage_is_away_finds_no_damage(leader: LittleFar, tmp_path: Path) -> None:
    landed(leader)
    (tmp_path / "far").rename(tmp_path / "away")
    leader.tier.stop()
    (tmp_path / "far").mkdir()
    with pytest.raises(FarUnreachableError, match="bears no mark"):
        leader.find(message_id="U1")
    assert leader.far.held.files.reasons() == {}


def test_who_leads_a_group_claims_the_storage_before_it_has_anything_to_write(
    leader: LittleFar, tmp_path: Path
) -> None:
    leader.far.share(Sharing(MARK, FIRST, True, epoch=3), takes=True)
    leader.far.detach()
    leader.far.attach(leader.store)
    leader.advance(1)
    assert [path.name.split("-")[0] for path in (tmp_path / "far" / "writers").iterdir()] == ["5000000003"]


@pytest.mark.parametrize("held_at", ["land", "remove", "compact"])
def test_a_deposed_leader_that_was_held_inside_a_step_harms_nothing(
    held_at: str, leader: LittleFar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked who writes, was frozen, and goes on when the next leader has claimed the storage, and written there."""
    leader.far.detach()
    leader.far.share(Sharing(MARK, FIRST, True, epoch=3), takes=True)
    leader.far.attach(leader.store)
    landed(leader, days=5)
    landed(leader, days=20)
    next_one = follower(leader, tmp_path)
    next_one.far.share(Sharing(MARK, SECOND, True, epoch=4), takes=True)
    held: list[str] = []
    real = getattr(leader.tier, held_at)

    def holding(*arguments: object) -> object:
        if not held:
            held.append(held_at)
            next_one.copy(leader)
            next_one.lead()
            landed(next_one, days=30)
        return real(*arguments)

    monkeypatch.setattr(leader.tier, held_at, holding)
    if held_at == "land":
        leader.send(leader.clock.now_ms() + 10 * DAY_MS)
    else:
        leader.far.compact()
    leader.advance(HOUR_MS)
    leader.save()
    leader.advance(HOUR_MS)
    assert held, "it was in that step"
    leader.far.compact()
    leader.advance(HOUR_MS)
    assert leader.far.keeper is not None
    assert "another broker took over" in (leader.far.keeper.trouble or "")
    next_one.advance(31 * DAY_MS)
    assert next_one.far.held.files.reasons() == {}
    assert len(next_one.wheel()) == (10 if held_at == "land" else 9), "each once"


def test_another_store_is_refused_as_before_where_nothing_is_shared(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    landed(far)
    far.far.compact()
    far.advance(HOUR_MS)
    other = LittleFar(tmp_path / "other", ArrowTier(str(tmp_path / "far")), clock=far.clock)
    other.send(other.clock.now_ms() + 10 * DAY_MS)
    other.advance(11 * 60_000)
    assert other.far.keeper is not None
    assert "belongs to another store" in (other.far.keeper.trouble or "")


def test_a_writer_whose_name_was_removed_stops(tier: ArrowTier, tmp_path: Path) -> None:
    writer = tier.lead(FIRST, "", False)
    shutil.rmtree(tmp_path / "far" / "writers")
    with pytest.raises(FarUnreachableError, match="its name was removed"):
        tier.lead(FIRST, writer, False)
    writer = tier.lead(FIRST, "", True, 3)
    shutil.rmtree(tmp_path / "far" / "writers")
    with pytest.raises(FarUnreachableError, match="let another member of the group lead"):
        tier.lead(FIRST, writer, False)
