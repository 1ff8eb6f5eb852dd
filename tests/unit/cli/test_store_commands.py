"""store check, stat and dump on stores written by the Java broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from scripted_server import Ran

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
    root, _ = golden_store("plain-crash")
    facts = json.loads(orbitmq("store", "stat", root, "-o", "json").out)
    assert facts["closed_orderly"] is False
    assert facts["commit_log_file_bytes"] == 262_144
    assert facts["queue_count"] == len(facts["queues"]) > 5
    assert facts["bytes_on_disk"] <= facts["bytes"] + 4096 * facts["files"]
    assert orbitmq("store", "stat", root).code == 0


def test_dump(orbitmq: Run, golden_store: Golden) -> None:
    root, expected = golden_store("plain-clean")
    messages = expected["messages"]
    assert isinstance(messages, list)
    lines = orbitmq("store", "dump", root, "-o", "json").out.splitlines()
    assert len(lines) == len(messages)
    some = [json.loads(line) for line in lines[:3]]
    assert orbitmq("store", "dump", root, "--count", 2).out.count("\n") == 2
    later = orbitmq("store", "dump", root, "--from", some[2]["physical_offset"], "--count", 1, "-o", "json")
    assert json.loads(later.out) == some[2]
    topic = some[0]["topic"]
    only = orbitmq("store", "dump", root, "--topic", topic, "--queue", 0, "-o", "json").out.splitlines()
    assert {(json.loads(line)["topic"], json.loads(line)["queue"]) for line in only} == {(topic, 0)}


def test_a_folder_without_a_store(orbitmq: Run, tmp_path: Path) -> None:
    for command in ("stat", "dump"):
        ran = orbitmq("store", command, tmp_path)
        assert ran.code == 1
        assert "holds no commit log" in ran.err
    assert orbitmq("store", "stat", tmp_path / "missing").code == 2
