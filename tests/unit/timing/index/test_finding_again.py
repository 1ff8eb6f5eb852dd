"""What the index lacks is found again from the records: nobody's message is lost or late for it, and questions wait."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.little_store import LITTLE_WHEEL, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import JobRefusedError, TimerIndexIncompleteError
from orbitmq.store.check import check_store
from orbitmq.store.files import OsFiles
from orbitmq.timing.index import directory, timer_index, upkeep
from orbitmq.timing.index.directory import INDEX_DIRECTORY, MANIFEST, Manifest
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.run_format import COLUMNS
from orbitmq.timing.index.search import IndexQuery
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.rocketmq.wheel import SLOT_COUNT

SHAPE = IndexShape(capacity=64, carried=0, small=8)
COUNT = 300
TOLD = "the timer index collects timers"


class SlowClock(ManualClock):
    """Every look at it takes half a millisecond: work that is bounded by time ends early."""

    __slots__ = ()

    def monotonic_ns(self) -> int:
        self._monotonic_ns += 500_000
        return self._monotonic_ns


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowClock:
    """The clock of a machine on which little is found again at a time."""
    monkeypatch.setattr(timer_index, "START_NS", 0)
    monkeypatch.setattr(upkeep, "RECORDS_PER_STEP", 4)
    return SlowClock()


def due_after_ms(number: int) -> int:
    """Spread over thirty seconds, in another order than that of arrival."""
    return 20_000 + number * 7_919 % COUNT * 100


def filled(root: Path, clock: ManualClock, **options: object) -> LittleStore:
    little = LittleStore(root, clock=clock, index=SHAPE, **options)  # type: ignore[arg-type]
    for number in range(COUNT):
        little.append(body=b"%d" % number, after_ms=due_after_ms(number), UNIQ_KEY=f"u{number}", KEYS=f"k{number}")
    little.store.commit()
    little.timers.index.work_off()
    little.advance(6_000)
    assert len(little.timers.index.parts.runs) == COUNT // 64
    return little


def play(little: LittleStore, seconds: int, late_ms_max: int) -> None:
    """Let everything come, and judge it."""
    for _ in range(seconds * 2):
        little.clock.advance(500)
        for _ in range(8):
            little.turn()
            little.worker.close()
    assert sorted(map(int, little.bodies())) == list(range(COUNT))
    assert little.timers.pending_count == 0
    for record, properties in zip(little.records(), little.properties(), strict=True):
        assert 0 <= record.store_timestamp - int(properties["TIMER_DELIVER_MS"]) <= late_ms_max


def lose_all(root: Path) -> None:
    shutil.rmtree(root / INDEX_DIRECTORY)


def lose_manifest(root: Path) -> None:
    (root / INDEX_DIRECTORY / MANIFEST).unlink()


def lose_a_run(root: Path) -> None:
    min((root / INDEX_DIRECTORY).glob("*.run")).unlink()


def lose_the_journal(root: Path) -> None:
    for path in (root / INDEX_DIRECTORY).glob("*.journal"):
        path.unlink()


def cut_a_run(root: Path) -> None:
    path = min((root / INDEX_DIRECTORY).glob("*.run"))
    path.write_bytes(path.read_bytes()[:100])


LOSSES = [lose_all, lose_manifest, lose_a_run, lose_the_journal, cut_a_run]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
def test_whatever_is_lost_every_message_comes_in_its_time(
    tmp_path: Path,
    clock: ManualClock,
    lose: Callable[[Path], None],
    end: Callable[[LittleStore], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    little = filled(tmp_path, clock)
    end(little)
    lose(tmp_path)
    with caplog.at_level(logging.INFO):
        again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    assert TOLD in caplog.text
    again.worker.close()
    assert [one.queue_offset for one in again.timers.index.find_id("Topic", "u7")] == [7]
    play(again, 50, 500)
    again.close()


def test_runs_of_a_broker_that_was_killed_before_its_first_save_are_no_damage(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The journals hold what they hold."""
    little = LittleStore(tmp_path, clock=clock, index=SHAPE)
    for number in range(COUNT):
        little.append(body=b"%d" % number, after_ms=due_after_ms(number))
    little.store.commit()
    little.timers.index.work_off()
    little.kill()
    assert list((tmp_path / INDEX_DIRECTORY).glob("*.run"))
    assert not (tmp_path / INDEX_DIRECTORY / MANIFEST).exists()
    again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    play(again, 50, 500)
    again.close()


