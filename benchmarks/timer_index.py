"""What the index of pending timers costs, and how fast it answers, beside SQLite with the same orders.

    python benchmarks/timer_index.py --count 1000000 [--keys] [--sqlite]

Timers are made up: twenty topics, due at any millisecond of three days, with a unique key and, with `--keys`, a key of their own.
They go through the index exactly as the timers hand them over, with a save after every 2,000. Printed are processor time and
bytes a message, the longest step that held the loop, memory (RssAnon), pages of 50, the first page when the system has forgotten all
files, and the time to take them up again.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orbitmq.clock import SystemClock
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import OsFiles
from orbitmq.store.queues import ConsumeQueues
from orbitmq.timing.index.counting import Counting
from orbitmq.timing.index.parts import IndexShape, Parts
from orbitmq.timing.index.search import IndexQuery, page
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.facts import TimerFacts
from orbitmq.timing.timers.pending import PendingTimers

DAYS_MS = 3 * 86_400_000
BASE_MS = 1_800_000_000_000
TOPICS = 20
BATCH = 100
SAVE_EVERY = 2_000


class Everything:
    """All of it is pending."""

    def __init__(self) -> None:
        self.pending = PendingTimers()


def made_up(count: int, *, keys: bool) -> Iterator[list[TimerFacts]]:
    rng = random.Random(1)
    for first in range(0, count, BATCH):
        yield [
            TimerFacts(
                queue_offset=number,
                physical_offset=number * 400,
                size=400,
                slot_ms=0,
                deliver_ms=BASE_MS + rng.randrange(DAYS_MS),
                topic=f"topic-{rng.randrange(TOPICS)}",
                unique_key=f"7F0000010001{rng.getrandbits(80):020X}",
                keys=f"order-{rng.randrange(10**9):09d}" if keys else None,
                is_cancel=False,
                cancel_key="",
                source=None,
                store_timestamp=BASE_MS,
            )
            for number in range(first, min(first + BATCH, count))
        ]


def rss_anon_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def new_index(root: Path, timers: Everything) -> TimerIndex:
    """Of a store that never saw a timer."""
    files = OsFiles()
    index = TimerIndex(files, root, SystemClock(), timers)
    log, queues = CommitLog(files, root / "commitlog", 1 << 20), ConsumeQueues(files, root / "consumequeue", 6_000_000)
    index.restore(log, queues)
    index.finish_restore()
    return index


def pages(ask: Callable[[random.Random], object]) -> str:
    rng, times = random.Random(2), []
    for _ in range(100):
        begun = time.perf_counter()
        ask(rng)
        times.append((time.perf_counter() - begun) * 1e3)
    times.sort()
    return f"p50 {times[50]:6.2f} ms   p99 {times[98]:6.2f} ms"


def measure_index(root: Path, count: int, *, keys: bool) -> None:
    timers = Everything()
    index = new_index(root, timers)
    before_mb, cpu, longest, since_save = rss_anon_mb(), 0.0, 0.0, 0
    for batch in made_up(count, keys=keys):
        timers.pending.add_range(batch[0].queue_offset, batch[-1].queue_offset + 1)
        begun_cpu = time.process_time()
        index.taken_in(batch)
        longest = max(longest, time.process_time() - begun_cpu)
        since_save += len(batch)
        if since_save >= SAVE_EVERY:
            since_save = 0
            index.write()
            index.begin_sync()
            index.datasync()
        cpu += time.process_time() - begun_cpu
    begun_cpu = time.process_time()
    index.work_off()
    index.write()
    index.begin_sync()
    index.datasync()
    cpu += time.process_time() - begun_cpu
    size = sum(path.stat().st_size for path in (root / "orbitmq.timerindex").iterdir())
    print(f"index: {cpu / count * 1e6:.2f} us of CPU and {size / count:.1f} bytes a message")
    print(
        f"  longest call {longest * 1e3:.1f} ms of CPU, RssAnon +{rss_anon_mb() - before_mb:.0f} MB, {len(index.parts.runs)} runs"
    )
    topic = "topic-3"
    print("  page by due range        ", pages(lambda rng: index.page(_due(rng, None))))
    print("  page by topic, due range ", pages(lambda rng: index.page(_due(rng, topic))))
    print("  message id               ", pages(lambda rng: index.find_id(topic, f"{rng.random()}")))
    if keys:
        exact = [f"order-{number:09d}" for number in range(100)]
        print("  page by exact key        ", pages(lambda rng: index.page(IndexQuery(topic, key=rng.choice(exact)))))
        print(
            "  page by key prefix       ",
            pages(lambda rng: index.page(IndexQuery(topic, key_prefix=f"order-{rng.randrange(1000):03d}"))),
        )
    index.close()
    forget(root / "orbitmq.timerindex")
    begun = time.perf_counter()
    parts = Parts(OsFiles(), root, IndexShape())
    parts.load()
    print(f"  taking the files up again, from the disk: {(time.perf_counter() - begun) * 1e3:.0f} ms")
    first = [("page by due range", _due(random.Random(3), None))]
    if keys:
        first.append(("page by exact key", IndexQuery(topic, key=exact[0])))
    for what, query in first:
        begun = time.perf_counter()
        page(parts.sources(), timers.pending.is_pending, query)
        print(f"  first {what}, from the disk: {(time.perf_counter() - begun) * 1e3:.1f} ms")
    begun = time.perf_counter()
    counting = Counting(parts, timers.pending.is_pending)
    steps = sum(1 for _ in counting.walk())
    print(f"  counting all of it again: {time.perf_counter() - begun:.2f} s in {steps} steps")


def forget(folder: Path) -> None:
    """Have the system drop what it holds of files that nobody has open."""
    os.sync()
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _due(rng: random.Random, topic: str | None) -> IndexQuery:
    return IndexQuery(topic, from_ms=BASE_MS + rng.randrange(DAYS_MS * 9 // 10))


def measure_sqlite(root: Path, count: int, *, keys: bool) -> None:
    db = sqlite3.connect(root / "index.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("PRAGMA synchronous=OFF")
    db.execute("PRAGMA cache_size=-16000")
    db.execute("CREATE TABLE due(due INT, q INT, PRIMARY KEY(due, q)) WITHOUT ROWID")
    db.execute("CREATE TABLE topic(topic TEXT, due INT, q INT, PRIMARY KEY(topic, due, q)) WITHOUT ROWID")
    db.execute("CREATE TABLE id(hash INT, q INT, PRIMARY KEY(hash, q)) WITHOUT ROWID")
    db.execute("CREATE TABLE key(topic TEXT, key TEXT, q INT, due INT, PRIMARY KEY(topic, key, q)) WITHOUT ROWID")
    cpu = 0.0
    rows: list[TimerFacts] = []
    for batch in made_up(count, keys=keys):
        rows += batch
        if len(rows) >= 65_536 or batch[-1].queue_offset + 1 == count:
            begun = time.process_time()
            db.execute("BEGIN")
            db.executemany("INSERT INTO due VALUES(?,?)", sorted((one.deliver_ms, one.queue_offset) for one in rows))
            db.executemany(
                "INSERT INTO topic VALUES(?,?,?)", sorted((one.topic, one.deliver_ms, one.queue_offset) for one in rows)
            )
            db.executemany(
                "INSERT INTO id VALUES(?,?)", sorted((hash(one.unique_key), one.queue_offset) for one in rows)
            )
            if keys:
                db.executemany(
                    "INSERT INTO key VALUES(?,?,?,?)",
                    sorted((one.topic, one.keys, one.queue_offset, one.deliver_ms) for one in rows),
                )
            db.execute("COMMIT")
            cpu += time.process_time() - begun
            rows = []
    size = (root / "index.db").stat().st_size
    print(f"SQLite: {cpu / count * 1e6:.2f} us of CPU and {size / count:.1f} bytes a message")
    page = "SELECT due, q FROM due WHERE due >= ? ORDER BY due, q LIMIT 50"
    print(
        "  page by due range        ",
        pages(lambda rng: db.execute(page, (BASE_MS + rng.randrange(DAYS_MS * 9 // 10),)).fetchall()),
    )
    db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--keys", action="store_true", help="give every message a key")
    parser.add_argument("--sqlite", action="store_true", help="measure SQLite as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_index(Path(folder), options.count, keys=options.keys)
        if options.sqlite:
            measure_sqlite(Path(folder), options.count, keys=options.keys)


if __name__ == "__main__":
    main()
