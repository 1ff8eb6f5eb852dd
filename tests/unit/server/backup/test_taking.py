"""Backups of a store that goes on meanwhile, and what a store made of one holds."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import SystemClock
from orbitmq.errors import StoreError, StoreLockedError
from orbitmq.server.backup import taking
from orbitmq.server.backup.directory import NEXT_FILE, BackupDirectory
from orbitmq.server.backup.manifest import MANIFEST_FILE, decode_manifest
from orbitmq.server.backup.restoring import restore_backup, verify_backup
from orbitmq.server.backup.taking import BackupReport, take_backup
from orbitmq.store.check import check_store
from orbitmq.store.files import File, OsFiles
from orbitmq.timing.rocketmq.check import check_timers

ID = "0123456789abcdef" * 2


class Meddling(OsFiles):
    """Files beside which something happens whenever one of them is opened."""

    __slots__ = ("meddle",)

    def __init__(self, meddle: Callable[[Path], None]) -> None:
        self.meddle = meddle

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        self.meddle(Path(path))
        return super().open(path, create=create, writable=writable, keep_unsynced=keep_unsynced)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test are young: what changed before a run began is settled."""
    monkeypatch.setattr(taking, "BACKUP_QUIET_NS", -(10**18))


class World:
    """A little store and its backup."""

    def __init__(self, root: Path) -> None:
        self.root, self.backup = root / "data", root / "backup"
        self.little = LittleStore(self.root)
        (self.root / "orbitmq.id").write_text(ID)
        self.sent = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.little.append(body=b"%d" % self.sent, KEYS=f"key-{self.sent}", UNIQ_KEY=f"unique-{self.sent}")
            self.sent += 1
        self.little.store.commit()
        self.little.advance(300)

    def take(self, files: OsFiles | None = None, *, replace: bool = False) -> BackupReport:
        return take_backup(files or OsFiles(), SystemClock(), self.root, self.backup, replace=replace)

    def sound(self) -> None:
        report = check_store(self.backup / "store", OsFiles(), timers=check_timers)
        assert report.findings == []
        assert verify_backup(OsFiles(), self.backup).damaged == []

    def restored(self, name: str = "restored") -> LittleStore:
        """A store made of the backup, opened at the time of the original."""
        restore_backup(OsFiles(), self.backup, self.backup.parent / name)
        return LittleStore(self.backup.parent / name, clock=self.little.clock)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_everything_is_in_it(world: World) -> None:
    world.send(300)
    world.little.send(body=b"later", after_ms=60_000, UNIQ_KEY="later")
    world.little.send(body=b"delayed", level=3, UNIQ_KEY="delayed")
    report = world.take()
    world.sound()
    assert report.log_end == world.little.store.log.written_end
    assert report.store == ID
    assert "same file system" in report.notes[0]
    restored = world.restored()
    assert restored.bodies() == bodies(300)
    assert restored.timers.pending_count == 1
    restored.advance(70_000)
    restored.settle()
    assert sorted(restored.bodies()[300:]) == [b"delayed", b"later"]
    restored.close()
    world.little.close()


def test_a_second_run_copies_what_is_new(world: World) -> None:
    world.send(500)
    first = world.take()
    full = first.log_end // world.little.store.log.sequence.segment_size
    assert full > 3
    nothing = world.take()
    assert nothing.copied_bytes < first.copied_bytes / 4
    assert nothing.bytes_in_all == first.bytes_in_all
    world.send(5)
    copied: list[str] = []
    source = str(world.root / "commitlog")

    def note(path: Path) -> None:
        if str(path.parent) == source:
            copied.append(path.name)

    second = world.take(Meddling(note))
    assert len(set(copied)) <= 2, "files of the log that are full are not opened again"
    assert second.copied_bytes < first.copied_bytes / 4
    world.sound()
    assert world.restored().bodies() == bodies(505)


