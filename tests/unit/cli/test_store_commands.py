"""store check, stat and dump on stores written by the Java broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from scripted_server import Ran
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.store.settings import StoreSettings
from orbitmq.timing.timers.timers import TimerSettings

Run = Callable[..., Ran]
Golden = Callable[[str], tuple[Path, dict[str, object]]]


def snapshot(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


def test_a_sound_store(orbitmq: Run, golden_store: Golden) -> None:
    root, expected = golden_store("plain-clean")
    before = snapshot(root)
    ran = orbitmq("store", "check", root)
    assert ran.code == 0
    assert "sound" in ran.err
    report = json.loads(orbitmq("store", "check", root, "-o", "json").out)
    messages = expected["messages"]
    assert isinstance(messages, list)
    assert (report["findings"], report["record_count"]) == ([], len(messages))
    assert snapshot(root) == before


def test_a_damaged_store(orbitmq: Run, golden_store: Golden) -> None:
    root, _ = golden_store("plain-clean")
    first = min((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[5000] ^= 0xFF
    first.write_bytes(data)
    ran = orbitmq("store", "check", root)
    assert ran.code == 1
    assert "finding: " in ran.err


def test_stat(orbitmq: Run, golden_store: Golden) -> None:
    root, _ = golden_store("delay-crash")
    facts = json.loads(orbitmq("store", "stat", root, "-o", "json").out)
    assert facts["closed_orderly"] is False
    assert facts["queues"]
    assert sum(level["pending_count"] for level in facts["levels"]) > 100
    table = orbitmq("store", "stat", root)
    assert table.code == 0
    assert "pending count" in table.out


def test_dump_of_records(orbitmq: Run, golden_store: Golden) -> None:
    root, expected = golden_store("plain-clean")
    messages = expected["messages"]
    assert isinstance(messages, list)
    ran = orbitmq("store", "dump", root, "-o", "json")
    records = [item for item in map(json.loads, ran.out.splitlines()) if item["kind"] == "record"]
    assert ran.code == 0
    assert len(records) == len(messages)
    assert orbitmq("store", "dump", root, "--count", 2).out.count("\n") == 2
    later = orbitmq("store", "dump", root, "--from", records[2]["physicalOffset"], "--count", 1, "-o", "json")
    assert json.loads(later.out) == records[2]
    topic = records[0]["topic"]
    only = orbitmq("store", "dump", root, "--topic", topic, "--queue", 0, "-o", "json").out.splitlines()
    picked = [item for item in map(json.loads, only) if item["kind"] == "record"]
    assert {(item["topic"], item["queueId"]) for item in picked} == {(topic, 0)}

    units = orbitmq("store", "dump", root, "--what", "units", "--topic", topic, "--queue", 0, "-o", "json")
    assert len(units.out.splitlines()) == len(picked)
    assert orbitmq("store", "dump", root, "--what", "units").code == 2


def test_dump_of_the_other_parts(orbitmq: Run, golden_store: Golden) -> None:
    root, _ = golden_store("plain-clean")
    assert "kind=entry" in orbitmq("store", "dump", root, "--what", "index", "--count", 5).out
    assert "physicMsgTimestamp=" in orbitmq("store", "dump", root, "--what", "checkpoint").out
    assert orbitmq("store", "dump", root, "--what", "mark").out == "", "RocketMQ writes no recovery mark"


def test_timer_files(orbitmq: Run, golden_store: Golden) -> None:
    root, expected = golden_store("timer-far")
    before = snapshot(root)
    dumped = orbitmq("store", "dump", root, "--what", "timercheck", "-o", "json")
    assert json.loads(dumped.out) == expected["timerCheckpoint"]
    units = [
        json.loads(line) for line in orbitmq("store", "dump", root, "--what", "timerlog", "-o", "json").out.splitlines()
    ]
    assert [unit["kind"] for unit in units].count("unit") == 158
    wheel = orbitmq("store", "dump", root, "--what", "timerwheel", "--count", "3")
    assert (wheel.code, len(wheel.out.splitlines())) == (0, 3)
    facts = json.loads(orbitmq("store", "stat", root, "-o", "json").out)["timers"]
    pending, cancelled = expected["pendingTimers"], expected["cancelledTimers"]
    assert isinstance(pending, list)
    assert isinstance(cancelled, list)
    assert (facts["pending_count"], facts["cancelled_count"]) == (len(pending), len(cancelled))
    assert sum(bucket["count"] for bucket in facts["due"]) + facts["overdue_count"] == len(pending)
    table = orbitmq("store", "stat", root)
    assert "timer_pending_count" in table.out
    assert "due within s" in table.out
    assert orbitmq("store", "check", root).code == 0
    assert snapshot(root) == before


def test_a_damaged_timer_log(orbitmq: Run, golden_store: Golden) -> None:
    root, _ = golden_store("timer-far")
    with (root / "timerlog" / f"{0:020d}").open("r+b") as file:
        file.seek(156 + 40)
        file.write(b"xxxx")
    ran = orbitmq("store", "check", root)
    assert ran.code == 1
    assert "its topic hash is not that of VecT" in ran.err


def test_damage_in_a_dump_is_shown_and_is_exit_code_1(orbitmq: Run, golden_store: Golden) -> None:
    root, _ = golden_store("plain-clean")
    first = min((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[5000] ^= 0xFF
    first.write_bytes(data)
    ran = orbitmq("store", "dump", root)
    assert ran.code == 1
    assert "kind=damage" in ran.out


def test_a_folder_without_a_store(orbitmq: Run, tmp_path: Path) -> None:
    for command in ("check", "stat", "dump"):
        ran = orbitmq("store", command, tmp_path)
        assert ran.code == 1
        assert "holds no commit log" in ran.err
    assert orbitmq("store", "stat", tmp_path / "missing").code == 2


def test_a_file_that_cannot_be_read_is_one_line(orbitmq: Run, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "00000000000000000000").symlink_to("00000000000000000000")
    ran = orbitmq("store", "check", tmp_path)
    assert ran.code == 1
    assert ran.err.startswith("error: [Errno ")
    assert len(ran.err.splitlines()) == 1


def killed_store(root: Path) -> None:
    clock = ManualClock(time.time_ns() // 1_000_000)
    little = LittleStore(root, clock=clock, settings=StoreSettings(), timers=TimerSettings())
    for number in range(3):
        little.send(body=b"%d" % number, after_ms=600_000)
    little.kill()


def test_a_killed_store_is_handed_over(orbitmq: Run, tmp_path: Path) -> None:
    killed_store(tmp_path)
    before = snapshot(tmp_path)
    ran = orbitmq("store", "hand-over", tmp_path, "--dry-run", "-o", "json")
    assert ran.code == 1
    assert json.loads(ran.out) == {"is_exact": False, "was_exact": False, "pending_count": None, "far_count": None}
    assert "hand-over" in orbitmq("store", "check", tmp_path).err
    assert snapshot(tmp_path) == before
    ran = orbitmq("store", "hand-over", tmp_path, "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == {"is_exact": True, "was_exact": False, "pending_count": 3, "far_count": 0}
    ran = orbitmq("store", "hand-over", tmp_path, "--dry-run", "-o", "json")
    assert ran.code == 0
    assert json.loads(ran.out) == {"is_exact": True, "was_exact": True, "pending_count": 3, "far_count": None}
    assert orbitmq("store", "check", tmp_path).err.endswith("sound\n")


def test_a_folder_without_a_store_is_not_handed_over(orbitmq: Run, tmp_path: Path) -> None:
    ran = orbitmq("store", "hand-over", tmp_path)
    assert ran.code == 1
    assert "no commit log" in ran.err
    assert not list(tmp_path.iterdir())


def test_what_is_damaged_is_shown_and_mended_from_nobody_where_no_copy_is_known(orbitmq: Run, tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    places = [little.send(body=b"%03d" % number * 50) for number in range(5)]
    little.close()
    assert orbitmq("store", "mend", tmp_path, "--from", "nowhere").code == 2
    sound = orbitmq("store", "mend", tmp_path, "--from", "127.0.0.1:1", "--dry-run", "-o", "json")
    assert (sound.code, json.loads(sound.out)) == (0, [])
    with min((tmp_path / "commitlog").iterdir()).open("r+b") as file:
        file.seek(places[2].physical_offset + 100)
        file.write(b"x")
    before = snapshot(tmp_path)
    shown = orbitmq("store", "mend", tmp_path, "--from", "127.0.0.1:1", "--dry-run", "-o", "json")
    assert shown.code == 1
    (place,) = json.loads(shown.out)
    assert (place["position"], place["size_bytes"]) == (places[2].physical_offset, places[2].size)
    ran = orbitmq("store", "mend", tmp_path, "--from", "127.0.0.1:1")
    assert ran.code == 1
    assert "never had a slave" in ran.err
    assert snapshot(tmp_path) == before
