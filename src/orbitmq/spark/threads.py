"""Writes from any thread of a program.

When Spark writes, it looks a format that is written in Python up in the active session of the *calling* thread, and a thread that neither
started the session nor was started by Spark has none: `format("orbitmq")` is not found then, as if it were not installed. Reads are not
concerned.

Rules of this file
1. What a thread writes is written by the session that the frame belongs to, never by another one that the thread has used before.
2. Spark Connect has no such threads, and is left alone.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession

_MARK: Final = "_orbitmq_names_its_session"


def write_from_any_thread(spark: SparkSession) -> None:
    """Have this thread write by this session, and from now on each thread by that of the frame it writes.

    Wraps `DataFrameWriter.save`, once for a process; costs a write a millisecond.
    """
    from pyspark.sql import DataFrameWriter

    _make_active(spark)
    saves = DataFrameWriter.save
    if hasattr(saves, _MARK):
        return

    @functools.wraps(saves)
    def save(self: DataFrameWriter, *words: Any, **options: Any) -> None:
        _make_active(self._spark)
        saves(self, *words, **options)

    setattr(save, _MARK, True)
    DataFrameWriter.save = save  # type: ignore[method-assign]


def _make_active(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
