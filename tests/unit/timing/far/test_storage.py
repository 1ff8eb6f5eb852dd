"""Where the files lie: directories, URLs, and file systems of other kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs
from tests.worlds.little_far import DAY_MS, LittleFar

from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarFileDamagedError, FarUnreachableError

OpenFar = Callable[..., LittleFar]


@pytest.fixture(params=["directory", "url", "in memory", "below another"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    match request.param:
        case "directory":
            return Storage.at(str(tmp_path / "far"))
        case "url":
            return Storage.at((tmp_path / "far").as_uri())
        case "in memory":
            return Storage(fs._MockFileSystem(), "far")
    return Storage(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "far")


def test_a_file_appears_whole_and_can_be_listed_and_removed(storage: Storage) -> None:
    storage.make_directory("landing")
    storage.write("landing/a", b"one")
    storage.write("landing/a", b"two")
    assert storage.read("landing/a") == b"two"
    assert [file.name for file in storage.files("landing")] == ["landing/a"]
    assert storage.exists("landing/a")
    storage.remove("landing/a")
    storage.remove("landing/a")
    assert storage.files("landing") == []
    assert storage.read("landing/a") is None


def test_a_file_that_is_gone_is_damage_and_a_place_that_is_gone_is_trouble(storage: Storage) -> None:
    storage.make_directory("")
    with pytest.raises(FarFileDamagedError, match="gone"):
        storage.open("landing/none")


def test_a_directory_that_is_not_there_is_trouble(tmp_path: Path) -> None:
    with pytest.raises(FarUnreachableError, match="not there"):
        Storage.at(str(tmp_path / "unmounted")).open("landing/none")


def test_a_tier_works_on_every_kind(storage: Storage, open_far: OpenFar) -> None:
    far = open_far(tier=ArrowTier("", storage=storage))
    for number in range(3):
        far.send(far.clock.now_ms() + (10 + number) * DAY_MS, b"%d" % number)
    far.advance(11 * 60_000)
    assert len(far.far.held.files.by_name) == 1
    far.advance(12 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"0", b"1", b"2"]
