"""Where the others of a group are: kept for a start without the engine, and no longer than they are members."""

from __future__ import annotations

from pathlib import Path

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.replication.replica_steps import KeptEpoch
from orbitmq.server.replication.engines.group_engine import MemberPlace
from orbitmq.server.replication.group.member_record import MemberRecord
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.store.worker import InlineWorker


def record_in(root: Path) -> MemberRecord:
    file = ConfigFile(OsFiles(), root / "config" / REPLICATION_FILE)
    return MemberRecord(file, "trio", "a", InlineWorker(), Deadlines(), ManualClock())


def place(name: str) -> MemberPlace:
    return MemberPlace(name, f"{name}:1", f"{name}:2", name * 32, "1")


def test_who_is_away_is_where_it_was_as_long_as_it_is_a_member(tmp_path: Path) -> None:
    record = record_in(tmp_path)
    record.keep(KeptEpoch(1, 1, ""), (), lambda why_not: None)
    record.are_at({"b": place("b"), "c": place("c")}, None)
    record.are_at({"b": place("b")}, ("a", "b", "c"))
    assert record_in(tmp_path).places == {"b": "b:2", "c": "c:2"}
    for number in range(20):  # others come and go for ever
        new = f"m{number}"
        record.are_at({"b": place("b"), new: place(new)}, ("a", "b", new))
    record.are_at({"b": place("b")}, ("a", "b"))
    assert record_in(tmp_path).places == {"b": "b:2"}


def test_who_is_present_is_kept_although_it_is_no_member_yet(tmp_path: Path) -> None:
    record = record_in(tmp_path)
    record.are_at({"b": place("b"), "d": place("d")}, ("a", "b"))
    assert record.places == {"b": "b:2", "d": "d:2"}
