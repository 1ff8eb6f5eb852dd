"""Small files that are replaced, and directories that one run at a time has."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError, StoreError, StoreLockedError
from orbitmq.spark import durable
from orbitmq.spark.durable import held, replace_content
from orbitmq.spark.log_files.places import place_at


def test_of_two_that_replace_a_file_at_once_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins and ends between the first one's writing and its renaming."""
    place, second = place_at(str(tmp_path / "place.json")), threading.Event()
    real = durable.sync

    def sync(synced: object) -> None:
        if not second.is_set():
            second.set()
            replace_content(place, b"second")
        real(synced)  # type: ignore[arg-type]

    monkeypatch.setattr(durable, "sync", sync)
    replace_content(place, b"first")
    assert (tmp_path / "place.json").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["place.json"]


def test_what_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "place.json").write_text("old")

    def full(synced: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "sync", full)
    with pytest.raises(StoreError, match="No space left"):
        replace_content(place_at(str(tmp_path / "place.json")), b"new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"place.json": "old"}


def test_a_directory_that_another_run_has(tmp_path: Path) -> None:
    folder = place_at(str(tmp_path / "checkpoint"))
    with held(folder), pytest.raises(StoreLockedError, match="another run has the directory"), held(folder):
        pass
    with held(folder):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"), held(place_at(str(tmp_path / "file"))):
        pass


@pytest.mark.parametrize("text", ["", "a\0b"])
def test_an_empty_place_is_not_the_directory_of_the_process(text: str) -> None:
    with pytest.raises(ConfigurationError, match="names no place"):
        place_at(text)
