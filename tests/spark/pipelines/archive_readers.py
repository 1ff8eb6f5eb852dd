"""An archive as readers without Spark see it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
from deltalake import DeltaTable


def rows(archive: Path, columns: str) -> list[tuple[object, ...]]:
    """By DuckDB over the table, in any order."""
    archived = DeltaTable(archive).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    return duckdb.sql(f"select {columns} from archived").fetchall()


def places(archive: Path) -> Counter[tuple[object, ...]]:
    """Topic, queue, offset and body of every row, and how often each is there."""
    return Counter(
        (topic, queue_id, offset, body)
        for topic, queue_id, offset, body in rows(archive, "topic, queueId, queueOffset, body")
    )


def files(archive: Path) -> list[str]:
    """Those of the table."""
    return sorted(str(Path(uri).relative_to(archive)) for uri in DeltaTable(archive).file_uris())


def leftovers(archive: Path) -> list[str]:
    """Files of attempts that were not committed."""
    found = {str(path.relative_to(archive)) for path in archive.rglob("*.parquet") if "_delta_log" not in path.parts}
    return sorted(found - set(files(archive)))
