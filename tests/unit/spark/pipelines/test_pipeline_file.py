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


STEP = '[[step]]\npipeline = "archive"\nto = "/x"\nstore = "/s"\n'


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
        ("step = 3\n", r"line 1: step is no list of tables \(begin each one with \[\[step\]\]"),
        ("a b", r"is no TOML: .*at line 1, column 3"),
        ("[[step]]\n", "step 1: it does not say which pipeline it is"),
        ('[[step]]\npipeline = "archiv"\n', r"step 1: there is no pipeline 'archiv' \(the pipelines are archive"),
        ('[[step]]\npipeline = "archive"\n', "step 1: to is missing"),
        ('[[step]]\npipeline = "archive"\nto = "x"\ntopics = []\n', r"no setting topics \(did you mean topic\?"),
        (f"[defaults]\ncolour = 1\n{STEP}", "line 2: no step has the setting colour"),
        (f"[spark]\nmaster = 4\n{STEP}", "line 2: master under .spark. is 4, not a text"),
        (f"[spark]\njars = []\n{STEP}", "line 2: jars under .spark. is .., not one value"),
        (f"[spark]\nmaster = 'a'\nremote = 'b'\n{STEP}", "line 1: .spark. has a master and is remote"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_file(written(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rows-per-file = 1.5", "line 5: step 1: rows-per-file is 1.5, which is no whole number"),
        ("rows-per-file = [1]", r"line 5: step 1: rows-per-file is \[1\], which is no whole number"),
        ("follow = 1", "line 5: step 1: follow is 1, which is no truth value"),
        ("topic = [{ a = 1 }]", "line 5: step 1: topic is {'a': 1}, which is no text"),
        ("every = 10:00:00", "line 5: step 1: every is .*, which is no whole number"),
        ("every = 2026-01-01", "line 5: step 1: every '2026-01-01' is no span of time"),
        ("since = 0001-01-01T00:00:00", "line 5: step 1: since '0001-01-01T00:00:00' is no instant"),
        ("since = 0001-01-01T00:00:00+14:00", "line 5: step 1: since is -[0-9]+; it has to be 0 to"),
        (f"since = '{'9' * 5_000}'", "line 5: step 1: since '9+' is no instant"),
        (f"rows-per-file = 0x{'f' * 16}", "line 5: rows-per-file has a number of more than 64 bits"),
        (f"rows-per-file = 0x{'f' * 8_000}", "line 5: rows-per-file has a number of more than 64 bits"),
        (f"rows-per-file = {'9' * 5_000}", "it has a number of thousands of digits"),
        (f"topic{'.a' * 3_000} = 1", "line 1: topic is nested too deeply"),
        (f"topic = {'[' * 20_000}{']' * 20_000}", "nested too deeply"),
        ("name-server = 'ns:1'", "line 1: step 1: name-server and store are given together"),
    ],
)
def test_values_of_a_wrong_kind_are_told_with_their_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"nightly\.toml.*{said}"):
        read_file(written(tmp_path, f"{STEP}{line}\n"))


def test_a_mistake_of_a_default_is_told_with_the_line_of_the_default(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="line 2: step 1: rows-per-file is 0; it has to be"):
        read_file(written(tmp_path, f"[defaults]\nrows-per-file = 0\n{STEP}"))


def test_settings_that_do_not_go_together_are_told_before_the_first_step_begins(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="line 5: step 2: there is nothing to archive from"):
        read_file(written(tmp_path, STEP + '[[step]]\npipeline = "archive"\nto = "/x"\n'))


def test_dates_of_toml_are_instants(tmp_path: Path) -> None:
    [first] = read_file(written(tmp_path, f"{STEP}since = 2026-01-01T00:00:00Z\n")).steps
    assert first.arguments["since_ms"] == 1_767_225_600_000
    [day] = read_file(written(tmp_path, f"{STEP}since = 2026-01-01\n")).steps
    assert abs(day.arguments["since_ms"] - first.arguments["since_ms"]) <= 14 * 3_600_000, "a day of this machine"


def test_what_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_bytes(b"[spark]\nmaster = 'local'\n# \xff\n")
    with pytest.raises(ConfigurationError, match=r"nightly\.toml, line 3: it is no TOML, which is UTF-8"):
        read_file(path)


@pytest.mark.parametrize(("name", "said"), [("", "cannot be read: Is a directory"), ("a\0b", "cannot be read")])
def test_what_is_no_file(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_file(tmp_path / name)


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
