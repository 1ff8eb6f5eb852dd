"""A run: its stop request by signals, and its summary as a record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

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


def test_a_signal_waits_for_no_lock_of_who_waits() -> None:
    """It is heard between two instructions of the main thread. With a lock around the wait this program hangs at the first bad moment."""
    program = (
        "import signal, threading, time\n"
        "from orbitmq.spark.pipelines.run import StopRequest\n"
        "stops, main = [StopRequest()], threading.main_thread().ident\n"
        "signal.signal(signal.SIGUSR1, lambda *_: stops[-1].request())\n"
        "def send():\n"
        "    for _ in range(1000):\n"
        "        signal.pthread_kill(main, signal.SIGUSR1)\n"
        "        time.sleep(0.0002)\n"
        "sender = threading.Thread(target=send)\n"
        "sender.start()\n"
        "while sender.is_alive():\n"
        "    stops.append(StopRequest())\n"
        "    while not stops[-1].wait(0) and sender.is_alive():\n"
        "        pass\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_waiting_ends_with_the_request() -> None:
    stop = StopRequest()
    assert not stop.wait(1)
    stop.request()
    assert stop.wait(60_000)
    assert stop.wait(60_000), "it is never taken back"


def test_a_request_ends_the_wait_of_everybody() -> None:
    stop, ended = StopRequest(), list[bool]()
    threads = [threading.Thread(target=lambda: ended.append(stop.wait(60_000))) for _ in range(5)]
    for thread in threads:
        thread.start()
    stop.request()
    for thread in threads:
        thread.join(30)
    assert ended == [True] * 5


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
