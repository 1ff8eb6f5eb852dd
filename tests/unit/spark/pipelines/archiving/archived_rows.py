"""Batches of one queue for archives under test, as a run would commit them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.columns.schema import arrow_schema
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, LandedFile, commit
from orbitmq.spark.pipelines.archiving.landing import FileForm, Landing
from orbitmq.spark.pipelines.archiving.reached import quarantine_application, queue_application
from orbitmq.spark.pipelines.archiving.table import ArchiveForm, SourceKind, begun, kinds_of

NAMES = ("topic", "body", "properties", "brokerName", "queueId", "queueOffset", "storeTimestamp", "keys")
COLUMNS = arrow_schema(NAMES, PropertiesForm.MAP)
QUEUE = MessageQueue("orders", "broker-a", 0)
TOKENS = iter(range(10**9))


def key_of(number: int) -> str | None:
    return None if number % 5 == 0 else f"k{number} all-{number % 2}"


def add(
    root: Path,
    offsets: range,
    end: int | None = None,
    broken: tuple[int, ...] = (),
    key_of: Callable[[int], str | None] = key_of,
) -> None:
    """Rows of a queue as one batch, and lines of the quarantine."""
    table, snapshot = begun(str(root), ArchiveForm(source=SourceKind.TOPICS), COLUMNS)
    token = f"t{next(TOKENS)}"
    landing = Landing(place_at(str(root)), token, FileForm(columns=NAMES, compression="zstd", rows_per_file=1_000_000))
    rows = [
        {
            "topic": "orders", "body": b"row %d" % n, "properties": [("n", str(n))], "brokerName": "broker-a", "queueId": 0,
            "queueOffset": n, "storeTimestamp": 1_700_000_000_000_000 + n, "keys": key_of(n),
        }
        for n in offsets
    ]  # fmt: skip
    landing.add(pa.RecordBatch.from_pylist(rows, COLUMNS))
    files = landing.close()
    name = queue_application(QUEUE)
    begins, ends = {name: snapshot.applications.get(name)}, {name: end or offsets.stop}
    if broken:
        path = f"_quarantine/{token}.jsonl"
        (root / "_quarantine").mkdir(exist_ok=True)
        lines = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0, "queueOffset": n} for n in broken]
        (root / path).write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(LandedFile(path=path, rows=len(broken), size_bytes=(root / path).stat().st_size))
        begins[quarantine_application(path)], ends[quarantine_application(path)] = None, len(broken)
    batch = ArchiveBatch(token=token, files=files, begins=begins, ends=ends, columns=kinds_of(COLUMNS))
    commit(table, snapshot, batch)
