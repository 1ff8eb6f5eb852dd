"""An archive on S3: every message once, whatever the storage refuses in between, and an error that says why."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import StoreDamagedError, StoreError, StoreLockedError
from orbitmq.limits.spark import ARCHIVE_STORAGE_TRIES
from orbitmq.spark.pipelines.archiving import upkeep
from orbitmq.spark.pipelines.archiving.archive import archive
from orbitmq.spark.pipelines.archiving.importing import import_archive
from orbitmq.spark.pipelines.archiving.table import ArchiveTable
from orbitmq.spark.pipelines.run import Summary

from ...log_files.little_log import LittleLog
from .object_store import EXPIRED, UNAVAILABLE, VANISHED, Fault, ObjectStore, object_store
from .one_process import OneProcess

PLACE = "s3://lake/archive"
STEP = 10
VECTORS = Path(__file__).parents[4] / "vectors"
VERSION = r"PUT .*_delta_log/\d"


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStore]:
    pytest.importorskip("moto")
    with object_store() as started:
        yield started


@pytest.fixture
def store(storage: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in storage.environment.items():
        monkeypatch.setenv(name, value)
    storage.fresh()
    return storage


class Log:
    """A log that grows by `STEP` messages."""

    def __init__(self, root: Path) -> None:
        self._log = LittleLog(root)
        self.root = root
        self.count = 0

    def grow(self) -> None:
        for _ in range(STEP):
            self._log.add(b"row %d" % self.count)
            self.count += 1
        self._log.write()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log(tmp_path)
    made.grow()
    return made


def run(log: Log) -> Summary:
    session: Any = OneProcess()
    return archive(session, to=PLACE, store=[str(log.root)])


def check(log: Log) -> None:
    """Every message of the log is there once."""
    (count,) = upkeep.counts(PLACE)
    assert (count.rows, count.twice, count.missing) == (log.count, 0, 0)


def test_runs_take_what_is_new_and_upkeep_works(store: ObjectStore, log: Log) -> None:
    for _ in range(3):
        assert run(log).rows_written == STEP
        log.grow()
    run(log)
    assert run(log).rows_written == 0
    check(log)
    assert upkeep.compact(PLACE) == {"files_before": 4, "files_after": 1}
    check(log)


def test_a_commit_asks_six_times(store: ObjectStore, log: Log) -> None:
    """Ours is the list of a day; delta-rs lists the log before and behind its put, and reads the version twice."""
    run(log)
    log.grow()
    before = len(store.requests())
    run(log)
    asked = store.requests()[before:]
    begin = next(at for at, text in enumerate(asked) if "day" in text and text.startswith("GET"))
    end = next(
        at for at, text in enumerate(asked) if text.startswith("GET") and "_last_checkpoint" in text and at > begin
    )
    assert len(asked[begin:end]) <= 6, asked[begin:end]
    opening = [text for text in asked[end:] if text.endswith("/00000000000000000002.json?")]
    assert len(opening) <= 4, "the opening behind it reads the version once for its numbers and its name"


def test_a_batch_that_was_stored_and_is_not_there_is_told(
    store: ObjectStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a put that says that it stored, and did nothing."""
    run(log)
    log.grow()
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveTable, "put", lambda *_: None)
        with pytest.raises(StoreDamagedError, match="version 2 of the archive was stored, and is not there now"):
            run(log)
    assert run(log).rows_written == STEP
    check(log)


def test_a_broken_message_is_in_the_quarantine(store: ObjectStore, log: Log) -> None:
    path = next(log.root.rglob("0*"))
    path.write_bytes(path.read_bytes().replace(b"row 3", b"row X"))
    done = run(log)
    assert (done.rows_written, done.rows_quarantined) == (STEP - 1, 1)
    assert run(log).rows_read == 0
    assert upkeep.vacuum(PLACE, upkeep.ARCHIVE_BATCH_MS_MAX) == []


def test_an_import_that_was_stored_and_is_not_there_is_told(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody opens the table behind it, and its old archive may be deleted: it looks itself."""
    with tarfile.open(VECTORS / "archives" / "before-delta.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveTable, "put", lambda *_: None)
        with pytest.raises(StoreDamagedError, match="version 1 of the archive was stored, and is not there now"):
            import_archive(str(tmp_path / "topics"), PLACE)
    assert import_archive(str(tmp_path / "topics"), PLACE).rows == 13
    assert sum(count.rows for count in upkeep.counts(PLACE)) == 13


def test_two_owners_at_once_store_every_message_once(store: ObjectStore, log: Log) -> None:
    run(log)
    told: list[StoreLockedError] = []

    def own() -> None:
        try:
            run(log)
        except StoreLockedError as error:
            told.append(error)

    for _ in range(2):
        log.grow()
        owners = [threading.Thread(target=own) for _ in range(2)]
        for owner in owners:
            owner.start()
        for owner in owners:
            owner.join()
        check(log)
    assert all("another run archived meanwhile" in str(error) for error in told)


@pytest.mark.parametrize("fault", [EXPIRED, VANISHED], ids=["token expired", "bucket vanished"])
def test_from_whatever_request_on_the_storage_refuses_a_later_run_goes_on(
    store: ObjectStore, log: Log, fault: Fault
) -> None:
    run(log)
    log.grow()
    failures: list[StoreError] = []
    while len(failures) < 100:
        store.fail(fault._replace(begin=len(store.requests()) + 8 * len(failures)))
        try:
            run(log)
            break
        except StoreError as error:
            failures.append(error)
    store.fail(None)
    check(log)
    assert len(failures) > 3
    assert all(PLACE in str(error) and error.remedy for error in failures), failures
    # Of a file that is not there, delta-rs does not tell why.
    assert sum(fault.code in str(error) for error in failures) > len(failures) / 2, failures
    log.grow()
    run(log)
    check(log)


def test_a_version_that_may_not_be_put_is_not_tried_for_long(store: ObjectStore, log: Log) -> None:
    run(log)
    log.grow()
    before = len(store.requests())
    store.fail(EXPIRED._replace(match=VERSION))
    with pytest.raises(StoreError, match=r"s3://lake/archive: .*ExpiredToken") as caught:
        run(log)
    assert (
        sum(text.startswith("PUT /lake/archive/_delta_log/0") for text in store.requests()[before:])
        == ARCHIVE_STORAGE_TRIES
    )
    assert "the next run takes it again" in str(caught.value.remedy)
    store.fail(None)
    run(log)
    check(log)


def test_an_answer_that_got_lost_stores_nothing_twice(store: ObjectStore, log: Log) -> None:
    run(log)
    log.grow()
    store.fail(UNAVAILABLE._replace(match=VERSION, times=1, done=True))
    assert run(log).rows_written == STEP
    check(log)
