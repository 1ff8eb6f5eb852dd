"""orbitmq in PySpark: a session that needs no set-up, and the data sources `orbitmq` and `orbitmq-log`.

    spark = orbitmq.spark.session()
    orders = spark.read.format("orbitmq").option("nameServer", "localhost:9876").option("topic", "orders").load()
    archived = orbitmq.spark.archive("/data/archive")

The formats need no registration: Spark finds them by the packages `pyspark_orbitmq` and `pyspark_orbitmq_log`.

Rules of this package
1. Importing it, or a data source, costs next to nothing: numpy, pyarrow and the client are imported where they are used.
2. Nothing touches the JVM or a SparkContext, so that all of it works through Spark Connect as well.
3. Readers, writers and partitions travel between processes: they hold values, never a connection.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.spark.archives import archive
    from orbitmq.spark.spark_session import session
    from orbitmq.spark.stream_lag import lag, lag_metrics
    from orbitmq.spark.typed.frames import decoded

__all__ = ["archive", "decoded", "lag", "lag_metrics", "session"]

_MODULES = {
    "archive": "orbitmq.spark.archives",
    "decoded": "orbitmq.spark.typed.frames",
    "lag": "orbitmq.spark.stream_lag",
    "lag_metrics": "orbitmq.spark.stream_lag",
    "session": "orbitmq.spark.spark_session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return found
