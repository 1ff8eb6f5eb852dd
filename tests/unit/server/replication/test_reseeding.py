"""Putting the store of a slave aside before it is opened: whatever kills it on its way, nothing is lost and nothing is done twice."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.worlds.faults import Call, Killed, RecordingFiles

from orbitmq.clock import SystemClock
from orbitmq.errors import StoreDamagedError, StoreLockedError
from orbitmq.limits.replication import RESEED_LOG_FILES
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer
from orbitmq.replication.kept_state import REPLICATION_FILE, KeptState
from orbitmq.server.replication.reseeding import Reseeding, ReseedRefused, put_aside, why_not_aside
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import DiskUsage, OsFiles
from orbitmq.store.forwarding import ForwardedFiles
from orbitmq.store.reserve import bytes_to_set_aside
from orbitmq.store.settings import StoreSettings

FOLDER = "aside/20261128T082000123Z"
STORE = {
    "commitlog/00000000000000000000": b"log",
    "consumequeue/orders/0/00000000000000000000": b"queue",
    "orbitmq.mark": b"mark",
    "config/topics.json": b"{}",
    "config/topics.json.bak": b"{}",
}
KEPT = {
    "config/orbitmq-access.json": b"users",
    "config/orbitmq-changes.properties": b"changes",
    "tls/test-key.pem": b"key",
    "namesrv/kvConfig.json": b"{}",
    "orbitmq.reserve": b"room",
    "notes.txt": b"of an operator",
}


SETTINGS = StoreSettings(mapped_file_size_commit_log=1 << 20)


class FullDisk(ForwardedFiles):
    """Of which so much is free."""

    def __init__(self, free_bytes: int) -> None:
        super().__init__(OsFiles())
        self._free_bytes = free_bytes

    def disk_usage(self, path: Path) -> DiskUsage:
        return DiskUsage(1 << 40, (1 << 40) - self._free_bytes, self._free_bytes)


def store(root: Path, aside: str | None = FOLDER, **more: object) -> None:
    for name, data in {**STORE, **KEPT}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    table = {"directory": "d" * 32, "epochs": [[3, 100]], "slaves": {"2": "x"}, **more}
    (root / "config" / REPLICATION_FILE).write_text(
        json.dumps(table | ({} if aside is None else {"aside": aside, "asideEnd": 700}))
    )


def assert_aside(root: Path) -> None:
    assert {name: (root / FOLDER / name).read_bytes() for name in STORE} == STORE
    assert not any((root / name).exists() for name in STORE)
    assert {name: (root / name).read_bytes() for name in KEPT} == KEPT
    assert json.loads((root / "config" / REPLICATION_FILE).read_text()) == {
        "directory": "d" * 32,
        "epochs": [],
        "slaves": {},
        "seedingUntil": 700,
    }
    there = json.loads((root / FOLDER / "config" / REPLICATION_FILE).read_text())
    assert (there["epochs"], "aside" in there) == ([[3, 100]], False)


def assert_there(root: Path) -> None:
    assert {name: (root / name).read_bytes() for name in {**STORE, **KEPT}} == {**STORE, **KEPT}
    kept = json.loads((root / "config" / REPLICATION_FILE).read_text())
    assert (kept["epochs"], "aside" in kept, "asideEnd" in kept) == ([[3, 100]], False, False)


def ends_at_each_call(folder: Path) -> Iterator[tuple[Path, RecordingFiles]]:
    """A store each, and files that end the process at their first call, at the second, and so on."""
    for number in itertools.count(1):
        root = folder / str(number)
        root.mkdir()
        store(root)

        def plan(call: Call, last: int = number) -> Killed | None:
            return Killed() if call.number >= last else None

        yield root, RecordingFiles(OsFiles(), root, plan=plan)


def test_the_store_goes_and_what_is_no_part_of_it_stays(tmp_path: Path) -> None:
    store(tmp_path)
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert_aside(tmp_path)
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert_aside(tmp_path)


def test_without_a_command_nothing_happens(tmp_path: Path) -> None:
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert not list(tmp_path.iterdir())
    store(tmp_path, None)
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert (tmp_path / "commitlog").exists()


def test_a_start_that_is_killed_at_any_call_goes_on_where_it_was(tmp_path: Path) -> None:
    for root, files in ends_at_each_call(tmp_path):
        try:
            put_aside(files, root, SETTINGS, is_slave=True)
        except Killed:
            put_aside(OsFiles(), root, SETTINGS, is_slave=True)
            assert_aside(root)
        else:
            assert_aside(root)
            return


@pytest.mark.parametrize(("is_slave", "more"), [(False, {}), (True, {"promoted": "SYNC_MASTER"})])
def test_who_leads_by_now_goes_on_with_what_it_has(tmp_path: Path, is_slave: bool, more: dict[str, object]) -> None:
    store(tmp_path, **more)
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=is_slave)
    assert_there(tmp_path)
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert_there(tmp_path)


def test_what_a_killed_start_had_put_aside_comes_back_to_who_leads(tmp_path: Path) -> None:
    for root, files in ends_at_each_call(tmp_path):
        try:
            put_aside(files, root, SETTINGS, is_slave=True)
        except Killed:
            if "asideEnd" not in ConfigFile(OsFiles(), root / "config" / REPLICATION_FILE).load():
                continue  # it was through
            put_aside(OsFiles(), root, SETTINGS, is_slave=False)
            assert_there(root)
        else:
            return


def test_a_log_elsewhere_is_put_aside_beside_itself(tmp_path: Path) -> None:
    root, log = tmp_path / "data", tmp_path / "fast" / "log"
    root.mkdir()
    store(root)
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(b"log")
    files = RecordingFiles(OsFiles(), tmp_path)
    put_aside(files, root, msgspec.structs.replace(SETTINGS, store_path_commit_log=log), is_slave=True)
    assert any(call.kind == "sync_dir" and call.path == log.parent for call in files.calls), "its new name lasts"
    assert (tmp_path / "fast" / "log.20261128T082000123Z" / "00000000000000000000").read_bytes() == b"log"
    assert not log.exists()


def test_the_directory_of_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    store(tmp_path)
    lock = OsFiles().lock_dir(tmp_path)
    try:
        with pytest.raises(StoreLockedError):
            put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    finally:
        lock.release()
    assert (tmp_path / "commitlog").exists()


@pytest.mark.parametrize("folder", ["/tmp", "../elsewhere", "aside", "aside/../../x", "commitlog"])
def test_a_place_that_no_command_chose_is_refused(tmp_path: Path, folder: str) -> None:
    store(tmp_path, folder)
    with pytest.raises(StoreDamagedError, match="as the place for this store"):
        put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert (tmp_path / "commitlog").exists()


def test_without_room_for_another_log_the_store_stays_and_waits_for_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path)
    needed = RESEED_LOG_FILES * SETTINGS.mapped_file_size_commit_log + bytes_to_set_aside(1 << 20)
    put_aside(FullDisk(needed - 1), tmp_path, SETTINGS, is_slave=True)
    assert f"{needed - 1} bytes are free for {tmp_path}" in caplog.text
    assert str(needed) in caplog.text
    assert (tmp_path / "commitlog").exists()
    put_aside(FullDisk(needed), tmp_path, SETTINGS, is_slave=True)
    assert_aside(tmp_path)


def test_a_mount_point_is_found_before_anything_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path)
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == tmp_path / "commitlog")
    assert "commitlog is a mount point" in why_not_aside(OsFiles(), tmp_path, SETTINGS)
    put_aside(OsFiles(), tmp_path, SETTINGS, is_slave=True)
    assert (tmp_path / "commitlog").exists()


@pytest.mark.parametrize("free_bytes", [0, 1 << 40])
def test_a_slave_on_a_full_disk_is_not_told_that_it_begins_anew(tmp_path: Path, free_bytes: int) -> None:
    class Asked:
        async def compared(self, master: str, log_id: str) -> FollowAnswer:
            return FollowAnswer(end=1_000, relation="beginning")

    async def saved() -> str:
        return ""

    kept = SimpleNamespace(state=KeptState("d" * 32), saved=saved)
    opened = SimpleNamespace(log=SimpleNamespace(end=1_000, written_end=1_000), settings=SETTINGS)
    reseeding = Reseeding(Asked(), kept, opened, SystemClock(), FullDisk(free_bytes), tmp_path)  # type: ignore[arg-type]
    prepared = reseeding.prepare("master:1", "a-log", although_parted=False)
    if free_bytes:
        assert asyncio.run(prepared) == kept.state.aside
        assert kept.state.aside_end == 1_000
    else:
        with pytest.raises(ReseedRefused, match="0 bytes are free"):
            asyncio.run(prepared)
        assert not kept.state.aside
