"""What the tasks of an archive cost without Spark: a log of one topic, of 50 and of 1,000, beside a bare writer of the same columns.

    python benchmarks/spark/archive_tasks.py [--rows 200000] [--topics 1,50,1000] [--rounds 3] [--folder DIR] [--write-docs]

A log of orders (JSON of 1 KB, six properties, queues in turn) is written once for each number of topics. Then the ways take turns in this
process: `archive_work` over all ranges of the log, and pyarrow alone, which writes the rows of one topic from memory with the same options
to one file. CPU is that of this process, all threads, user and system; the first round warms up. `--rows 870000` makes a log of a GiB.

Rules of this file
1. Both write the same columns and the same rows; both counts are looked at.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq

import rigpath
from orbitmq.columns.message_columns import PropertiesForm, column_types
from orbitmq.limits.spark import ARCHIVE_FILE_ROWS, ARCHIVE_RANGE_BYTES, ARCHIVE_ROW_GROUP_BYTES
from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import BLANK_BYTES_MIN, encode_blank, encode_stored
from orbitmq.spark.log_files.directory import look_at
from orbitmq.spark.log_files.log_options import log_options
from orbitmq.spark.log_files.ranges import cut
from orbitmq.spark.log_files.reading import RowRules, range_batches
from orbitmq.spark.pipelines.archiving.landing import FileForm, _writer_options
from orbitmq.spark.pipelines.archiving.tasks import LogWork, archive_work
from table import verdict, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "spark-benchmark.md"
FILE_BYTES: Final = 1 << 30
BODY_BYTES: Final = 1024
QUEUES: Final = 4
HOST: Final = b"\x7f\0\0\1\0\0\x2a\x9f"
NOTE: Final = "Please leave the parcel with the neighbours on the second floor. "
RATIOS: Final = {50: 0.8, 1000: 0.5}
"""What a row of so many topics may cost: at least this part of the rows of one topic in the same time."""
RATE: Final = 220.0
FILES_PER_GIB: Final = 100


class Run(NamedTuple):
    """k_rows: a CPU-second. files of how many bytes."""

    k_rows: float
    files: int
    size_bytes: int


def order(number: int) -> bytes:
    token = md5(b"%d" % number, usedforsecurity=False).hexdigest()
    fields: dict[str, object] = {
        "order": f"{number:012d}",
        "customer": f"c-{number % 5000:05d}",
        "token": token,
        "amount": number % 100_000 / 100,
        "paid": number % 3 == 0,
        "lines": [{"sku": f"A-{number % 977:04d}", "n": 1 + number % 4, "price": 9.25}],
    }
    room = BODY_BYTES - len(json.dumps(fields)) - len(', "note": ""')
    return json.dumps({**fields, "note": (NOTE * (room // len(NOTE) + 1))[:room]}).encode()


def write_log(root: Path, rows: int, topics: int) -> int:
    """A log of so many messages, sent to the topics in turn; its bytes."""
    (root / "commitlog").mkdir(parents=True)
    offsets: dict[tuple[int, int], int] = {}
    path, at = root / "commitlog" / f"{0:020d}", 0
    file = path.open("wb")
    for number in range(rows):
        topic, queue = number % topics, number // topics % QUEUES
        offset = offsets.get((topic, queue), 0)
        offsets[topic, queue] = offset + 1
        body = order(number)
        properties = encode_properties(
            {
                "KEYS": f"order-{number}",
                "TAGS": f"tag{number % 5}",
                "UNIQ_KEY": f"7F0000010BE018B4AAC2{number:012X}",
                "WAIT": "true",
                "origin": "benchmark",
                "number": str(number),
            }
        )
        stored_ms = 1_700_000_000_000 + number // 20
        record = encode_stored(
            b"orders-%04d" % topic, queue, 0, offset, at, 0, stored_ms, HOST, stored_ms, HOST, 0, 0, body, properties,
            body_crc(body),
        )  # fmt: skip
        room = FILE_BYTES - at % FILE_BYTES
        if len(record) + BLANK_BYTES_MIN > room:
            file.write(encode_blank(room))
            file.truncate(FILE_BYTES)
            file.close()
            at += room
            file = (root / "commitlog" / f"{at:020d}").open("wb")
            record = encode_stored(
                b"orders-%04d" % topic, queue, 0, offset, at, 0, stored_ms, HOST, stored_ms, HOST, 0, 0, body,
                properties, body_crc(body),
            )  # fmt: skip
        file.write(record)
        at += len(record)
    file.truncate(FILE_BYTES)
    file.close()
    return at


class Bench:
    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        names = tuple(column_types(PropertiesForm.MAP))
        self.form = FileForm(columns=names, compression="zstd", rows_per_file=ARCHIVE_FILE_ROWS)

    def works(self, store: Path) -> list[LogWork]:
        options = log_options({"path": str(store), "brokername": "broker-a"})
        rules = RowRules(options=options, names=self.form.columns, properties=PropertiesForm.MAP)
        return [
            LogWork(rules=rules, part=part, name="broker-a")
            for part in cut(look_at(str(store)), None, None, ARCHIVE_RANGE_BYTES)
        ]

    def archive(self, store: Path) -> Run:
        target = self.folder / "archive"
        works = self.works(store)
        began_s = time.process_time()
        done = [archive_work(str(target), self.form, work) for work in works]
        spent_s = time.process_time() - began_s
        files = [file for one in done for file in one.files]
        shutil.rmtree(target)
        return self._run(sum(one.rows for one in done), spent_s, len(files), sum(file.size_bytes for file in files))

    def bare(self, store: Path) -> Run:
        """The floor: the same rows are in memory already, and pyarrow writes them."""
        target = self.folder / "bare.parquet"
        spent_s, rows, size_bytes, files = 0.0, 0, 0, 0
        for work in self.works(store):
            table = pa.Table.from_batches(range_batches(work.part, work.rules))
            groups = max(1, -(-table.nbytes // ARCHIVE_ROW_GROUP_BYTES))
            began_s = time.process_time()
            pq.write_table(
                table, target, row_group_size=-(-table.num_rows // groups), **_writer_options(self.form, table.schema)
            )
            descriptor = os.open(target, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            spent_s += time.process_time() - began_s
            rows, size_bytes, files = rows + table.num_rows, size_bytes + target.stat().st_size, files + 1
        return self._run(rows, spent_s, files, size_bytes)

    def _run(self, rows: int, spent_s: float, files: int, size_bytes: int) -> Run:
        if rows != self.rows:
            raise RuntimeError(f"{rows} rows instead of {self.rows}")
        return Run(rows / spent_s / 1000, files, size_bytes)


def table_of(found: dict[str, list[Run]], topics: list[int], log_bytes: dict[int, int], rows: int) -> str:
    def median(way: str) -> float:
        return statistics.median(run.k_rows for run in found[way])

    def line(title: str, way: str, ratio: str, bound: str) -> str:
        one = found[way][-1]
        return f"| {title} | {median(way):.0f} k rows/CPU-s | {ratio} | {one.files} | {one.size_bytes / rows:.0f} | {bound} |"

    lines = [
        "| work of a task, without Spark | rate | to one topic | files | bytes a row | to reach |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        line(
            "pyarrow writes the same columns from memory (floor)",
            "floor",
            f"{median('floor') / median(str(topics[0])):.2f}",
            "-",
        ),
    ]
    for count in topics:
        ratio = median(str(count)) / median(str(topics[0]))
        per_gib = found[str(count)][-1].files * (1 << 30) / log_bytes[count]
        bounds = [f"<= {FILES_PER_GIB} files a GiB{verdict(per_gib <= FILES_PER_GIB)}"]
        if count in RATIOS:
            bounds.insert(0, f">= {RATIOS[count]}x{verdict(ratio >= RATIOS[count])}")
        if count == 1:
            bounds.insert(0, f">= {RATE:.0f}{verdict(median('1') >= RATE)}")
        lines.append(line(f"archive a log of {count:,} topics", str(count), f"{ratio:.2f}", ", ".join(bounds)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--topics", default="1,50,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write-docs", action="store_true")
    given = parser.parse_args()
    topics = [int(text) for text in given.topics.split(",")]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=given.folder) as text:
        folder = Path(text)
        log_bytes = {count: write_log(folder / str(count), given.rows, count) for count in topics}
        bench = Bench(folder, given.rows)
        ways: dict[str, Callable[[], Run]] = {
            "floor": lambda: bench.bare(folder / str(topics[0])),
            **{str(count): lambda count=count: bench.archive(folder / str(count)) for count in topics},
        }
        found: dict[str, list[Run]] = {way: [] for way in ways}
        for number, way in itertools.product(range(given.rounds + 1), ways):
            run = ways[way]()
            print(
                f"round {number} {way:>5}: {run.k_rows:6.1f} k rows/CPU-s, {run.files} files, {run.size_bytes} bytes",
                flush=True,
            )
            if number:
                found[way].append(run)
    text = "\n".join(
        [
            table_of(found, topics, log_bytes, given.rows),
            "",
            f"CPU of the process that does the work, all threads; {given.rows:,} orders of 1 KB as JSON with six properties, "
            f"{log_bytes[topics[0]] / (1 << 20):.0f} MB of log, all {len(bench.form.columns)} columns, zstd 1; medians of {given.rounds} "
            "rounds in turns.",
            f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores, Python {platform.python_version()}, pyarrow {pa.__version__}; "
            f"load average {load:.2f} before, {os.getloadavg()[0]:.2f} behind.",
            "Made by `benchmarks/spark/archive_tasks.py`.",
        ]
    )  # fmt: skip
    print(text)
    if given.write_docs:
        write_into(DOCUMENT, text, "archive-tasks")


if __name__ == "__main__":
    main()
