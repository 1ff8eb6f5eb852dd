"""The table of an archive on a local disk: what delta-rs does for it, and what a power cut may leave."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from orbitmq.errors import ConfigurationError, StoreDamagedError, StoreError, StoreLockedError
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, LandedFile, Snapshot, commit
from orbitmq.spark.pipelines.archiving.delta_log import _NOTHING, DeltaLog
from orbitmq.spark.pipelines.archiving.storage import check_writable, table_place
from orbitmq.spark.pipelines.archiving.table import (
    ArchiveForm,
    ArchiveTable,
    SourceKind,
    begun,
    kinds_of,
    looked_up,
    opened,
)
from orbitmq.spark.pipelines.archiving.upkeep import compact

COLUMNS = pa.schema([("topic", pa.string()), ("queueOffset", pa.int64())])
FORM = ArchiveForm(source=SourceKind.TOPICS, fixed={"properties": "map"})
NUMBERS = iter(range(10**9))


def archive(root: Path) -> tuple[ArchiveTable, Snapshot]:
    return begun(str(root), FORM, COLUMNS)


def batch_of(root: Path, snapshot: Snapshot, end: int, name: str = "orbitmq/log/a") -> ArchiveBatch:
    """Rows from where the log stands, in a file that lies there."""
    begin = snapshot.applications.get(name)
    token = f"t{next(NUMBERS)}"
    path = f"day=2026-11-22/{token}.parquet"
    (root / path).parent.mkdir(exist_ok=True)
    offsets = range(begin or 0, end)
    pq.write_table(pa.table({"topic": ["a"] * len(offsets), "queueOffset": list(offsets)}, COLUMNS), root / path)
    file = LandedFile(
        path=path, rows=len(offsets), size_bytes=(root / path).stat().st_size, day="2026-11-22",
        stats=f'{{"numRecords": {len(offsets)}}}',
    )  # fmt: skip
    return ArchiveBatch(token=token, files=[file], begins={name: begin}, ends={name: end}, columns=kinds_of(COLUMNS))


def add(root: Path, end: int, name: str = "orbitmq/log/a") -> int:
    table, snapshot = archive(root)
    return commit(table, snapshot, batch_of(root, snapshot, end, name))


def offsets(root: Path) -> list[int]:
    return sorted(DeltaTable(root).to_pyarrow_table()["queueOffset"].to_pylist())


def version_file(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020d}.json"


def test_rows_and_numbers_are_in_one_version(tmp_path: Path) -> None:
    assert [add(tmp_path, end) for end in (5, 9, 9, 12)] == [1, 2, 3, 4]
    assert offsets(tmp_path) == list(range(12))
    assert archive(tmp_path)[1].applications == {"orbitmq/log/a": 12}
    assert DeltaTable(tmp_path).transaction_version("orbitmq/log/a") == 12
    found = looked_up(str(tmp_path), FORM)
    assert found.applications == {"orbitmq/log/a": 12}
    assert {"topic", "queueOffset"} <= found.columns.keys()


def test_delta_rs_puts_a_commit_behind_its_snapshot_or_not_at_all(tmp_path: Path) -> None:
    """What `committing.py` relies on: with no retries delta-rs does not move a commit, whatever it is that came in between."""
    table, snapshot = archive(tmp_path)
    batch = batch_of(tmp_path, snapshot, 5)
    add(tmp_path, 3, "orbitmq/log/another")
    with pytest.raises(StoreError):
        table.put(snapshot, batch)
    assert offsets(tmp_path) == [0, 1, 2]
    assert commit(table, snapshot, batch) == 2, "the numbers of its own log are as they were"


def test_delta_rs_takes_a_file_that_is_not_there_and_a_number_that_goes_back(tmp_path: Path) -> None:
    """Why both are looked at before: the day this test fails, two checks of ours may go."""
    add(tmp_path, 5)
    table, snapshot = archive(tmp_path)
    batch = batch_of(tmp_path, snapshot, 9)
    (tmp_path / batch.files[0].path).unlink()
    table.put(snapshot, batch)
    snapshot = table.open()
    table.put(snapshot, ArchiveBatch(token="back", files=(), begins={}, ends={"orbitmq/log/a": 1}, columns={}))
    assert table.open().applications["orbitmq/log/a"] == 1


def test_a_commit_without_its_numbers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetting(**settings: Any) -> CommitProperties:
        return CommitProperties(**{**settings, "app_transactions": []})

    monkeypatch.setattr(deltalake, "CommitProperties", forgetting)
    with pytest.raises(AssertionError):
        test_rows_and_numbers_are_in_one_version(tmp_path)


def test_eight_runs_at_once(tmp_path: Path) -> None:
    """Each takes everything up to 60 in steps, and plans anew when another was faster."""
    archive(tmp_path)
    lost: Counter[str] = Counter()

    def run(number: int) -> None:
        table = ArchiveTable(str(tmp_path), place_at(str(tmp_path)))
        while True:
            snapshot = table.open()
            at = snapshot.applications.get("orbitmq/log/a", 0)
            if at >= 60:
                return
            try:
                commit(table, snapshot, batch_of(tmp_path, snapshot, at + 1 + number % 3))
            except StoreLockedError:
                lost["told"] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = offsets(tmp_path)
    assert found == list(range(len(found)))
    assert len(found) >= 60
    assert lost["told"] > 0


def test_numbers_are_read_behind_a_checkpoint_as_delta_rs_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.table.ARCHIVE_CHECKPOINT_VERSIONS", 4)
    for number in range(11):
        add(tmp_path, 100 + number, f"orbitmq/log/{number % 5}")
    assert [path.name[18:20] for path in sorted(tmp_path.glob("_delta_log/*.checkpoint.parquet"))] == ["04", "08"]
    log = DeltaLog(place_at(str(tmp_path)))
    for version in range(12):
        table = DeltaTable(tmp_path, version=version)
        wanted = {f"orbitmq/log/{number}": table.transaction_version(f"orbitmq/log/{number}") for number in range(5)}
        assert log.applications(version) == {name: number for name, number in wanted.items() if number is not None}
    version_file(tmp_path, 7).unlink()
    assert log.applications(11)["orbitmq/log/0"] == 110, "it is before the checkpoint"
    version_file(tmp_path, 10).unlink()
    with pytest.raises(StoreDamagedError, match="has no version 10, and has later ones"):
        log.applications(11)


def test_numbers_of_another_table_in_the_same_place_are_read_anew(tmp_path: Path) -> None:
    """A run that follows keeps the numbers of the versions it has read; somebody replaces the archive meanwhile."""
    add(tmp_path, 5)
    table, snapshot = archive(tmp_path)
    shutil.rmtree(tmp_path)
    for end in (2, 3, 4):
        add(tmp_path, end, "orbitmq/log/another")
    assert table.open().applications == {"orbitmq/log/another": 4}
    with pytest.raises(StoreLockedError):
        commit(table, snapshot, batch_of(tmp_path, snapshot, 9))
    assert table.open().applications == {"orbitmq/log/another": 4}, "of the same version again"


def test_a_last_version_that_is_not_whole_says_what_to_do(tmp_path: Path) -> None:
    add(tmp_path, 5)
    add(tmp_path, 9)
    content = version_file(tmp_path, 2).read_bytes()
    version_file(tmp_path, 2).write_bytes(content[: len(content) * 2 // 3])
    for look in (lambda: archive(tmp_path), lambda: opened(str(tmp_path))):
        with pytest.raises(StoreDamagedError, match=r"0002.json is no version of a Delta table") as caught:
            look()
        assert "take it away" in str(caught.value.remedy)
    version_file(tmp_path, 2).unlink()
    add(tmp_path, 9)
    assert offsets(tmp_path) == list(range(9))


FEATURES = (
    "appendOnly", "invariants", "changeDataFeed", "deletionVectors", "v2Checkpoint", "identityColumns", "rowTracking",
    "domainMetadata", "clustering", "inCommitTimestamp",
)  # fmt: skip


@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_that_asks_its_writers_for_more_is_refused_before_any_work(tmp_path: Path, feature: str) -> None:
    """delta-rs judges: what it refuses to commit to is refused, and the rest is taken."""
    add(tmp_path, 5)
    of_readers = [feature] if feature in ("deletionVectors", "v2Checkpoint") else []
    asked = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": of_readers, "writerFeatures": [feature]}
    lines = [{"protocol": asked}, {"commitInfo": {"operation": "UPGRADE", "operationParameters": {}}}]
    version_file(tmp_path, 2).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    table = DeltaTable(tmp_path)
    try:
        table.create_write_transaction([], "append", table.schema(), ["day"])
    except CommitFailedError:
        with pytest.raises(ConfigurationError, match=f"asks its writers for {feature}"):
            add(tmp_path, 9)
        with pytest.raises(ConfigurationError, match=f"asks its writers for {feature}"):
            compact(str(tmp_path))
        assert opened(str(tmp_path)).version() == 2
    else:
        assert add(tmp_path, 9) == 4


@pytest.mark.parametrize("version", range(2, 7))
def test_a_version_of_the_protocol_from_before_features_had_names(tmp_path: Path, version: int) -> None:
    """delta-rs judges here as well."""
    add(tmp_path, 5)
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": version}},
        {"commitInfo": {"operation": "UPGRADE"}},
    ]
    version_file(tmp_path, 2).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    table = DeltaTable(tmp_path)
    try:
        table.create_write_transaction([], "append", table.schema(), ["day"])
    except CommitFailedError:
        with pytest.raises(ConfigurationError, match=f"asks its writers for version {version}"):
            add(tmp_path, 9)
    else:
        assert add(tmp_path, 9) == 4


@pytest.mark.parametrize("content", [b"", b"\0" * 700], ids=["empty", "zeros"])
def test_a_version_that_a_power_cut_left_empty_stands_for_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, 5)
    add(tmp_path, 9)
    version_file(tmp_path, 2).write_bytes(content)
    table, snapshot = archive(tmp_path)
    assert (snapshot.version, snapshot.applications) == (2, {"orbitmq/log/a": 5})
    assert "as a power cut leaves it" in caplog.text
    commit(table, snapshot, batch_of(tmp_path, snapshot, 9))
    assert offsets(tmp_path) == list(range(9))


@pytest.mark.parametrize("content", [b"", b"\0" * 700, _NOTHING], ids=["empty", "zeros", "as it was repaired before"])
def test_a_first_version_that_a_power_cut_left_empty_makes_room(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    archive(tmp_path)
    version_file(tmp_path, 0).write_bytes(content)
    nothing = looked_up(str(tmp_path), FORM)
    assert (nothing.applications, nothing.columns) == ({}, {})
    archive(tmp_path)
    version_file(tmp_path, 0).write_bytes(content)
    add(tmp_path, 5)
    assert "there was no table yet" in caplog.text
    assert offsets(tmp_path) == list(range(5))
    assert len(list((tmp_path / "_delta_log").iterdir())) == 2, "nothing is left of the repair"


def test_a_table_that_is_made_while_an_empty_first_version_is_repaired_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DeltaLog(place_at(str(tmp_path)))
    archive(tmp_path)
    whole = version_file(tmp_path, 0).read_bytes()
    version_file(tmp_path, 0).write_bytes(b"")
    plain = Path.rename

    def made_meanwhile(old: Path, new: Path) -> None:
        version_file(tmp_path, 0).write_bytes(whole)
        plain(old, new)

    monkeypatch.setattr(Path, "rename", made_meanwhile)
    log.repair()
    assert version_file(tmp_path, 0).read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"\0" * 700], ids=["empty", "zeros"])
def test_a_checkpoint_that_a_power_cut_left_empty_is_not_needed(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.table.ARCHIVE_CHECKPOINT_VERSIONS", 2)
    add(tmp_path, 5)
    add(tmp_path, 9)
    for path in [*tmp_path.glob("_delta_log/*.checkpoint.parquet"), tmp_path / "_delta_log" / "_last_checkpoint"]:
        path.write_bytes(content)
    assert archive(tmp_path)[1].applications == {"orbitmq/log/a": 9}
    add(tmp_path, 12)
    assert offsets(tmp_path) == list(range(12))


def test_a_checkpoint_that_cannot_be_made_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.table.ARCHIVE_CHECKPOINT_VERSIONS", 1)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    assert add(tmp_path, 5) == 1
    assert "no checkpoint of version 1" in caplog.text


def test_a_column_is_added_before_files_that_have_it(tmp_path: Path) -> None:
    add(tmp_path, 5)
    more = COLUMNS.append(pa.field("tags", pa.string()))
    _, snapshot = begun(str(tmp_path), FORM, more)
    assert list(snapshot.columns) == ["topic", "queueOffset", "day", "tags"]
    assert begun(str(tmp_path), FORM, more)[1].version == snapshot.version, "once"
    assert offsets(tmp_path) == list(range(5))
    with pytest.raises(ConfigurationError, match=r'column tags of .* is "string", and this run has "long"'):
        begun(str(tmp_path), FORM, COLUMNS.append(pa.field("tags", pa.int64())))


def test_what_does_not_go_with_the_rest(tmp_path: Path) -> None:
    archive(tmp_path)
    with pytest.raises(ConfigurationError, match="is an archive of topics, and this run is one of logs"):
        begun(str(tmp_path), ArchiveForm(source=SourceKind.LOGS), COLUMNS)
    with pytest.raises(ConfigurationError, match="begun with properties 'map', and this run has 'json'"):
        begun(str(tmp_path), ArchiveForm(source=SourceKind.TOPICS, fixed={"properties": "json"}), COLUMNS)


def test_a_table_of_somebody_else_and_what_is_none(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "theirs", pa.table({"topic": ["a"]}))
    with pytest.raises(ConfigurationError, match="is no archive of orbitmq"):
        begun(str(tmp_path / "theirs"), FORM, COLUMNS)
    with pytest.raises(ConfigurationError, match="is no archive: there is no Delta table"):
        opened(str(tmp_path))
    DeltaTable.create(tmp_path / "later", COLUMNS, description='{"orbitmq_archive": 2, "source": "topics"}')
    with pytest.raises(ConfigurationError, match="written by a later orbitmq"):
        begun(str(tmp_path / "later"), FORM, COLUMNS)
    assert looked_up(str(tmp_path / "none"), FORM).applications == {}
    assert not (tmp_path / "none").exists()


def test_a_table_that_somebody_divides_otherwise_is_not_written_on(tmp_path: Path) -> None:
    """delta-rs takes a file of a day there, and then the table opens no more."""
    add(tmp_path, 5)
    table, snapshot = archive(tmp_path)
    batch = batch_of(tmp_path, snapshot, 9)
    theirs = DeltaTable(tmp_path)
    write_deltalake(
        tmp_path, theirs.to_pyarrow_table(), mode="overwrite", schema_mode="overwrite", partition_by=["topic"],
        description=theirs.metadata().description,
    )  # fmt: skip
    for run in (
        lambda: commit(table, snapshot, batch),
        lambda: add(tmp_path, 9),
        lambda: looked_up(str(tmp_path), FORM),
    ):
        with pytest.raises(
            ConfigurationError, match=r"divided the archive in .* by topic, and its files are divided by day"
        ):
            run()
    assert DeltaTable(tmp_path).version() == 2
    assert offsets(tmp_path) == list(range(5))
    DeltaTable(tmp_path).restore(1)
    add(tmp_path, 9)
    assert offsets(tmp_path) == list(range(9))


def test_two_that_make_it_at_once_have_one(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def make() -> None:
        try:
            archive(tmp_path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [path.name for path in tmp_path.glob("_delta_log/*.json")] == ["00000000000000000000.json"]


def test_numbers_of_others_are_left_alone(tmp_path: Path) -> None:
    archive(tmp_path)
    table = DeltaTable(tmp_path)
    properties = CommitProperties(app_transactions=[Transaction("a stream of Spark", 7)])
    table.create_write_transaction([], "append", table.schema(), ["day"], commit_properties=properties)
    add(tmp_path, 5)
    assert archive(tmp_path)[1].applications == {"a stream of Spark": 7, "orbitmq/log/a": 5}


def test_where_two_could_store_the_same_version_nobody_writes() -> None:
    with pytest.raises(ConfigurationError, match="lets two runs store the same version"):
        check_writable("s3://lake/archive", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(ConfigurationError, match="AWS_CONDITIONAL_PUT=disabled"):
        check_writable("s3://lake/archive", {"AWS_CONDITIONAL_PUT": "disabled"})
    check_writable("s3://lake/archive", {})
    check_writable("/data", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(ConfigurationError, match="AWS_REGION, AWS_ENDPOINT_URL"):
        table_place("s3://lake/archive?region=x")
    for text in ("/data/[x]", "/data/a|b", "file:///data/a\\b", "/data/a%41b", "/data/a\nb"):
        with pytest.raises(ConfigurationError, match="delta-rs takes no path with"):
            table_place(text)
    assert table_place("/data/Größe #1 {a} 100%").path == "/data/Größe #1 {a} 100%"
