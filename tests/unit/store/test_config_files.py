"""Configuration tables: both JSON dialects, the backup, and what may never become an empty table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.store.config_files import ConfigFile, parse_table
from orbitmq.store.files import OsFiles

JAVA_OFFSETS = (
    b'{\n\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},\n\t"offsetTable":{1:3,18:0\n\t}\n}'
)
OFFSETS = {
    "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_000},
    "offsetTable": {"1": 3, "18": 0},
}


def table(tmp_path: Path) -> ConfigFile:
    return ConfigFile(OsFiles(), tmp_path / "config" / "delayOffset.json")


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert table(tmp_path).load() is None


def test_save_writes_strict_json_with_quoted_sorted_keys(tmp_path: Path) -> None:
    config = table(tmp_path)
    config.save({"offsetTable": {18: 0, 1: 3}, "dataVersion": {"counter": 1}})
    assert json.loads(config.path.read_bytes()) == {"dataVersion": {"counter": 1}, "offsetTable": {"1": 3, "18": 0}}
    assert config.path.read_text().index('"1"') < config.path.read_text().index('"18"')
    assert config.load() == {"dataVersion": {"counter": 1}, "offsetTable": {"1": 3, "18": 0}}
    assert sorted(path.name for path in config.path.parent.iterdir()) == ["delayOffset.json"]


def test_save_keeps_the_previous_content_as_backup(tmp_path: Path) -> None:
    config = table(tmp_path)
    config.save({"n": 1})
    config.save({"n": 2})
    assert json.loads(config.path.read_bytes()) == {"n": 2}
    assert json.loads((config.path.parent / "delayOffset.json.bak").read_bytes()) == {"n": 1}


@pytest.mark.parametrize("main", [None, b"", b"\n", b"{half", b"\xff\xfe", b"[1]"])
def test_backup_answers_for_a_missing_empty_or_unreadable_main_file(tmp_path: Path, main: bytes | None) -> None:
    config = table(tmp_path)
    config.path.parent.mkdir()
    if main is not None:
        config.path.write_bytes(main)
    config.path.with_name("delayOffset.json.bak").write_bytes(b'{"n":1}')
    assert config.load() == {"n": 1}


def test_two_unreadable_files_are_damage_and_name_both(tmp_path: Path) -> None:
    config = table(tmp_path)
    config.path.parent.mkdir()
    config.path.write_bytes(b"{half")
    config.path.with_name("delayOffset.json.bak").write_bytes(b"[]")
    with pytest.raises(StoreDamagedError, match=r"delayOffset\.json: .*delayOffset\.json\.bak: "):
        config.load()


def test_an_unreadable_main_file_with_an_empty_backup_is_damage(tmp_path: Path) -> None:
    config = table(tmp_path)
    config.path.parent.mkdir()
    config.path.write_bytes(b"{half")
    config.path.with_name("delayOffset.json.bak").write_bytes(b"")
    with pytest.raises(StoreDamagedError):
        config.load()


def test_unquoted_integer_keys_of_the_java_broker(tmp_path: Path) -> None:
    config = table(tmp_path)
    config.path.parent.mkdir()
    config.path.write_bytes(JAVA_OFFSETS)
    assert config.load() == OFFSETS
    assert parse_table(JAVA_OFFSETS) == OFFSETS
