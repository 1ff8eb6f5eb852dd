"""Files of pipelines: what they say, and what is wrong with them, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.pipeline_file import Step, read_file, run_steps
from orbitmq.spark.pipelines.run import ALONE, Run, StopRequest, Summary

GOOD = """
[spark]
master = "local[4]"
driver.memory = "4g"
"spark.sql.shuffle.partitions" = 2

[defaults]
name-server = "localhost:9876"

[[step]]
pipeline = "archive"
to = "/data/archive"
topic = ["orders", "payments"]
every = "5s"

[[step]]
pipeline = "archive"
to = "/data/logs"
store = "/data/store"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "nightly.toml"
    path.write_text(text)
    return path


def test_what_a_file_says(tmp_path: Path) -> None:
    said = read_file(written(tmp_path, GOOD))
    assert (said.master, said.remote) == ("local[4]", None)
    assert said.conf == {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": 2}
    first, second = said.steps
    assert (first.pipeline, first.arguments) == (
        "archive",
        {"name_server": "localhost:9876", "to": "/data/archive", "topic": ("orders", "payments"), "every_ms": 5_000},
    )
    assert second.arguments == {"to": "/data/logs", "store": ("/data/store",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sparks]\n", r"there is no part 'sparks' \(the parts are spark, defaults, step\)"),
        ("", "has no step"),
        ("step = 3\n", "has no step"),
        ("a b", "is no TOML"),
        ("[[step]]\n", "step 1: it does not say which pipeline it is"),
        ('[[step]]\npipeline = "archiv"\n', r"step 1: there is no pipeline 'archiv' \(the pipelines are archive"),
        ('[[step]]\npipeline = "archive"\n', "step 1: to is missing"),
        ('[[step]]\npipeline = "archive"\nto = "x"\ntopics = []\n', r"no setting topics \(did you mean topic\?"),
        ('[defaults]\ncolour = 1\n[[step]]\npipeline = "archive"\nto = "x"\n', "no step has the setting colour"),
        ('[spark]\nmaster = 4\n[[step]]\npipeline = "archive"\nto = "x"\n', "master under .spark. is 4, not a text"),
        ('[spark]\njars = []\n[[step]]\npipeline = "archive"\nto = "x"\n', "jars under .spark. is .., not one value"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_file(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.toml cannot be read: No such file"):
        read_file(tmp_path / "nothing.toml")


def test_a_step_that_failed_or_was_stopped_is_the_last() -> None:
    ran: list[str] = []
    stop = StopRequest()

    def step(name: str, *, failed: bool = False, stops: bool = False) -> Step:
        def function(spark: object, *, run: Run) -> Summary:
            ran.append(name)
            if stops:
                stop.request()
            return Summary(pipeline=name, rows_read=0, rows_written=0, seconds=0, failed=failed)

        return Step(name, function, {})

    spark: object = None
    list(run_steps(spark, (step("a"), step("b", failed=True), step("c")), ALONE))  # type: ignore[arg-type]
    list(run_steps(spark, (step("d", stops=True), step("e")), Run(stop=stop)))  # type: ignore[arg-type]
    assert ran == ["a", "b", "d"]
