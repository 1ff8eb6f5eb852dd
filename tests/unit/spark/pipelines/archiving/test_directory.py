"""The directory of an archive: one run at a time, and whole batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError, StoreLockedError
from orbitmq.spark.pipelines.archiving.directory import ArchiveDirectory, opened
from orbitmq.spark.pipelines.archiving.state import Landed, Source


def staged(archive: Path, directory: ArchiveDirectory, name: str) -> Landed:
    path = archive / directory.staged / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    return Landed(staged=f"{directory.staged}/{name}", path=f"topic=a/day=b/{name}.parquet", rows=1, size_bytes=4)


def test_a_second_run_of_this_machine_waits_outside(tmp_path: Path) -> None:
    with (
        opened(str(tmp_path), Source.LOGS, {}, owner="first"),
        pytest.raises(StoreLockedError, match="another run archives into"),
        opened(str(tmp_path), Source.LOGS, {}, owner="second"),
    ):
        pass
    with opened(str(tmp_path), Source.LOGS, {}, owner="third"):
        pass


def test_a_run_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    """On storage without locks the state says who may."""
    with opened(str(tmp_path), Source.LOGS, {}, owner="first") as directory:
        file = staged(tmp_path, directory, "x")
        state = tmp_path / "_archive" / "state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "owner": "second"}))
        with pytest.raises(StoreLockedError):
            directory.commit([file], {}, {"": 5})
    assert json.loads(state.read_text())["positions"] == {}
    assert not list(tmp_path.rglob("*.parquet"))


def test_names_come_after_the_commit_and_only_once(tmp_path: Path) -> None:
    with opened(str(tmp_path), Source.LOGS, {}, owner="first") as directory:
        kept, lost = (staged(tmp_path, directory, name) for name in "xy")
        directory.commit([kept], {}, {"": 5})
        assert (tmp_path / kept.path).read_bytes() == b"rows"
    assert not (tmp_path / lost.path).exists()
    assert not list((tmp_path / "_archive" / "staged").iterdir())
    (tmp_path / kept.path).unlink()  # somebody merged it into another file
    with opened(str(tmp_path), Source.LOGS, {}, owner="second") as directory:
        assert directory.state.positions == {"": 5}
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_is_not_where_a_task_wrote_it_is_never_committed(tmp_path: Path) -> None:
    """As where `to` is a disk of each machine, and the driver's is another one than the worker's."""
    with opened(str(tmp_path), Source.LOGS, {}, owner="first") as directory:
        kept, elsewhere = (staged(tmp_path, directory, name) for name in "xy")
        (tmp_path / elsewhere.staged).unlink()
        with pytest.raises(StoreDamagedError, match=r"nothing of the batch was committed.*that all machines share"):
            directory.commit([kept, elsewhere], {}, {"": 5})
    with opened(str(tmp_path), Source.LOGS, {}, owner="second") as directory:
        assert directory.state.positions == {}
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_run_that_ends_leaves_what_another_one_has_staged(tmp_path: Path) -> None:
    """Nothing locks on an object store: the next run may have begun when this one ends."""
    with opened(str(tmp_path), Source.LOGS, {}, owner="first"):
        other = tmp_path / "_archive" / "staged" / "second" / "x"
        other.parent.mkdir(parents=True)
        other.write_bytes(b"rows")
    assert other.read_bytes() == b"rows"
