"""A run: its stop request by signals, and its summary as a record."""

from __future__ import annotations

import os
import signal

import pytest

from orbitmq.spark.pipelines.run import Silent, StopRequest, Summary
from orbitmq.spark.pipelines.starting import quiet_queries


def test_a_signal_is_a_request_and_the_second_interrupts() -> None:
    stop, told = StopRequest(), list[str]()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stop.on_signals(lambda: told.append("stopping")):  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert told == ["stopping"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_waiting_ends_with_the_request() -> None:
    stop = StopRequest()
    assert not stop.wait(1)
    stop.request()
    assert stop.wait(60_000)


def test_a_summary_is_a_flat_record() -> None:
    record = Summary(
        pipeline="archive", rows_read=3, rows_written=2, rows_quarantined=1, seconds=1.23456, details={"files": 4}
    ).record()
    assert record == {
        "pipeline": "archive", "rows_read": 3, "rows_written": 2, "rows_quarantined": 1, "rows_skipped": 0, "seconds": 1.235,
        "stopped": False, "failed": False, "files": 4,
    }  # fmt: skip


def test_silence() -> None:
    with Silent().stage("archive", 5) as stage:
        stage.advance(5)


def test_errors_of_queries_are_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """As PySpark logs them: its class of loggers has to have made them."""
    from pyspark.logger import PySparkLogger

    quiet_queries()
    PySparkLogger.getLogger("SQLQueryContextLogger").exception("no such column", context={"errorClass": "UNRESOLVED"})
    assert capfd.readouterr() == ("", "")
