"""Files that a job loads into a far tier, for tests: messages of a body, a due time and a unique key each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pyarrow as pa

from orbitmq.spark.pipelines.scheduling.tier_rows import MESSAGE_SCHEMA, Host, loaded_bytes, loaded_table
from orbitmq.store.message import LOCAL_HOST
from orbitmq.timing.far.loads import LOADS, WrittenFile, stem_of

HOST = Host(LOCAL_HOST, b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02", 1_000)
ATTEMPT = "0123456789abcdef"


def table_of(rows: Sequence[tuple[int, str]], *, topic: str = "Topic") -> pa.Table:
    """Rows of a file: due time and unique key of each, which is its body as well, and its key with a `k` before it."""
    messages = [
        {
            "deliverTimestamp": due_ms, "topic": topic, "queueId": 1, "body": name.encode(), "tags": None, "keys": f"k{name}",
            "shardingKey": None, "msgId": name, "properties": [], "flag": 0, "bornTimestamp": 1_700_000_000_000,
        }
        for due_ms, name in rows
    ]  # fmt: skip
    return loaded_table(pa.Table.from_pylist(messages, schema=MESSAGE_SCHEMA), HOST, 1_700_000_000_000)


def write_file(
    tier: Path,
    rows: Sequence[tuple[int, str]],
    *,
    job: str = "job",
    attempt: str = ATTEMPT,
    part: int = 0,
    topic: str = "Topic",
) -> WrittenFile:
    """A file of a job in the tier's directory."""
    name = f"{LOADS}/{stem_of(job, attempt)}-{part:05d}-0.parquet"
    content = loaded_bytes(table_of(rows, topic=topic)).to_pybytes()
    path = tier / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return WrittenFile(name, len(content), crc32(content), len(rows))
