"""The file system that fails: what a power failure may take, what it may not, and that a seed repeats it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.worlds.faults import Call, Killed, RecordingFiles

from orbitmq.store.files import OsFiles


def recording(root: Path) -> RecordingFiles:
    root.mkdir(exist_ok=True)
    return RecordingFiles(OsFiles(), root)


def cut(files: RecordingFiles, target: Path, seed: int = 0, keep: float | None = 0.0) -> dict[str, bytes]:
    files.power_cut(target, random.Random(seed), keep=keep)
    return {str(p.relative_to(target)): p.read_bytes() for p in sorted(target.rglob("*")) if p.is_file()}


def test_synced_bytes_and_names_survive_everything(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    file = files.open(tmp_path / "a" / "f", create=True)
    file.pwrite(b"synced", 0)
    file.datasync()
    files.sync_dir(tmp_path / "a")
    file.pwrite(b"later!", 0)
    assert cut(files, tmp_path / "none") == {"f": b"synced"}
    assert cut(files, tmp_path / "all", keep=1.0) == {"f": b"later!"}


def test_an_unsynced_name_may_be_gone_though_its_bytes_are_synced(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    file = files.open(tmp_path / "a" / "f", create=True)
    file.pwrite(b"x", 0)
    file.datasync()
    found = {len(cut(files, tmp_path / f"b{seed}", seed)) for seed in range(12)}
    assert found == {0, 1}


def test_unsynced_pages_are_lost_one_by_one(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    file = files.open(tmp_path / "a" / "f", create=True)
    file.truncate(4 * 4096)
    file.datasync()
    files.sync_dir(tmp_path / "a")
    file.pwrite(b"x" * 4 * 4096, 0)
    patterns = set()
    for seed in range(20):
        (content,) = cut(files, tmp_path / f"b{seed}", seed, keep=0.5).values()
        pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
        assert all(page in (b"x" * 4096, bytes(4096)) for page in pages)
        patterns.add(tuple(page[0] for page in pages))
    assert len(patterns) > 5


def test_names_survive_in_order(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    for number in range(3):
        files.open(tmp_path / "a" / str(number), create=True)
    files.rename(tmp_path / "a" / "0", tmp_path / "a" / "3")
    files.remove(tmp_path / "a" / "1")
    states = [["3", "2"], ["3", "1", "2"], ["0", "1", "2"], ["0", "1"], ["0"], []]
    seen = set()
    for seed in range(40):
        names = list(cut(files, tmp_path / f"b{seed}", seed))
        assert sorted(names) in [sorted(state) for state in states]
        seen.add(tuple(sorted(names)))
    assert len(seen) == 6


def test_a_directory_moves_with_everything_in_it(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    files.make_dirs(tmp_path / "a" / "d")
    file = files.open(tmp_path / "a" / "d" / "f", create=True)
    file.pwrite(b"x", 0)
    file.datasync()
    files.rename(tmp_path / "a" / "d", tmp_path / "a" / "e")
    files.sync_dir(tmp_path / "a")
    assert cut(files, tmp_path / "b") == {"e/f": b"x"}


def test_stores_into_a_mapping_are_seen(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    file = files.open(tmp_path / "a" / "f", create=True)
    file.allocate(0, 4096)
    mapped = file.map_write(4096)
    mapped[0:3] = b"one"
    file.datasync()
    files.sync_dir(tmp_path / "a")
    mapped[0:3] = b"two"
    assert cut(files, tmp_path / "none")["f"][:3] == b"one"
    assert cut(files, tmp_path / "all", keep=1.0)["f"][:3] == b"two"


def test_what_was_there_at_the_start_counts_as_synced(tmp_path: Path) -> None:
    root = tmp_path / "a"
    root.mkdir()
    (root / "f").write_bytes(b"old")
    (root / "empty").mkdir()
    assert cut(recording(root), tmp_path / "b") == {"f": b"old"}
    assert (tmp_path / "b" / "empty").is_dir()


def test_any_call_can_be_made_to_fail_and_is_not_made(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    file = files.open(tmp_path / "a" / "f", create=True)
    file.pwrite(b"one", 0)
    files.plan = lambda call: OSError(5, "planned") if call.kind == "write" else None
    with pytest.raises(OSError, match="planned"):
        file.pwrite(b"two", 0)
    assert file.pread(3, 0) == b"one"
    assert [call.kind for call in files.calls] == ["create", "write", "write"]
    assert files.calls[-1] == Call(3, "write", tmp_path / "a" / "f", 3)


def test_a_killed_process_does_nothing_any_more_until_another_takes_over(tmp_path: Path) -> None:
    files = recording(tmp_path / "a")
    file = files.open(tmp_path / "a" / "f", create=True)
    files.plan = lambda call: Killed()
    with pytest.raises(Killed):
        file.pwrite(b"x" * 100, 0)
    assert len(file.pread(200, 0)) <= 100, "a killed write happens in part"
    files.plan = None
    for action in (lambda: file.pwrite(b"y", 0), lambda: files.sync_dir(tmp_path / "a"), file.datasync):
        with pytest.raises(Killed):
            action()
    files.revive()
    file.pwrite(b"z", 0)
    assert file.pread(1, 0) == b"z"
