"""Where the queues stood is believed of files that nobody touched, and of no others."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import SMALL, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.store import files as files_module
from orbitmq.store import opening
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import Fingerprint, OsFiles
from orbitmq.store.known_queues import QUEUES_FILE
from orbitmq.store.mark import MARK_FILE

START_MS = 1_000_000
PLACES = [("A", 0), ("A", 1), ("B", 0)]
UNITS_A_FILE = SMALL.mapped_file_size_consume_queue // 20

Bodies = dict[tuple[str, int], list[bytes]]


def opened(root: Path, **more: Any) -> LittleStore:
    return LittleStore(root, clock=ManualClock(START_MS), **more)


def send(little: LittleStore, count: int, word: str) -> None:
    for number in range(count):
        for topic, queue_id in PLACES:
            little.send(topic, queue_id, f"{word}{number}".encode())


def bodies(little: LittleStore) -> Bodies:
    return {place: little.bodies(*place) for place in PLACES}


def stopped(root: Path, count: int = 5, word: str = "a") -> Bodies:
    """A store with some messages in each queue, after an orderly stop."""
    little = opened(root)
    send(little, count, word)
    found = bodies(little)
    little.close()
    return found


def queue_file(root: Path, topic: str = "A", queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def standing(little: LittleStore) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        place: (queue.min_offset, queue.max_offset, queue.max_physical)
        for place, queue in little.store.queues.known.items()
    }


def test_queues_that_nobody_touched_are_not_looked_at(tmp_path: Path) -> None:
    sent = stopped(tmp_path)
    for round_number in range(2):
        little = opened(tmp_path)
        assert little.store.queues.searched_count == 0
        assert bodies(little) == sent
        if round_number:
            little.send("A", 0, b"more")
            assert little.bodies("A", 0) == [*sent["A", 0], b"more"]
        little.close()


def test_what_is_known_is_what_a_look_finds(tmp_path: Path) -> None:
    """Over files that follow each other, also when the last is full, and when the first records have left the log."""
    stopped(tmp_path, UNITS_A_FILE)
    for count in (1, UNITS_A_FILE):
        little = opened(tmp_path)
        searched = little.store.queues.searched_count
        assert searched == (len(PLACES) if count == 1 else 0), "of a full file nobody knows whether another follows"
        send(little, count, "b")
        if count > 1:
            little.store.remove_paths(little.store.drop_first_segments(1))
            little.worker.close()
        little.close()
    taken_up = opened(tmp_path)
    assert taken_up.store.queues.searched_count == 0
    known = standing(taken_up)
    assert known["A", 0][0] > 0, "some messages expired"
    taken_up.close()
    (tmp_path / QUEUES_FILE).unlink()
    looked_at = opened(tmp_path)
    assert looked_at.store.queues.searched_count == len(PLACES)
    assert standing(looked_at) == known
    looked_at.close()


# --- what was changed in between ------------------------------------------------------------------------------------


def zero_last_unit(root: Path) -> None:
    with queue_file(root).open("r+b") as file:
        file.seek(4 * 20)
        file.write(bytes(20))


def add_a_unit(root: Path) -> None:
    with queue_file(root).open("r+b") as file:
        unit = file.read(20)
        file.seek(5 * 20)
        file.write(unit)


def remove_file(root: Path) -> None:
    queue_file(root).unlink()


def remove_queue(root: Path) -> None:
    shutil.rmtree(queue_file(root).parent)


def remove_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "A")


def exchange_queues(root: Path) -> None:
    """Both have one size and nearly one time, and their files are the old ones."""
    first, second, aside = queue_file(root), queue_file(root, "B"), root / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def remake_topic_with_old_times(root: Path) -> None:
    """A copy with the times of the original, of which only the times of change tell."""
    topic, copy = root / "consumequeue" / "A", root / "consumequeue" / "copy"
    shutil.copytree(topic, copy, copy_function=shutil.copy2)
    shutil.rmtree(topic)
    copy.rename(topic)
    status = queue_file(root).stat()
    zero_last_unit(root)
    os.utime(queue_file(root), ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [zero_last_unit, add_a_unit, remove_file, remove_queue, remove_topic, exchange_queues, remake_topic_with_old_times],
)
def test_a_queue_that_was_changed_by_hand_is_looked_at(tmp_path: Path, change: Callable[[Path], None]) -> None:
    sent = stopped(tmp_path)
    change(tmp_path)
    little = opened(tmp_path)
    assert bodies(little) == sent, "made from the log, or found as it was"
    send(little, 1, "later")
    little.close()
    last = opened(tmp_path)
    assert bodies(last) == {place: [*found, b"later0"] for place, found in sent.items()}
    last.close()


def test_an_older_queue_file_put_back_is_looked_at(tmp_path: Path) -> None:
    sent = stopped(tmp_path)
    backup = tmp_path / "backup"
    shutil.copy2(queue_file(tmp_path), backup)
    little = opened(tmp_path)
    send(little, 3, "b")
    sent = bodies(little)
    little.close()
    shutil.copy2(backup, queue_file(tmp_path))
    again = opened(tmp_path)
    assert bodies(again) == sent
    again.close()


@pytest.mark.parametrize("with_mark", [False, True], ids=["alone", "with the mark and the checkpoint"])
def test_an_older_file_of_ours_put_back_does_not_count_for_what_changed(tmp_path: Path, with_mark: bool) -> None:
    """The longer queue is read to its end, and the untouched one need not be looked at."""
    stopped(tmp_path)
    names = [QUEUES_FILE, *([MARK_FILE, "checkpoint"] if with_mark else [])]
    old = {name: (tmp_path / name).read_bytes() for name in names}
    little = opened(tmp_path)
    for number in range(4):
        little.send("A", 0, b"longer%d" % number)
    sent = bodies(little)
    little.close()
    for name, content in old.items():
        (tmp_path / name).write_bytes(content)
    again = opened(tmp_path)
    assert bodies(again) == sent
    assert again.store.queues.searched_count == 1
    again.close()


def test_a_topic_that_was_deleted_and_made_again_is_not_the_old_one(tmp_path: Path) -> None:
    sent = stopped(tmp_path)
    old = (tmp_path / QUEUES_FILE).read_bytes()
    little = opened(tmp_path)
    little.store.delete_topic("A")
    little.worker.close()
    little.send("A", 0, b"new")
    little.close()
    (tmp_path / QUEUES_FILE).write_bytes(old)
    again = opened(tmp_path)
    assert again.bodies("A", 0) == [b"new"]
    assert again.store.queues.get("A", 1) is None
    assert again.bodies("B", 0) == sent["B", 0]
    again.close()


def test_a_store_that_another_program_had_is_looked_at(tmp_path: Path) -> None:
    sent = stopped(tmp_path)
    page = tmp_path / "checkpoint"
    other = Checkpoint.decode(page.read_bytes()).physic_msg_timestamp + 1
    page.write_bytes(Checkpoint(other, other).encode())
    little = opened(tmp_path)
    assert little.store.queues.searched_count == len(PLACES)
    assert bodies(little) == sent
    little.close()


def test_a_file_that_lies_where_a_queue_goes_on_is_not_read(tmp_path: Path) -> None:
    """Nobody looks into the directory of a queue whose files are as they were."""
    stopped(tmp_path, UNITS_A_FILE - 1)
    first = queue_file(tmp_path)
    stale = first.with_name(f"{SMALL.mapped_file_size_consume_queue:020d}")
    stale.write_bytes(first.read_bytes())
    little = opened(tmp_path)
    assert little.store.queues.searched_count == 0
    for number in range(3):
        little.send("A", 0, b"on%d" % number)
    sent = bodies(little)
    little.store.queues.write()
    assert not any(stale.read_bytes()[2 * 20 :])
    little.kill()
    again = opened(tmp_path)
    assert bodies(again) == sent
    again.close()


# --- kills, power failures ------------------------------------------------------------------------------------------


def test_after_a_kill_the_queues_that_were_used_are_looked_at(tmp_path: Path) -> None:
    stopped(tmp_path)
    little = opened(tmp_path)
    little.send("A", 1, b"written")
    little.advance(300)
    little.send("A", 1, b"in no queue file")
    sent = bodies(little)
    little.kill()
    again = opened(tmp_path)
    assert again.store.queues.searched_count == 1
    assert bodies(again) == sent
    again.close()


class Listing(OsFiles):
    """Notes which directories were listed."""

    def __init__(self) -> None:
        self.listed: list[str] = []

    def list_dir(self, path: Path) -> list[str]:
        self.listed.append(path.name)
        return super().list_dir(path)


@pytest.mark.parametrize("more", [1, 5], ids=["in its file", "in another file"])
def test_the_directory_of_a_queue_that_was_used_is_listed_when_it_has_another_file(tmp_path: Path, more: int) -> None:
    stopped(tmp_path, UNITS_A_FILE - 2)
    little = opened(tmp_path)
    for number in range(more):
        little.send("A", 1, b"more%d" % number)
    little.advance(300)
    sent = bodies(little)
    little.kill()
    files = Listing()
    again = opened(tmp_path, files=files)
    assert again.store.queues.searched_count == 1
    assert files.listed.count("1") == (more > 1)
    assert "consumequeue" not in files.listed
    assert "A" not in files.listed
    assert bodies(again) == sent
    again.close()


def test_after_a_power_failure_every_queue_is_looked_at(tmp_path: Path) -> None:
    sent = stopped(tmp_path)
    for boot, clean in (("first boot", False), ("second boot", False), ("second boot", True), ("third boot", True)):
        files = RecordingFiles(OsFiles(), tmp_path, boot=boot)
        little = opened(tmp_path, files=files)
        expected = 0 if clean else len(PLACES)
        assert little.store.queues.searched_count == (0 if boot == "first boot" else expected), boot
        assert bodies(little) == sent
        if boot == "second boot" or clean:
            little.close()
        else:
            little.kill()


def test_a_start_that_looked_at_many_queues_writes_down_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SEARCHED_QUEUES", len(PLACES))
    little = opened(tmp_path)
    send(little, 5, "a")
    little.advance(300)
    little.kill()
    second = opened(tmp_path)
    assert second.store.queues.searched_count == len(PLACES)
    second.kill()
    third = opened(tmp_path)
    assert third.store.queues.searched_count == 0
    third.kill()
    other_boot = opened(tmp_path, files=RecordingFiles(OsFiles(), tmp_path, boot="another boot"))
    assert other_boot.store.queues.searched_count == len(PLACES)
    other_boot.close()


# --- the file itself ------------------------------------------------------------------------------------------------


def test_a_damaged_file_never_changes_what_is_read(tmp_path: Path) -> None:
    sent = stopped(tmp_path)
    content = (tmp_path / QUEUES_FILE).read_bytes()
    chosen = random.Random(1)
    damaged = [content[:end] for end in (0, 4, 8, 30, len(content) // 2, len(content) - 1)]
    for at in chosen.sample(range(len(content)), 16):
        damaged.append(content[:at] + bytes([content[at] ^ 1 << chosen.randrange(8)]) + content[at + 1 :])
    for bad in damaged:
        (tmp_path / QUEUES_FILE).write_bytes(bad)
        little = opened(tmp_path)
        assert bodies(little) == sent
        assert little.store.queues.searched_count == len(PLACES)
        little.kill()


def test_a_file_that_cannot_be_written_costs_the_next_start_only(tmp_path: Path) -> None:
    def plan(call: Any) -> OSError | None:
        return OSError(28, "full") if call.path.name.startswith(QUEUES_FILE) else None

    files = RecordingFiles(OsFiles(), tmp_path, plan=plan)
    little = opened(tmp_path, files=files)
    send(little, 5, "a")
    sent = bodies(little)
    little.close()
    assert not (tmp_path / "abort").exists()
    again = opened(tmp_path)
    assert (again.store.queues.searched_count, bodies(again)) == (len(PLACES), sent)
    again.close()


def test_a_file_system_that_counts_in_seconds_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = stopped(tmp_path)
    monkeypatch.setattr(files_module, "COARSE_CLOCK_NS", 1)  # every time is a multiple of it
    little = opened(tmp_path)
    assert (little.store.queues.searched_count, bodies(little)) == (len(PLACES), sent)
    little.close()


class Careless(OsFiles):
    """Planted bug: what became of a file is not seen."""

    def fingerprint(self, place: str) -> Fingerprint | None:
        found = super().fingerprint(place)
        return None if found is None else (1, 1, found[2])


def test_fingerprints_that_see_nothing_are_found_out_by_these_tests(tmp_path: Path) -> None:
    files = Careless()
    little = opened(tmp_path, files=files)
    send(little, 5, "a")
    sent = bodies(little)
    little.close()
    zero_last_unit(tmp_path)
    again = opened(tmp_path, files=files)
    with pytest.raises(AssertionError):
        assert bodies(again) == sent
    again.kill()
