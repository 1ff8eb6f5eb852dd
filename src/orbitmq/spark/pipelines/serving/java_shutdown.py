"""A stop that comes to the Java above this process: spark-submit's own process is that Java, and it passes no signal on.

Java ends at SIGTERM after its shutdown hooks, of which one of Spark's stops the session under batches that are not done. A hook that comes
before it requests the stop of the service and waits for its end.

Rules of this file
1. The wait has a bound, which is Java's: a Python that is gone or hangs keeps nobody waiting for longer.
2. Nothing is left behind: the hook goes with the service, unless Java is ending already, is gone or does not answer.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from orbitmq.limits.spark import SERVICE_SESSION_END_MS
from orbitmq.spark.pipelines.run import StopRequest
from orbitmq.spark.workers import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("orbitmq.service")

_PRIORITY: Final = 1_000
"""Among Hadoop's shutdown hooks, of which the highest runs first; Spark's has 40."""


class _Hook:
    """A `java.lang.Runnable`."""

    def __init__(self, stop: StopRequest, ended: threading.Event, within_ms: int) -> None:
        self._stop, self._ended, self._within_ms = stop, ended, within_ms

    def run(self) -> None:
        self._stop.request()
        self._ended.wait(self._within_ms / 1000)

    class Java:
        implements: Final = ["java.lang.Runnable"]


@contextmanager
def stopped_with_java(spark: SparkSession, stop: StopRequest, within_ms: int) -> Iterator[None]:
    """Where spark-submit's Java is above this process, its end requests `stop` and waits for the end of this context, for `within_ms`."""
    if is_remote(spark) or "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield
        return
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    java = gateway.jvm
    ended = threading.Event()
    hook = java.java.lang.Thread(
        _Hook(stop, ended, within_ms)
    )  # run by the manager, never started: it can be named again
    manager = java.org.apache.hadoop.util.ShutdownHookManager.get()
    manager.addShutdownHook(hook, _PRIORITY, within_ms, java.java.util.concurrent.TimeUnit.MILLISECONDS)
    try:
        yield
    finally:
        ended.set()
        removal = threading.Thread(target=_remove, args=(manager, hook), name="end of a hook", daemon=True)
        removal.start()
        removal.join(SERVICE_SESSION_END_MS / 1000)


def _remove(manager: Any, hook: Any) -> None:
    try:
        if not manager.isShutdownInProgress():
            manager.removeShutdownHook(hook)
    except Exception as error:  # Java is gone
        logger.debug("the shutdown hook was not removed: %s", type(error).__name__)
