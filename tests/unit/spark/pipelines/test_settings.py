"""One declaration of a setting: what command lines, files and callers in Python make of it."""

from __future__ import annotations

import datetime
import inspect
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import pytest

from orbitmq.cli.asking.shared_options import cluster_options, output_options
from orbitmq.cli.pipelines.pipelines import OF_THE_CONTEXT, SPARK
from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.names import PIPELINES, pipeline_named
from orbitmq.spark.pipelines.run import Summary
from orbitmq.spark.pipelines.settings import Setting, TimeKind, from_texts, from_values, pipeline, settings_of

NOW = 1_700_000_000_000


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class PaintSettings:
    to: Annotated[str, Setting("Where.")]
    topic: Annotated[Sequence[str], Setting("Which.")] = ()
    since_ms: Annotated[int | None, Setting("Since when.", kind=TimeKind.INSTANT)] = None
    until_ms: Annotated[int | None, Setting("Until when.", kind=TimeKind.DUE)] = None
    every_ms: Annotated[int, Setting("How often.", kind=TimeKind.SPAN)] = 60_000
    rate: Annotated[float | None, Setting("How fast.", minimum=0.5)] = None
    count: Annotated[int, Setting("How many.", minimum=1, maximum=10)] = 1
    colour: Annotated[Colour, Setting("Of what colour.")] = Colour.RED
    dry: Annotated[bool, Setting("Whether it dries.")] = False
    label: Annotated[Mapping[str, str] | None, Setting("What it says.")] = None


painted: list[tuple[object, PaintSettings, object]] = []


@pipeline(PaintSettings)
def paint(spark: object, *, settings: PaintSettings, run: object = None) -> Summary:
    """Paint."""
    painted.append((spark, settings, run))
    return Summary(rows_read=0, rows_written=0)


PAINT = settings_of(PaintSettings)


def test_words_of_a_command_line() -> None:
    found = from_texts(
        PAINT,
        {
            "to": ["here"],
            "topic": ["a", "b"],
            "since": ["10m"],
            "until": ["10m"],
            "every": ["5s"],
            "rate": ["2.5"],
            "count": ["3"],
            "colour": ["blue"],
            "dry": ["true"],
            "label": ["x=1", "y=a=b"],
        },
        NOW,
    )
    assert found == {
        "to": "here",
        "topic": ("a", "b"),
        "since_ms": NOW - 600_000,
        "until_ms": NOW + 600_000,
        "every_ms": 5_000,
        "rate": 2.5,
        "count": 3,
        "colour": Colour.BLUE,
        "dry": True,
        "label": {"x": "1", "y": "a=b"},
    }


