"""Which records are rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.spark.log_files.selection import RecordSelection

from .little_log import LittleLog
from .test_reading import rows

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LittleLog(tmp_path)
    for number, topic in enumerate(
        ["a", "b", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%g", "orbitmq_sys_new"]
    ):
        log.add(topic=topic, stored_ms=1000 + number)
    for sys_flag in (4, 8, 12):
        log.add(topic="a", stored_ms=2000 + sys_flag, sys_flag=sys_flag)
    log.add(topic=HALF, sys_flag=4, stored_ms=3000)
    return log.write()


def chosen(root: Path, selection: RecordSelection) -> list[tuple[str, int]]:
    found = rows(root, selection=selection, names=("topic", "sysFlag"))
    return [(row["topic"], row["sysFlag"]) for row in found]


def test_messages_only(root: Path) -> None:
    assert chosen(root, RecordSelection()) == [("a", 0), ("b", 0), ("%RETRY%g", 0), ("a", 8)]


def test_everything(root: Path) -> None:
    assert len(chosen(root, RecordSelection(include_internal=True))) == 10


def test_by_name_also_what_is_the_brokers_own(root: Path) -> None:
    names = frozenset({"b", "rmq_sys_wheel_timer", HALF})
    assert chosen(root, RecordSelection(topics=names)) == [("b", 0), ("rmq_sys_wheel_timer", 0), (HALF, 4)]
    assert chosen(root, RecordSelection(topics=frozenset({"nobody"}))) == []


def test_by_pattern_of_the_whole_name(root: Path) -> None:
    assert chosen(root, RecordSelection(pattern="[ab]")) == [("a", 0), ("b", 0), ("a", 8)]
    assert chosen(root, RecordSelection(pattern=".*_.*")) == []
    assert len(chosen(root, RecordSelection(pattern="[ab].*|.*TOPIC.*", include_internal=True))) == 7


def test_by_the_time_they_were_stored(root: Path) -> None:
    assert chosen(root, RecordSelection(starting_ms=1001, ending_ms=1004)) == [("b", 0)]
    assert chosen(root, RecordSelection(starting_ms=2000)) == [("a", 8)]