def test_what_is_sent_meanwhile_does_no_harm(world: World) -> None:
    """Messages come between any two files that are copied; those from before the run are all there, and of the others no half."""
    world.send(200)
    meanwhile = 0

    def send(path: Path) -> None:
        nonlocal meanwhile
        if path.is_relative_to(world.root) and meanwhile < 400:
            meanwhile += 1
            world.send(1)
            if meanwhile % 7 == 0:
                world.little.append(
                    body=b"later", after_ms=3_600_000 + meanwhile * 1_000, UNIQ_KEY=f"later-{meanwhile}"
                )

    world.take(Meddling(send))
    assert meanwhile > 20
    world.sound()
    restored = world.restored()
    found = restored.bodies()
    assert found == bodies(len(found))
    assert len(found) >= 200
    restored.close()
    world.take(Meddling(send))
    world.sound()
    again = world.restored("again")
    assert len(again.bodies()) >= len(found)
    again.close()


def test_files_that_retention_takes_meanwhile_are_not_missed(world: World) -> None:
    world.send(600)
    first = min((world.root / "commitlog").iterdir())
    second = world.root / "commitlog" / f"{int(first.name) + first.stat().st_size:020d}"

    def remove(path: Path) -> None:
        if path == second and first.exists():
            first.unlink()
            second.unlink()

    world.take(Meddling(remove))
    names = sorted(path.name for path in (world.backup / "store" / "commitlog").iterdir())
    assert names == sorted(path.name for path in (world.root / "commitlog").iterdir())[: len(names)]
    restored = world.restored()
    found = restored.bodies()
    assert found == bodies(600)[-len(found) :]
    restored.close()


def test_retention_that_never_rests_is_said(world: World) -> None:
    world.send(2_000)

    def remove(path: Path) -> None:
        if path.name == "orbitmq.led":  # looked for in every try
            min((world.root / "commitlog").iterdir()).unlink()

    with pytest.raises(StoreError, match="retention removes files of the log"):
        world.take(Meddling(remove))


def far_files(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / "far").rglob("*") if path.is_file()}


def test_the_far_tier_fits_its_state(world: World) -> None:
    """While files are copied the tier writes two of them anew as one: state and files of the backup are those of one side of that."""
    world.send(5)
    landing = world.root / "far" / "landing"
    landing.mkdir(parents=True)
    (landing / "one").write_text("{}")
    (landing / "two").write_text("2")
    (world.root / "orbitmq.far").write_text("one two")

    def compact(path: Path) -> None:
        if path == landing / "two" and path.exists():
            (landing / "both").write_text("12")
            world.send(1)
            (world.root / "orbitmq.far.tmp").write_text("both")
            (world.root / "orbitmq.far.tmp").rename(world.root / "orbitmq.far")
            (landing / "one").unlink()
            (landing / "two").unlink()

    report = world.take(Meddling(compact))
    assert far_files(world.backup / "store") == {"both": "12"}
    assert (world.backup / "store" / "orbitmq.far").read_text() == "both"
    assert report.log_end == world.little.store.log.written_end
    assert not any("timerFarUrl" in text for text in report.notes)


def test_a_far_tier_that_never_rests_is_said(world: World) -> None:
    world.send(5)
    (world.root / "far").mkdir()
    (world.root / "orbitmq.far").write_text("0")

    def save(path: Path) -> None:
        if path.parent == world.root / "commitlog":
            (world.root / "orbitmq.far").write_text("1" + (world.root / "orbitmq.far").read_text())

    with pytest.raises(StoreError, match="the far tier writes its files anew"):
        world.take(Meddling(save))


