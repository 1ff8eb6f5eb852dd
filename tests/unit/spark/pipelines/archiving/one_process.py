"""A session of Spark that does the tasks of an archive where it is called; nothing of Spark is started."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa


class OneProcess:
    """What `archive` asks of a session."""

    sparkContext = SimpleNamespace(master="local[1]", pythonExec=sys.executable)

    def range(self, first: int, end: int, step: int, partitions: int) -> Any:
        numbers = [pa.record_batch({"id": [number]}) for number in range(first, end, step)]

        def done(tasks: Any, schema: str) -> Any:
            rows = [row for batch in tasks(iter(numbers)) for row in batch.to_pylist()]
            return SimpleNamespace(collect=lambda: rows)

        return SimpleNamespace(mapInArrow=done)
