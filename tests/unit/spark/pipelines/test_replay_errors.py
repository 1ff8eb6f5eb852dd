"""What is told of a failed job: the words of our error, wherever they stand in Spark's."""

from __future__ import annotations

from orbitmq.errors import ConnectionLostError, MessageIllegalError, SendFailedError, SparkJobError
from orbitmq.spark.pipelines.failed_jobs import reason_of, was_caused_by

TASKS = """[STREAM_FAILED] Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "task_writer.py", line 110, in write
orbitmq.errors.ConnectionLostError: no connection (try again)

The above exception was the direct cause of the following exception:

orbitmq.errors.SendFailedError: writing partition 0 to topic 'orders' failed (look at that broker)

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_our_words_are_taken_out_of_the_stacks() -> None:
    assert reason_of(TASKS) == "writing partition 0 to topic 'orders' failed (look at that broker)"


def test_an_error_of_spark_is_its_first_line() -> None:
    assert (
        reason_of("\n[PATH_NOT_FOUND] Path does not exist: /x\nJVM stacktrace:")
        == "[PATH_NOT_FOUND] Path does not exist: /x"
    )
    assert reason_of("  \n") == "no reason was given"


def test_what_kind_of_error_it_was() -> None:
    failed = SparkJobError("slice 3 failed")
    failed.__cause__ = RuntimeError(TASKS)
    assert was_caused_by(failed, SendFailedError)
    assert was_caused_by(failed, ConnectionLostError)
    assert not was_caused_by(failed, MessageIllegalError)
    assert not was_caused_by(SparkJobError("of its own"), SendFailedError)