def test_values_of_a_file() -> None:
    found = from_values(
        PAINT,
        {
            "to": "here",
            "topic": "a",
            "since": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC),
            "every": 250,
            "rate": 2,
            "dry": True,
            "label": {"x": "1"},
        },
        NOW,
    )
    assert found["topic"] == ("a",)
    assert found["since_ms"] == NOW
    assert (found["every_ms"], found["rate"], found["dry"], found["label"]) == (250, 2, True, {"x": "1"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--to is missing"),
        ({"to": ["x"], "colur": ["red"]}, r"no option --colur \(did you mean colour\? known are: to, topic, "),
        ({"to": ["x"], "colour": ["green"]}, r"--colour is 'green' \(it is one of red, blue\)"),
        ({"to": ["x"], "count": ["many"]}, "--count 'many' is no whole number"),
        ({"to": ["x"], "count": ["11"]}, "--count is 11; it has to be 1 to 10"),
        ({"to": ["x"], "rate": ["0"]}, "--rate is 0.0; it has to be 0.5 or more"),
        ({"to": ["x", "y"]}, "--to is given 2 times"),
        ({"to": ["x"], "since": ["soon"]}, "--since 'soon' is no instant"),
        ({"to": ["x"], "every": ["5"]}, "--every '5' is no span of time"),
        ({"to": ["x"], "label": ["x"]}, "--label 'x' is not of the form NAME=TEXT"),
        ({"to": ["x"], "dry": ["perhaps"]}, "--dry 'perhaps' is neither true nor false"),
    ],
)
def test_mistakes_on_a_command_line(given: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        from_texts(PAINT, given, NOW)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to": 5}, "to is 5, which is no text"),
        ({"to": "x", "count": True}, "count is True, which is no whole number"),
        ({"to": "x", "topic": {"a": 1}}, "topic is .*, not several values"),
        ({"to": "x", "label": "a"}, "label is 'a', not names with values"),
        ({"to": "x", "dry": "true"}, "dry is 'true', which is no truth value"),
        ({"to": "x", "since_ms": 5}, "no setting since_ms"),
        ({"to": ""}, "to is ''"),
        ({"to": "a\0b"}, "to is 'a"),
        ({"to": "x", "rate": float("nan")}, "rate is nan; it has to be 0.5 or more"),
        ({"to": "x", "every": -5}, "every is .*; it has to be 0ms to 36600d"),
        ({"to": "x", "since": 10**18}, "since is 1000000000000000000; it has to be 0 to"),
    ],
)
def test_mistakes_in_a_file(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        from_values(PAINT, given, NOW)


def test_callers_in_python_give_settings_as_keywords_and_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("orbitmq.spark.pipelines.settings.ready_workers", asked.append)
    summary = paint("here", to="x", topic="orders", colour="blue", rate=None, run="now")
    assert summary.pipeline == "paint"
    assert summary.seconds > 0
    assert painted.pop() == ("here", PaintSettings(to="x", topic=("orders",), colour=Colour.BLUE), "now")
    with pytest.raises(ConfigurationError, match="count is 0; it has to be 1 to 10"):
        paint(None, to="x", count=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colur'"):
        paint(None, to="x", colur="red")
    with pytest.raises(TypeError, match="'to'"):
        paint(None)
    assert painted == []
    assert asked == ["here"], "workers are asked when the settings are good, before the pipeline begins"


def test_help_shows_the_settings() -> None:
    shown = inspect.signature(paint)
    assert list(shown.parameters) == ["spark", *(setting.parameter for setting in PAINT), "run"]
    assert shown.parameters["count"].default == 1
    assert inspect.getdoc(paint) == "Paint."


def test_a_field_without_a_word_is_refused() -> None:
    @dataclass
    class Silent:
        to: str

    with pytest.raises(TypeError, match=r"Silent: to is not Annotated"):
        settings_of(Silent)


@pytest.mark.parametrize("name", PIPELINES)
def test_no_setting_takes_the_name_of_another_option(name: str) -> None:
    shared = (*cluster_options(), *output_options())
    taken = {word for option in shared for word in (*option.opts, *option.secondary_opts)}
    taken |= {f"--{word}" for word in SPARK}
    settings = settings_of(pipeline_named(name).settings_type)
    assert {f"--{setting.name}" for setting in settings} & taken <= {f"--{word}" for word in OF_THE_CONTEXT}
    assert len({setting.name for setting in settings}) == len(settings)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_module_of_a_pipeline_does_not_hide_its_function(name: str) -> None:
    assert PIPELINES[name].removeprefix("orbitmq.spark.pipelines.").split(".")[0] != name


def test_settings_are_known_without_spark() -> None:
    program = (
        "import sys; from orbitmq.spark.pipelines.names import PIPELINES, pipeline_named\n"
        "from orbitmq.spark.pipelines.settings import settings_of\n"
        "for name in PIPELINES: settings_of(pipeline_named(name).settings_type)\n"
        "assert 'pyspark' not in sys.modules, 'pyspark'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_pipeline_is_a_public_name_that_is_there() -> None:
    from orbitmq.spark import pipelines

    assert {name.replace("-", "_") for name in PIPELINES} < set(pipelines.__all__)
    assert all(getattr(pipelines, name) is not None for name in pipelines.__all__)
    with pytest.raises(AttributeError, match="no attribute 'compact'"):
        _ = pipelines.compact  # type: ignore[attr-defined]
