"""The two files of the delay levels: the history of level lists, and the offsets that RocketMQ reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.timing.levels.history import LevelHistory
from orbitmq.timing.levels.offsets import LevelOffsets


def history(path: Path, text: str, now_ms: int) -> LevelHistory:
    loaded = LevelHistory.load(ConfigFile(OsFiles(), path), DelayLevels.parse(text), now_ms)
    loaded.keep()
    return loaded


def test_loading_writes_nothing_because_the_store_is_not_locked_yet(tmp_path: Path) -> None:
    file = tmp_path / "levels.json"
    LevelHistory.load(ConfigFile(OsFiles(), file), DelayLevels.parse("1s"), 1_000)
    assert not file.exists()


def test_the_first_list_has_always_held(tmp_path: Path) -> None:
    path = tmp_path / "levels.json"
    found = history(path, "1s 5s", 1_000)
    assert [(period.from_ms, period.levels) for period in found.periods] == [(0, "1s 5s")]
    content = path.read_bytes()
    history(path, "1s 5s", 2_000)
    assert path.read_bytes() == content, "nothing is written without a change"


def test_every_change_is_one_entry_and_the_time_decides(tmp_path: Path) -> None:
    path = tmp_path / "levels.json"
    history(path, "1s 5s", 1_000)
    history(path, "2s 6s 1m", 10_000)
    found = history(path, "3s", 20_000)
    assert [period.from_ms for period in found.periods] == [0, 10_000, 20_000]

    def due(level: str, stored_ms: int) -> int:
        return found.due_time({Property.DELAY: level}, stored_ms) - stored_ms

    assert [due("2", at) for at in (9_999, 10_000, 20_000)] == [5_000, 6_000, 3_000]
    assert due("9", 15_000) == 60_000, "a level above the highest becomes the highest"
    assert due("0", 15_000) == due("x", 15_000) == 1_000, "what RocketMQ takes for a level that is not in its list"


def test_a_due_time_of_our_own_beats_every_list(tmp_path: Path) -> None:
    found = history(tmp_path / "levels.json", "1s", 0)
    assert found.due_time({Property.DELAY: "1", Property.DUE_MS: "77777"}, 5) == 77_777
    assert found.due_time({Property.DELAY: "1", Property.DUE_MS: "soon"}, 5) == 1_005


def test_an_unreadable_history_stops_the_start_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "levels.json"
    path.write_text('{"periods":[{"from_ms":"never"}]}')
    with pytest.raises(ConfigurationError, match=r"restore it from its \.bak"):
        history(path, "1s", 0)


def test_offsets_in_the_forms_of_rocketmq_and_orbitmq(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    offsets = LevelOffsets(ConfigFile(OsFiles(), path), ManualClock())
    assert offsets.load() == {}
    path.write_text('{\n\t"dataVersion":{"counter":7,"timestamp":1},\n\t"offsetTable":{1:3,18:0\n\t}\n}')
    assert offsets.load() == {1: 3, 18: 0}
    offsets.save({1: 3, 18: 0})
    assert "1:3" in path.read_text(), "the table is there already"
    offsets.save({1: 4, 18: 0})
    assert '"1": 4' in path.read_text()
    assert '"counter": 8' in path.read_text(), "the version goes on"
    assert offsets.load() == {1: 4, 18: 0}


def test_offsets_that_are_none_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text('{"offsetTable":{"one":3}}')
    with pytest.raises(StoreDamagedError, match="does not hold offsets by level"):
        LevelOffsets(ConfigFile(OsFiles(), path), ManualClock()).load()
