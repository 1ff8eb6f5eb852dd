"""A job of Spark that is asked to stop, without Spark: the session and the frame are played."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from orbitmq.spark.pipelines import collecting
from orbitmq.spark.pipelines.collecting import collected
from orbitmq.spark.pipelines.run import StopRequest

WAIT_S = 30.0


class Job:
    """Session and frame in one, asked to stop once it is on. heeds: the interruption that ends the job, counted from one; those before meet
    a job that Spark has not on yet."""

    def __init__(self, *, heeds: int = 1, failure: Exception | None = None) -> None:
        self.heeds = heeds
        self.failure = failure
        self.stop = StopRequest()
        self.interruptions = 0
        self._over = threading.Event()
        self._tag = ""

    def addTag(self, tag: str) -> None:  # Spark's name
        self._tag = tag

    def interruptTag(self, tag: str) -> None:  # Spark's name
        assert tag == self._tag
        self.interruptions += 1
        if self.interruptions >= self.heeds:
            self._over.set()

    def collect(self) -> list[Any]:
        self.stop.request()
        assert self._over.wait(WAIT_S)
        raise self.failure or RuntimeError(
            f"[SPARK_JOB_CANCELLED] Job 0 cancelled part of cancelled job tags {self._tag}"
        )


class Rows:
    """A frame that is collected at once. stop: requested meanwhile."""

    def __init__(self, rows: list[Any], stop: StopRequest | None = None) -> None:
        self._rows, self._stop = rows, stop

    def collect(self) -> list[Any]:
        if self._stop is not None:
            self._stop.request()
        return self._rows


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "PIPELINE_LOOK_MS", 1)


def given_up(job: Job) -> Any:
    """What `collected` says of a job that is asked to stop once it is on."""
    return collected(job, job, "writing", stop=job.stop)  # type: ignore[arg-type]


def test_rows_of_a_job_that_ends() -> None:
    assert collected(Job(), Rows([1, 2]), "writing", stop=StopRequest()) == [1, 2]  # type: ignore[arg-type]


def test_a_stop_request_before_the_job_begins_none() -> None:
    stop = StopRequest()
    stop.request()
    job = Job()
    assert collected(job, job, "writing", stop=stop) is None  # type: ignore[arg-type]
    assert job.interruptions == 0


def test_an_interruption_that_comes_before_spark_has_the_job_is_repeated() -> None:
    job = Job(heeds=3)
    assert given_up(job) is None
    assert job.interruptions >= 3


def test_a_job_that_failed_by_itself_failed_although_it_was_to_stop() -> None:
    with pytest.raises(ValueError, match="disk is full"):
        given_up(Job(failure=ValueError("the disk is full")))


def test_rows_that_come_with_the_stop_request_are_left() -> None:
    stop = StopRequest()
    assert collected(Job(), Rows([1], stop), "writing", stop=stop) is None  # type: ignore[arg-type]


def test_without_a_stop_request_the_job_goes_on() -> None:
    stop = StopRequest()
    assert collected(Job(), Rows([1], stop), "writing") == [1]  # type: ignore[arg-type]