def test_nothing_is_collected_where_nothing_is_pending(
    tmp_path: Path, slow: SlowClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Cancel records of clients wait for nothing themselves."""
    little = LittleStore(tmp_path, clock=slow, index=SHAPE)
    for number in range(COUNT):
        little.append(after_ms=60_000, UNIQ_KEY=f"u{number}", TIMER_DEL_UNIQKEY=f"Topic+u{number}")
    little.store.commit()
    little.close()
    with caplog.at_level(logging.INFO):
        again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    assert again.timers.next_offset == COUNT
    assert again.timers.index.is_complete
    assert TOLD not in caplog.text
    again.close()


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("down_ms", [0, 200_000])
def test_while_it_is_found_again_what_falls_due_leaves(
    tmp_path: Path, slow: SlowClock, lose: Callable[[Path], None], down_ms: int
) -> None:
    """It is found piece by piece while the horizon of what is near moves on."""
    filled(tmp_path, slow).close()
    lose(tmp_path)
    slow.advance(down_ms)
    again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    assert not again.timers.index.is_complete
    play(again, 60, down_ms + 20_000)
    again.close()


def test_questions_are_refused_meanwhile_and_nothing_is_called_delivered(tmp_path: Path, slow: SlowClock) -> None:
    filled(tmp_path, slow).close()
    lose_all(tmp_path)
    again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    timers, index = again.timers, again.timers.index
    assert not index.is_complete
    for question in (
        lambda: index.find_id("Topic", "u7"),
        lambda: index.find_key("Topic", "k"),
        lambda: index.page(IndexQuery()),
        index.counts,
    ):
        with pytest.raises(TimerIndexIncompleteError, match="being made ready"):
            question()
    assert timers.pending_count == COUNT
    assert timers.delivered_until_ms == 0
    assert timers.next_due_ms is not None
    assert timers.next_due_ms <= slow.now_ms()
    for _ in range(2_000):
        again.turn()
    assert index.counts().pending == COUNT
    assert timers.next_due_ms <= slow.now_ms() + min(map(due_after_ms, range(COUNT)))
    again.close()


def test_a_refused_question_says_how_much_is_left(tmp_path: Path, slow: SlowClock) -> None:
    filled(tmp_path, slow).close()
    lose_all(tmp_path)
    again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    told: list[int] = []
    while not again.timers.index.is_complete:
        with pytest.raises(
            TimerIndexIncompleteError, match=rf"made ready: \d+ of {COUNT} are still to be read"
        ) as raised:
            again.timers.index.page(IndexQuery())
        told.append(int(str(raised.value).split("ready: ")[1].split()[0]))
        again.turn()
    assert told == sorted(told, reverse=True)
    assert len(set(told)) > COUNT // 10, "it is told of each step"
    again.close()


def test_a_slot_that_was_counted_meanwhile_is_counted_anew(tmp_path: Path, slow: SlowClock) -> None:
    """Admission asks for it, and counts what comes and goes from then on."""
    little = filled(tmp_path, slow)
    slot_ms = (slow.now_ms() + 30_000) // 1_000 * 1_000
    expected = little.timers.slot_count(slot_ms)
    assert expected >= 3
    little.close()
    lose_all(tmp_path)
    again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    assert again.timers.slot_count(slot_ms) < expected
    for _ in range(2_000):
        again.turn()
    assert again.timers.slot_count(slot_ms) == expected
    again.close()


def test_a_stop_meanwhile_leaves_nothing_for_rocketmq(tmp_path: Path, slow: SlowClock) -> None:
    """It would not know of what was not found."""
    filled(tmp_path, slow).close()
    lose_all(tmp_path)
    again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    assert not again.timers.index.is_complete
    again.close()
    assert again.exchange.is_fenced
    third = LittleStore(tmp_path, clock=slow, index=SHAPE)
    play(third, 50, 500)
    third.close()
    assert not third.exchange.is_fenced


@pytest.mark.parametrize("steps", range(0, 60, 7))
def test_a_kill_meanwhile_begins_anew(tmp_path: Path, slow: SlowClock, steps: int) -> None:
    filled(tmp_path, slow).close()
    lose_all(tmp_path)
    again = LittleStore(tmp_path, clock=slow, index=SHAPE)
    for _ in range(steps):
        again.turn()
    again.kill()
    third = LittleStore(tmp_path, clock=slow, index=SHAPE)
    play(third, 50, 500)
    third.close()


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(root: Path, column: str, *, last: bool = False) -> None:
    """Change a byte of a column of the oldest run, of its first or its last number."""
    path = min((root / INDEX_DIRECTORY).glob("*.run"))
    view, described = Run(OsFiles(), path).columns[COLUMNS.index(column)]
    content = bytearray(path.read_bytes())
    content[described.begin + (view.nbytes - view.itemsize if last else 0)] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("last", [False, True])
def test_a_run_with_a_damaged_column_is_found_again(
    tmp_path: Path, clock: ManualClock, column: str, last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, clock).close()
    damaged(tmp_path, column, last=last)
    again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    play(again, 50, 500)
    assert "collected from the log again" in caplog.text
    assert again.timers.index.is_complete
    again.close()


@pytest.mark.parametrize("column", COLUMNS)
def test_nothing_is_answered_by_a_run_that_was_not_checked(tmp_path: Path, clock: ManualClock, column: str) -> None:
    filled(tmp_path, clock).close()
    damaged(tmp_path, column)
    again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    index = again.timers.index
    with pytest.raises(TimerIndexIncompleteError, match="4 of 4 files are still to be checked"):
        index.page(IndexQuery(limit=COUNT))
    with pytest.raises(TimerIndexIncompleteError):
        index.find_id("Topic", "u7")
    with pytest.raises(TimerIndexIncompleteError):
        index.counts()
    again.settle()
    assert len(index.page(IndexQuery(limit=COUNT)).candidates) == index.counts().pending == COUNT
    again.close()


def test_a_check_that_cannot_be_run_calls_nothing_damaged(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, clock).close()
    again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    again.worker.is_full = True
    again.worker.jobs[:] = [(_refused, done) for _, done in again.worker.jobs]
    again.settle()
    assert "could not be checked" in caplog.text
    assert not again.timers.index.is_ready
    again.worker.is_full = False
    again.advance(6_000)
    again.settle()
    assert again.timers.index.is_ready
    assert again.timers.index.parts.trouble_count == 0
    again.close()


def _refused() -> None:
    raise JobRefusedError("no place for the job")


@pytest.mark.parametrize("column", ["due", "offset"])
def test_nothing_is_left_to_rocketmq_by_a_run_that_was_not_checked(
    tmp_path: Path, clock: ManualClock, column: str
) -> None:
    wheel = {**LITTLE_WHEEL, "slot_count": SLOT_COUNT}  # as the tools expect it
    filled(tmp_path, clock, wheel=wheel).close()
    damaged(tmp_path, column, last=True)
    stopped_at_once = LittleStore(tmp_path, clock=clock, index=SHAPE, wheel=wheel)
    stopped_at_once.close()
    assert stopped_at_once.exchange.is_fenced
    handed_over = LittleStore(tmp_path, clock=clock, index=SHAPE, wheel=wheel)
    handed_over.timers.find_all()
    handed_over.close()
    assert not handed_over.exchange.is_fenced
    assert [str(finding) for finding in check_store(tmp_path, OsFiles(), timers=check_timers).findings] == []


def test_a_run_that_is_found_damaged_while_it_is_left_to_rocketmq_keeps_the_store_ours(
    tmp_path: Path, clock: ManualClock
) -> None:
    """What it held is not among what was told."""
    filled(tmp_path, clock).close()
    again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    run = min(again.timers.index.parts.runs, key=lambda run: run.base_offset)
    run._topic_of = [99] * len(run)  # as a page that went bad since it was checked
    again.close()
    assert again.exchange.is_fenced
    third = LittleStore(tmp_path, clock=clock, index=SHAPE)
    play(third, 50, 500)
    third.close()


def test_what_is_in_memory_already_is_not_delivered_twice_when_its_run_is_found_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    little = filled(tmp_path, clock)
    soon = little.timers._soon.count
    assert 0 < soon < COUNT
    for run in list(little.timers.index.parts.runs):
        little.timers.index._forget(run, "planned")
    little.timers.index.work_off()
    assert little.timers._soon.count > soon
    play(little, 50, 500)
    little.close()


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
def test_an_index_of_an_earlier_version_is_collected_once(
    tmp_path: Path, clock: ManualClock, end: Callable[[LittleStore], None], caplog: pytest.LogCaptureFixture
) -> None:
    end(filled(tmp_path, clock))
    path = tmp_path / INDEX_DIRECTORY / MANIFEST
    manifest = directory._decode(path.read_bytes())
    assert manifest is not None
    assert manifest.version == 2
    older = Manifest(manifest.runs, manifest.missing, manifest.covered, manifest.journals_from)
    assert older.version == 1
    path.write_bytes(directory._encode(older))
    old_runs = {run.name for run in path.parent.glob("*.run")}
    with caplog.at_level(logging.INFO):
        again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    assert "is of an earlier version" in caplog.text
    assert f"{TOLD} 0 to {COUNT - 1}" in caplog.text
    assert not old_runs & {run.name for run in path.parent.glob("*.run")}
    again.advance(6_000)
    again.kill()
    caplog.clear()
    third = LittleStore(tmp_path, clock=clock, index=SHAPE)
    assert TOLD not in caplog.text
    play(third, 50, 500)
    third.close()


def test_a_start_of_an_earlier_version_that_is_cut_short_begins_anew(tmp_path: Path, slow: SlowClock) -> None:
    filled(tmp_path, slow).close()
    path = tmp_path / INDEX_DIRECTORY / MANIFEST
    path.write_bytes(directory._encode(Manifest()))
    for turns in (3, 40):
        again = LittleStore(tmp_path, clock=slow, index=SHAPE)
        for _ in range(turns):
            again.turn()
        again.kill()
    third = LittleStore(tmp_path, clock=slow, index=SHAPE)
    play(third, 50, 500)
    third.close()


def test_no_new_run_takes_the_number_of_one_that_is_lost(tmp_path: Path, clock: ManualClock) -> None:
    """A start that is cut short before it has saved leaves a manifest that lists the lost one."""
    filled(tmp_path, clock).close()
    max((tmp_path / INDEX_DIRECTORY).glob("*.run")).unlink()
    lose_a_run(tmp_path)
    lose_the_journal(tmp_path)
    again = LittleStore(tmp_path, clock=clock, index=SHAPE)
    again.timers.index.work_off()
    again.kill()
    third = LittleStore(tmp_path, clock=clock, index=SHAPE)
    play(third, 50, 500)
    third.close()


def test_what_is_not_believed_stays_until_a_save_lists_it_no_more(tmp_path: Path, clock: ManualClock) -> None:
    """The index knows of more than the log holds; a start that finds it out is cut short before it has saved."""
    root, early = tmp_path / "store", tmp_path / "early"
    filled(root, clock).kill()
    shutil.copytree(root, early)
    little = LittleStore(root, clock=clock, index=SHAPE)
    for number in range(COUNT, COUNT + 100):
        little.append(body=b"%d" % number, after_ms=60_000)
    little.store.commit()
    little.timers.index.work_off()
    little.advance(6_000)
    little.close()
    lose_all(early)
    shutil.copytree(root / INDEX_DIRECTORY, early / INDEX_DIRECTORY)
    for _ in range(2):
        again = LittleStore(early, clock=clock, index=SHAPE)
        assert again.timers.index.parts.trouble_count == 0
        again.kill()
    again = LittleStore(early, clock=clock, index=SHAPE)
    play(again, 50, 500)
    again.close()


# --- power failures ---------------------------------------------------------------------------------------------------


def test_after_a_durable_save_a_power_failure_takes_nothing_of_the_index(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Journals are synced with it, and runs before the manifest lists them."""
    root, left = tmp_path / "store", tmp_path / "left"
    root.mkdir()
    files = RecordingFiles(OsFiles(), root)
    little = filled(root, clock, files=files)
    assert list((root / INDEX_DIRECTORY).glob("*.journal"))
    files.power_cut(left, random.Random(1), keep=0.0)
    little.kill()
    with caplog.at_level(logging.INFO):
        again = LittleStore(left, files=RecordingFiles(OsFiles(), left, boot="another"), clock=clock, index=SHAPE)
    assert TOLD not in caplog.text
    again.worker.close()
    assert again.timers.index.counts().pending == COUNT
    play(again, 50, 500)
    again.close()


def saved_until(root: Path, step: int) -> tuple[RecordingFiles, bool]:
    """A store that is killed at its so-manieth change of a file while it makes runs and saves; and whether it came so far."""
    root.mkdir()
    files = RecordingFiles(OsFiles(), root)
    little = LittleStore(root, files=files, index=SHAPE)
    for number in range(100):
        little.append(body=b"%d" % number, after_ms=due_after_ms(number))
    little.store.commit()
    begun = len(files.calls)

    def plan(call: Call) -> Killed | None:
        return Killed("planned") if call.number == begun + step else None

    files.plan = plan
    try:
        little.timers.index.work_off()
        little.advance(6_000)
        return files, False
    except Killed:
        return files, True
    finally:
        little.kill()


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_power_failure_at_any_call_of_a_save_leaves_nothing_that_has_to_be_disbelieved(
    tmp_path: Path, keep: float
) -> None:
    """What the manifest lists is there, whole; what is not listed is found again."""
    is_cut, step = True, 0
    while is_cut:
        step += 1
        files, is_cut = saved_until(tmp_path / str(step), step)
        left = tmp_path / f"{step}-left"
        files.power_cut(left, random.Random(step), keep=keep)
        again = LittleStore(left, files=RecordingFiles(OsFiles(), left, boot="another"), index=SHAPE)
        again.worker.close()
        assert again.timers.index.parts.trouble_count == 0
        assert again.timers.index.counts().pending == again.timers.pending_count
        again.kill()
    assert step > 10
