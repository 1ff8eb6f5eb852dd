"""Spark's texts about workers, as PySpark 4.3 gives them."""

from __future__ import annotations

import pytest

from orbitmq.errors import SparkWorkerError
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.worker_failures import worker_problem

STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory\n\tat java.base',
            "the worker on 10.0.0.7 cannot run /opt/python: No such file or directory",
        ),
        (
            "org.apache.spark.api.python.PythonException: Traceback\npyspark.errors.exceptions.base.PySparkRuntimeError: "
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot",
            "the worker on 10.0.0.7 runs /its/path, which is Python 3.12; the driver runs Python 3.11",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /its/path: No module named pyspark\nPYTHONPATH was:",
            "which does not start: /its/path: No module named pyspark",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'\n", "which lacks a package: No module named 'pyarrow'"),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache",
            "the worker on 10.0.0.7 did not start /its/path in the ten seconds that Spark allows",
        ),
        ("Traceback\norbitmq.errors.SparkWorkerError: the worker on a runs b\n\n\tat", "the worker on a runs b"),
    ],
)
def test_what_a_worker_lacks_is_read_from_the_text(text: str, said: str) -> None:
    assert said in (worker_problem(STAGE + text, "/its/path") or "")


def test_what_somebody_s_own_function_lacks_is_no_matter_of_the_worker_s_python() -> None:
    assert worker_problem(STAGE + "ModuleNotFoundError: No module named 'shapely'") is None


def test_a_path_that_only_the_planning_lacks_is_this_machine_s() -> None:
    text = 'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory'
    assert (worker_problem(text) or "").startswith(
        "this machine, where Spark plans, cannot run ./environment/bin/python"
    )


def test_a_job_that_fails_by_a_worker_s_python_is_a_worker_error() -> None:
    from pyspark.errors import PySparkException

    with (
        pytest.raises(SparkWorkerError, match=r"the job failed: the worker on 10\.0\.0\.7 cannot run /p"),
        job_errors("the job"),
    ):
        raise PySparkException(STAGE + 'Cannot run program "/p": error=13, Permission denied')