def test_a_log_that_went_another_way_is_refused_and_copied_anew_when_it_is_to_count(
    world: World, tmp_path: Path
) -> None:
    """As after a power failure, or where an older backup was put back: what was copied of the newest file is not what stands there now."""
    world.send(20)
    world.little.kill()
    shutil.copytree(world.root, tmp_path / "kept")
    world.little = LittleStore(world.root)
    for number in range(100):
        world.little.send(body=b"lost %d" % number)
    world.little.advance(300)
    world.take()
    world.little.kill()
    shutil.rmtree(world.root)
    shutil.copytree(tmp_path / "kept", world.root)
    world.little = LittleStore(world.root)
    for number in range(200):
        world.little.send(body=b"other %d" % number)
    world.little.advance(300)
    manifest = (world.backup / MANIFEST_FILE).read_bytes()
    with pytest.raises(StoreError, match="that of the store is another one before that"):
        world.take()
    assert (world.backup / MANIFEST_FILE).read_bytes() == manifest
    world.sound()
    report = world.take(replace=True)
    assert any("is given up (--replace)" in text for text in report.notes)
    world.sound()
    restored = world.restored()
    assert restored.bodies() == bodies(20) + [b"other %d" % number for number in range(200)]
    restored.close()


def test_a_store_that_was_put_back_and_goes_on_is_the_one_that_was_copied(world: World) -> None:
    world.send(500)
    first = world.take()
    restored = world.restored()
    world.little.kill()
    world.root, world.little = world.root.with_name("restored"), restored
    world.send(50)
    second = world.take()
    assert second.copied_bytes < first.copied_bytes / 2, "its log is compared, and not written again"
    world.sound()
    restored.close()


def test_an_older_store_may_count_all_the_same(world: World, tmp_path: Path) -> None:
    world.send(300)
    world.little.kill()
    shutil.copytree(world.root, tmp_path / "kept")
    world.little = LittleStore(world.root)
    world.send(300)
    world.take()
    world.little.kill()
    shutil.rmtree(world.root)
    shutil.move(tmp_path / "kept", world.root)
    with pytest.raises(StoreError, match="the store is older"):
        world.take()
    world.take(replace=True)
    world.sound()
    restored = world.restored()
    assert restored.bodies() == bodies(300)
    restored.close()


def flip(place: Path, at: int = 100) -> None:
    content = bytearray(place.read_bytes())
    content[at] ^= 1
    place.write_bytes(content)


def test_what_a_look_found_damaged_is_copied_anew(world: World) -> None:
    """Files that are full and one that grows, small ones, and one that is gone; what is sound is not copied again."""
    world.send(500)
    (world.root / "config").mkdir(exist_ok=True)
    (world.root / "config" / "topics.json").write_text('{"a": "' + "x" * 200 + '"}')
    (world.root / "config" / "other.json").write_text("{}")
    first = world.take()
    store = world.backup / "store"
    logs = sorted(path.name for path in (store / "commitlog").iterdir())
    flip(store / "commitlog" / logs[1])
    flip(store / "commitlog" / logs[-1])
    flip(store / "config" / "topics.json")
    (store / "config" / "other.json").unlink()
    damaged = {f"commitlog/{logs[1]}", f"commitlog/{logs[-1]}", "config/topics.json", "config/other.json"}
    world.send(1)
    assert set(verify_backup(OsFiles(), world.backup).damaged) == damaged
    assert set(verify_backup(OsFiles(), world.backup).damaged) == damaged, "also when it is asked again"
    second = world.take()
    assert second.copied_bytes < first.copied_bytes / 2
    world.sound()
    manifest = decode_manifest((world.backup / MANIFEST_FILE).read_bytes())
    assert not any(file.is_damaged for file in manifest.files.values())
    restored = world.restored()
    assert restored.bodies() == bodies(501)
    restored.close()


def test_what_lies_among_tables_and_cannot_be_copied_is_named(world: World) -> None:
    """A name that is no text, and a pipe, of which a read would never end."""
    world.send(5)
    config = world.root / "config"
    config.mkdir(exist_ok=True)
    strange = os.fsdecode(b"caf\xe9.json")
    (config / strange).write_text("{}")
    (world.root / strange).write_text("{}")
    os.mkfifo(config / "pipe")
    notes = world.take().notes
    assert "config/caf\\xe9.json is left out: its name is no UTF-8" in notes
    assert "config/pipe is left out: it is no file" in notes
    assert "caf\\xe9.json is left out: a backup knows nothing of it" in notes
    world.sound()


