#!/usr/bin/env python3
"""What a backup of a large store costs: the first, the next, a look, a restore, and `cp -a` of the same files beside them.

    benchmarks/backups.py --gib 10 [--directory /var/tmp]

Needs room for three times as much. Rows: wall seconds, CPU seconds, memory of the command, bytes it says it copied.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import rigpath  # noqa: F401 - tests.worlds is found by it

BODY_BYTES: Final = 16 * 1024
RECORD_BYTES: Final = BODY_BYTES + 120
RANDOM_BYTES: Final = 64 << 20


def make_store(root: Path, size_bytes: int) -> None:
    """A store of messages that no file system makes smaller, closed in order; its files have the sizes of a broker's."""
    import msgspec
    from tests.worlds.little_store import SMALL, LittleStore

    sizes = msgspec.structs.replace(
        SMALL,
        mapped_file_size_commit_log=1 << 30,
        mapped_file_size_consume_queue=6_000_000,
        max_message_size=4 << 20,
        max_hash_slot_num=5_000_000,
        max_index_num=20_000_000,
    )
    little = LittleStore(root, settings=sizes)
    noise = os.urandom(RANDOM_BYTES)
    for number in range(size_bytes // RECORD_BYTES):
        at = number * 65_537 % (RANDOM_BYTES - BODY_BYTES)
        little.append(body=noise[at : at + BODY_BYTES], UNIQ_KEY=f"{number:032X}", KEYS=f"key-{number}")
        if number % 2_000 == 0:
            little.store.commit()
        if number % 20_000 == 0:
            little.advance(300)
    little.store.commit()
    little.advance(1_000)
    little.close()
    (root / "orbitmq.id").write_text("0123456789abcdef" * 2)


def measured(name: str, command: Sequence[object]) -> None:
    began = monotonic()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    facts: dict[str, Any] = json.loads(said) if said.startswith(b"{") else {}
    copied = facts.get("copied_bytes")
    show(name, monotonic() - began, used, "" if copied is None else f"{copied >> 20} MiB")
    assert os.waitstatus_to_exitcode(status) == 0, said


def show(name: str, wall_s: float, used: resource.struct_rusage, copied: str) -> None:
    cpu_s = used.ru_utime + used.ru_stime
    print(f"| {name} | {wall_s:.1f} | {cpu_s:.1f} | {used.ru_maxrss >> 10} MiB | {copied} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a backup of a large store costs.")
    parser.add_argument("--gib", type=float, default=10.0)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--make", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (
        options.make is not None
    ):  # in a process of its own: what a command is said to take in memory begins with what this one has
        make_store(options.make, int(options.gib * (1 << 30)))
        return
    place = Path(tempfile.mkdtemp(prefix="orbitmq-backups-", dir=options.directory))
    try:
        store, backup, copy, restored = (place / name for name in ("store", "backup", "copy", "restored"))
        subprocess.run([sys.executable, __file__, "--make", store, "--gib", str(options.gib)], check=True)
        os.sync()
        orbitmq = (sys.executable, "-m", "orbitmq", "store")
        words = ("-o", "json")
        print(f"{options.gib} GiB; load {os.getloadavg()[0]:.1f}")
        print("| command | wall s | CPU s | memory | copied |\n| --- | ---: | ---: | ---: | ---: |")
        measured("cp -a, then sync", ("sh", "-c", f"cp -a --sparse=always '{store}' '{copy}' && sync"))
        shutil.rmtree(copy)
        measured("store backup --no-check, the first", (*orbitmq, "backup", store, backup, "--no-check", *words))
        measured("store backup --no-check, nothing new", (*orbitmq, "backup", store, backup, "--no-check", *words))
        measured("store backup, nothing new", (*orbitmq, "backup", store, backup, *words))
        measured("store verify", (*orbitmq, "verify", backup, *words))
        measured("store restore", (*orbitmq, "restore", backup, restored, *words))
        shutil.rmtree(store)
        measured(
            "store backup --no-check of what was restored", (*orbitmq, "backup", restored, backup, "--no-check", *words)
        )
        print(f"load {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
