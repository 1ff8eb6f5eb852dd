"""Patience with machines that are busy, and with nothing else; no Spark runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; it comes with the extra 'spark'")

from examples.order_timeout_spark.running import SLOW_START_TRIES, Streams, Watch, patiently
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException

SLOW = "Python worker failed to connect back."
"""The words of Spark 4.3."""


class Writer:
    """Starts queries that end with the given errors, one after the other, and then one that runs."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.started = 0
        self.stopped = 0

    def start(self) -> Any:
        self.started += 1
        ended = bool(self.errors)
        error = self.errors.pop(0) if ended else None

        def stop() -> None:
            self.stopped += 1

        return SimpleNamespace(isActive=not ended, exception=lambda: error, stop=stop)


def test_a_job_whose_python_starts_too_slowly_is_run_again_and_says_so() -> None:
    errors: list[Exception] = [PySparkException(SLOW), PySparkException(SLOW)]
    told: list[str] = []

    def job() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert patiently(job, told.append) == "done"
    assert told[1] == "the machine is busy: a Python process needed more than ten seconds to start, try 3"


def test_retrying_ends() -> None:
    tries = []

    def job() -> None:
        tries.append(1)
        raise PySparkException(SLOW)

    with pytest.raises(PySparkException, match="failed to connect back"):
        patiently(job, lambda _text: None)
    assert len(tries) == SLOW_START_TRIES


def test_any_other_failure_of_a_job_is_one_at_once() -> None:
    tries = []

    def job() -> None:
        tries.append(1)
        raise PySparkException("no such column")

    with pytest.raises(PySparkException, match="no such column"):
        patiently(job, lambda _text: None)
    assert len(tries) == 1


def test_a_stream_that_starts_too_slowly_is_started_again() -> None:
    writer, told = Writer(StreamingQueryException(SLOW)), list[str]()
    with Streams(told.append) as streams:
        streams.start("totals", cast(Any, writer))
        streams.check()
        streams.check()
    assert (writer.started, writer.stopped) == (2, 1)
    assert told == ["the machine is busy: the stream 'totals' needed more than ten seconds to start, try 2"]


def test_a_stream_that_never_starts_in_time_fails_in_the_end() -> None:
    writer = Writer(*[StreamingQueryException(SLOW)] * SLOW_START_TRIES)
    with Streams(lambda _text: None) as streams:
        streams.start("totals", cast(Any, writer))
        for _try in range(SLOW_START_TRIES - 1):
            streams.check()
        with pytest.raises(StreamingQueryException):
            streams.check()


@pytest.mark.parametrize("error", [StreamingQueryException("broker away"), None])
def test_a_stream_that_ends_otherwise_ends_the_story(error: Exception | None) -> None:
    writer = Writer(error)
    with Streams(lambda _text: None) as streams:
        streams.start("totals", cast(Any, writer))
        with pytest.raises((StreamingQueryException, RuntimeError), match=r"broker away|'totals' ended by itself"):
            streams.check()


def progress(name: str, rows: int, watermark: str | None, dropped: int = 0) -> Any:
    return SimpleNamespace(
        progress=SimpleNamespace(
            name=name,
            id="1",
            numInputRows=rows,
            batchDuration=500,
            eventTime={} if watermark is None else {"watermark": watermark},
            stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=dropped)],
        )
    )


def test_what_streams_have_done_is_summed_by_their_names() -> None:
    watch = Watch()
    assert (watch.rows("decisions"), watch.watermark_ms("decisions"), watch.batch_ms("decisions")) == (0, 0, 0)
    watch.onQueryProgress(progress("decisions", 10, "2026-11-22T03:00:01.250Z"))
    watch.onQueryProgress(progress("decisions", 5, "2026-11-22T03:00:02.000Z", dropped=2))
    watch.onQueryProgress(progress("totals", 3, None))
    assert (watch.rows("decisions"), watch.rows("totals")) == (15, 3)
    assert (watch.batches("decisions"), watch.batch_ms("decisions")) == (2, 500)
    assert watch.dropped("decisions") == 2
    assert watch.watermark_ms("decisions") == 1_795_316_402_000