def test_a_full_disk_leaves_the_earlier_backup(world: World) -> None:
    world.send(100)
    before = world.take()
    world.send(300)
    left = 3

    def fill(path: Path) -> None:
        nonlocal left
        if path.is_relative_to(world.backup):
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="no room left"):
        world.take(Meddling(fill))
    assert not (world.backup / "new").exists()
    report = verify_backup(OsFiles(), world.backup)
    assert (report.damaged, report.log_end) == ([], before.log_end)
    restored = world.restored()
    assert restored.bodies() == bodies(100)
    restored.close()
    world.take()
    world.sound()


@pytest.mark.parametrize("at", range(0, 30, 4))
def test_a_run_that_is_killed_anywhere_leaves_one_or_the_other(world: World, at: int) -> None:
    world.send(60)
    first = world.take()
    world.send(60)

    class Killed(BaseException):
        pass

    class Failing(OsFiles):
        __slots__ = ()
        left = at

        def rename(self, source: Path, target: Path) -> None:
            Failing.left -= 1
            if Failing.left < 0:
                raise Killed
            super().rename(source, target)

    try:
        world.take(Failing())
    except Killed:
        report = verify_backup(OsFiles(), world.backup)
        assert report.damaged == []
        assert report.log_end >= first.log_end
        assert not (world.backup / NEXT_FILE).exists()
    restored = world.restored()
    assert restored.bodies() in (bodies(60), bodies(120))
    restored.close()
    world.take()
    world.sound()


@pytest.mark.parametrize("at", range(0, 30, 4))
def test_a_disk_that_is_full_anywhere_leaves_one_or_the_other(world: World, at: int) -> None:
    """Also while files come to their places, where folders of new queues are made."""
    world.send(60)
    first = world.take()
    world.send(60)

    class Full(OsFiles):
        __slots__ = ()
        left = at

        def rename(self, source: Path, target: Path) -> None:
            Full.left -= 1
            if Full.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().rename(source, target)

    said = ""
    try:
        world.take(Full())
    except StoreError as error:
        said = str(error)
    if said:
        is_decided = (world.backup / NEXT_FILE).exists()
        assert "no room left" in said
        assert ("everything is copied" in said) is is_decided
        report = verify_backup(OsFiles(), world.backup)
        assert report.damaged == []
        assert (report.log_end > first.log_end) is is_decided
    restored = world.restored()
    assert restored.bodies() in (bodies(60), bodies(120))
    restored.close()
    world.take()
    world.sound()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_place_that_is_not_for_a_backup_is_refused(world: World, tmp_path: Path) -> None:
    world.send(1)
    for place, why in (
        (world.root / "inside", "lies in the store"),
        (world.root, "lies in the store"),
        (tmp_path, "the store lies in"),
    ):
        with pytest.raises(StoreError, match=why):
            take_backup(OsFiles(), SystemClock(), world.root, place)
    log = tmp_path / "log"
    log.mkdir()
    with pytest.raises(StoreError, match="lies in the store"):
        take_backup(OsFiles(), SystemClock(), world.root, log / "inside", commit_log=log)
    (world.backup / "commitlog").mkdir(parents=True)
    with pytest.raises(StoreError, match="is a store, not a backup"):
        world.take()
    (world.backup / "commitlog").rename(world.backup / "notes")
    with pytest.raises(StoreError, match="is not empty, and holds no backup"):
        world.take()


def test_two_runs_at_once_are_refused(world: World) -> None:
    world.send(1)
    other = BackupDirectory.open(OsFiles(), world.backup, create=True)
    with pytest.raises(StoreLockedError, match="another backup"):
        world.take()
    other.close()
    world.take()


