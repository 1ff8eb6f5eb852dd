"""Synchronous sends beside thousands of active queues: how long a turn of 400 messages waits until it is durable.

A store in this process, without sockets: each turn sends a message to 400 queues, the next turn to the next 400, and waits for its sync.
Beside it another process appends as many bytes to a plain file and syncs it, every few milliseconds, on the same disk: what the
disk makes everybody wait. A figure of the store counts only beside that one.

    python benchmarks/many_queues.py --seconds 60 --queues 6400 --folder /somewhere/on/a/disk
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from orbitmq.clock import SystemClock
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.open_files import BoundedFiles
from orbitmq.store.opening import open_store
from orbitmq.store.settings import FlushDiskType, StoreSettings

TURN_MESSAGES = 400
QUEUES_OF_TOPIC = 4
BODY = b"x" * 100
OPEN_MAX, MAPPED_MAX = 2_000, 500
"""As with a limit of 4,096 descriptors."""

PLAIN_BYTES = 100_000
PLAIN_FILE_BYTES = 1 << 30
PLAIN_PAUSE_S = 0.004


def plain_file(folder: Path, results: Connection) -> None:
    """Append and sync until told to stop, then send back what each sync took, in milliseconds."""
    data = os.urandom(PLAIN_BYTES)
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        os.ftruncate(file.fileno(), PLAIN_FILE_BYTES)
        at = 0
        while not results.poll(PLAIN_PAUSE_S):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), data, at)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - begin) * 1000)
            at = (at + PLAIN_BYTES) % (PLAIN_FILE_BYTES - PLAIN_BYTES)
    results.send(taken)


def store_turns(folder: Path, queues: int, seconds: float) -> list[float]:
    """What each turn took, in milliseconds."""
    calls: queue.Queue[Callable[[], Any]] = queue.Queue()
    clock = SystemClock()
    root = Path(tempfile.mkdtemp(dir=folder, prefix="many-queues-"))
    settings = StoreSettings(flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout_ms=60_000)
    store = open_store(root, settings, BoundedFiles(OsFiles(), OPEN_MAX, MAPPED_MAX), clock, notify=calls.put)
    taken: list[float] = []
    sent, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            told: list[PutStatus] = []
            begin = time.perf_counter()
            for number in range(sent, sent + TURN_MESSAGES):
                topic, queue_id = divmod(number % queues, QUEUES_OF_TOPIC)
                placed = store.append(NewMessage(f"T{topic}", queue_id, BODY, b""))
            sent += TURN_MESSAGES
            store.wait_durable(placed.end_offset, True, told.append)
            store.commit()
            while not told:
                store.run_due(clock.monotonic_ns())
                store.commit()
                try:
                    calls.get(timeout=0.005)()
                except queue.Empty:
                    continue
            if told != [PutStatus.PUT_OK]:
                raise SystemExit(f"a turn ended with {told}: {store.unwritable_reason}")
            taken.append((time.perf_counter() - begin) * 1000)
        store.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return taken


def row(name: str, taken: list[float]) -> str:
    ordered = sorted(taken)
    places = [ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.9, 0.99, 0.999, 1)]
    return f"{name:12}{len(ordered):8}" + "".join(f"{value:10.1f}" for value in places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--queues", type=int, default=6_400)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure; some GB are written")
    options = parser.parse_args()
    mine, theirs = multiprocessing.Pipe()
    plain = multiprocessing.Process(target=plain_file, args=(options.folder, theirs))
    plain.start()
    turns = store_turns(options.folder, options.queues, options.seconds)
    mine.send("stop")
    print(f"{'ms':12}{'count':>8}" + "".join(f"{name:>10}" for name in ("p50", "p90", "p99", "p99.9", "worst")))
    print(row("plain file", mine.recv()))
    print(row("turns", turns))
    plain.join()


if __name__ == "__main__":
    main()
