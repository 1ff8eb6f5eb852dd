"""Bounds of what runs in PySpark: sessions, data sources and pipelines."""

from __future__ import annotations

from typing import Final

JAVA_MIN: Final = 17
"""The oldest Java that Spark 4 starts with."""

JAVA_ANSWER_MS: Final = 30_000
"""Patience with a Java that is asked for its version: it takes 0.1 s, and some seconds on a machine that is starting up."""
