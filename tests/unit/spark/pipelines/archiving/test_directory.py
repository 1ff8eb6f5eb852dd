"""The directory of an archive: one run at a time, and whole batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError, StoreLockedError
from orbitmq.spark.log_files.places import FilePlace
from orbitmq.spark.pipelines.archiving import directory as module
from orbitmq.spark.pipelines.archiving.directory import ArchiveDirectory, opened
from orbitmq.spark.pipelines.archiving.state import LandedFile, SourceKind


def staged(archive: Path, directory: ArchiveDirectory, name: str) -> LandedFile:
    path = archive / directory.staged / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    return LandedFile(staged=f"{directory.staged}/{name}", path=f"topic=a/day=b/{name}.parquet", rows=1, size_bytes=4)


def test_a_second_run_of_this_machine_waits_outside(tmp_path: Path) -> None:
    with (
        opened(str(tmp_path), SourceKind.LOGS, {}, owner="first"),
        pytest.raises(StoreLockedError, match="another run archives into"),
        opened(str(tmp_path), SourceKind.LOGS, {}, owner="second"),
    ):
        pass
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="third"):
        pass


def test_a_run_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    """On storage without locks the state says who may."""
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        file = staged(tmp_path, directory, "x")
        state = tmp_path / "_archive" / "state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "owner": "second"}))
        with pytest.raises(StoreLockedError):
            directory.commit([file], {}, {"": 5})
    assert json.loads(state.read_text())["positions"] == {}
    assert not list(tmp_path.rglob("*.parquet"))


def test_names_come_after_the_commit_and_only_once(tmp_path: Path) -> None:
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        kept, lost = (staged(tmp_path, directory, name) for name in "xy")
        directory.commit([kept], {}, {"": 5})
        assert (tmp_path / kept.path).read_bytes() == b"rows"
    assert not (tmp_path / lost.path).exists()
    assert not list((tmp_path / "_archive" / "staged").iterdir())
    (tmp_path / kept.path).unlink()  # somebody merged it into another file
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="second") as directory:
        assert directory.state.positions == {"": 5}
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_is_not_where_a_task_wrote_it_is_never_committed(tmp_path: Path) -> None:
    """As where `to` is a disk of each machine, and the driver's is another one than the worker's."""
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        kept, elsewhere = (staged(tmp_path, directory, name) for name in "xy")
        (tmp_path / elsewhere.staged).unlink()
        with pytest.raises(StoreDamagedError, match=r"nothing of the batch was committed.*that all machines share"):
            directory.commit([kept, elsewhere], {}, {"": 5})
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="second") as directory:
        assert directory.state.positions == {}
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_run_that_ends_leaves_what_another_one_has_staged(tmp_path: Path) -> None:
    """Nothing locks on an object store: the next run may have begun when this one ends."""
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first"):
        other = tmp_path / "_archive" / "staged" / "second" / "x"
        other.parent.mkdir(parents=True)
        other.write_bytes(b"rows")
    assert other.read_bytes() == b"rows"


def test_a_file_of_another_size_is_never_committed(tmp_path: Path) -> None:
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        file = staged(tmp_path, directory, "x")
        (tmp_path / file.staged).write_bytes(b"row")
        with pytest.raises(StoreDamagedError, match=r"not the 4 bytes.*nothing of the batch was committed"):
            directory.commit([file], {}, {"": 5})
    assert not list(tmp_path.rglob("*.parquet"))


def another_run_removes(archive: Path, name: str, patch: pytest.MonkeyPatch) -> None:
    """What is staged goes between the proof and the names."""
    real = module.replace_content

    def replaced(place: FilePlace, content: bytes) -> None:
        real(place, content)
        if json.loads(content)["files"]:
            next(archive.glob(f"_archive/staged/*/{name}")).unlink()

    patch.setattr(module, "replace_content", replaced)


def test_a_batch_that_lost_a_file_while_it_got_its_names_is_archived_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        directory.commit([staged(tmp_path, directory, "w")], {}, {"": 5})
        with monkeypatch.context() as patch:
            another_run_removes(tmp_path, "y", patch)
            files = [staged(tmp_path, directory, name) for name in "xy"]
            with pytest.raises(StoreDamagedError, match=r"y\.parquet and 0 others of the batch were lost"):
                directory.commit(files, {}, {"": 9}, {"": 1})
    assert {path.name for path in tmp_path.rglob("*.parquet")} == {"w.parquet", "x.parquet"}
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="second") as directory:
        assert (directory.state.batch, directory.state.positions, directory.state.since) == (1, {"": 5}, {})
        assert {path.name for path in tmp_path.rglob("*.parquet")} == {"w.parquet"}, "the range is written again"
        directory.commit([staged(tmp_path, directory, name) for name in "xy"], {}, {"": 9})
    assert {path.name for path in tmp_path.rglob("*.parquet")} == {"w.parquet", "x.parquet", "y.parquet"}
    assert "is taken back and archived again" in caplog.text


def test_a_file_that_another_run_named_meanwhile_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        file = staged(tmp_path, directory, "x")
        real = module.make_directory

        def named(place: FilePlace) -> None:
            real(place)
            if (tmp_path / file.staged).exists():
                (tmp_path / file.staged).rename(tmp_path / file.path)

        monkeypatch.setattr(module, "make_directory", named)
        directory.commit([file], {}, {"": 5})
    assert (tmp_path / file.path).exists()


def test_a_run_that_was_replaced_while_it_named_its_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        state = tmp_path / "_archive" / "state.json"
        real = module.give_names

        def replaced(place: FilePlace, files: list[LandedFile]) -> list[LandedFile]:
            state.write_text(json.dumps({**json.loads(state.read_text()), "owner": "second"}))
            return real(place, files)

        monkeypatch.setattr(module, "give_names", replaced)
        with pytest.raises(StoreLockedError):
            directory.commit([staged(tmp_path, directory, "x")], {}, {"": 5})
    assert json.loads(state.read_text())["owner"] == "second"


def test_what_an_earlier_version_committed_is_passed_over_as_it_was_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its state names the files for good, and somebody may have merged them since."""
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="first") as directory:
        directory.commit([staged(tmp_path, directory, "x")], {}, {"": 5})
    state = tmp_path / "_archive" / "state.json"
    said = json.loads(state.read_text())
    said["files"] = [
        {"staged": "_archive/staged/first/x", "path": "topic=a/merged.parquet", "rows": 1, "size_bytes": 4}
    ]
    state.write_text(json.dumps(said))
    with opened(str(tmp_path), SourceKind.LOGS, {}, owner="second") as directory:
        assert directory.state.positions == {"": 5}
    assert "merged.parquet of the last batch are not there" in caplog.text