def test_another_store_is_refused_and_so_is_an_older_one(world: World) -> None:
    world.send(50)
    world.little.kill()
    shutil.copytree(world.root, world.root.with_name("older"))
    world.little = LittleStore(world.root)
    world.send(50)
    world.take()
    with pytest.raises(StoreError, match="the store is older"):
        take_backup(OsFiles(), SystemClock(), world.root.with_name("older"), world.backup)
    (world.root / "orbitmq.id").write_text(ID[::-1])
    with pytest.raises(StoreError, match="it is of the store"):
        world.take()


def test_a_log_that_is_not_there_takes_none_from_the_backup(world: World) -> None:
    """Its disk is not mounted, or --commit-log was forgotten."""
    world.send(200)
    world.take()
    world.little.close()
    log = world.root / "commitlog"
    log.rename(world.root.with_name("log"))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"was written up to \d+, and the files in .*commitlog end at 0"):
            world.take()
        log.mkdir(exist_ok=True)
    world.sound()
    take_backup(OsFiles(), SystemClock(), world.root, world.backup, commit_log=world.root.with_name("log"))
    world.sound()
    newest = max(world.root.with_name("log").iterdir())
    newest.unlink()
    with pytest.raises(StoreError, match=f"end at {int(newest.name)}"):
        take_backup(OsFiles(), SystemClock(), world.root, world.backup, commit_log=world.root.with_name("log"))


def test_a_log_that_goes_away_meanwhile_takes_none_from_the_backup(world: World) -> None:
    world.send(200)
    world.take()
    log = world.root / "commitlog"

    def unmount(path: Path) -> None:
        if path.name == "orbitmq.led" and log.exists():
            log.rename(world.root.with_name("log"))
            log.mkdir()

    with pytest.raises(StoreError, match="was written up to"):
        world.take(Meddling(unmount))
    world.sound()


def test_a_store_without_messages_comes_back_as_well(world: World) -> None:
    world.take()
    restored = world.restored()
    assert restored.bodies() == []
    restored.close()


def test_a_store_that_goes_away_meanwhile_is_refused(world: World) -> None:
    world.send(50)
    world.take()

    def remove(path: Path) -> None:
        if path.name == "orbitmq.led" and world.root.exists():
            world.root.rename(world.root.with_name("elsewhere"))

    with pytest.raises(StoreError, match="is gone"):
        world.take(Meddling(remove))
    assert verify_backup(OsFiles(), world.backup).damaged == []


def test_a_backup_on_which_a_broker_was_started_is_refused(world: World) -> None:
    world.send(5)
    world.take()
    LittleStore(world.backup / "store").close()
    with pytest.raises(StoreError, match="a broker was started"):
        world.take()


def test_what_is_left_out_is_named(world: World) -> None:
    world.send(5)
    (world.root / "notes.txt").write_text("of an operator")
    (world.root / "orbitmq.far").write_text("state")
    notes = world.take().notes
    assert any("notes.txt is left out" in text for text in notes)
    assert any("timerFarUrl" in text for text in notes)


def test_nobody_else_reads_a_backup_in_a_directory_that_was_there(world: World) -> None:
    world.send(5)
    world.backup.mkdir(mode=0o755)

    def look(path: Path) -> None:
        if path.is_relative_to(world.backup / "new"):
            assert (world.backup / "new").stat().st_mode & 0o777 == 0o700

    world.take(Meddling(look))
    assert (world.backup / "store").stat().st_mode & 0o777 == 0o700


def test_private_files_stay_private(world: World) -> None:
    world.send(5)
    secret = world.root / "config" / "orbitmq-access.json"
    secret.write_text("{}")
    secret.chmod(0o600)
    world.take()
    restore_backup(OsFiles(), world.backup, world.root.with_name("restored"))
    for root in (world.backup / "store", world.root.with_name("restored")):
        assert (root / "config" / secret.name).stat().st_mode & 0o777 == 0o600
    manifest = decode_manifest((world.backup / MANIFEST_FILE).read_bytes())
    assert [path for path, file in manifest.files.items() if file.is_private] == ["config/orbitmq-access.json"]
