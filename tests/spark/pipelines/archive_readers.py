"""An archive as readers without Spark see it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb


def rows(archive: Path, columns: str) -> list[tuple[object, ...]]:
    """By DuckDB, in any order, with the careless pattern that looks into every directory."""
    pattern = f"{archive}/**/*.parquet"
    query = f"select {columns} from read_parquet(?, hive_partitioning = true, hive_types = {{'topic': varchar, 'day': varchar}})"
    return duckdb.execute(query, [pattern]).fetchall()


def places(archive: Path) -> Counter[tuple[object, ...]]:
    """Topic, queue, offset and body of every row, and how often each is there."""
    return Counter(
        (topic, queue_id, offset, body)
        for topic, queue_id, offset, body in rows(archive, "topic, queueId, queueOffset, body")
    )


def files(archive: Path) -> list[str]:
    return sorted(str(path.relative_to(archive)) for path in archive.rglob("*.parquet"))


def leftovers(archive: Path) -> list[str]:
    """Files that are neither committed nor the archive's own."""
    own = {"_archive/state.json", "_archive/lock"}
    found = (str(path.relative_to(archive)) for path in archive.rglob("*") if path.is_file())
    return [name for name in found if name not in own and not name.endswith((".parquet", ".jsonl"))]
